// SPDX-License-Identifier: Apache-2.0
//
// Node: a small DC program on a bed: one opening of a host's device with a DCI, a DCT, their SRQ and
// CQs and one registered slab, made with the calls that a user would write. What cannot be made
// throws, and so fails the test.
//
// Where the device has no DC two RC queue pairs are used instead: `dci` and `dct` of two nodes are
// connected by the first request from one to the other. What RC cannot show skips the test: a second
// peer, another stream after an error, a target that does not exist, a DC key that is wrong, the creation
// of more of them and their modify masks.
//
// Threads       As verbs objects; one thread posts.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_NODE_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_NODE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/transport/softdc/conformance/bed.h"

namespace sluice::conformance {

inline constexpr uint64_t kDcKey = 0x1234567890abcdef;
inline constexpr int kRemoteRights = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// The masks that the transitions need (facts 3 and 35).
inline constexpr int kDciInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
inline constexpr int kDciRtr = IBV_QP_STATE | IBV_QP_PATH_MTU;
inline constexpr int kDciRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                               IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN;
inline constexpr int kDctInit =
    IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
inline constexpr int kDctRtr = IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU;

struct NodeOptions {
  int host = 0;
  uint32_t receives = 64;        // posted at the start
  uint32_t receive_bytes = 256;  // each
  uint32_t srq_wr = 255;
  uint32_t send_wr = 64;
  uint32_t inline_bytes = 64;
  int cqe = 256;
  bool channel = false;   // for the receive CQ
  uint64_t wc_flags = 0;  // of the receive CQ; not 0: an extended one
  uint32_t cq_flags = 0;  // of that
  bool streams = true;
  uint8_t log_concurrent_streams = 3;
  uint8_t log_errored_streams = 2;
  bool signal_all = false;
  uint8_t timeout = 10;  // 4 ms
  uint8_t retry_count = 1;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;  // 10 us
  uint64_t dc_key = kDcKey;
  int mr_access = IBV_ACCESS_LOCAL_WRITE | kRemoteRights;
  unsigned dct_access = kRemoteRights;
  ibv_mtu path_mtu = IBV_MTU_1024;
};

// What a peer has to know, exchanged by whatever means.
struct Address {
  ibv_ah_attr path{};
  uint32_t dctn = 0;
  uint64_t dc_key = 0;
  uint64_t slab = 0;
  uint32_t rkey = 0;
};

// One work request for a DCI, with everything that tests vary.
struct Request {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  uint64_t wr_id = 0;
  std::string text;         // what is sent or written, staged in the slab or given inline
  uint32_t read_bytes = 0;  // READ: how much, to `local_offset` of the own slab
  size_t local_offset = 0;
  size_t remote_offset = 0;  // WRITE, READ: in the target's slab
  uint32_t imm = 0;          // in host order
  uint64_t compare_add = 0;  // atomics, whose result lands at `local_offset`
  uint64_t swap = 0;
  uint16_t stream = 0;
  unsigned flags = IBV_SEND_SIGNALED;
  bool inlined = false;
  bool address_first = false;
  uint32_t rkey = 0;  // 0: the target's own
  uint32_t lkey = 0;  // 0: the slab's own
};

class Node {
 public:
  static constexpr size_t kSlabBytes = 1 << 20;
  // The receives lie below, what requests name lies above, staged texts at the end.
  static constexpr size_t kFreeOffset = kSlabBytes / 4;
  static constexpr size_t kStageOffset = kSlabBytes / 2;

  explicit Node(Bed& bed, const NodeOptions& options = {});
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Address address() const;
  ibv_ah_attr Path() const;  // to this node
  void PostReceives(uint32_t count);

  // Posts one request; what ibv_wr_complete says.
  int Post(const Address& to, const Request& request);
  // The parts of Post, for batches: ibv_wr_start(dci_ex), Add..., ibv_wr_complete(dci_ex).
  void Add(const Address& to, const Request& request);
  ibv_ah* AhTo(const Address& to);

  ibv_wc AwaitSend() { return AwaitCompletion(send_cq); }
  ibv_wc AwaitReceive() { return AwaitCompletion(receive_cq); }
  ibv_wc AwaitCompletion(ibv_cq* cq);
  bool NoCompletion(ibv_cq* cq);  // none is there now
  // How a request ends for which the target, not the region, lacks the right: fact 39.
  static ibv_wc_status WithoutRight(const Bed& bed) {
    return bed.IsMlx5() ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR;
  }
  // wc_flags without IBV_WC_GRH, which the manual defines for UD alone.
  static unsigned FlagsOf(const ibv_wc& wc) { return wc.wc_flags & ~unsigned{IBV_WC_GRH}; }
  std::string TextOf(const ibv_wc& wc) const;
  std::string SlabText(size_t offset, size_t length) const;

  ibv_qp_state QueryState(ibv_qp* qp);  // asks the device
  int Modify(ibv_qp* qp, ibv_qp_state state, int mask);
  // Attributes with which the transition to `state` works, for either of the two.
  ibv_qp_attr AttributesFor(ibv_qp_state state) const;
  void ToReadyToSend();
  void Recover();  // RESET, INIT, RTR, RTS

  // A valid request for a DCI or a DCT of this node, to be spoilt or taken as it is.
  struct Creation {
    ibv_qp_init_attr_ex attr{};
    mlx5dv_qp_init_attr dv{};
  };
  Creation DciCreation() const;
  Creation DctCreation() const;
  ibv_qp* Create(Creation& creation);  // null with errno, which was 0 before; needs DC

  Bed& bed;
  const verbs::VerbsApi& api;
  const NodeOptions options;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* dci = nullptr;
  ibv_qp_ex* dci_ex = nullptr;
  mlx5dv_qp_ex* dci_dv = nullptr;
  ibv_qp* dct = nullptr;
  ibv_mr* mr = nullptr;
  std::byte* slab = nullptr;

 private:
  void MakeSlab();
  void MakeReceiveCq();
  void MakeDct();
  void MakeDci();
  void MakeStandIns();
  void Meet(uint32_t dctn, uint64_t dc_key, uint16_t stream);  // connects the stand-ins
  void Listen(const Node& from);
  void Speak();
  bool StandsIn(const ibv_qp* qp) const { return !has_dc_ && (qp == dci || qp == dct); }

  int slab_fd_ = -1;
  uint64_t next_receive_ = 0;
  size_t next_stage_ = 0;
  std::map<std::string, ibv_ah*> ahs_;
  // Of stand-ins.
  bool has_dc_ = true;
  Node* peer_ = nullptr;         // whom `dci` is connected to
  uint32_t peer_number_ = 0;     // of its `dct`
  const Node* heard_ = nullptr;  // whose `dci` `dct` is connected to
  uint16_t stream_ = 0;          // of the last request
  struct AddressSetter : mlx5dv_qp_ex {
    Node* node;
  };
  AddressSetter
      address_setter_{};  // the queue pair knows its peer: connects it, at the first request
};

}  // namespace sluice::conformance

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_NODE_H_
