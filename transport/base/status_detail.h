// SPDX-License-Identifier: Apache-2.0
//
// StatusDetail: the details of an error of Sluice, for programs: the payload
// "type.googleapis.com/sluice.ErrorDetail" of the status, a serialised sluice.ErrorDetail
// (proto/error_detail.proto). This class parses it without a generated class, so protobuf's
// descriptor pool has no such message, and a program may compile the .proto itself.
//
// Threads       Any: values and pure functions.
#ifndef SLUICE_TRANSPORT_BASE_STATUS_DETAIL_H_
#define SLUICE_TRANSPORT_BASE_STATUS_DETAIL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sluice::base {

struct ErrorContext;

class StatusDetail {
 public:
  StatusDetail() = default;
  explicit StatusDetail(const ErrorContext& context);
  // Parses a serialised sluice.ErrorDetail. Unknown fields are skipped. nullopt: the bytes are
  // invalid.
  static std::optional<StatusDetail> Parse(std::string_view bytes);
  std::string Serialise() const;

  // The layer that detected the error: "queue", "cm", "call", …
  const std::string& layer() const { return layer_; }
  // The operation that failed: "connect", "send", "/pkg.Service/Method".
  const std::string& operation() const { return operation_; }
  // Address of the peer: "host:port"; empty: none.
  const std::string& peer() const { return peer_; }
  // The likely cause, and what to do. The status's message has both as well.
  const std::string& cause() const { return cause_; }
  const std::string& remedy() const { return remedy_; }
  // Completion status (enum ibv_wc_status) or errno, as the layer uses it; 0: none.
  uint32_t syndrome() const { return syndrome_; }
  // ibv_wc.vendor_err, or the reject reason of the connection manager; 0: none.
  uint32_t vendor_code() const { return vendor_code_; }
  // True: the operation provably did not run at the peer, so a retry cannot run it twice.
  bool retry_safe() const { return retry_safe_; }
  void set_peer(std::string_view peer) { peer_.assign(peer); }
  void set_retry_safe(bool safe) { retry_safe_ = safe; }

 private:
  std::string layer_;
  std::string operation_;
  std::string peer_;
  std::string cause_;
  std::string remedy_;
  uint32_t syndrome_ = 0;
  uint32_t vendor_code_ = 0;
  bool retry_safe_ = false;
};

// Returns the details of a status; nullopt: it is OK, or not an error of Sluice (for example a
// handler's own status).
std::optional<StatusDetail> DetailOf(const absl::Status& status);

// Returns whether the operation that failed with this status provably did not run at the peer.
// False for OK and for statuses that are not errors of Sluice.
bool IsRetrySafe(const absl::Status& status);

// Makes Status::ToString() and operator<< print the payload as text, "layer call, operation …",
// without the parts that the message has. Abseil has one such function per process: if the program
// sets its own function before the first error, that function stays.
void PrintDetailsAsText();

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_STATUS_DETAIL_H_
