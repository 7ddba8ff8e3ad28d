// SPDX-License-Identifier: Apache-2.0
//
// EventLog: the events of a simulation, in order. The same seed and the same calls give the same log, byte for byte; digest() compares logs
// without keeping the text.
//
// A record is a few numbers, and is formatted only on request. Records hold node indexes, queue pair numbers and positions. They never hold
// addresses or wr_ids, which may differ from run to run.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_EVENT_LOG_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_EVENT_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::softdc::sim {

// Names and fields of each kind are in the table of event_log.cc.
enum class LogKind : uint8_t {
  // A message of a send queue, named by its queue pair and its place in the queue.
  kTransmit,
  kConnect,
  kDeliver,
  kAcknowledge,
  kRefuse,
  kLost,
  kUnheard,
  kNotReady,
  kTimeout,
  kGiveUp,
  kGhost,
  kInjected,
  kDuplicate,
  kBlock,
  kAnswerLost,
  // The world.
  kKill,
  kRevive,
  kPause,
  kResume,
  kLink,
  kPort,
  kGid,
  kFatal,
  kStuck,
  // RDMA_CM.
  kCmMessage,
  kCmLost,
  kCmDelayed,
  kCmDuplicated,
  kCmRejected,
  // Also of the world. At the end, because digests contain the numeric values.
  kPlug,
  kAddress,
  kCount,
};

enum class LogMode : uint8_t { kOff, kDigest, kText };

class EventLog {
 public:
  explicit EventLog(LogMode mode) : mode_(mode) {}

  void Add(int64_t when_ns, LogKind kind, uint32_t node, uint64_t a = 0, uint64_t b = 0,
           uint64_t c = 0) {
    if (mode_ == LogMode::kOff) return;
    Mix(static_cast<uint64_t>(when_ns));
    Mix(static_cast<uint64_t>(kind) << 32 | node);
    Mix(a);
    Mix(b);
    Mix(c);
    ++count_;
    if (mode_ == LogMode::kText) records_.push_back({when_ns, a, b, c, node, kind});
  }

  LogMode mode() const { return mode_; }
  uint64_t count() const { return count_; }
  // Returns the digest of all records so far, or 0 if the log is off.
  uint64_t digest() const { return digest_; }
  // Returns one line per record. Empty unless the mode is kText.
  std::string Text() const;

 private:
  struct Record {
    int64_t when_ns;
    uint64_t a, b, c;
    uint32_t node;
    LogKind kind;
  };
  void Mix(uint64_t value) {
    digest_ = (digest_ ^ value) * 0x9e3779b97f4a7c15u;
    digest_ ^= digest_ >> 29;
  }

  const LogMode mode_;
  uint64_t count_ = 0;
  uint64_t digest_ = 0;
  std::vector<Record> records_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_EVENT_LOG_H_
