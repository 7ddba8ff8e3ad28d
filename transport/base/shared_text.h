// SPDX-License-Identifier: Apache-2.0
//
// SharedText: a constant text with several owners, in eight bytes each. For names of peers, which many records need for their errors.
//
// Ownership     The last owner frees the text.
// Threads       One: all owners of a text are used by the same thread.
// Limits        65,535 owners. The text contains no zero.
#ifndef SLUICE_TRANSPORT_BASE_SHARED_TEXT_H_
#define SLUICE_TRANSPORT_BASE_SHARED_TEXT_H_

#include <cstdint>
#include <cstring>
#include <new>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::base {

class SharedText {
 public:
  SharedText() = default;
  SharedText(std::string_view text) {  // NOLINT(google-explicit-constructor): it is a text
    if (text.empty()) return;
    void* memory = ::operator new(sizeof(Body) + text.size() + 1);
    body_ = new (memory) Body{.owners = 1};
    std::memcpy(body_ + 1, text.data(), text.size());
    reinterpret_cast<char*>(body_ + 1)[text.size()] = 0;
  }
  SharedText(const std::string& text) : SharedText(std::string_view(text)) {}  // NOLINT
  SharedText(const char* text) : SharedText(std::string_view(text)) {}         // NOLINT
  SharedText(const SharedText& other) : body_(other.body_) {
    if (body_ != nullptr) ++body_->owners;
  }
  SharedText(SharedText&& other) noexcept : body_(std::exchange(other.body_, nullptr)) {}
  SharedText& operator=(SharedText other) noexcept {
    std::swap(body_, other.body_);
    return *this;
  }
  ~SharedText() {
    if (body_ != nullptr && --body_->owners == 0) ::operator delete(body_);
  }

  std::string_view view() const {
    if (body_ == nullptr) return {};
    return reinterpret_cast<const char*>(body_ + 1);
  }
  std::string str() const { return std::string(view()); }
  operator std::string_view() const { return view(); }  // NOLINT(google-explicit-constructor)
  bool empty() const { return body_ == nullptr; }

  friend std::ostream& operator<<(std::ostream& out, const SharedText& text) {
    return out << text.view();
  }

 private:
  // The characters and a terminating zero follow the body. So the longest IPv4 address with its port (21 characters) fits the smallest
  // allocation of malloc.
  struct Body {
    uint16_t owners;
  };

  Body* body_ = nullptr;  // null: empty
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_SHARED_TEXT_H_
