// SPDX-License-Identifier: Apache-2.0
//
// Messages of calls and flows, and large messages once they have been read: the first byte says which. Its highest bit says that the
// version is the input's own; otherwise it is replaced, so that the corpus outlives a new version.
#include <vector>

#include "middleware/frame/frame.h"
#include "middleware/frame/status_payload.h"
#include "tests/transport/peer/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  if (size == 0) return 0;
  const bool read = data[0] & 1;
  const auto flags = static_cast<uint16_t>(data[0] >> 1);
  const peer::Bytes input = peer::Input(data, size).subspan(1);
  std::vector<std::byte> copy(input.begin(), input.end());
  if (!read && !(data[0] & 0x80) && !copy.empty()) copy[0] = std::byte{frame::kVersion};
  const peer::Bytes bytes = copy;
  frame::Header header;
  peer::Bytes payload;
  if (read) {
    header.flags = flags | frame::kFlagLarge;
    payload = bytes;
    if (frame::Complete(&header, payload) != frame::Fault::kNone) return 0;
  } else {
    if (frame::Decode(bytes, &header) != frame::Fault::kNone) return 0;
    ++peer::accepted;
    payload = bytes.subspan(frame::kHeaderBytes);
  }
  peer::Require(header.payload_bytes == payload.size(), "a payload is what follows the header");
  if (header.flags & frame::kFlagLarge) {
    const frame::Place place = frame::PlaceIn(payload);
    peer::Require(place.bytes != 0 && place.bytes <= UINT32_MAX, "a place has a length");
    return 0;
  }
  const frame::Parts parts = frame::Split(header, payload);
  peer::Require(
      parts.metadata.size() + parts.attachment.size() + parts.message.size() <= payload.size(),
      "all parts are in the payload");
  peer::Require(!(header.flags & frame::kFlagAttachment) || !parts.attachment.empty(),
                "an attachment is one");
  if (header.status_code != 0) (void)frame::DecodeStatus(header.status_code, parts.message);
  return 0;
}
