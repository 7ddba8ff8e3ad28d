// SPDX-License-Identifier: Apache-2.0
//
// KeptLog: a log that can be read afterwards. Any thread may write; read it when no thread writes, or by Has().
#ifndef SLUICE_TESTS_SUPPORT_KEPT_LOG_H_
#define SLUICE_TESTS_SUPPORT_KEPT_LOG_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/log.h"

namespace sluice::testing_support {

class KeptLog final : public base::LogSink {
 public:
  struct Record {
    base::Severity severity;
    std::string room, event, peer, message;
    uint64_t left_out;
  };

  void Write(const base::LogRecord& record) override {
    std::lock_guard lock(mutex_);
    records_.push_back({record.severity, std::string(record.room), std::string(record.event),
                        std::string(record.peer), std::string(record.message), record.left_out});
  }

  size_t size() const { return records_.size(); }
  const Record& operator[](size_t i) const { return records_[i]; }
  bool Has(std::string_view event) const {
    std::lock_guard lock(mutex_);
    return std::any_of(records_.begin(), records_.end(),
                       [&](const Record& record) { return record.event == event; });
  }
  // "warning: connection lost (s0:1)", one a line.
  std::string Lines() const {
    static constexpr const char* kNames[] = {"info", "warning", "error"};
    std::lock_guard lock(mutex_);
    std::string lines;
    for (const Record& record : records_) {
      lines += kNames[static_cast<int>(record.severity)];
      lines += ": " + record.event;
      if (!record.peer.empty()) lines += " (" + record.peer + ")";
      lines += "\n";
    }
    return lines;
  }
  void Clear() {
    std::lock_guard lock(mutex_);
    records_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Record> records_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_KEPT_LOG_H_
