// SPDX-License-Identifier: Apache-2.0
//
// Noticing: a request that runs a function while the library serialises it, that is, while a call is being started.
#ifndef SLUICE_TESTS_MIDDLEWARE_API_NOTICING_H_
#define SLUICE_TESTS_MIDDLEWARE_API_NOTICING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "google/protobuf/message_lite.h"

namespace sluice::testing_support {

// Runs the function once, when the library asks for its size.
class Noticing final : public google::protobuf::MessageLite {
 public:
  explicit Noticing(std::function<void()> when) : when_(std::move(when)) {}
  std::string GetTypeName() const override { return "Noticing"; }
  Noticing* New(google::protobuf::Arena*) const override { return new Noticing({}); }
  void Clear() override {}
  bool IsInitialized() const override { return true; }
  void CheckTypeAndMergeFrom(const MessageLite&) override {}
  size_t ByteSizeLong() const override {
    if (const auto when = std::exchange(when_, {})) when();
    return 0;
  }
  int GetCachedSize() const override { return 0; }
  uint8_t* _InternalSerialize(uint8_t* at,
                              google::protobuf::io::EpsCopyOutputStream*) const override {
    return at;
  }

 private:
  mutable std::function<void()> when_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_MIDDLEWARE_API_NOTICING_H_
