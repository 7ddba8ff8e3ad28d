// SPDX-License-Identifier: Apache-2.0
#include "middleware/c_api/objects.h"

#include <memory>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice::c_api {
namespace {

constexpr const char* kCodeNames[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};

// Returns the status for lack of memory. Created when the library is loaded. Never freed.
sluice_status* OutOfMemory() {
  static sluice_status* const status =
      new sluice_status{absl::ResourceExhaustedError("out of memory"), "out of memory", {}, {}, {}};
  return status;
}

// Runs when the library is loaded.
[[maybe_unused]] sluice_status* const out_of_memory = OutOfMemory();

}  // namespace

sluice_status* NewStatus(const absl::Status& status, const Metadata* metadata) {
  if (status.ok()) return nullptr;
  auto made = std::make_unique<sluice_status>();
  made->status = status;
  made->message = std::string(status.message());
  made->detail = DetailOf(status);
  status.ForEachPayload([&made](absl::string_view url, const absl::Cord& payload) {
    made->payloads.emplace_back(std::string(url), std::string(payload));
  });
  if (metadata != nullptr) made->metadata = metadata->entries();
  return made.release();
}

absl::Status BadArgument(const char* function, const char* argument, const std::string& cause,
                         const char* remedy) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("argument not accepted: ", argument, " of ", function),
                     {.layer = "c_api",
                      .operation = function,
                      .cause = cause,
                      .remedy = remedy,
                      .retry_safe = true});
}

absl::Status FinishedTwice(std::string_view function) {
  return base::Error(absl::StatusCode::kFailedPrecondition, "the call is finished",
                     {.layer = "c_api",
                      .operation = function,
                      .cause = "its status was returned before",
                      .remedy = "call it once"});
}

sluice_status* Guard(absl::FunctionRef<sluice_status*()> body) noexcept {
  try {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return OutOfMemory();
    } catch (const std::exception& thrown) {
      return NewStatus(absl::InternalError(absl::StrCat("exception: ", thrown.what())));
    }
  } catch (...) {
    return OutOfMemory();  // no memory for a text, or an exception of another type
  }
}

bool PairAt(const Pairs& pairs, size_t index, const char** key, const void** value, size_t* bytes) {
  const bool found = index < pairs.size();
  if (key != nullptr) *key = found ? pairs[index].first.c_str() : nullptr;
  if (value != nullptr) *value = found ? pairs[index].second.c_str() : nullptr;
  if (bytes != nullptr) *bytes = found ? pairs[index].second.size() : 0;
  return found;
}

}  // namespace sluice::c_api

using sluice::c_api::PairAt;

extern "C" {

uint32_t sluice_c_version() { return SLUICE_C_VERSION; }

int32_t sluice_status_code(const sluice_status* status) {
  return status == nullptr ? SLUICE_OK : static_cast<int32_t>(status->status.code());
}

const char* sluice_status_message(const sluice_status* status) {
  return status == nullptr ? "" : status->message.c_str();
}

const char* sluice_status_detail(const sluice_status* status, int32_t which) {
  if (status == nullptr || !status->detail.has_value()) return "";
  switch (which) {
    case SLUICE_DETAIL_LAYER:
      return status->detail->layer().c_str();
    case SLUICE_DETAIL_OPERATION:
      return status->detail->operation().c_str();
    case SLUICE_DETAIL_PEER:
      return status->detail->peer().c_str();
    case SLUICE_DETAIL_CAUSE:
      return status->detail->cause().c_str();
    case SLUICE_DETAIL_REMEDY:
      return status->detail->remedy().c_str();
    default:
      return "";
  }
}

int32_t sluice_status_retry_safe(const sluice_status* status) {
  return status != nullptr && status->detail.has_value() && status->detail->retry_safe();
}

size_t sluice_status_payload_count(const sluice_status* status) {
  return status == nullptr ? 0 : status->payloads.size();
}

int32_t sluice_status_payload(const sluice_status* status, size_t index, const char** type_url,
                              const void** data, size_t* bytes) {
  static const sluice::c_api::Pairs none;
  return PairAt(status == nullptr ? none : status->payloads, index, type_url, data, bytes);
}

size_t sluice_status_metadata_count(const sluice_status* status) {
  return status == nullptr ? 0 : status->metadata.size();
}

int32_t sluice_status_metadata(const sluice_status* status, size_t index, const char** key,
                               const void** value, size_t* bytes) {
  static const sluice::c_api::Pairs none;
  return PairAt(status == nullptr ? none : status->metadata, index, key, value, bytes);
}

void sluice_status_free(sluice_status* status) {
  if (status != sluice::c_api::OutOfMemory()) delete status;
}

const char* sluice_code_name(int32_t code) {
  return code >= SLUICE_OK && code <= SLUICE_UNAUTHENTICATED ? sluice::c_api::kCodeNames[code] : "";
}

const void* sluice_message_data(const sluice_message* message) {
  return message == nullptr || message->data.empty() ? nullptr : message->data.data();
}

size_t sluice_message_bytes(const sluice_message* message) {
  return message == nullptr ? 0 : message->data.size();
}

const void* sluice_message_attachment(const sluice_message* message, size_t* bytes) {
  const bool has = message != nullptr && !message->attachment.empty();
  if (bytes != nullptr) *bytes = has ? message->attachment.size() : 0;
  return has ? message->attachment.data() : nullptr;
}

size_t sluice_message_metadata_count(const sluice_message* message) {
  return message == nullptr ? 0 : message->metadata.size();
}

int32_t sluice_message_metadata(const sluice_message* message, size_t index, const char** key,
                                const void** value, size_t* bytes) {
  static const sluice::c_api::Pairs none;
  return PairAt(message == nullptr ? none : message->metadata, index, key, value, bytes);
}

void sluice_message_free(sluice_message* message) { delete message; }

}  // extern "C"
