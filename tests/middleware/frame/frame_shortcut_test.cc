// SPDX-License-Identifier: Apache-2.0
//
// DecodePlain() against DecodeAny(), which it stands in for.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "middleware/frame/frame.h"

namespace sluice::frame {
namespace frame_shortcut_test {

// The shortcut for requests, replies and data of flows without flags: with each value of each byte of the header it says what the checks say.
TEST(FrameShortcutTest, ShortcutAgreesWithTheChecksWhateverAByteIs) {
  Header request;
  request.method_id = 1;
  request.timeout_ns = 1;
  request.payload_bytes = 3;
  Header reply = request;
  reply.kind = Kind::kReply;
  reply.method_id = reply.timeout_ns = 0;
  const Header data = HeaderOf(FlowDataHeader{.flow_id = 7, .flow_window = 9, .payload_bytes = 3});
  uint64_t accepted = 0;
  for (const Header& plain : {request, reply, data}) {
    for (uint32_t at = 0; at < kHeaderBytes; ++at) {
      for (int value = 0; value < 256; ++value) {
        std::vector<std::byte> bytes(kHeaderBytes + 3);
        Encode(plain, bytes.data());
        bytes[at] = static_cast<std::byte>(value);
        Header quick;
        Header checked;
        const Fault fault = Decode(bytes, &quick);
        ASSERT_EQ(fault, internal::DecodeAny(bytes, &checked)) << at << " " << value;
        if (fault != Fault::kNone) continue;
        ASSERT_EQ(quick, checked) << at << " " << value;
        if (internal::DecodePlain(bytes, &quick)) ++accepted;
      }
    }
  }
  EXPECT_GT(accepted, 3u * 12 * 256) << "it takes the common ones";
  std::vector<std::byte> cut(kHeaderBytes);
  Encode(request, cut.data());
  Header header;
  EXPECT_FALSE(internal::DecodePlain(cut, &header));
  EXPECT_FALSE(internal::DecodePlain(std::span(cut).first(kHeaderBytes - 1), &header));
}

TEST(FrameShortcutTest, PlainHeadersAreWrittenAsAllHeaders) {
  const auto same = [](const auto& plain) {
    Header header = HeaderOf(plain);
    header.sequence = 0xfedcba98;
    std::vector<std::byte> quick(kHeaderBytes, std::byte{0xee});
    std::vector<std::byte> full(kHeaderBytes);
    EncodePlain(plain, header.sequence, quick.data());
    Encode(header, full.data());
    return quick == full;
  };
  EXPECT_TRUE(same(FlowDataHeader{
      .flow_id = 0x87654321, .flow_window = 0xabcdef01, .payload_bytes = 0x12345678}));
  EXPECT_TRUE(same(PlainHeader{.kind = Kind::kRequest,
                               .payload_bytes = 0x12345678,
                               .call_id = 0x8877665544332211,
                               .method_id = 0x1122334455667788,
                               .timeout_ns = 0x0102030405060708}));
  EXPECT_TRUE(
      same(PlainHeader{.kind = Kind::kReply, .payload_bytes = 1, .call_id = 0x8877665544332211}));
}

}  // namespace frame_shortcut_test
}  // namespace sluice::frame
