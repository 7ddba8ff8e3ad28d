// SPDX-License-Identifier: Apache-2.0
//
// Raw peers that are up at a server, and send more than they were granted.
#ifndef SLUICE_TESTS_TRANSPORT_ENDPOINT_OFFENDER_H_
#define SLUICE_TESTS_TRANSPORT_ENDPOINT_OFFENDER_H_

#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/raw_peer.h"

namespace sluice::endpoint {

inline Options WithWindow(uint32_t credits) {
  Options options = WithSecret();
  options.credits_per_peer = credits;
  return options;
}

class OffenderTest : public testing::Test {
 protected:
  static constexpr uint32_t kLooks = 64;  // more than it takes to hear of all that is there

  // Before the handler and the clock, which are the derived class's.
  void TearDown() override { server_.reset(); }

  void StartServer(const Options& options, Handler* handler, base::Clock* time = nullptr) {
    server_.emplace(options, &softdc::Verbs(), time, handler);
    const auto port = server_->endpoint->Listen("127.0.0.1", 0);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *port;
  }
  void Welcome(RawPeer& raw) {
    raw.Connect(port_, raw.Hello());
    Drive(*server_, raw, [&] { return raw.up || raw.down; });
    ASSERT_TRUE(raw.up && raw.welcomed) << raw.why;
  }
  // Its answer's terms are in terms_ then.
  void Prove(RawPeer& raw) {
    raw.Send(raw.Proof());
    Drive(*server_, raw, [&] { return !raw.received.empty() && raw.under_way == 0; });
    terms_ = raw.TakeAnswer();
  }
  void ConnectOffender(RawPeer& raw) {
    Welcome(raw);
    Prove(raw);
  }
  // All of them are there before the server looks.
  void SendData(RawPeer& raw, uint32_t first, uint32_t count) {
    const uint32_t dctn = std::exchange(raw.target.dctn[1], terms_.data_dctn);
    const uint64_t key = std::exchange(raw.target.key[1], terms_.data_key);
    for (uint32_t number = first; number < first + count; ++number) {
      std::vector<std::byte> bytes = raw.Prefix(peer::Kind::kData);
      const auto* body = reinterpret_cast<const std::byte*>(&number);
      bytes.insert(bytes.end(), body, body + sizeof(number));
      SendOne(raw, bytes);
    }
    Arrive(raw);
    raw.target.dctn[1] = dctn;
    raw.target.key[1] = key;
  }
  void SendControl(RawPeer& raw, peer::Kind kind, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) SendOne(raw, raw.Prefix(kind));
    Arrive(raw);
  }
  void Look() {
    for (uint32_t i = 0; i < kLooks; ++i) server_->endpoint->Poll();
  }

  std::optional<Node> server_;
  uint16_t port_ = 0;
  peer::Terms terms_;

 private:
  void SendOne(RawPeer& raw, const std::vector<std::byte>& bytes) {
    if (raw.under_way == static_cast<int>(RawPeer::kSlots)) Arrive(raw);
    raw.Send(bytes);
  }
  void Arrive(RawPeer& raw) {
    while (raw.under_way != 0) raw.Step();
  }
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TESTS_TRANSPORT_ENDPOINT_OFFENDER_H_
