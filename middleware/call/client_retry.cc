// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine: retries of calls.
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "middleware/call/client_engine.h"
#include "middleware/frame/frame.h"
#include "proto/metadata.pb.h"

namespace sluice::call {
namespace {

// Serialises an entry as Metadata (middleware/api) does, so that it can be appended to other entries.
std::string AttemptEntry(uint32_t attempt) {
  MetadataEntries one;
  MetadataEntries::Entry* entry = one.add_entries();
  entry->set_key(kAttemptKey);
  entry->set_value(std::to_string(attempt));
  return one.SerializeAsString();
}

}  // namespace

bool ClientEngine::Retry(Call* call, const absl::Status& status, bool not_run) {
  const CallSpec& spec = call->spec;
  if (call->attempt >= options_.retry.max_attempts || !absl::IsUnavailable(status)) return false;
  if (!not_run && !spec.method->idempotent) return false;
  if (spec.done == &ClientEngine::OnHealth) return false;  // a check is for one server
  // Messages of a stream that were read or written can't be withdrawn.
  if (spec.stream != nullptr && (!not_run || spec.method->client_streams())) return false;
  if (now_is_stale_) RefreshNow();
  // If the call has not run, the first retry follows at once, because the first attempt has caused no overload.
  const bool at_once = not_run && call->attempt == 1;
  const int64_t pause_ns = at_once ? 0 : options_.retry.Pause(call->attempt, random_);
  if (pause_ns >= call->deadline_ns - now_ns_) return false;
  if (!budget_.Take()) {
    ++counters_.retries_denied;
    outage_.Refused(now_ns_, status, &log_);
    return false;
  }
  ++counters_.retries;
  call->may_have_run = !not_run || (call->attempt > 1 && call->may_have_run);
  if (call->attempt == 1) call->first_metadata = spec.metadata;
  if (spec.reply_beside != nullptr) spec.reply_beside->Clear();  // of the failed attempt
  table_.Pause(call);
  if (ClientStream* const stream = spec.stream; stream != nullptr) {
    stream->blocked = stream->window_owed = false;
    stream->opened = stream->has_initial_metadata = false;
  }
  const std::string entry = AttemptEntry(call->attempt);
  call->metadata = absl::StrCat(std::string(call->first_metadata), entry);
  // If the message has no room for the entry, the request is sent without it.
  const bool fits = call->metadata.size() <= frame::kMaxMetadataBytes &&
                    PayloadBytes(spec) + entry.size() + 2 <= limit_bytes_ - frame::kHeaderBytes;
  call->spec.metadata = fits ? std::string_view(call->metadata) : call->first_metadata;
  if (at_once) {
    Again(call);
  } else {
    call->pause.fire = &ClientEngine::OnPauseOver;
    call->pause.context = call;
    wheel_.Schedule(&call->pause, now_ns_ + pause_ns);
  }
  return true;
}

void ClientEngine::OnPauseOver(base::Timer*, void* context) {
  auto* call = static_cast<Call*>(context);
  static_cast<ClientEngine*>(call->table->owner())->Again(call);
}

void ClientEngine::Again(Call* call) {
  // Both timers may be due in one pass: after the deadline no attempt starts.
  if (call->deadline_ns <= now_ns_) return OnDeadline(this, call);
  if (!call->spec.wait_for_ready && !HasHope()) {
    return End(call, CallEvent::kFail, NotConnected(call->spec.method->full_name));
  }
  table_.Again(call);
  dial_wanted_ = true;
  SendWaiting();
}

}  // namespace sluice::call
