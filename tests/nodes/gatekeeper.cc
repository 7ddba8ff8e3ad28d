// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/gatekeeper.h"

#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "tests/nodes/service.h"

namespace sluice::nodes {

void Gatekeeper::Read(const call::Incoming& incoming) {
  for (const std::string_view text :
       {std::string_view(*incoming.peer), std::string_view(*incoming.tenant), incoming.metadata,
        std::string_view(incoming.method->full_name)}) {
    for (const char c : text) sum_ += static_cast<uint8_t>(c);
  }
  for (const std::byte b : incoming.attachment) sum_ += static_cast<uint8_t>(b);
  if (incoming.reply != nullptr) {
    for (const char c : incoming.reply->metadata) sum_ += static_cast<uint8_t>(c);
    for (const std::byte b : incoming.reply->attachment.bytes()) sum_ += static_cast<uint8_t>(b);
  }
  sum_ += static_cast<uint64_t>(incoming.deadline_ns ^ incoming.received_ns) + incoming.from.index;
  // What is freed may still be readable; its text then is another one.
  if (incoming.peer->empty() || !absl::StrContains(*incoming.peer, '.')) {
    ledger_->Break(absl::StrCat("an interceptor was given a caller \"", *incoming.peer, "\""));
  }
}

absl::Status Gatekeeper::OnCall(const call::Incoming& incoming) {
  Read(incoming);
  const Label label = LabelOf(incoming.metadata);
  if (label.serial == 0) ledger_->Break("a call came without its metadata");
  if (label.refused) return absl::PermissionDeniedError("not this one");
  ++inside_[label.serial];
  return absl::OkStatus();
}

void Gatekeeper::OnEnd(const call::Incoming& incoming, const absl::Status&, int64_t) {
  Read(incoming);
  const uint64_t serial = LabelOf(incoming.metadata).serial;
  const auto found = inside_.find(serial);
  if (found == inside_.end()) {
    return ledger_->Break(absl::StrCat("call ", serial, " left an interceptor that it was not in"));
  }
  if (--found->second == 0) inside_.erase(found);
}

}  // namespace sluice::nodes
