// SPDX-License-Identifier: Apache-2.0
//
// StatusDetail: what an error of Sluice says besides code and message, for programs. It is the payload
// "type.googleapis.com/sluice.ErrorDetail" of the status, a serialised sluice.ErrorDetail (proto/error_detail.proto). This class
// reads it without a generated one, so that nothing of it is in protobuf's descriptor pool: a program may compile that .proto
// itself.
//
// Thread-safety: values and pure functions.
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
  // Parses a serialised sluice.ErrorDetail. Fields that it does not know are skipped; nullopt: the bytes are none.
  static std::optional<StatusDetail> Parse(std::string_view bytes);
  std::string Serialise() const;

  // The part of Sluice that saw the error first: "queue", "cm", "call", …
  const std::string& layer() const { return layer_; }
  // What was being done: "connect", "send", "/pkg.Service/Method".
  const std::string& operation() const { return operation_; }
  // With whom: "host:port"; empty: nobody.
  const std::string& peer() const { return peer_; }
  // Why, most likely; what to do about it. Both are in the status's message, too.
  const std::string& cause() const { return cause_; }
  const std::string& remedy() const { return remedy_; }
  // Completion status (enum ibv_wc_status) or errno, as the layer uses it; 0: none.
  uint32_t syndrome() const { return syndrome_; }
  // ibv_wc.vendor_err, or the reject reason of the connection manager; 0: none.
  uint32_t vendor_code() const { return vendor_code_; }
  // The operation provably did not run at the peer: repeating it can't run it twice.
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

// Returns what the status carries; nullopt: it is OK, or no error of Sluice (a handler's own status).
std::optional<StatusDetail> DetailOf(const absl::Status& status);

// Returns whether the operation that ended with this error provably did not run at the peer. False for OK and for a status
// that is no error of Sluice.
bool IsRetrySafe(const absl::Status& status);

// Makes Status::ToString() and operator<< print the payload as text, "layer call, operation …", without what the message says
// already. Abseil has one such function a process: if the program has set its own before the first error, that one stays.
void PrintDetailsAsText();

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_STATUS_DETAIL_H_
