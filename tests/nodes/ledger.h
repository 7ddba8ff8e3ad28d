// SPDX-License-Identifier: Apache-2.0
//
// Ledger: what the programs of a run know of each other's calls, and the plan's word on which errors are explained.
//
// Ownership     The run.
// Threads       One thread.
#ifndef SLUICE_TESTS_NODES_LEDGER_H_
#define SLUICE_TESTS_NODES_LEDGER_H_

#include <cstdint>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "tests/hostile/report.h"

namespace sluice::nodes {

class Ledger {
 public:
  hostile::Report& report() { return report_; }
  void Break(std::string what) { report_.Break(std::move(what)); }
  bool broken() const { return !report_.violations().empty(); }

  uint64_t NextSerial() { return ++serials_; }
  // A handler has seen the call. Only what is idempotent runs twice.
  void Ran(uint64_t serial, bool idempotent) {
    ++runs_;
    if (++ran_[serial] > 1 && !idempotent) {
      Break(absl::StrCat("call ", serial, " ran twice, and is not idempotent"));
    }
  }
  uint64_t runs() const { return runs_; }

 private:
  hostile::Report report_;
  uint64_t serials_ = 0;
  uint64_t runs_ = 0;
  std::unordered_map<uint64_t, uint32_t> ran_;  // by serial
};

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_LEDGER_H_
