// SPDX-License-Identifier: Apache-2.0
//
// Report: what the oracle has to say of a trial. The first violation is what matters.
#ifndef SLUICE_TESTS_HOSTILE_REPORT_H_
#define SLUICE_TESTS_HOSTILE_REPORT_H_

#include <string>
#include <utility>
#include <vector>

namespace sluice::hostile {

class Report {
 public:
  static constexpr size_t kMost = 8;

  void Break(std::string what) {
    if (violations_.size() < kMost) violations_.push_back(std::move(what));
  }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  std::vector<std::string> violations_;
};

}  // namespace sluice::hostile

#endif  // SLUICE_TESTS_HOSTILE_REPORT_H_
