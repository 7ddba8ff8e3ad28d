// SPDX-License-Identifier: Apache-2.0
//
// Commands that nobody should write: never a crash, never a hang, and the next command works.
#include <random>

#include "tests/transport/softdc/ucma/ucma_fixture.h"

namespace sluice::softdc::ucma {
namespace fuzz_test {

constexpr size_t kRoom = 1024;

// What a command may do to the address it is given: that must be ours, or nobody's.
struct Buffers {
  alignas(8) std::byte command[kRoom]{};
  alignas(8) std::byte response[kRoom]{};
};

class Fuzzer {
 public:
  Fuzzer(uint32_t seed, std::vector<Descriptor*> descriptors)
      : random_(seed), descriptors_(std::move(descriptors)) {}

  void Round() {
    const uint32_t command = Below(abi::RDMA_USER_CM_CMD_JOIN_MCAST + 3);
    const size_t length = sizeof(abi::rdma_ucm_cmd_hdr) + Below(700);
    for (std::byte& byte : buffers_.command) {
      byte = Below(12) == 0 ? static_cast<std::byte>(random_()) : std::byte{0};
    }
    // Mostly something that means something in the places that are looked at.
    constexpr size_t kBody = sizeof(abi::rdma_ucm_cmd_hdr);
    for (const size_t at : kIdOffsets) {
      if (Below(2) == 0) Put<uint32_t>(kBody + at, Below(12));
    }
    for (const size_t at : {kBody, kBody + 8}) {
      const uint64_t nowhere = Below(2) == 0 ? 0x10 : 0xffff'ffff'0000'0000;
      if (Below(4) != 0) Put<uint64_t>(at, Below(8) != 0 ? Response() : nowhere);
    }
    if (Below(3) != 0) {
      const sockaddr_in address = Ipv4("127.0.0.1", static_cast<uint16_t>(40'000 + Below(4)));
      const size_t at = kAddressOffsets[Below(std::size(kAddressOffsets))];
      std::memcpy(&buffers_.command[kBody + at], &address, sizeof(address));
    }
    if (command == abi::RDMA_USER_CM_CMD_CREATE_ID && Below(2) == 0) {
      constexpr uint16_t kSpaces[] = {2, 0x106, 0x111, 0x13f};
      Put<uint16_t>(kBody + offsetof(abi::rdma_ucm_create_id, ps), kSpaces[Below(4)]);
    }
    MakeHarmless(command);
    const uint16_t in =
        Below(8) == 0 ? static_cast<uint16_t>(random_()) : static_cast<uint16_t>(length - 8);
    const abi::rdma_ucm_cmd_hdr header{command, in, static_cast<uint16_t>(Below(kRoom))};
    std::memcpy(buffers_.command, &header, sizeof(header));
    Descriptor* const to = descriptors_[Below(static_cast<uint32_t>(descriptors_.size()))];
    const ssize_t written = Write(to->fd(), buffers_.command, length);
    if (written >= 0) {
      ++accepted_;
      EXPECT_EQ(written, static_cast<ssize_t>(length));
    } else {
      EXPECT_NE(errno, 0);
    }
  }

  int accepted() const { return accepted_; }

 private:
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  uint64_t Response() const { return reinterpret_cast<uintptr_t>(buffers_.response); }

  template <typename T>
  void Put(size_t at, T value) {
    std::memcpy(&buffers_.command[at], &value, sizeof(value));
  }

  // Random bytes could be an address of this process: those of responses are set.
  void MakeHarmless(uint32_t command) {
    const bool second = command == abi::RDMA_USER_CM_CMD_CREATE_ID;
    const size_t at = second ? 16 : 8;
    uint64_t address;
    std::memcpy(&address, &buffers_.command[at], sizeof(address));
    if (address > 0x10000 && address < (uint64_t{1} << 48)) Put(at, Response());
  }

  static constexpr size_t kIdOffsets[] = {0,
                                          8,
                                          offsetof(abi::rdma_ucm_bind_ip, id),
                                          offsetof(abi::rdma_ucm_resolve_ip, id),
                                          offsetof(abi::rdma_ucm_connect, id),
                                          offsetof(abi::rdma_ucm_accept, id)};
  static constexpr size_t kAddressOffsets[] = {
      0, offsetof(abi::rdma_ucm_bind_ip, addr), offsetof(abi::rdma_ucm_bind, addr),
      offsetof(abi::rdma_ucm_resolve_ip, dst_addr), offsetof(abi::rdma_ucm_resolve_addr, dst_addr)};

  std::mt19937 random_;
  const std::vector<Descriptor*> descriptors_;
  Buffers buffers_;
  int accepted_ = 0;
};

TEST_F(FuzzTest, RandomCommandsOnTwoDescriptors) {
  ASSERT_EQ(fcntl(client->fd(), F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(fcntl(server->fd(), F_SETFL, O_NONBLOCK), 0);
  constexpr int kRounds = 30'000;
  Fuzzer fuzzer(20261121, {client.get(), server.get()});
  for (int i = 0; i < kRounds; ++i) {
    fuzzer.Round();
    if (i % 20 == 0) {  // so that there are ids to fall upon
      Descriptor* const one = i % 40 == 0 ? client.get() : server.get();
      const uint32_t id = one->Create(1);
      if (id >= 12) {
        EXPECT_EQ(one->Destroy(id), 0);
      }
    }
    if (i % 1000 == 0) timers.Advance(7 * cm::kSecond);
  }
  EXPECT_GT(fuzzer.accepted(), 200);  // it gets past the first checks
  client = std::make_unique<Descriptor>();
  server = std::make_unique<Descriptor>();
  Establish(Listen());
}

// A right command in which single bytes are wrong, in the midst of a conversation that works.
TEST_F(FuzzTest, SpoiltBytesInRightCommands) {
  std::mt19937 random(7);
  const uint16_t port = Listen(/*backlog=*/64);
  ASSERT_EQ(fcntl(client->fd(), F_SETFL, O_NONBLOCK), 0);
  ASSERT_EQ(fcntl(server->fd(), F_SETFL, O_NONBLOCK), 0);
  for (int i = 0; i < 3000; ++i) {
    abi::rdma_ucm_resolve_addr resolve{};
    resolve.id = client->Create(kClientUid);
    resolve.dst_size = sizeof(sockaddr_in);
    const sockaddr_in to = Ipv4("127.0.0.1", port);
    std::memcpy(&resolve.dst_addr, &to, sizeof(to));
    const auto spoil = [&](auto* structure) {
      if (random() % 2 == 0) return;
      reinterpret_cast<uint8_t*>(structure)[random() % sizeof(*structure)] ^=
          static_cast<uint8_t>(1 + random() % 255);
    };
    const uint32_t id = resolve.id;
    spoil(&resolve);
    client->Call(abi::RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve);
    client->ResolveRoute(id);
    abi::rdma_ucm_connect connect{};
    connect.conn_param = Descriptor::Param(1000 + static_cast<uint32_t>(i), "x");
    connect.id = id;
    spoil(&connect);
    client->Call(abi::RDMA_USER_CM_CMD_CONNECT, connect);
    abi::rdma_ucm_event_resp event;
    while (server->GetEvent(&event) == 0) {
      abi::rdma_ucm_accept accept{};
      accept.uid = kServerUid;
      accept.id = event.id;
      accept.conn_param = Descriptor::Param(500'000 + static_cast<uint32_t>(i));
      spoil(&accept);
      server->Call(abi::RDMA_USER_CM_CMD_ACCEPT, accept);
    }
    while (client->GetEvent(&event) == 0) {
    }
    if (i % 3 != 0) client->Destroy(id);
  }
  server = std::make_unique<Descriptor>();
  client = std::make_unique<Descriptor>();
  Establish(Listen());
}

}  // namespace fuzz_test
}  // namespace sluice::softdc::ucma
