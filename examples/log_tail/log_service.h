// SPDX-License-Identifier: Apache-2.0
//
// A log that many append to and many follow. Everything runs on the server's polling thread, so nothing is locked.
#ifndef SLUICE_EXAMPLES_LOG_TAIL_LOG_SERVICE_H_
#define SLUICE_EXAMPLES_LOG_TAIL_LOG_SERVICE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <stop_token>
#include <string>

#include "examples/log_tail/log.sluice.h"
#include "middleware/api/signal.h"

namespace sluice::examples::log_tail {

class LogService final : public LogServiceBase {
 public:
  static constexpr size_t kKept = 10'000;  // lines; a follower that is further behind misses some

  Task<absl::Status> Tail(ServerContext& context, const TailRequest& request,
                          ServerWriter<Line> writer) override {
    const std::stop_token stop = context.stop_token();
    uint64_t next = end() - std::min<uint64_t>(request.last(), lines_.size());
    while (!stop.stop_requested()) {
      for (; next < end(); ++next) {
        next = std::max(next, first_);
        const Line& line = lines_[next - first_];
        if (line.text().find(request.containing()) == std::string::npos) continue;
        const Line copy = line;  // it may be dropped while this waits for room
        if (!co_await writer.Write(copy)) co_return absl::CancelledError("nobody follows");
      }
      co_await more_.Wait(stop);
    }
    co_return absl::CancelledError("nobody follows");
  }

  Task<absl::Status> Append(ServerContext&, ServerReader<Line> reader,
                            AppendReply* reply) override {
    Line line;
    while (co_await reader.Read(&line)) {
      lines_.push_back(line);
      if (lines_.size() > kKept) {
        lines_.pop_front();
        ++first_;
      }
      reply->set_lines(reply->lines() + 1);
      more_.NotifyAll();
    }
    co_return absl::OkStatus();
  }

 private:
  uint64_t end() const { return first_ + lines_.size(); }

  std::deque<Line> lines_;
  uint64_t first_ = 0;  // the number of lines_.front()
  Signal more_;
};

}  // namespace sluice::examples::log_tail

#endif  // SLUICE_EXAMPLES_LOG_TAIL_LOG_SERVICE_H_
