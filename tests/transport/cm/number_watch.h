// SPDX-License-Identifier: Apache-2.0
//
// NumberWatch: the QP numbers that each host knows, as the connection managers of a simulation's hosts see it,
// and a device that hands out the lowest free number, so that one that is given back too early is
// seen again at once.
//
// A number of a host may be taken only if no id of that host has it, no other host knows it as its
// peer's, and none that did is in timewait yet, ids that were destroyed included (IBTA 12.9.8.4).
#ifndef SLUICE_TESTS_TRANSPORT_CM_NUMBER_WATCH_H_
#define SLUICE_TESTS_TRANSPORT_CM_NUMBER_WATCH_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "transport/softdc/cm/engine.h"
#include "transport/softdc/sim/simulation.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::cm {

class NumberWatch {
 public:
  // Its table is for one thread and one watch at a time.
  explicit NumberWatch(softdc::sim::Simulation& simulation);
  ~NumberWatch();
  NumberWatch(const NumberWatch&) = delete;
  NumberWatch& operator=(const NumberWatch&) = delete;

  // Calls through it must come from the node that the thread is.
  static const verbs::VerbsApi& Table();

  // The node was killed: its device takes back all numbers, to hand them out again. Each may be taken
  // once whoever still knows it.
  void Died(uint32_t node);

  const std::vector<std::string>& violations() const { return violations_; }
  size_t outstanding(uint32_t node) const { return outstanding_[node].size(); }
  uint64_t taken() const { return taken_; }
  uint64_t reserved() const { return reserved_; }        // of those taken
  uint64_t taken_again() const { return taken_again_; }  // a number that had been given back
  uint64_t reissued() const { return reissued_; }        // a number of a dead program
  // REQs and REPs that some host refused because it knew the number.
  uint64_t stale() const;
  size_t ids(uint32_t node) const;

 private:
  // A number of `owner`, out of use but not yet forgotten.
  struct Remembered {
    uint32_t owner;
    uint32_t number;
    int64_t until_ns;
    uint32_t where;
  };
  struct Calls;

  uint32_t NodeOf(const ibv_context* context) const;
  uint32_t NodeOf(const sockaddr_storage& address) const;
  uint32_t TakeLowest(uint32_t node);
  void OnTaken(uint32_t node, uint32_t number);
  void OnGiven(uint32_t node, uint32_t number);
  void Forget(uint32_t node, const std::vector<softdc::cm::IdState>& before);
  void Violation(uint32_t node, uint32_t number, const std::string& why);

  softdc::sim::Simulation& simulation_;
  std::vector<std::set<uint32_t>> outstanding_;
  std::vector<std::set<uint32_t>> used_;  // ever
  std::vector<std::set<uint32_t>> dead_;  // of programs that were killed, and not taken since
  std::vector<Remembered> remembered_;
  std::vector<std::string> violations_;
  uint64_t taken_ = 0;
  uint64_t reserved_ = 0;
  uint64_t taken_again_ = 0;
  uint64_t reissued_ = 0;
};

}  // namespace sluice::cm

#endif  // SLUICE_TESTS_TRANSPORT_CM_NUMBER_WATCH_H_
