// SPDX-License-Identifier: Apache-2.0
//
// RawMessage, RawStream: calls with messages that are bytes, for proxies and recorders. The program does not need the .proto.
//
//   sluice::RawMessage request(bytes), reply;
//   const sluice::Method method("/shop.v1.Shop/Order");          // call::Streams selects the kind of call
//   absl::Status status = channel->Call(method, context, request, &reply);
//   … reply.bytes()
//
// Purpose       A RawMessage takes the place of a message of any type, in each function of Channel, and in client_call.h and
//               stream.h. On the wire there is no difference. RawStream is the caller's side of a call in which the client, the
//               server, or both stream. As the request or reply type of a bound method, RawMessage serves handlers too.
// Ownership     RawMessage: a value, which may be moved. RawMessage::Referring() creates a message that refers to the bytes of the
//               caller, so that sending does not copy them first. RawStream: as ClientReaderWriter (stream.h).
// Threads       RawMessage: as any value. RawStream: as stream.h.
// Errors        The bytes are not checked: the receiver reports bytes that it cannot parse.
#ifndef SLUICE_MIDDLEWARE_API_RAW_MESSAGE_H_
#define SLUICE_MIDDLEWARE_API_RAW_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "google/protobuf/message_lite.h"
#include "middleware/api/stream.h"

namespace sluice {

class RawMessage final : public google::protobuf::MessageLite {
 public:
  RawMessage() = default;
  explicit RawMessage(std::string bytes) : own_(std::move(bytes)) {}
  RawMessage(RawMessage&& other) noexcept { *this = std::move(other); }
  // `other` is empty afterwards.
  RawMessage& operator=(RawMessage&& other) noexcept {
    if (this == &other) return *this;
    own_ = std::exchange(other.own_, std::string());
    referred_ = std::exchange(other.referred_, std::nullopt);
    return *this;
  }

  // A message that refers to `bytes`, which outlive it and do not change, until it is cleared, set or parsed. Copies that protobuf
  // makes of it own their bytes.
  static RawMessage Referring(std::string_view bytes) {
    RawMessage message;
    message.referred_ = bytes;
    return message;
  }

  std::string_view bytes() const& { return referred_.has_value() ? *referred_ : own_; }
  std::string_view bytes() const&& = delete;
  void set_bytes(std::string bytes) {
    referred_.reset();
    own_ = std::move(bytes);
  }
  // Moves the bytes out. If the message refers to bytes of the caller, copies them. The message is empty afterwards.
  std::string TakeBytes() {
    Own();
    return std::exchange(own_, std::string());
  }

  // Interface of google::protobuf::MessageLite.
  std::string GetTypeName() const override { return "sluice.RawMessage"; }
  RawMessage* New(google::protobuf::Arena* arena) const override;
  void Clear() override {
    referred_.reset();
    own_.clear();
  }
  bool IsInitialized() const override { return true; }
  // `other` is a RawMessage.
  void CheckTypeAndMergeFrom(const google::protobuf::MessageLite& other) override {
    Own();
    own_ += static_cast<const RawMessage&>(other).bytes();
  }
  size_t ByteSizeLong() const override { return bytes().size(); }
  int GetCachedSize() const override { return static_cast<int>(bytes().size()); }
  const char* _InternalParse(const char* at,
                             google::protobuf::internal::ParseContext* context) override;
  uint8_t* _InternalSerialize(uint8_t* target,
                              google::protobuf::io::EpsCopyOutputStream* stream) const override;

 private:
  // Copies the bytes that the message refers to.
  void Own() {
    if (referred_.has_value()) own_.assign(*std::exchange(referred_, std::nullopt));
  }

  std::string own_;                           // empty while `referred_` is set
  std::optional<std::string_view> referred_;  // bytes of the caller
};

class RawStream : public internal::ClientStreamBase {
 public:
  // `request`: nullptr if the client streams; copied. `reply`: nullptr if the server streams; set if Finish() returns OK.
  RawStream(Channel* channel, const Method& method, CallContext& context, const RawMessage* request,
            RawMessage* reply)
      : ClientStreamBase(
            std::make_unique<internal::StreamCore>(channel, method, context, request, reply)) {}
  // As in ClientReaderWriter. Read functions: the server streams. Write functions: the client streams.
  bool Read(RawMessage* message) { return core_->WaitRead(message); }
  auto CoRead(RawMessage* message) { return AwaitRead(message); }
  void StartRead(RawMessage* message, Callback done) { CallBackRead(message, std::move(done)); }
  bool Write(const RawMessage& message) { return core_->WaitWrite(message); }
  [[nodiscard]] WriteAttempt TryWrite(const RawMessage& message) {
    return core_->WriteNow(message);
  }
  auto CoWrite(const RawMessage& message) { return AwaitWrite(message); }
  void StartWrite(const RawMessage& message, Callback done) {
    CallBackWrite(message, std::move(done));
  }
  void WritesDone() { core_->EndWrites(); }
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_RAW_MESSAGE_H_
