// SPDX-License-Identifier: Apache-2.0
//
// Rendezvous: one TCP connection between the two hosts of a run, over which they exchange short lines of text: what a verbs program
// has to know of its peer, and what the peer's side of a probe does.
//
// Ownership     Its creator.
// Threads       One. Every call blocks for its timeout at most. Exceptions: Listen() and Connect() resolve a name first, and a greeting
//               that has begun may take 5 s more. Send() has no timeout of its own: 5 s.
// Errors        UNAVAILABLE: the peer has gone. DEADLINE_EXCEEDED: nothing came in time. INVALID_ARGUMENT: the peer sent what is no
//               line, or is of another release. ALREADY_EXISTS, NOT_FOUND: the address can't be listened at, or is not known.
#ifndef SLUICE_TOOLS_HARDWARE_RENDEZVOUS_H_
#define SLUICE_TOOLS_HARDWARE_RENDEZVOUS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice::hardware {

class Rendezvous {
 public:
  static constexpr size_t kMaxLineBytes = 4096;

  // Waits for the peer. `listening` is told the port once there is one (port 0: any). Connections that do not greet are closed, and
  // waiting goes on. `device`: a name for the peer's report.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Listen(
      const std::string& host, uint16_t port, const std::string& device, absl::Duration timeout,
      const std::function<void(uint16_t)>& listening);
  // Tries all addresses of the host until the peer listens and greets, or the time is over. What greets otherwise ends it at once.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Connect(const std::string& host, uint16_t port,
                                                             const std::string& device,
                                                             absl::Duration timeout);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // A line has printable ASCII only, and at most kMaxLineBytes. After an error every call fails with the same.
  absl::Status Send(const std::string& line);
  absl::StatusOr<std::string> Receive(absl::Duration timeout);
  // "mlx5_0 on host-b (10.0.0.2)".
  const std::string& peer() const { return peer_; }

 private:
  Rendezvous(int fd, std::string address) : fd_(fd), address_(std::move(address)) {}
  absl::Status Greet(const std::string& device, absl::Duration timeout);
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);
  absl::Status Gone(int error_number);

  const int fd_;
  const std::string address_;
  std::string peer_ = "the peer";
  std::string unread_;
  absl::Status broken_;
};

}  // namespace sluice::hardware

#endif  // SLUICE_TOOLS_HARDWARE_RENDEZVOUS_H_
