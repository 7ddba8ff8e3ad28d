// SPDX-License-Identifier: Apache-2.0
#include "transport/base/error.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace sluice::base {
namespace {

absl::StatusCode CodeOf(int error_number) {
  switch (error_number) {
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
      return absl::StatusCode::kResourceExhausted;
    case EOPNOTSUPP:
    case ENOSYS:
    case EPROTONOSUPPORT:
      return absl::StatusCode::kUnimplemented;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case ENODEV:
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EADDRINUSE:
      return absl::StatusCode::kAlreadyExists;
    case EINVAL:
      return absl::StatusCode::kInvalidArgument;
    case ETIMEDOUT:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ECONNREFUSED:
    case ECONNRESET:
    case EADDRNOTAVAIL:
    case EIO:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status Error(absl::StatusCode code, std::string_view what, const ErrorContext& context) {
  std::string message(what);
  if (!context.peer.empty()) {
    message.append(" (peer ").append(context.peer).append(")");
  }
  if (!context.cause.empty()) message.append(": ").append(context.cause);
  if (!context.remedy.empty()) message.append("; ").append(context.remedy);

  absl::Status status(code, message);
  status.SetPayload(kErrorDetailUrl, absl::Cord(StatusDetail(context).Serialise()));
  PrintDetailsAsText();
  return status;
}

absl::Status ErrnoError(int error_number, std::string_view what, ErrorContext context) {
  const char* name = strerrorname_np(error_number);
  std::string full(what);
  full.append(" failed with ");
  if (name != nullptr) {
    full.append(name).append(" (").append(strerrordesc_np(error_number)).append(")");
  } else {
    full.append("errno ").append(std::to_string(error_number));
  }
  if (context.syndrome == 0) context.syndrome = static_cast<uint32_t>(error_number);
  return Error(CodeOf(error_number), full, context);
}

absl::Status NotRetrySafe(absl::Status status) {
  auto detail = DetailOf(status);
  if (!detail.has_value() || !detail->retry_safe()) return status;
  detail->set_retry_safe(false);
  status.SetPayload(kErrorDetailUrl, absl::Cord(detail->Serialise()));
  return status;
}

absl::Status AddPeer(const absl::Status& status, std::string_view peer) {
  auto detail = DetailOf(status);
  if (!detail.has_value() || !detail->peer().empty()) return status;
  // The end of the message as Error() builds it.
  std::string why;
  if (!detail->cause().empty()) why.append(": ").append(detail->cause());
  if (!detail->remedy().empty()) why.append("; ").append(detail->remedy());
  std::string message(status.message());
  const size_t at = message.ends_with(why) ? message.size() - why.size() : message.size();
  message.insert(at, std::string(" (peer ").append(peer).append(")"));
  absl::Status named(status.code(), message);
  status.ForEachPayload([&named](absl::string_view url, const absl::Cord& payload) {
    named.SetPayload(url, payload);
  });
  detail->set_peer(peer);
  named.SetPayload(kErrorDetailUrl, absl::Cord(detail->Serialise()));
  return named;
}

absl::Status Prefix(const absl::Status& status, std::string_view what) {
  if (status.ok()) return status;
  std::string message(what);
  message.append(": ").append(status.message().data(), status.message().size());
  absl::Status outer(status.code(), message);
  status.ForEachPayload([&outer](absl::string_view url, const absl::Cord& payload) {
    outer.SetPayload(url, payload);
  });
  return outer;
}

}  // namespace sluice::base
