// SPDX-License-Identifier: Apache-2.0
//
// RawMessage: a protobuf message that is its bytes: neither parsing nor serialising looks at them.
//
//   RawMessage request(bytes);            // refers to the bytes
//   RawMessage reply;
//   absl::Status status = channel->Call(method, context, request, &reply);
//   std::string data = reply.Take();
//
// Ownership     The user. A message that was created from bytes refers to them until it is cleared, parsed or merged.
// Threads       As any message.
#ifndef SLUICE_MIDDLEWARE_C_API_RAW_MESSAGE_H_
#define SLUICE_MIDDLEWARE_C_API_RAW_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "google/protobuf/arena.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/message_lite.h"
#include "google/protobuf/parse_context.h"

namespace sluice::c_api {

class RawMessage final : public google::protobuf::MessageLite {
 public:
  RawMessage() = default;
  explicit RawMessage(std::string_view bytes) : bytes_(bytes) {}
  RawMessage(const RawMessage&) = delete;
  RawMessage& operator=(const RawMessage&) = delete;

  std::string_view bytes() const { return bytes_; }
  // Returns the bytes, and is empty afterwards.
  std::string Take() {
    std::string taken = bytes_.data() == own_.data() ? std::move(own_) : std::string(bytes_);
    Clear();
    return taken;
  }

  // ---- MessageLite
  std::string GetTypeName() const override { return "message"; }
  RawMessage* New(google::protobuf::Arena* arena) const override {
    auto* const made = new RawMessage;
    if (arena != nullptr) arena->Own(made);
    return made;
  }
  void Clear() override {
    own_.clear();
    bytes_ = own_;
  }
  bool IsInitialized() const override { return true; }
  // The messages that are merged are raw too.
  void CheckTypeAndMergeFrom(const google::protobuf::MessageLite& other) override {
    std::string merged(bytes_);
    merged += static_cast<const RawMessage&>(other).bytes_;
    own_ = std::move(merged);
    bytes_ = own_;
  }
  size_t ByteSizeLong() const override { return bytes_.size(); }
  int GetCachedSize() const override { return static_cast<int>(bytes_.size()); }
  uint8_t* _InternalSerialize(uint8_t* target,
                              google::protobuf::io::EpsCopyOutputStream* stream) const override {
    if (bytes_.empty()) return target;  // there may be no pointer to copy from
    return stream->WriteRaw(bytes_.data(), static_cast<int>(bytes_.size()), target);
  }
  // The bytes are in one piece, since payloads of Sluice are.
  const char* _InternalParse(const char* at,
                             google::protobuf::internal::ParseContext* context) override {
    at = context->ReadString(at, context->BytesUntilLimit(at), &own_);
    bytes_ = own_;
    return at;
  }

 private:
  std::string own_;
  std::string_view bytes_;
};

}  // namespace sluice::c_api

#endif  // SLUICE_MIDDLEWARE_C_API_RAW_MESSAGE_H_
