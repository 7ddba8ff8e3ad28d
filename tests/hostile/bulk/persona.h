// SPDX-License-Identifier: Apache-2.0
//
// Persona: a peer of the victim's, as a hostile port plays it, with the hands for its queue pair. Private to HostilePort.
#ifndef SLUICE_TESTS_HOSTILE_BULK_PERSONA_H_
#define SLUICE_TESTS_HOSTILE_BULK_PERSONA_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/hostile/bulk/hostile_port.h"

namespace sluice::hostile::bulk_port {

struct HostilePort::Persona final : integrity::SignedQueueUser {
  uint32_t OnMismatch(uint64_t, const integrity::Mismatch&, std::span<std::byte>) override {
    return 0;
  }
  void OnEnd(uint64_t, const absl::Status&, bool) override {}
  void OnReply(std::span<const std::byte>) override {}
  void OnDown(const absl::Status&) override { queue_down = true; }

  bool is_up = false;   // it has joined, and knows where to send to
  bool failed = false;  // nothing gets through any more
  uint32_t link = 0;    // at the victim
  onesided::Address there;
  verbs::Ah handle;
  queue::Target target;
  bool has_target = false;
  uint64_t token = 0;      // that the victim shows
  uint32_t window = 0;     // that its ticket said
  uint32_t granted = 0;    // by the victim
  uint32_t used = 0;       // of that
  uint32_t sequence = 0;   // of the next word
  uint32_t consumed = 0;   // of the victim's words
  uint32_t told = 0;       // of those, in grants
  uint64_t transfers = 0;  // that it has told of
  std::string offence;     // it is to be ended for it
  std::unique_ptr<integrity::SignedQueue> queue;
  std::vector<std::unique_ptr<integrity::SignedQueue>> closed;
  std::optional<bulk::PortWord> queue_there;
  bool queue_connected = false;
  bool queue_down = false;
};

}  // namespace sluice::hostile::bulk_port

#endif  // SLUICE_TESTS_HOSTILE_BULK_PERSONA_H_
