// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/grammar.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "tests/hostile/draw_acts.h"
#include "transport/base/random.h"

namespace sluice::hostile {
namespace {

constexpr OperationInfo kOperations[] = {
    {Operation::kDial, "dial", 2},
    {Operation::kDialLying, "dial_lying", 1},
    {Operation::kProveLying, "prove_lying", 1},
    {Operation::kHangUp, "hang_up", 1},
    {Operation::kGoodbye, "goodbye", 1},
    {Operation::kCredits, "credits", 3},
    {Operation::kProbe, "probe", 2},
    {Operation::kFloodControl, "flood_control", 1},
    {Operation::kLaneAsk, "lane_ask", 2},
    {Operation::kLaneAnswer, "lane_answer", 2},
    {Operation::kStrayControl, "stray_control", 2},
    {Operation::kForge, "forge", 2},
    {Operation::kRequest, "request", 8},
    {Operation::kStream, "stream", 8},
    {Operation::kCancel, "cancel", 3},
    {Operation::kFlow, "flow", 1},
    {Operation::kDrain, "drain", 1},
    {Operation::kLarge, "large", 4},
    {Operation::kTaken, "taken", 2},
    {Operation::kLieInHeader, "lie_in_header", 1},
    {Operation::kGarbage, "garbage", 1},
    {Operation::kTooLong, "too_long", 1},
    {Operation::kBurst, "burst", 4},
    {Operation::kOvercommit, "overcommit", 1},
    {Operation::kNumbers, "numbers", 2},
    {Operation::kLaneWrite, "lane_write", 6},
    {Operation::kAnnounce, "announce", 1},
    {Operation::kWriteAnywhere, "write_anywhere", 1},
};
static_assert(std::size(kOperations) == static_cast<size_t>(Operation::kCount));

// Defects that are known and not mended: {what, why}. None.
constexpr std::array<Withheld, 0> kKnownDefects = {};

const char* NameOf(Granting granting) {
  constexpr const char* kNames[] = {"grants", "grants slowly", "grants nothing"};
  return kNames[static_cast<size_t>(granting)];
}

const char* NameOf(Ending ending) {
  constexpr const char* kNames[] = {"goodbye", "hang up", "silence", "kill", "port down"};
  return kNames[static_cast<size_t>(ending)];
}

Manners DrawManners(base::SeededRandom& random, bool withhold) {
  const auto one_in = [&random](uint64_t count) { return random.Below(count) == 0; };
  Manners manners;
  manners.establishes = !one_in(16);
  manners.proves = !one_in(16);
  manners.answers = !one_in(3);
  manners.reads = !one_in(8);
  manners.returns = !one_in(4);
  manners.granting = static_cast<Granting>(random.Below(3));
  constexpr uint32_t kWindows[] = {1, 2, 16, 16, 64, 1024};
  manners.window = kWindows[random.Below(std::size(kWindows))];
  manners.personas = 1 + static_cast<uint32_t>(random.Below(5));
  if (withhold && IsWithheld("never grants") && manners.granting == Granting::kNever) {
    manners.granting = Granting::kSlowly;
  }
  if (withhold && IsWithheld("never reads")) manners.reads = true;
  if (withhold && IsWithheld("never answers")) manners.answers = true;
  return manners;
}

}  // namespace

bool IsWithheld(std::string_view what) {
  return std::any_of(std::begin(kKnownDefects), std::end(kKnownDefects),
                     [what](const Withheld& one) { return one.what == what; });
}

std::span<const OperationInfo> Operations() { return kOperations; }
std::span<const Withheld> KnownDefects() { return kKnownDefects; }
const char* Name(Operation operation) { return kOperations[static_cast<size_t>(operation)].name; }

Script Draw(uint64_t seed, bool withhold) {
  base::SeededRandom random(seed * 0x9e3779b97f4a7c15u + 0x51);
  Script script;
  script.manners = DrawManners(random, withhold);
  DrawActs(
      random, kOperations, Operation::kDial, 400,
      [withhold](const char* name) { return withhold && IsWithheld(name); }, &script);
  script.ending = static_cast<Ending>(random.Below(5));
  return script;
}

std::string ToString(const Script& script) {
  const Manners& manners = script.manners;
  std::string text = absl::StrCat(
      manners.personas, " personas, window ", manners.window, ", ", NameOf(manners.granting),
      manners.establishes ? "" : ", never establishes", manners.proves ? "" : ", never proves",
      manners.answers ? "" : ", never answers", manners.reads ? "" : ", never reads",
      ", ends with ", NameOf(script.ending), "\n");
  AppendActs(script, &text);
  return text;
}

}  // namespace sluice::hostile
