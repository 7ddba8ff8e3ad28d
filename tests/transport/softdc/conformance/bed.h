// SPDX-License-Identifier: Apache-2.0
//
// Bed: the device that a conformance test lies on. Tests know a VerbsApi and hosts 0, 1, 2, ... that
// reach each other; what those are is the bed's business:
//
//   shm      softdc0 on the shared-memory fabric, all hosts in this process
//   sim      one simulated device per host, on a virtual clock that moves when the test waits
//   native   the device of libibverbs that CONFORMANCE_DEVICE names, of any vendor; without that variable
//            the first that mlx5 drives; all hosts in this process
//
// Threads       Of one test's thread, but for Progress() on shm and native.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_BED_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_BED_H_

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/verbs/verbs_api.h"

namespace sluice::conformance {

// What ibv_create_qp_ex() does, without the branch of it that calls libibverbs' ibv_create_qp by name. Null with errno.
inline ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  verbs_context* const extended = verbs_get_ctx_op(context, create_qp_ex);
  if (extended == nullptr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return extended->create_qp_ex(context, attr);
}

// What a bed can be told about its device; the defaults are softdc's.
struct BedOptions {
  std::string dials;  // text of a sluice.softdc.Config; a real device takes none
  uint64_t seed = 1;  // of the sim bed
};

class Bed {
 public:
  virtual ~Bed() = default;

  virtual const verbs::VerbsApi& api() const = 0;
  // Opens host `host`'s device once more. Null with errno.
  virtual ibv_context* Open(int host) = 0;
  // Lets the world go on for a moment. False: nothing will ever happen again unless the test does
  // something.
  virtual bool Progress() = 0;
  // Whether it runs on its own: a thread may look at memory while messages land.
  virtual bool Concurrent() const = 0;
  // The address by which RDMA_CM of others reaches that host, port 0, "" if its device has none; and
  // the calls that follow speak for `host`: creating event channels and ids.
  virtual std::string IpOf(int host) const = 0;
  virtual rdma_event_channel* CreateEventChannel(int host) = 0;
  // Whether it is a model that may be broken, emptied and misled without harm.
  virtual bool IsSoftware() const = 0;
  // Whether it has what is mlx5's own: DC, mlx5dv's calls, the numbers in vendor_err.
  virtual bool IsMlx5() const = 0;

  // Calls done() until it is true, letting the world go on in between. Throws when the world stands
  // still, or after far longer than any device takes: only a broken device gets there.
  void Await(const std::string& what, const std::function<bool()>& done);
};

// "shm", "sim", "native".
std::vector<std::string> AllBeds();
// Why a bed of that kind can't be made here, with those options; "" when it can.
std::string WhyNoBed(const std::string& kind, const BedOptions& options = {});
std::unique_ptr<Bed> MakeBed(const std::string& kind, const BedOptions& options = {});

}  // namespace sluice::conformance

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_BED_H_
