// SPDX-License-Identifier: Apache-2.0
//
// RawMessage, RawStream: calls with messages that are bytes, for proxies and recorders. The program does not need the .proto.
//
//   sluice::RawMessage request(bytes), reply;
//   const sluice::Method method("/shop.v1.Shop/Order");          // call::Streams names the kind of call
//   absl::Status status = channel->Call(method, context, request, &reply);
//   … reply.bytes()
//
// Purpose       A RawMessage takes the place of a message of any type, in each function of Channel, and in client_call.h and
//               stream.h. On the wire there is no difference. RawStream is the caller's side of a call in which the client, the
//               server, or both stream. As the request or reply type of a bound method, RawMessage serves handlers too.
// Ownership     RawMessage: a value, which may be moved. RawStream: as ClientReaderWriter (stream.h).
// Threads       RawMessage: as any value. RawStream: as stream.h.
// Errors        The bytes are not checked: the receiver reports bytes that it cannot parse.
#ifndef SLUICE_MIDDLEWARE_API_RAW_MESSAGE_H_
#define SLUICE_MIDDLEWARE_API_RAW_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "google/protobuf/message_lite.h"
#include "middleware/api/stream.h"

namespace sluice {

class RawMessage final : public google::protobuf::MessageLite {
 public:
  RawMessage() = default;
  explicit RawMessage(std::string bytes) : bytes_(std::move(bytes)) {}
  RawMessage(RawMessage&& other) noexcept : bytes_(std::move(other.bytes_)) {}
  RawMessage& operator=(RawMessage&& other) noexcept {
    bytes_ = std::move(other.bytes_);
    return *this;
  }

  const std::string& bytes() const& { return bytes_; }
  const std::string& bytes() const&& = delete;
  void set_bytes(std::string bytes) { bytes_ = std::move(bytes); }
  // Moves the bytes out. The message is empty afterwards.
  std::string TakeBytes() { return std::exchange(bytes_, std::string()); }

  // What protobuf asks of a message.
  std::string GetTypeName() const override { return "sluice.RawMessage"; }
  RawMessage* New(google::protobuf::Arena* arena) const override;
  void Clear() override { bytes_.clear(); }
  bool IsInitialized() const override { return true; }
  // `other` is a RawMessage.
  void CheckTypeAndMergeFrom(const google::protobuf::MessageLite& other) override {
    bytes_ += static_cast<const RawMessage&>(other).bytes_;
  }
  size_t ByteSizeLong() const override { return bytes_.size(); }
  int GetCachedSize() const override { return static_cast<int>(bytes_.size()); }
  const char* _InternalParse(const char* at,
                             google::protobuf::internal::ParseContext* context) override;
  uint8_t* _InternalSerialize(uint8_t* target,
                              google::protobuf::io::EpsCopyOutputStream* stream) const override;

 private:
  std::string bytes_;
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
  auto CoWrite(const RawMessage& message) { return AwaitWrite(message); }
  void StartWrite(const RawMessage& message, Callback done) {
    CallBackWrite(message, std::move(done));
  }
  void WritesDone() { core_->EndWrites(); }
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_RAW_MESSAGE_H_
