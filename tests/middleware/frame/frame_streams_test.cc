// SPDX-License-Identifier: Apache-2.0
//
// Initial metadata of streams, the window that a request says, and the flag of a server that needs the queue pair.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "middleware/frame/frame.h"

namespace sluice::frame {
namespace frame_streams_test {

std::vector<std::byte> Message(const Header& header, const std::string& payload) {
  std::vector<std::byte> bytes(kHeaderBytes + payload.size());
  Encode(header, bytes.data());
  std::memcpy(bytes.data() + kHeaderBytes, payload.data(), payload.size());
  return bytes;
}

Fault FaultOf(const Header& header, const std::string& payload) {
  Header decoded;
  return Decode(Message(header, payload), &decoded);
}

Header Empty() {
  Header header;
  header.kind = Kind::kStreamMetadata;
  header.sequence = 9;
  header.call_id = 0x3132333435363738;
  return header;
}

TEST(FrameStreamsTest, GoldenInitialMetadata) {
  Header header = Empty();
  header.flags = kFlagMetadata;
  header.payload_bytes = 5;
  const std::string payload("\x03\x00uvw", 5);
  const std::vector<std::byte> message = Message(header, payload);
  EXPECT_EQ(absl::BytesToHexString({reinterpret_cast<const char*>(message.data()), message.size()}),
            "080e010000000000"
            "0900000000000000"
            "3837363534333231"
            "0000000000000000"
            "0000000000000000"
            "0500000000000000"
            "0300757677");
  Header decoded;
  ASSERT_EQ(Decode(message, &decoded), Fault::kNone);
  const Parts parts = Split(decoded, std::span(message).subspan(kHeaderBytes));
  EXPECT_EQ(parts.metadata.size(), 3u);
  EXPECT_TRUE(parts.message.empty());
  EXPECT_EQ(FaultOf(Empty(), ""), Fault::kNone) << "it may be empty";
  header.payload_bytes = 6;
  EXPECT_EQ(FaultOf(header, payload + "x"), Fault::kPayload) << "nothing follows it";
  header.payload_bytes = 4;
  EXPECT_EQ(FaultOf(header, payload.substr(0, 4)), Fault::kMetadata);
  header.flags = kFlagMetadata | kFlagAttachment;
  header.payload_bytes = 5;
  EXPECT_EQ(FaultOf(header, payload), Fault::kReserved);
}

TEST(FrameStreamsTest, RequestSaysAWindowOnlyIfTheServerStreams) {
  Header header;
  header.method_id = 1;
  header.flow_window = 64;
  EXPECT_EQ(FaultOf(header, ""), Fault::kFlow);
  header.flags = kFlagClientStreams;
  EXPECT_EQ(FaultOf(header, ""), Fault::kFlow);
  header.flags = kFlagServerStreams;
  EXPECT_EQ(FaultOf(header, ""), Fault::kNone);
  header.flags = kFlagClientStreams | kFlagServerStreams;
  EXPECT_EQ(FaultOf(header, ""), Fault::kNone);
  header.kind = Kind::kReply;
  header.method_id = 0;
  header.flags = 0;
  EXPECT_EQ(FaultOf(header, ""), Fault::kFlow);
}

TEST(FrameStreamsTest, OnlyADrainMayAskToRest) {
  Header header;
  header.kind = Kind::kDrain;
  header.sequence = 9;
  header.flags = kFlagRest;
  const std::vector<std::byte> message = Message(header, "");
  EXPECT_EQ(absl::BytesToHexString({reinterpret_cast<const char*>(message.data()), message.size()}),
            "080c4000000000000900000000000000" + std::string(64, '0'));
  for (int bit = 0; bit < 16; ++bit) {
    header.flags = static_cast<uint16_t>(kFlagRest | 1 << bit);
    EXPECT_EQ(FaultOf(header, ""), header.flags == kFlagRest ? Fault::kNone : Fault::kReserved);
  }
  header.flags = kFlagRest;
  header.call_id = 1;
  EXPECT_EQ(FaultOf(header, ""), Fault::kCall);
  for (const Kind kind : {Kind::kRequest, Kind::kReply, Kind::kCancel, Kind::kStreamData,
                          Kind::kTaken, Kind::kFlowOpen, Kind::kFlowData, Kind::kStreamMetadata}) {
    header = Header();
    header.kind = kind;
    header.flags = kFlagRest;
    if (kind != Kind::kFlowOpen && kind != Kind::kFlowData) header.call_id = 1;
    if (kind == Kind::kRequest) header.method_id = 1;
    if (kind == Kind::kFlowOpen || kind == Kind::kFlowData) header.flow_window = 1;
    if (kind == Kind::kStreamData) header.flow_window = 1;
    if (kind == Kind::kFlowData) header.flow_id = 1;
    EXPECT_EQ(FaultOf(header, ""), Fault::kReserved) << static_cast<int>(kind);
  }
}

}  // namespace frame_streams_test
}  // namespace sluice::frame
