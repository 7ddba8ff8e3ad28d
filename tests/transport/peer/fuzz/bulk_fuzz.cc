// SPDX-License-Identifier: Apache-2.0
//
// What programs pass on for bulk transfers, and what one end tells the other of them.
#include <algorithm>
#include <array>
#include <string_view>

#include "middleware/bulk/capability.h"
#include "middleware/bulk/notice.h"
#include "middleware/bulk/port_word.h"
#include "middleware/bulk/ticket.h"
#include "tests/transport/peer/fuzz/fuzz_target.h"
#include "transport/onesided/word.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto capability = bulk::LoadCapability(text); capability.ok()) {
    ++peer::accepted;
    peer::Require(bulk::ToBytes(*capability) == text, "a capability read and written is the same");
    peer::Require(capability->address <= UINT64_MAX - capability->length_bytes,
                  "its range does not wrap");
  }
  if (const auto ticket = bulk::LoadTicket(text); ticket.ok()) {
    ++peer::accepted;
    peer::Require(bulk::ToBytes(*ticket) == text, "a ticket read and written is the same");
  }
  if (const auto notice = bulk::LoadNotice(peer::Input(data, size))) {
    ++peer::accepted;
    std::array<std::byte, bulk::kNoticeBytes> again;
    bulk::Store(*notice, again.data());
    peer::Require(bulk::LoadNotice(again) == *notice, "a notice read and written is the same");
    peer::Require(notice->piece < notice->pieces, "a piece is one of its pieces");
  }
  if (const auto word = bulk::LoadPortWord(peer::Input(data, size))) {
    ++peer::accepted;
    const auto again = bulk::ToBytes(*word);
    peer::Require(bulk::LoadPortWord(again) == *word, "a word read and written is the same");
  }
  if (const auto head = onesided::LoadHead(peer::Input(data, size))) {
    ++peer::accepted;
    std::array<std::byte, onesided::kHeadBytes> again;
    onesided::Store(*head, again.data());
    peer::Require(std::equal(again.begin(), again.end(), peer::Input(data, size).begin()),
                  "the head of a word read and written is the same");
  }
  return 0;
}
