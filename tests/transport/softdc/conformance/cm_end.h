// SPDX-License-Identifier: Apache-2.0
//
// CmEnd: one program's side of RDMA_CM on a bed: an event channel of a host, its ids, and calls that
// connect with queue pairs of its own. What cannot be made throws.
//
// Threads       One thread.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_CM_END_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_CM_END_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/transport/softdc/conformance/bed.h"

namespace sluice::conformance {

// An event, copied and acknowledged.
struct CmEvent {
  rdma_cm_event_type type{};
  int status = 0;
  rdma_cm_id* id = nullptr;
  rdma_cm_id* listener = nullptr;
  uint32_t qp_num = 0;
  std::string data;
};

class CmEnd {
 public:
  CmEnd(Bed& bed, int host);
  ~CmEnd();
  CmEnd(const CmEnd&) = delete;
  CmEnd& operator=(const CmEnd&) = delete;

  rdma_cm_id* NewId();
  void Destroy(rdma_cm_id* id);
  // Listens on a port of the system's choice.
  rdma_cm_id* Listen();
  // An id that is ready to connect to where `listener`, an id of `server`, listens. Its time in
  // timewait is cut short.
  rdma_cm_id* Resolved(const CmEnd& server, rdma_cm_id* listener);
  // Resolved to an address and port of the caller's.
  rdma_cm_id* ResolvedTo(int host, uint16_t port_network_order);

  int Connect(rdma_cm_id* id, uint32_t qp_num, const std::string& data = "");
  int Accept(rdma_cm_id* id, uint32_t qp_num, const std::string& data = "");

  CmEvent Next();  // waits for it
  bool Quiet();    // none is there now

  Bed& bed;
  const verbs::VerbsApi& api;
  const int host;
  rdma_event_channel* channel = nullptr;

 private:
  bool Take(CmEvent* event);
  std::vector<rdma_cm_id*> ids_;
};

// A connection of two ends, up.
struct CmConnection {
  rdma_cm_id* client = nullptr;
  rdma_cm_id* server = nullptr;
};
CmConnection Establish(CmEnd& client, uint32_t client_qp_num, CmEnd& server, rdma_cm_id* listener,
                       uint32_t server_qp_num);

}  // namespace sluice::conformance

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_CM_END_H_
