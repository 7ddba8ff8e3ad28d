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

// A message of a flow, as its grammar wants it.
Header OfFlow(Kind kind) {
  Header header;
  header.kind = kind;
  header.sequence = 9;
  header.payload_bytes = kind == Kind::kFlowAccept || kind == Kind::kFlowWindow ? 0 : 3;
  if (kind != Kind::kFlowOpen) header.flow_id = 0x21222324;
  if (kind != Kind::kFlowClose) header.flow_window = 0x51525354;
  if (kind == Kind::kFlowOpen || kind == Kind::kFlowAccept) header.call_id = 0x61626364;
  if (kind == Kind::kFlowClose) header.status_code = 8;
  return header;
}

constexpr Kind kFlowKinds[] = {Kind::kFlowOpen, Kind::kFlowAccept, Kind::kFlowData,
                               Kind::kFlowWindow, Kind::kFlowClose};

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

TEST(FrameTest, GoldenMessagesOfAFlow) {
  EXPECT_EQ(Hex(Message(OfFlow(Kind::kFlowOpen), "\x02xy")),
            "0203000000000000"
            "0900000054535251"
            "6463626100000000"
            "0000000000000000"
            "0000000000000000"
            "0300000000000000"
            "027879");
  EXPECT_EQ(Hex(Message(OfFlow(Kind::kFlowAccept), "")),
            "0204000024232221"
            "0900000054535251"
            "6463626100000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000");
  EXPECT_EQ(Hex(Message(OfFlow(Kind::kFlowData), "abc")),
            "0205000024232221"
            "0900000054535251"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0300000000000000"
            "616263");
  EXPECT_EQ(Hex(Message(OfFlow(Kind::kFlowWindow), "")),
            "0206000024232221"
            "0900000054535251"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000");
  EXPECT_EQ(Hex(Message(OfFlow(Kind::kFlowClose), "abc")),
            "0207000024232221"
            "0900000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0300000008000000"
            "616263");
}

TEST(FrameTest, DecodeWhatWasEncoded) {
  for (Kind kind : kFlowKinds) {
    Header got;
    const Header sent = OfFlow(kind);
    EXPECT_EQ(Decode(Message(sent, std::string(sent.payload_bytes, 'a')), &got), Fault::kNone);
    EXPECT_EQ(got, sent);
  }
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
  header.kind = static_cast<Kind>(8);
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

// The fault of a flow's message after one change.
template <typename Change>
Fault FlowFault(Kind kind, Change change) {
  Header header = OfFlow(kind);
  change(header);
  return FaultOf(header, std::string(header.payload_bytes, 'a'));
}

TEST(FrameTest, EachFaultOfAFlowIsFound) {
  for (Kind kind : kFlowKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const bool introduces = kind == Kind::kFlowOpen || kind == Kind::kFlowAccept;
    const bool close = kind == Kind::kFlowClose;
    EXPECT_EQ(FlowFault(kind, [](Header& h) { h.flags = 1; }), Fault::kReserved);
    EXPECT_EQ(FlowFault(kind, [](Header& h) { h.flow_id = 1; }),
              kind == Kind::kFlowOpen ? Fault::kFlow : Fault::kNone);
    EXPECT_EQ(FlowFault(kind, [](Header& h) { h.flow_window = 1; }),
              close ? Fault::kFlow : Fault::kNone);
    EXPECT_EQ(FlowFault(kind, [](Header& h) { h.call_id = 1; }),
              introduces ? Fault::kNone : Fault::kCall);
    EXPECT_EQ(FlowFault(kind, [](Header& h) { h.call_id = uint64_t{1} << 32; }), Fault::kCall);
    EXPECT_EQ(FlowFault(kind, [](Header& h) { h.method_id = 1; }), Fault::kMethod);
    EXPECT_EQ(FlowFault(kind, [](Header& h) { h.timeout_ns = 1; }), Fault::kTimeout);
    EXPECT_EQ(FlowFault(kind, [](Header& h) { h.status_code = 1; }),
              close ? Fault::kNone : Fault::kStatus);
    EXPECT_EQ(FlowFault(kind, [](Header& h) { h.status_code = kMaxStatusCode + 1; }),
              Fault::kStatus);
    EXPECT_EQ(FlowFault(kind, [](Header& h) { h.payload_bytes = 1; }),
              kind == Kind::kFlowData || close ? Fault::kNone : Fault::kPayload);
    EXPECT_EQ(FlowFault(kind, [](Header& h) { h.payload_bytes = 0; }),
              kind == Kind::kFlowOpen ? Fault::kPayload : Fault::kNone);
  }
  EXPECT_EQ(FlowFault(Kind::kFlowOpen, [](Header& h) { h.payload_bytes = 1 + kMaxEndNameBytes; }),
            Fault::kNone);
  EXPECT_EQ(FlowFault(Kind::kFlowOpen, [](Header& h) { h.payload_bytes = 2 + kMaxEndNameBytes; }),
            Fault::kPayload);
  EXPECT_EQ(FlowFault(Kind::kFlowClose, [](Header& h) { h.status_code = 0; }), Fault::kPayload)
      << "a payload belongs to an error only";
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
  for (int fault = 0; fault <= static_cast<int>(Fault::kPayload); ++fault) {
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
    std::vector<std::byte> bytes = Message(seed % 2       ? OfFlow(kFlowKinds[random() % 5])
                                           : random() % 2 ? Request()
                                                          : Reply(),
                                           std::string(random() % 5, 'p'));
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
    ASSERT_EQ(header.flags | header.reserved, 0u);
    if (header.kind >= Kind::kFlowOpen && header.kind <= Kind::kFlowClose) {
      ASSERT_EQ(header.method_id | header.timeout_ns, 0u);
      ASSERT_LE(header.status_code, header.kind == Kind::kFlowClose ? kMaxStatusCode : 0);
      if (header.kind == Kind::kFlowOpen) {
        ASSERT_EQ(header.flow_id, 0u);
        ASSERT_GE(header.payload_bytes, 2u);
      } else if (header.kind != Kind::kFlowData && header.status_code == 0) {
        ASSERT_EQ(header.payload_bytes, 0u);
      }
    } else if (header.kind == Kind::kRequest) {
      ASSERT_EQ(header.flow_id, 0u);
      ASSERT_NE(header.method_id, 0u);
      ASSERT_LE(header.timeout_ns, kMaxTimeoutNs);
      ASSERT_EQ(header.status_code, 0);
    } else {
      ASSERT_EQ(header.kind, Kind::kReply);
      ASSERT_EQ(header.flow_id, 0u);
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
