// SPDX-License-Identifier: Apache-2.0
#include "transport/integrity/mismatch.h"

#include <array>
#include <cstdio>
#include <cstring>

#include "absl/strings/cord.h"
#include "transport/base/error.h"

namespace sluice::integrity {
namespace {

constexpr char kMismatchUrl[] = "sluice.integrity.Mismatch";

std::string Hex(Field field, uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof(text), field == Field::kApplicationTag ? "0x%04x" : "0x%x", value);
  return text;
}

}  // namespace

std::string_view Name(Field field) {
  switch (field) {
    case Field::kGuard:
      return "guard";
    case Field::kApplicationTag:
      return "application tag";
    case Field::kReferenceTag:
      return "reference tag";
  }
  return "unknown field";
}

std::string_view Name(End end) { return end == End::kInitiator ? "initiator" : "target"; }

absl::Status MismatchError(const Mismatch& mismatch, std::string_view peer) {
  const std::string field(Name(mismatch.field));
  const bool guard = mismatch.field == Field::kGuard;
  const std::string what = "block " + std::to_string(mismatch.block) +
                           (guard ? " is damaged" : " is not the one that was asked for") +
                           ", found at the " + std::string(Name(mismatch.end));
  const std::string cause = "its " + field + " says " + Hex(mismatch.field, mismatch.expected) +
                            (guard ? ", its data make it " : ", the transfer says ") +
                            Hex(mismatch.field, mismatch.actual);
  absl::Status status =
      base::Error(absl::StatusCode::kDataLoss, what,
                  {.layer = "integrity",
                   .peer = peer,
                   .operation = "protected transfer",
                   .cause = cause,
                   .remedy = guard ? "take the data from another copy"
                                   : "compare the tags with those that the data was written with"});
  std::array<std::byte, kMismatchBytes> bytes;
  Store(mismatch, bytes.data());
  status.SetPayload(kMismatchUrl, absl::Cord(std::string(
                                      reinterpret_cast<const char*>(bytes.data()), bytes.size())));
  return status;
}

std::optional<Mismatch> MismatchOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kMismatchUrl);
  if (!payload.has_value()) return std::nullopt;
  const std::string bytes(*payload);
  return LoadMismatch(std::as_bytes(std::span(bytes)));
}

// field(1) end(1) 0(2) block(4) expected(4) actual(4)
void Store(const Mismatch& mismatch, std::byte* to) {
  std::memset(to, 0, kMismatchBytes);
  to[0] = static_cast<std::byte>(mismatch.field);
  to[1] = static_cast<std::byte>(mismatch.end);
  std::memcpy(to + 4, &mismatch.block, 4);
  std::memcpy(to + 8, &mismatch.expected, 4);
  std::memcpy(to + 12, &mismatch.actual, 4);
}

std::optional<Mismatch> LoadMismatch(std::span<const std::byte> bytes) {
  if (bytes.size() != kMismatchBytes) return std::nullopt;
  Mismatch mismatch;
  mismatch.field = static_cast<Field>(bytes[0]);
  mismatch.end = static_cast<End>(bytes[1]);
  if (mismatch.field > Field::kReferenceTag || mismatch.end > End::kTarget) return std::nullopt;
  if ((bytes[2] | bytes[3]) != std::byte{0}) return std::nullopt;
  std::memcpy(&mismatch.block, &bytes[4], 4);
  std::memcpy(&mismatch.expected, &bytes[8], 4);
  std::memcpy(&mismatch.actual, &bytes[12], 4);
  return mismatch;
}

}  // namespace sluice::integrity
