// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/ticket.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice::bulk {
namespace ticket_test {

Ticket Sample() {
  Ticket ticket{
      .port = 77,
      .piece_bytes = 8192,
      .way = {
          .dctn = 0x123456, .access_key = UINT64_MAX - 1, .place = 9, .token = 5, .window = 16}};
  ticket.way.gid[15] = std::byte{5};
  ticket.way.lid = 0x1234;
  return ticket;
}

TEST(LoadTicket, IsWhatWasOffered) {
  const auto loaded = LoadTicket(ToBytes(Sample()));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, Sample());
}

TEST(LoadTicket, NamesTheTransport) {
  Ticket with_rc = Sample();
  with_rc.way.rc = true;
  with_rc.way.reads = 16;
  const auto loaded = LoadTicket(ToBytes(with_rc));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded, with_rc);
  EXPECT_NE(*loaded, Sample());
  with_rc.way.reads = 0;
  EXPECT_FALSE(LoadTicket(ToBytes(with_rc)).ok());
  with_rc.way = {.reads = 4};
  EXPECT_FALSE(LoadTicket(ToBytes(with_rc)).ok());
}

TEST(LoadTicket, OtherLengthsAreRefused) {
  const std::string bytes = ToBytes(Sample());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(LoadTicket(bytes.substr(0, length)).ok());
  }
  EXPECT_FALSE(LoadTicket(bytes + "x").ok());
}

TEST(LoadTicket, NumbersOutOfRangeAreRefused) {
  for (const uint32_t number : {0u, 0x1000000u}) {
    Ticket wrong = Sample();
    wrong.way.dctn = number;
    EXPECT_FALSE(LoadTicket(ToBytes(wrong)).ok());
  }
  for (const uint32_t count : {0u, (1u << 14) + 1}) {
    Ticket wrong = Sample();
    wrong.way.window = count;
    EXPECT_FALSE(LoadTicket(ToBytes(wrong)).ok());
  }
  for (const uint32_t bytes : {0u, 4095u, 4096u + 512, kMaxPieceBytes + 4096}) {
    Ticket wrong = Sample();
    wrong.piece_bytes = bytes;
    EXPECT_FALSE(LoadTicket(ToBytes(wrong)).ok());
  }
  Ticket wrong = Sample();
  wrong.way.token = 0;
  EXPECT_FALSE(LoadTicket(ToBytes(wrong)).ok());
}

// Whatever bytes come: refused, or what they say is what they are.
TEST(LoadTicket, EveryByteIsChecked) {
  const std::string good = ToBytes(Sample());
  for (size_t at = 0; at < good.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      const auto ticket = LoadTicket(bytes);
      EXPECT_TRUE(!ticket.ok() || ToBytes(*ticket) == bytes);
    }
  }
}

}  // namespace ticket_test
}  // namespace sluice::bulk
