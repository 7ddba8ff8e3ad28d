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
namespace frame_test {

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

// What belongs to a call that is under way.
Header OfCall(Kind kind) {
  Header header;
  header.kind = kind;
  header.sequence = 9;
  header.call_id = 0x3132333435363738;
  if (kind == Kind::kStreamData) header.payload_bytes = 3;
  if (kind == Kind::kStreamData || kind == Kind::kStreamWindow) header.flow_window = 0x51525354;
  if (kind == Kind::kDrain) header.call_id = 0;  // it is about all calls
  if (kind == Kind::kTaken) header.call_id = 0x35363738;
  return header;
}

constexpr Kind kCallKinds[] = {Kind::kCancel,        Kind::kStreamData, Kind::kStreamWindow,
                               Kind::kStreamEnd,     Kind::kDrain,      Kind::kTaken,
                               Kind::kStreamMetadata};

std::vector<std::byte> Message(const Header& header, const std::string& payload) {
  std::vector<std::byte> bytes(kHeaderBytes + payload.size());
  Encode(header, bytes.data());
  std::memcpy(bytes.data() + kHeaderBytes, payload.data(), payload.size());
  return bytes;
}

std::string Hex(std::span<const std::byte> bytes) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

TEST(FrameTest, GoldenRequest) {
  EXPECT_EQ(Hex(Message(Request(), "abc")),
            "0801000000000000"
            "1413121100000000"
            "3837363534333231"
            "4847464544434241"
            "00ca9a3b00000000"
            "0300000000000000"
            "616263");
}

TEST(FrameTest, GoldenReply) {
  EXPECT_EQ(Hex(Message(Reply(), "abc")),
            "0802000000000000"
            "0700000000000000"
            "3837363534333231"
            "0000000000000000"
            "0000000000000000"
            "030000000e000000"
            "616263");
}

TEST(FrameTest, GoldenMessagesOfAFlow) {
  EXPECT_EQ(Hex(Message(OfFlow(Kind::kFlowOpen), "\x02xy")),
            "0803000000000000"
            "0900000054535251"
            "6463626100000000"
            "0000000000000000"
            "0000000000000000"
            "0300000000000000"
            "027879");
  EXPECT_EQ(Hex(Message(OfFlow(Kind::kFlowAccept), "")),
            "0804000024232221"
            "0900000054535251"
            "6463626100000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000");
  EXPECT_EQ(Hex(Message(OfFlow(Kind::kFlowData), "abc")),
            "0805000024232221"
            "0900000054535251"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0300000000000000"
            "616263");
  EXPECT_EQ(Hex(Message(OfFlow(Kind::kFlowWindow), "")),
            "0806000024232221"
            "0900000054535251"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000");
  EXPECT_EQ(Hex(Message(OfFlow(Kind::kFlowClose), "abc")),
            "0807000024232221"
            "0900000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0300000008000000"
            "616263");
}

TEST(FrameTest, GoldenMessagesOfACall) {
  EXPECT_EQ(Hex(Message(OfCall(Kind::kCancel), "")),
            "0808000000000000"
            "0900000000000000"
            "3837363534333231"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000");
  EXPECT_EQ(Hex(Message(OfCall(Kind::kStreamData), "abc")),
            "0809000000000000"
            "0900000054535251"
            "3837363534333231"
            "0000000000000000"
            "0000000000000000"
            "0300000000000000"
            "616263");
  EXPECT_EQ(Hex(Message(OfCall(Kind::kStreamWindow), "")),
            "080a000000000000"
            "0900000054535251"
            "3837363534333231"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000");
  EXPECT_EQ(Hex(Message(OfCall(Kind::kStreamEnd), "")),
            "080b000000000000"
            "0900000000000000"
            "3837363534333231"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000");
}

TEST(FrameTest, GoldenDrain) {
  EXPECT_EQ(Hex(Message(OfCall(Kind::kDrain), "")),
            "080c000000000000"
            "0900000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000"
            "0000000000000000");
}

TEST(FrameTest, GoldenMetadata) {
  Header header = Request();
  std::vector<std::byte> payload(MetadataBytes(2) + 1);
  std::byte* const message = PutMetadata("mm", header, payload.data());
  ASSERT_EQ(message, payload.data() + 4);
  *message = std::byte{'x'};
  header.payload_bytes = 5;
  const std::vector<std::byte> bytes =
      Message(header, std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
  EXPECT_EQ(Hex(bytes).substr(0, 16), "0801010000000000");
  EXPECT_EQ(Hex(bytes).substr(96), "02006d6d78");
  Header got;
  ASSERT_EQ(Decode(bytes, &got), Fault::kNone);
  const Parts parts = Split(got, std::span(bytes).subspan(kHeaderBytes));
  EXPECT_EQ(parts.metadata.size(), 2u);
  ASSERT_EQ(parts.message.size(), 1u);
  EXPECT_EQ(parts.message[0], std::byte{'x'});

  EXPECT_EQ(MetadataBytes(0), 0u);
  header = Request();
  EXPECT_EQ(PutMetadata("", header, payload.data()), payload.data());
  EXPECT_EQ(header.flags, 0);
  EXPECT_EQ(Split(header, payload).message.size(), payload.size());
}

TEST(FrameTest, GoldenAttachment) {
  for (const bool with_metadata : {false, true}) {
    Header header = Request();
    const std::string attached = "aaa";
    std::vector<std::byte> payload(AttachmentBytes(3) + (with_metadata ? MetadataBytes(2) : 0) + 1);
    std::byte* place = PutMetadata(with_metadata ? "mm" : "", header, payload.data());
    place = PutAttachment(std::as_bytes(std::span(attached)), header, place);
    ASSERT_EQ(place, payload.data() + payload.size() - 1);
    *place = std::byte{'x'};
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    const std::vector<std::byte> bytes =
        Message(header, std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
    EXPECT_EQ(Hex(bytes).substr(0, 16), with_metadata ? "0801210000000000" : "0801200000000000");
    EXPECT_EQ(Hex(bytes).substr(96),
              std::string(with_metadata ? "02006d6d" : "") + "0300000061616178");
    Header got;
    ASSERT_EQ(Decode(bytes, &got), Fault::kNone);
    const Parts parts = Split(got, std::span(bytes).subspan(kHeaderBytes));
    EXPECT_EQ(parts.metadata.size(), with_metadata ? 2u : 0u);
    EXPECT_EQ(Hex(parts.attachment), "616161");
    EXPECT_EQ(Hex(parts.message), "78");
    // A byte of the message is the last that may be missing.
    for (size_t size = 0; size < payload.size(); ++size) {
      header.payload_bytes = static_cast<uint32_t>(size);
      const Fault fault = Decode(
          Message(header, std::string(reinterpret_cast<const char*>(payload.data()), size)), &got);
      EXPECT_EQ(fault == Fault::kNone, size == payload.size() - 1) << size;
    }
  }
  EXPECT_EQ(AttachmentBytes(0), 0u);
  Header header = Request();
  EXPECT_EQ(PutAttachment({}, header, nullptr), nullptr);
  EXPECT_EQ(header.flags, 0);
}

TEST(FrameTest, AttachmentsThatCanNotBe) {
  Header header = Request();
  header.flags = kFlagAttachment;
  const auto fault = [&](const std::string& payload) {
    Header got;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    return Decode(Message(header, payload), &got);
  };
  EXPECT_EQ(fault(std::string("\1\0\0\0a", 5)), Fault::kNone);
  EXPECT_EQ(fault(""), Fault::kAttachment);
  EXPECT_EQ(fault(std::string("\0\0\0\0a", 5)), Fault::kAttachment) << "empty";
  EXPECT_EQ(fault(std::string("\2\0\0\0a", 5)), Fault::kAttachment);
  EXPECT_EQ(fault("\xff\xff\xff\xff"), Fault::kAttachment);
  header = Reply();
  header.flags = kFlagAttachment;
  header.status_code = 0;
  EXPECT_EQ(fault(std::string("\1\0\0\0a", 5)), Fault::kNone);
  header.status_code = 5;
  EXPECT_EQ(fault(std::string("\1\0\0\0a", 5)), Fault::kReserved) << "not with an error";
  header = OfCall(Kind::kStreamData);
  header.flags = kFlagAttachment;
  EXPECT_EQ(fault(std::string("\1\0\0\0a", 5)), Fault::kReserved);
}

TEST(FrameTest, DecodeWhatWasEncoded) {
  for (Kind kind : kCallKinds) {
    Header got;
    const Header sent = OfCall(kind);
    EXPECT_EQ(Decode(Message(sent, std::string(sent.payload_bytes, 'a')), &got), Fault::kNone);
    EXPECT_EQ(got, sent);
  }
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
  EXPECT_EQ(FaultOf(header), Fault::kOtherVersion);
  header = Request();
  header.kind = static_cast<Kind>(0);
  EXPECT_EQ(FaultOf(header), Fault::kKind);
  header.kind = static_cast<Kind>(15);
  EXPECT_EQ(FaultOf(header), Fault::kKind);
  header = Request();
  header.flags = 8;
  EXPECT_EQ(FaultOf(header), Fault::kReserved);
  header = Reply();
  header.flags = kFlagNotRun;
  EXPECT_EQ(FaultOf(header), Fault::kNone);
  header.status_code = 0;
  EXPECT_EQ(FaultOf(header), Fault::kReserved) << "a call that succeeded has run";
  header = OfCall(Kind::kDrain);
  EXPECT_EQ(FaultOf(header, ""), Fault::kNone);
  header.call_id = 1;
  EXPECT_EQ(FaultOf(header, ""), Fault::kCall);
  header = Reply();
  header.flags = kFlagServerStreams;
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

TEST(FrameTest, EachFaultOfAMessageOfACallIsFound) {
  for (Kind kind : kCallKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto fault = [kind](auto change) {
      Header header = OfCall(kind);
      change(header);
      return FaultOf(header, std::string(header.payload_bytes, 'a'));
    };
    const bool window = kind == Kind::kStreamData || kind == Kind::kStreamWindow;
    EXPECT_EQ(fault([](Header& h) { h.flags = 1; }),
              kind == Kind::kStreamMetadata ? Fault::kMetadata : Fault::kReserved);
    EXPECT_EQ(fault([](Header& h) { h.flags = kFlagAttachment; }), Fault::kReserved);
    EXPECT_EQ(fault([](Header& h) { h.flow_id = 1; }), Fault::kFlow);
    EXPECT_EQ(fault([](Header& h) { h.flow_window = 1; }), window ? Fault::kNone : Fault::kFlow);
    EXPECT_EQ(fault([](Header& h) { h.method_id = 1; }), Fault::kMethod);
    EXPECT_EQ(fault([](Header& h) { h.timeout_ns = 1; }), Fault::kTimeout);
    EXPECT_EQ(fault([](Header& h) { h.status_code = 1; }), Fault::kStatus);
    EXPECT_EQ(fault([](Header& h) { h.payload_bytes = 1; }),
              kind == Kind::kStreamData ? Fault::kNone : Fault::kPayload);
  }
}

std::string Bytes(const Place& place) {
  std::string bytes(kPlaceBytes, 0);
  Encode(place, reinterpret_cast<std::byte*>(bytes.data()));
  return bytes;
}

TEST(FrameTest, GoldenPlace) {
  const Place place{
      .address = 0x0102030405060708, .bytes = 0x11121314, .key = 0x21222324, .number = 0x31323334};
  Header header = OfCall(Kind::kStreamData);
  header.flags = kFlagLarge;
  header.payload_bytes = kPlaceBytes;
  const std::vector<std::byte> message = Message(header, Bytes(place));
  EXPECT_EQ(Hex(message),
            "0809100000000000"
            "0900000054535251"
            "3837363534333231"
            "0000000000000000"
            "0000000000000000"
            "1800000000000000"
            "0807060504030201"
            "1413121100000000"
            "2423222134333231");
  Header got;
  ASSERT_EQ(Decode(message, &got), Fault::kNone);
  EXPECT_EQ(PlaceIn(std::span(message).subspan(kHeaderBytes)), place);
  EXPECT_TRUE(IsAboutLarge(got));
}

TEST(FrameTest, APlaceThatCanNotBeIsAFault) {
  const auto fault = [](Header header, const std::string& payload) {
    header.flags |= kFlagLarge;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    return FaultOf(header, payload);
  };
  const std::string good = Bytes({.bytes = UINT32_MAX});
  EXPECT_EQ(fault(Request(), good), Fault::kNone);
  Header reply = Reply();
  reply.status_code = 0;
  EXPECT_EQ(fault(reply, good), Fault::kNone);
  EXPECT_EQ(fault(OfFlow(Kind::kFlowData), good), Fault::kNone);
  EXPECT_EQ(fault(Request(), good.substr(1)), Fault::kPlace);
  EXPECT_EQ(fault(Request(), good + "x"), Fault::kPlace);
  EXPECT_EQ(fault(Request(), Bytes({.bytes = 0})), Fault::kPlace);
  EXPECT_EQ(fault(Request(), Bytes({.bytes = uint64_t{1} << 32})), Fault::kPlace);
  Header failed = Reply();
  failed.status_code = 3;
  EXPECT_EQ(fault(failed, good), Fault::kReserved) << "errors are never large";
  EXPECT_EQ(fault(OfFlow(Kind::kFlowClose), good), Fault::kReserved);
}

// What could not be looked at before it was there.
TEST(FrameTest, MetadataOfALargeMessageIsCheckedWhenItHasCome) {
  Header header = Request();
  header.flags |= kFlagLarge | kFlagMetadata;
  header.payload_bytes = kPlaceBytes;
  Header good = header;
  const std::string payload("\x01\x00m", 3);
  EXPECT_EQ(Complete(&good, std::as_bytes(std::span(payload))), Fault::kNone);
  EXPECT_EQ(good.flags & kFlagLarge, 0);
  EXPECT_EQ(good.payload_bytes, 3u);
  EXPECT_EQ(Complete(&header, std::as_bytes(std::span(payload).first(2))), Fault::kMetadata);
}

TEST(FrameTest, MetadataThatDoesNotFitIsAFault) {
  const auto fault = [](const std::string& payload) {
    Header header = Reply();
    header.flags = kFlagMetadata;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    return FaultOf(header, payload);
  };
  EXPECT_EQ(fault(""), Fault::kMetadata);
  EXPECT_EQ(fault(std::string(1, 0)), Fault::kMetadata);
  EXPECT_EQ(fault(std::string(2, 0)), Fault::kNone);
  EXPECT_EQ(fault(std::string("\x01\x00", 2)), Fault::kMetadata);
  EXPECT_EQ(fault(std::string("\x01\x00m", 3)), Fault::kNone);
  EXPECT_EQ(fault(std::string("\xff\xff", 2) + std::string(65535, 'm')), Fault::kMetadata);
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
  for (int fault = 0; fault <= static_cast<int>(Fault::kAttachment); ++fault) {
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
        Message(seed % 3 == 0   ? OfFlow(kFlowKinds[random() % std::size(kFlowKinds)])
                : seed % 3 == 1 ? OfCall(kCallKinds[random() % std::size(kCallKinds)])
                : random() % 2  ? Request()
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
    ASSERT_EQ(header.reserved, 0u);
    ASSERT_LE(header.flags, header.kind == Kind::kRequest          ? 7u
                            : header.kind == Kind::kReply          ? 9u
                            : header.kind == Kind::kStreamMetadata ? 1u
                            : header.kind == Kind::kDrain          ? 64u
                                                                   : 0u);
    const Parts parts = Split(header, std::span(bytes).subspan(kHeaderBytes));
    ASSERT_EQ(MetadataBytes(parts.metadata.size()) + parts.message.size() +
                  (header.flags & kFlagMetadata && parts.metadata.empty() ? 2 : 0),
              header.payload_bytes);
    if (header.kind >= Kind::kFlowOpen && header.kind <= Kind::kFlowClose) {
      ASSERT_EQ(header.method_id | header.timeout_ns, 0u);
      ASSERT_LE(header.status_code, header.kind == Kind::kFlowClose ? kMaxStatusCode : 0);
      if (header.kind == Kind::kFlowOpen) {
        ASSERT_EQ(header.flow_id, 0u);
        ASSERT_GE(header.payload_bytes, 2u);
      } else if (header.kind != Kind::kFlowData && header.status_code == 0) {
        ASSERT_EQ(header.payload_bytes, 0u);
      }
    } else if (header.kind >= Kind::kTaken ||
               (header.kind >= Kind::kCancel && header.kind <= Kind::kDrain)) {
      ASSERT_EQ(header.flow_id, 0u);
      ASSERT_EQ(header.method_id | header.timeout_ns | header.status_code, 0u);
      if (header.kind != Kind::kStreamData && header.flags == 0) {
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

}  // namespace frame_test
}  // namespace sluice::frame
