// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/bulk/script.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "tests/hostile/draw_acts.h"
#include "transport/base/random.h"

namespace sluice::hostile::bulk_port {
namespace {

constexpr OperationInfo kOperations[] = {
    {Operation::kJoin, "join", 2},
    {Operation::kJoinLying, "join_lying", 2},
    {Operation::kLeave, "leave", 1},
    {Operation::kNotice, "notice", 6},
    {Operation::kLieInNotice, "lie_in_notice", 2},
    {Operation::kPieces, "pieces", 4},
    {Operation::kAhead, "ahead", 2},
    {Operation::kGarbage, "garbage", 1},
    {Operation::kTooLong, "too_long", 1},
    {Operation::kLieInHead, "lie_in_head", 1},
    {Operation::kGrants, "grants", 3},
    {Operation::kFloodGrants, "flood_grants", 1},
    {Operation::kFloodWords, "flood_words", 1},
    {Operation::kQueue, "queue", 6},
    {Operation::kQueueLying, "queue_lying", 1},
    {Operation::kReady, "ready", 2},
    {Operation::kClose, "close", 3},
    {Operation::kClosed, "closed", 2},
    {Operation::kTell, "tell", 6},
    {Operation::kTellGarbage, "tell_garbage", 1},
    {Operation::kTransfer, "transfer", 4},
    {Operation::kWrite, "write", 4},
    {Operation::kRead, "read", 4},
    {Operation::kWriteAnywhere, "write_anywhere", 2},
    {Operation::kWriteLate, "write_late", 3},
    {Operation::kAnnounce, "announce", 1},
    {Operation::kReturnLease, "return_lease", 3},
    {Operation::kPutOut, "put_out", 1},
};
static_assert(std::size(kOperations) == static_cast<size_t>(Operation::kCount));

Manners DrawManners(base::SeededRandom& random) {
  const auto one_in = [&random](uint64_t count) { return random.Below(count) == 0; };
  Manners manners;
  manners.reads = !one_in(8);
  manners.answers = !one_in(4);
  manners.connects = !one_in(4);
  manners.returns = !one_in(4);
  manners.granting = static_cast<Granting>(random.Below(3));
  constexpr uint32_t kWindows[] = {1, 2, 16, 16, 16, 32};
  manners.window = kWindows[random.Below(std::size(kWindows))];
  constexpr uint32_t kPieces[] = {4096, 8192, 8192, 1u << 30};
  manners.piece_bytes = kPieces[random.Below(std::size(kPieces))];
  manners.personas = 1 + static_cast<uint32_t>(random.Below(5));
  return manners;
}

}  // namespace

std::span<const OperationInfo> Operations() { return kOperations; }
const char* Name(Operation operation) { return kOperations[static_cast<size_t>(operation)].name; }

Script Draw(uint64_t seed) {
  base::SeededRandom random(seed * 0x9e3779b97f4a7c15u + 0xb1);
  Script script;
  script.manners = DrawManners(random);
  DrawActs(
      random, kOperations, Operation::kJoin, 300, [](const char*) { return false; }, &script);
  script.ending = static_cast<Ending>(random.Below(5));
  return script;
}

std::string ToString(const Script& script) {
  const Manners& manners = script.manners;
  constexpr const char* kGranting[] = {"grants", "grants slowly", "grants nothing"};
  constexpr const char* kEndings[] = {"goodbye", "queue pairs gone", "silence", "kill",
                                      "port down"};
  std::string text = absl::StrCat(
      manners.personas, " personas, window ", manners.window, ", pieces of ", manners.piece_bytes,
      ", ", kGranting[static_cast<size_t>(manners.granting)], manners.reads ? "" : ", never reads",
      manners.answers ? "" : ", never answers", manners.connects ? "" : ", never connects",
      manners.returns ? "" : ", never returns", ", ends with ",
      kEndings[static_cast<size_t>(script.ending)], "\n");
  AppendActs(script, &text);
  return text;
}

}  // namespace sluice::hostile::bulk_port
