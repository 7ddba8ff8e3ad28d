// SPDX-License-Identifier: Apache-2.0
//
// EndSignals: waits until the process gets SIGINT or SIGTERM.
//
//   int main() {
//     sluice::EndSignals end;      // first: threads that start later inherit the blocked signals
//     auto server = sluice::Server::Create();
//     …
//     end.Wait();
//     return (*server)->Drain(absl::Seconds(10)).ok() ? 0 : 1;
//   }
//
// Threads       The thread that created it calls Wait(). The signals stay blocked, also in programs
//               that this process starts afterwards.
#ifndef SLUICE_MIDDLEWARE_API_END_SIGNALS_H_
#define SLUICE_MIDDLEWARE_API_END_SIGNALS_H_

#include <signal.h>

namespace sluice {

class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  // Blocks until a signal arrives, and returns its number.
  int Wait() {
    int number = 0;
    sigwait(&signals_, &number);
    return number;
  }

 private:
  sigset_t signals_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_END_SIGNALS_H_
