// SPDX-License-Identifier: Apache-2.0
//
// Golden bytes of the wire header, each check of Decode(), and a property loop over random damage.
#include "middleware/frame/frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"

namespace sluice::frame {
namespace {

Header Request() {
  Header header;
  header.kind = Kind::kRequest;
  header.sequence = 0x11121314;
  header.call_id = 0x3132333435363738;
  header.method_id = 0x4142434445464748;
  header.timeout_ns = 1'000'000'000;
  header.payload_bytes = 3;
  return header;
}

Header Reply() {
  Header header;
  header.kind = Kind::kReply;
  header.sequence = 7;
  header.call_id = 0x3132333435363738;
  header.status_code = 14;
  header.payload_bytes = 3;
  return header;
}

std::vector<std::byte> Message(const Header& header, const std::string& payload) {
  std::vector<std::byte> bytes(kHeaderBytes + payload.size());
  Encode(header, bytes.data());
  std::memcpy(bytes.data() + kHeaderBytes, payload.data(), payload.size());
  return bytes;
}

std::string Hex(const std::vector<std::byte>& bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

TEST(FrameTest, GoldenRequest) {
  EXPECT_EQ(Hex(Message(Request(), "abc")),
            "0201000000000000"
            "1413121100000000"
            "3837363534333231"
            "4847464544434241"
            "00ca9a3b00000000"
            "0300000000000000"
            "616263");
}

TEST(FrameTest, GoldenReply) {
  EXPECT_EQ(Hex(Message(Reply(), "abc")),
            "0202000000000000"
            "0700000000000000"
            "3837363534333231"
            "0000000000000000"
            "0000000000000000"
            "030000000e000000"
            "616263");
}

TEST(FrameTest, DecodeWhatWasEncoded) {
  for (const Header& sent : {Request(), Reply()}) {
    Header got;
    EXPECT_EQ(Decode(Message(sent, "abc"), &got), Fault::kNone);
    EXPECT_EQ(got, sent);
  }
}

Fault FaultOf(const Header& header, const std::string& payload = "abc") {
  Header got;
  return Decode(Message(header, payload), &got);
}

TEST(FrameTest, EachFaultIsFound) {
  Header header = Request();
  header.version = 1;
  EXPECT_EQ(FaultOf(header), Fault::kVersion);
  header = Request();
  header.kind = static_cast<Kind>(0);
  EXPECT_EQ(FaultOf(header), Fault::kKind);
  header.kind = static_cast<Kind>(3);
  EXPECT_EQ(FaultOf(header), Fault::kKind);
  header = Request();
  header.flags = 1;
  EXPECT_EQ(FaultOf(header), Fault::kReserved);
  header = Request();
  header.reserved = 0x8000;
  EXPECT_EQ(FaultOf(header), Fault::kReserved);
  header = Request();
  header.flow_id = 1;
  EXPECT_EQ(FaultOf(header), Fault::kFlow);
  header = Request();
  header.flow_window = 1;
  EXPECT_EQ(FaultOf(header), Fault::kFlow);
  EXPECT_EQ(FaultOf(Request(), "abcd"), Fault::kPayloadLength);
  EXPECT_EQ(FaultOf(Request(), "ab"), Fault::kPayloadLength);
  header = Request();
  header.payload_bytes = UINT32_MAX;
  EXPECT_EQ(FaultOf(header), Fault::kPayloadLength);
  header = Request();
  header.method_id = 0;
  EXPECT_EQ(FaultOf(header), Fault::kMethod);
  header = Reply();
  header.method_id = 1;
  EXPECT_EQ(FaultOf(header), Fault::kMethod);
  header = Request();
  header.timeout_ns = kMaxTimeoutNs;
  EXPECT_EQ(FaultOf(header), Fault::kNone);
  ++header.timeout_ns;
  EXPECT_EQ(FaultOf(header), Fault::kTimeout);
  header = Reply();
  header.timeout_ns = 1;
  EXPECT_EQ(FaultOf(header), Fault::kTimeout);
  header = Reply();
  header.status_code = kMaxStatusCode;
  EXPECT_EQ(FaultOf(header), Fault::kNone);
  ++header.status_code;
  EXPECT_EQ(FaultOf(header), Fault::kStatus);
  header = Request();
  header.status_code = 1;
  EXPECT_EQ(FaultOf(header), Fault::kStatus);
}

TEST(FrameTest, EveryLengthBelowAHeaderIsTooShort) {
  const std::vector<std::byte> bytes = Message(Request(), "");
  Header got;
  for (size_t length = 0; length < kHeaderBytes; ++length) {
    // A copy of just this length, so that a read past its end is seen by address sanitizer.
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<long>(length));
    EXPECT_EQ(Decode(cut, &got), Fault::kTooShort) << length;
  }
}

TEST(FrameTest, EveryFaultHasItsOwnText) {
  std::vector<std::string_view> texts;
  for (int fault = 0; fault <= static_cast<int>(Fault::kStatus); ++fault) {
    const std::string_view text = Explain(static_cast<Fault>(fault));
    EXPECT_EQ(std::count(texts.begin(), texts.end(), text), 0) << text;
    texts.push_back(text);
  }
  EXPECT_EQ(Explain(static_cast<Fault>(200)), "unknown fault");
}

// What Decode() accepts keeps every promise of the grammar, and says nothing else of the bytes than
// they do.
TEST(FrameTest, RandomBytesAreAcceptedOnlyAsTheGrammarSays) {
  for (uint32_t seed = 1; seed <= 20000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    std::vector<std::byte> bytes =
        Message(seed % 2 ? Request() : Reply(), std::string(random() % 5, 'p'));
    const uint32_t actual = static_cast<uint32_t>(bytes.size() - kHeaderBytes);
    if (random() % 4 != 0) std::memcpy(bytes.data() + offsetof(Header, payload_bytes), &actual, 4);
    for (uint32_t damage = random() % 4; damage > 0; --damage) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
    Header header;
    if (Decode(bytes, &header) != Fault::kNone) continue;
    ASSERT_GE(bytes.size(), kHeaderBytes);
    ASSERT_EQ(header.payload_bytes, bytes.size() - kHeaderBytes);
    ASSERT_EQ(header.version, kVersion);
    ASSERT_EQ(header.flags | header.reserved | header.flow_id, 0u);
    if (header.kind == Kind::kRequest) {
      ASSERT_NE(header.method_id, 0u);
      ASSERT_LE(header.timeout_ns, kMaxTimeoutNs);
      ASSERT_EQ(header.status_code, 0);
    } else {
      ASSERT_EQ(header.kind, Kind::kReply);
      ASSERT_EQ(header.method_id, 0u);
      ASSERT_EQ(header.timeout_ns, 0u);
      ASSERT_LE(header.status_code, kMaxStatusCode);
    }
    std::vector<std::byte> again(kHeaderBytes);
    Encode(header, again.data());
    ASSERT_TRUE(std::equal(again.begin(), again.end(), bytes.begin()));
  }
}

}  // namespace
}  // namespace sluice::frame
