// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/stream_end.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice::call {
namespace {

// A place frees its memory after a larger message.
constexpr size_t kKeptBytes = 64 << 10;

}  // namespace

void StreamEnd::Reset() {
  while (!empty()) Drop(Place(inbox_out_++));
  if (inbox_.size() > kWindow) std::vector<std::string>().swap(inbox_);
  sent_ = received_ = read_ = 0;
  window_ = may_send_ = said_ = kWindow;
  end_ = false;
}

bool StreamEnd::Receive(std::span<const std::byte> message) {
  const uint32_t cost = CostOf(message.size());
  if (end_ || received_ - read_ + cost > window_) return false;
  received_ += cost;
  if (unread() == inbox_.size()) Grow();
  Place(inbox_in_++).assign(reinterpret_cast<const char*>(message.data()), message.size());
  return true;
}

void StreamEnd::Grow() {
  std::vector<std::string> more(std::max<size_t>(kWindow, 2 * inbox_.size()));
  for (uint32_t i = inbox_out_; i != inbox_in_; ++i) more[i % more.size()] = std::move(Place(i));
  inbox_ = std::move(more);
}

void StreamEnd::Drop(std::string& bytes) {
  if (bytes.capacity() > kKeptBytes) std::string().swap(bytes);
}

ReadResult StreamEnd::Read(google::protobuf::MessageLite* message) {
  if (empty()) return end_ ? ReadResult::kEnd : ReadResult::kNothing;
  std::string& bytes = Place(inbox_out_++);
  read_ += CostOf(bytes.size());
  const bool parsed = message->ParseFromString(bytes);
  Drop(bytes);
  return parsed ? ReadResult::kMessage : ReadResult::kMalformed;
}

absl::Status WriteFault(const absl::Status& said) {
  if (!absl::IsInvalidArgument(said)) return said;
  absl::Status fault(absl::StatusCode::kResourceExhausted, said.message());
  said.ForEachPayload([&fault](absl::string_view url, const absl::Cord& payload) {
    fault.SetPayload(url, payload);
  });
  return fault;
}

absl::Status ReadFault(const std::string& method, const std::string& type) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("message of ", method, " can't be parsed"),
                     {.layer = "call",
                      .operation = method,
                      .cause = absl::StrCat("its bytes are not a ", type),
                      .remedy = "build client and server from the same .proto"});
}

}  // namespace sluice::call
