// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/exceptions.h"

#include <cxxabi.h>

#include <exception>

#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice::call {
namespace {

std::string Bounded(const char* what) {
  std::string text;
  for (; *what != '\0' && text.size() < kMaxTextBytes; ++what) {
    text += *what >= ' ' && *what <= '~' ? *what : '?';
  }
  if (*what != '\0') text += "...";
  return text;
}

}  // namespace

std::string TextOfException() {
  try {
    throw;
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (const std::exception& exception) {
    return Bounded(exception.what());
  } catch (...) {
    return "the exception is no std::exception";
  }
}

absl::Status StatusOfException(std::string_view who, std::string_view operation,
                               std::string_view peer) {
  const std::string cause = TextOfException();
  return base::Error(absl::StatusCode::kUnknown,
                     absl::StrCat(std::string(who), " threw an exception"),
                     {.layer = "call",
                      .peer = peer,
                      .operation = operation,
                      .cause = cause,
                      .remedy = "catch the exception there, and return a status"});
}

absl::Status Exceptions::Take(std::string_view who, std::string_view operation,
                              std::string_view peer) {
  absl::Status status = StatusOfException(who, operation, peer);
  const std::lock_guard lock(mutex_);
  log_.Say(base::Severity::kError, "exception", peer, std::string(status.message()));
  return status;
}

}  // namespace sluice::call
