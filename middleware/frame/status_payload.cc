// SPDX-License-Identifier: Apache-2.0
#include "middleware/frame/status_payload.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "transport/base/error.h"

namespace sluice::frame {
namespace {

using UrlLength = uint16_t;
using Length = uint32_t;

constexpr char kCut[] = "...";
constexpr size_t kCutBytes = sizeof(kCut) - 1;
// Maximum length of Note(). If there is room for less than two notes, only the beginning of the text is sent.
constexpr size_t kMaxNoteBytes = 192;

struct Entry {
  size_t bytes() const { return sizeof(UrlLength) + url.size() + sizeof(Length) + value.size(); }
  std::string url;
  absl::Cord value;
};

size_t BytesOf(const std::vector<Entry>& entries) {
  size_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.bytes();
  return bytes;
}

// Returns the payloads in a fixed order: Sluice's own first, then by type URL. absl::Status has them in no order.
std::vector<Entry> EntriesOf(const absl::Status& status) {
  std::vector<Entry> entries;
  status.ForEachPayload([&entries](absl::string_view url, const absl::Cord& value) {
    entries.push_back({std::string(url), value});
  });
  const auto is_ours = [](const Entry& entry) { return entry.url == base::kErrorDetailUrl; };
  std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return std::pair(!is_ours(a), a.url) < std::pair(!is_ours(b), b.url);
  });
  return entries;
}

// Returns the largest length, at most `limit`, that does not cut a UTF-8 sequence: the next byte is not a continuation byte.
size_t CutAt(absl::string_view text, size_t limit) {
  while (limit > 0 && (static_cast<uint8_t>(text[limit]) & 0xc0) == 0x80) --limit;
  return limit;
}

std::string Bounded(absl::string_view text, size_t limit) {
  if (text.size() <= limit) return std::string(text);
  if (limit < kCutBytes) return std::string(text.substr(0, CutAt(text, limit)));
  return absl::StrCat(text.substr(0, CutAt(text, limit - kCutBytes)), kCut);
}

// `by_size`: a part was omitted for lack of room, not because of the number of payloads or the length of a URL.
std::string Note(size_t text_bytes, size_t payloads, size_t payload_bytes, bool by_size) {
  std::string note = absl::StrCat(" [text of ", text_bytes, " bytes");
  if (payloads > 0) {
    absl::StrAppend(&note, ", and ", payloads, payloads == 1 ? " payload" : " payloads", " of ",
                    payload_bytes, " bytes left out");
  }
  if (by_size) return note + ": raise limits.max_message_bytes on both sides]";
  return absl::StrCat(note, ": at most ", kMaxStatusPayloads, " payloads with URLs of at most ",
                      UINT16_MAX, " bytes are sent]");
}

// Shortens a status that is over the limit: returns its text, and removes the payloads that do not fit from `entries`.
std::string Shorten(absl::string_view text, size_t room, std::vector<Entry>* entries) {
  if (room < 2 * kMaxNoteBytes) {
    entries->clear();
    return Bounded(text, room);
  }
  const size_t to_share = room - kMaxNoteBytes;
  size_t left = to_share - std::min(text.size(), to_share / 2);
  size_t payloads_out = 0;
  size_t bytes_out = 0;
  bool by_size = false;
  std::vector<Entry> kept;
  for (Entry& entry : *entries) {
    if (kept.size() < kMaxStatusPayloads && entry.url.size() <= UINT16_MAX &&
        entry.bytes() <= left) {
      left -= entry.bytes();
      kept.push_back(std::move(entry));
    } else {
      by_size = by_size || entry.bytes() > left;
      ++payloads_out;
      bytes_out += entry.value.size();
    }
  }
  *entries = std::move(kept);
  const size_t for_text = to_share - BytesOf(*entries);
  by_size = by_size || text.size() > for_text;
  return Bounded(text, for_text) + Note(text.size(), payloads_out, bytes_out, by_size);
}

template <typename Number>
void Append(size_t value, std::string* out) {
  const auto number = static_cast<Number>(value);
  out->append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Takes a length and that many bytes from the front. Returns nullopt if there are fewer bytes.
template <typename Number>
std::optional<absl::string_view> Take(absl::string_view* from) {
  Number bytes = 0;
  if (from->size() < sizeof(bytes)) return std::nullopt;
  std::memcpy(&bytes, from->data(), sizeof(bytes));
  if (bytes > from->size() - sizeof(bytes)) return std::nullopt;
  const absl::string_view taken = from->substr(sizeof(bytes), bytes);
  from->remove_prefix(sizeof(bytes) + bytes);
  return taken;
}

}  // namespace

std::string EncodeStatus(const absl::Status& status, uint32_t limit_bytes) {
  assert(!status.ok() && limit_bytes >= kMinStatusBytes);
  const size_t room = limit_bytes - kMinStatusBytes;
  std::vector<Entry> entries = EntriesOf(status);
  const bool fits = status.message().size() + BytesOf(entries) <= room &&
                    entries.size() <= kMaxStatusPayloads &&
                    std::none_of(entries.begin(), entries.end(),
                                 [](const Entry& entry) { return entry.url.size() > UINT16_MAX; });
  const std::string shortened = fits ? std::string() : Shorten(status.message(), room, &entries);
  const absl::string_view text = fits ? status.message() : absl::string_view(shortened);
  std::string payload;
  payload.reserve(kMinStatusBytes + text.size() + BytesOf(entries));
  Append<Length>(text.size(), &payload);
  payload.append(text.data(), text.size());
  for (const Entry& entry : entries) {
    Append<UrlLength>(entry.url.size(), &payload);
    payload.append(entry.url);
    Append<Length>(entry.value.size(), &payload);
    for (const absl::string_view chunk : entry.value.Chunks()) {
      payload.append(chunk.data(), chunk.size());
    }
  }
  return payload;
}

absl::Status DecodeStatus(uint16_t code, std::span<const std::byte> payload) {
  assert(code != 0);
  const auto status_code = static_cast<absl::StatusCode>(code);
  absl::string_view left(reinterpret_cast<const char*>(payload.data()), payload.size());
  const auto text = Take<Length>(&left);
  if (!text.has_value()) {
    return absl::Status(status_code, payload.size() < kMinStatusBytes
                                         ? "error reply without a text"
                                         : "error reply with a text longer than the message");
  }
  base::PrintDetailsAsText();
  absl::Status status(status_code, *text);
  for (uint32_t count = 0; count < kMaxStatusPayloads && !left.empty(); ++count) {
    const auto url = Take<UrlLength>(&left);
    if (!url.has_value()) break;
    const auto value = Take<Length>(&left);
    if (!value.has_value()) break;
    status.SetPayload(*url, absl::Cord(*value));
  }
  return status;
}

}  // namespace sluice::frame
