// SPDX-License-Identifier: Apache-2.0
//
// A PlainMessage against protobuf: the same bytes out, and the same message or refusal in.
#include "middleware/call/plain_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <string>

#include "tests/middleware/call/plain.pb.h"

namespace sluice::call {
namespace plain_message_test {

using plain_test::More;
using plain_test::Plain;

using Codec = PlainMessage<
    Plain, BytesField<1, &Plain::payload, &Plain::mutable_payload, &Plain::clear_payload>,
    TextField<2, &Plain::text, &Plain::mutable_text, &Plain::clear_text>,
    VarintField<3, &Plain::small, &Plain::set_small>,
    VarintField<4, &Plain::large, &Plain::set_large>,
    VarintField<5, &Plain::count, &Plain::set_count>,
    VarintField<6, &Plain::total, &Plain::set_total>,
    VarintField<7, &Plain::flag, &Plain::set_flag>,
    VarintField<8, &Plain::color, &Plain::set_color>, FixedField<9, &Plain::four, &Plain::set_four>,
    FixedField<10, &Plain::eight, &Plain::set_eight>,
    FixedField<11, &Plain::signed_four, &Plain::set_signed_four>,
    FixedField<12, &Plain::signed_eight, &Plain::set_signed_eight>,
    FixedField<13, &Plain::single, &Plain::set_single>,
    FixedField<14, &Plain::twice, &Plain::set_twice>,
    TextField<15, &Plain::last, &Plain::mutable_last, &Plain::clear_last>>;

std::string Written(const Plain& message) {
  std::string bytes(Codec::kCodec.size(message), '?');
  Codec::kCodec.write(message, bytes.size(), reinterpret_cast<std::byte*>(bytes.data()));
  return bytes;
}

bool Read(const std::string& bytes, Plain* message) {
  return Codec::kCodec.read(std::as_bytes(std::span(bytes)), message);
}

class Random {
 public:
  uint64_t Below(uint64_t limit) { return engine_() % limit; }
  // Small and large ones, each sign, zeros among them.
  uint64_t Number() { return Below(4) == 0 ? 0 : engine_() >> Below(64); }
  int64_t SignedNumber() {
    const auto number = static_cast<int64_t>(Number());
    return Below(2) == 0 ? number : -number;
  }
  std::string Text(bool any_byte) {
    std::string text(Below(3) == 0 ? 0 : Below(200), '\0');
    for (char& c : text) c = static_cast<char>(Below(any_byte ? 256 : 128));
    return text;
  }
  Plain Message() {
    Plain message;
    message.set_payload(Text(true));
    message.set_text(Text(false));
    message.set_small(static_cast<int32_t>(SignedNumber()));
    message.set_large(SignedNumber());
    message.set_count(static_cast<uint32_t>(Number()));
    message.set_total(Number());
    message.set_flag(Below(2) == 0);
    message.set_color(static_cast<Plain::Color>(static_cast<int32_t>(SignedNumber())));
    message.set_four(static_cast<uint32_t>(Number()));
    message.set_eight(Number());
    message.set_signed_four(static_cast<int32_t>(SignedNumber()));
    message.set_signed_eight(SignedNumber());
    message.set_single(static_cast<float>(SignedNumber()));
    message.set_twice(Below(8) == 0 ? -0.0 : static_cast<double>(SignedNumber()));
    if (Below(2) == 0) message.set_last(Below(2) == 0 ? "\u00fcber" : Text(false));
    // Some have few fields.
    if (Below(3) == 0) {
      const std::string payload = message.payload();
      const uint32_t count = message.count();
      message.Clear();
      message.set_payload(payload);
      message.set_count(count);
    }
    return message;
  }
  // What a peer may send: often what protobuf writes, with a few changes.
  std::string Bytes() {
    std::string bytes = Message().SerializeAsString();
    if (Below(8) == 0) bytes += Message().SerializeAsString();  // fields twice, and out of order
    if (Below(8) == 0) {
      More more;
      more.set_count(static_cast<uint32_t>(Number()));
      more.add_extra("unknown");
      bytes += more.SerializeAsString();
    }
    for (uint64_t changes = Below(3); changes != 0 && !bytes.empty(); --changes) {
      const size_t at =
          Below(2) == 0 ? Below(std::min<size_t>(bytes.size(), 8)) : Below(bytes.size());
      switch (Below(4)) {
        case 0:
          bytes[at] = static_cast<char>(Below(256));
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(8)));
          break;
        case 2:
          bytes.resize(at);
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(Below(256)));
      }
    }
    return bytes;
  }

 private:
  std::mt19937_64 engine_{23};
};

TEST(PlainMessageTest, WritesWhatProtobufWrites) {
  Random random;
  for (int i = 0; i < 3000; ++i) {
    const Plain message = random.Message();
    ASSERT_EQ(Codec::kCodec.size(message), message.ByteSizeLong()) << message.ShortDebugString();
    ASSERT_EQ(Written(message), message.SerializeAsString()) << message.ShortDebugString();
  }
}

// Into a message that has any content already.
TEST(PlainMessageTest, ReadsWhatProtobufReadsAndRefusesWhatItRefuses) {
  Random random;
  int read = 0;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::string bytes = random.Bytes();
    Plain expected;
    const bool ok = expected.ParseFromString(bytes);
    Plain message = random.Message();
    if (random.Below(8) == 0) {
      More more;
      more.add_extra("from before");
      ASSERT_TRUE(message.MergeFromString(more.SerializeAsString()));
    }
    ASSERT_EQ(Read(bytes, &message), ok) << "message " << i << ": " << expected.ShortDebugString();
    if (ok) {
      ASSERT_EQ(message.SerializeAsString(), expected.SerializeAsString()) << "message " << i;
    }
    ++(ok ? read : refused);
  }
  EXPECT_GT(read, 5000);
  EXPECT_GT(refused, 5000);
}

TEST(PlainMessageTest, UnknownFieldsAreKeptAndReplaced) {
  More more;
  more.set_payload("payload");
  more.add_extra("unknown");
  const std::string bytes = more.SerializeAsString();
  Plain message;
  ASSERT_TRUE(Read(bytes, &message));
  EXPECT_EQ(message.payload(), "payload");
  EXPECT_TRUE(internal::UnknownFields::MayBeIn(message));
  EXPECT_EQ(Written(message), bytes);
  ASSERT_TRUE(Read("", &message));
  EXPECT_FALSE(internal::UnknownFields::MayBeIn(message));
  EXPECT_EQ(Written(message), "");
}

TEST(PlainMessageTest, TextThatIsNotUtf8IsRefused) {
  Plain message;
  EXPECT_TRUE(Read("\x12\x02\xc3\xbc", &message));
  EXPECT_EQ(message.text(), "\u00fc");
  EXPECT_FALSE(Read("\x12\x02\xc3\x28", &message));
  EXPECT_TRUE(Read("\x0a\x02\xc3\x28", &message));  // bytes may be anything
}

TEST(PlainMessageTest, FieldsThatAreMissingAreCleared) {
  Plain message;
  message.set_payload("old payload");
  message.set_text("old text");
  message.set_small(-1);
  message.set_flag(true);
  message.set_twice(0.5);
  Plain other;
  other.set_count(7);
  ASSERT_TRUE(Read(other.SerializeAsString(), &message));
  EXPECT_EQ(message.SerializeAsString(), other.SerializeAsString());
}

// A string of the size of the one before is overwritten, and one of another size too.
TEST(PlainMessageTest, StringsOfEachSizeAreReplaced) {
  Plain message;
  for (const char* payload : {"first", "other", "longer than before", "short", ""}) {
    Plain from;
    from.set_payload(payload);
    ASSERT_TRUE(Read(from.SerializeAsString(), &message));
    EXPECT_EQ(message.payload(), payload);
  }
}

// Its size said less: nothing is written behind the place.
TEST(PlainMessageTest, MessageThatGrewAfterItsSizeWasTakenStaysWithinItsPlace) {
  Plain message;
  message.set_payload("1234");
  const size_t bytes = Codec::kCodec.size(message);
  message.set_payload("12345678");
  std::string place(64, '#');
  internal::PlainWriter out(reinterpret_cast<std::byte*>(place.data()), bytes);
  out.Bytes(0x0a, message.payload());
  EXPECT_FALSE(out.Complete());
  EXPECT_EQ(place, std::string(64, '#'));
}

}  // namespace plain_message_test
}  // namespace sluice::call
