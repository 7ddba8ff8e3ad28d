// SPDX-License-Identifier: Apache-2.0
//
// Client: an honest process. It calls Echo and Hold once a period, and sends numbers into one Pipe; each call must end once,
// with its own bytes, each number come back once, in order.
#ifndef SLUICE_TESTS_HOSTILE_CLIENT_H_
#define SLUICE_TESTS_HOSTILE_CLIENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "middleware/call/client_engine.h"
#include "proto/error_detail.pb.h"
#include "tests/hostile/host.h"
#include "tests/hostile/report.h"
#include "transport/endpoint/create.h"

namespace sluice::hostile {

class Client final : public Host, private call::ClientStream::Observer {
 public:
  Client(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed,
         const endpoint::Options& options, const std::string& server, uint32_t large_bytes,
         int64_t period_ns, Report* report);
  ~Client() override;

  // Calls from now on, until Finish().
  void Start();
  void Finish();
  // It is connected.
  bool up() const;
  // All its calls have ended, the stream too.
  bool idle() const { return outstanding_ == 0 && !stream_open_; }
  // Disconnects; the destructor would do so in real time.
  void Leave();

  struct Took {
    int64_t began_ns;
    int64_t ns;
  };
  const std::vector<Took>& took() const { return took_; }  // of calls of Echo that are not large
  uint64_t ended() const { return ended_; }
  uint32_t echoed() const { return expected_; }  // messages of the stream
  endpoint::Endpoint& endpoint() { return *endpoint_; }

 private:
  struct Call;

  int Poll() override { return engine_.Poll(); }
  bool PrepareToSleep() override { return engine_.PrepareToSleep(); }
  int64_t SleepLimitNs() override { return engine_.SleepLimitNs(); }
  void Tick();
  void Begin(const call::Method& method, uint32_t bytes, bool timed);
  void OpenStream();
  void WriteNext();
  void OnReadable() override;
  void OnWritable() override { WriteNext(); }
  void OnEnd(Call* call, const absl::Status& status);
  void OnStreamEnd(const absl::Status& status);

  Report* const report_;
  const uint32_t large_bytes_;
  const int64_t period_ns_;
  call::ClientEngine engine_;
  std::unique_ptr<endpoint::Endpoint> endpoint_;
  bool calling_ = false;
  uint64_t calls_ = 0;
  uint64_t ended_ = 0;
  uint64_t outstanding_ = 0;
  std::vector<Took> took_;
  call::ClientStream stream_;
  ErrorDetail stream_reply_;
  bool stream_open_ = false;
  bool end_said_ = false;
  uint32_t due_ = 0;  // numbers that were to be written by now
  uint32_t written_ = 0;
  uint32_t expected_ = 0;  // the next number that comes back
};

}  // namespace sluice::hostile

#endif  // SLUICE_TESTS_HOSTILE_CLIENT_H_
