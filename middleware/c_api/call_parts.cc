// SPDX-License-Identifier: Apache-2.0
#include "middleware/c_api/call_parts.h"

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "absl/strings/str_cat.h"

namespace sluice::c_api {
namespace {

constexpr size_t kSmallestOptions = sizeof(size_t) + sizeof(int64_t);

// Returns "/package.Service/Method", or an empty string if `method` does not have this form.
std::string FullName(std::string_view method) {
  if (!method.empty() && method.front() == '/') method.remove_prefix(1);
  const size_t slash = method.find('/');
  const bool good = slash != std::string_view::npos && slash != 0 && slash + 1 < method.size() &&
                    method.find('/', slash + 1) == std::string_view::npos;
  return good ? "/" + std::string(method) : "";
}

std::string_view Bytes(const void* data, size_t bytes) {
  return {static_cast<const char*>(data), bytes};
}

}  // namespace

absl::Status CheckBytes(const char* function, const char* argument, const void* data,
                        size_t bytes) {
  if (data == nullptr && bytes != 0) {
    return BadArgument(function, argument, absl::StrCat("it is NULL, and its size is ", bytes),
                       "pass the bytes, or size 0");
  }
  if (bytes > INT_MAX) {
    return BadArgument(function, argument, absl::StrCat("it has ", bytes, " bytes"),
                       "send at most 2 GiB in one message");
  }
  return absl::OkStatus();
}

absl::Status CallParts::Set(const CallArguments& arguments, const ChannelCore& core,
                            call::Streams streams, Keep keep) {
  const char* const function = arguments.function;
  sluice_call_options options = SLUICE_CALL_OPTIONS_INIT;
  if (arguments.options != nullptr) {
    const size_t given = arguments.options->struct_bytes;
    if (given < kSmallestOptions) {
      return BadArgument(function, "options", absl::StrCat("struct_bytes is ", given),
                         "begin with SLUICE_CALL_OPTIONS_INIT");
    }
    std::memcpy(&options, arguments.options, std::min(given, sizeof(options)));
  }
  if (arguments.method == nullptr) return BadArgument(function, "method", "it is NULL", "set it");
  name_ = FullName(arguments.method);
  if (name_.empty()) {
    return BadArgument(function, "method", absl::StrCat("it is \"", arguments.method, "\""),
                       "write package.Service/Method");
  }
  absl::Status good = CheckBytes(function, "request", arguments.request, arguments.request_bytes);
  if (good.ok()) {
    good = CheckBytes(function, "attachment", options.attachment, options.attachment_bytes);
  }
  if (!good.ok()) return good;
  if (options.metadata == nullptr && options.metadata_count != 0) {
    return BadArgument(
        function, "options",
        absl::StrCat("metadata is NULL, and metadata_count is ", options.metadata_count),
        "set both");
  }

  method_.emplace(name_.c_str(), streams, options.idempotent != 0);
  std::string_view request = Bytes(arguments.request, arguments.request_bytes);
  std::string_view attachment = Bytes(options.attachment, options.attachment_bytes);
  if (keep == Keep::kCopies) {
    request = kept_request_ = std::string(request);
    attachment = kept_attachment_ = std::string(attachment);
  }
  request_.emplace(RawMessage::Referring(request));
  context_.emplace(options.timeout_ns == SLUICE_FOREVER
                       ? absl::InfiniteDuration()
                       : absl::Nanoseconds(std::max<int64_t>(0, options.timeout_ns)));
  context_->set_wait_for_ready(options.wait_for_ready != 0);
  context_->set_stop_token(core.closing());
  if (!attachment.empty()) {
    context_->set_attachment(std::as_bytes(std::span(attachment.data(), attachment.size())));
  }
  for (size_t i = 0; i < options.metadata_count; ++i) {
    const sluice_metadata& entry = options.metadata[i];
    if (entry.key == nullptr || (entry.value == nullptr && entry.value_bytes != 0)) {
      return BadArgument(function, "options", absl::StrCat("metadata entry ", i, " has a NULL"),
                         "set key and value");
    }
    good = context_->AddMetadata(entry.key, Bytes(entry.value, entry.value_bytes));
    if (!good.ok()) return good;
  }
  return absl::OkStatus();
}

sluice_message* CallParts::TakeReply() {
  auto message = std::make_unique<sluice_message>();
  message->data = reply_.TakeBytes();
  message->metadata = context_->reply_metadata().entries();
  message->attachment = context_->TakeReplyAttachment();
  return message.release();
}

sluice_status* CallParts::StatusOf(const absl::Status& status) {
  if (status.ok()) return nullptr;
  return NewStatus(status, &context_->reply_metadata());
}

}  // namespace sluice::c_api
