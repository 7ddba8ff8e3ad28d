// SPDX-License-Identifier: Apache-2.0
//
// A small storage-like program for tests: one context with an RC queue pair that can configure indirect
// keys, a slab, and keys. Two of them connected are a pair. Every failing call fails the test.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_MKEY_NODE_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_MKEY_NODE_H_

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sluice::softdc {

struct MkeyNodeOptions {
  bool pipelining = false;
  uint32_t send_wr = 64;
  uint32_t max_inline_bytes = 512;
  bool signal_all = false;
  uint64_t mkey_ops = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_MR_LIST |
                      MLX5DV_QP_EX_WITH_MR_INTERLEAVED;
};

// What a peer has to know.
struct MkeyAddress {
  uint32_t qp_number = 0;
  uint64_t slab_address = 0;
  uint32_t rkey = 0;
};

class MkeyNode {
 public:
  static constexpr size_t kSlabBytes = 1 << 16;

  explicit MkeyNode(const MkeyNodeOptions& options = {});
  ~MkeyNode();
  MkeyNode(const MkeyNode&) = delete;
  MkeyNode& operator=(const MkeyNode&) = delete;

  MkeyAddress Address() const;
  void Connect(uint32_t peer_qp_number);
  static void Connect(MkeyNode& a, MkeyNode& b);

  // Lives as long as the node.
  mlx5dv_mkey* CreateKey(bool signature = true, uint16_t max_entries = 4);
  ibv_sge Piece(size_t offset, uint32_t length) const;
  // One configuration WR, run to its completion; the result of ibv_wr_complete.
  int Configure(mlx5dv_mkey* key, std::vector<ibv_sge> layout,
                std::optional<mlx5dv_sig_block_attr> signature,
                uint32_t access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_WRITE);

  // Post one WR; the result of ibv_wr_complete.
  int Send(const ibv_sge& sge, uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED);
  int Write(const ibv_sge& sge, uint32_t rkey, uint64_t remote_address, uint64_t wr_id,
            unsigned flags = IBV_SEND_SIGNALED);
  int Read(const ibv_sge& sge, uint32_t rkey, uint64_t remote_address, uint64_t wr_id,
           unsigned flags = IBV_SEND_SIGNALED);
  void Receive(const ibv_sge& sge, uint64_t wr_id);

  // Polls until there is a completion.
  ibv_wc Poll() { return PollOf(send_cq); }
  ibv_wc PollReceive() { return PollOf(receive_cq); }
  bool Quiet();  // a poll of each CQ gives nothing
  mlx5dv_mkey_err Check(mlx5dv_mkey* key);
  ibv_qp_state State();    // as the device says
  ibv_event_type Event();  // the next asynchronous event
  int ToReadyToSend();     // from SQD

  std::byte* at(size_t offset) { return slab.data() + offset; }
  std::span<std::byte> bytes(size_t offset, size_t length) {
    return std::span(slab).subspan(offset, length);
  }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_qp_ex* ex = nullptr;
  mlx5dv_qp_ex* dv = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<std::byte> slab;

 private:
  ibv_wc PollOf(ibv_cq* cq);

  std::vector<mlx5dv_mkey*> keys_;
};

// Signatures that the tests use: CRC32C over blocks of 512, checked as a whole, in one domain.
struct CrcSignature {
  explicit CrcSignature(bool on_wire, uint8_t check_mask = MLX5DV_SIG_MASK_CRC32C);
  mlx5dv_sig_crc crc{.type = MLX5DV_SIG_CRC_TYPE_CRC32C, .seed = UINT32_MAX};
  mlx5dv_sig_block_domain domain{};
  mlx5dv_sig_block_attr attr{};
};

// `data` and its signatures, as they stand in a domain of CrcSignature.
std::vector<std::byte> WithCrc(std::span<const std::byte> data);

// The piece of a list that goes through a key, whose addresses are offsets.
inline ibv_sge Through(const mlx5dv_mkey* key, uint64_t offset, uint32_t length) {
  return {.addr = offset, .length = length, .lkey = key->lkey};
}

// Two connected ones, and the posting of a configuration by the first.
class MkeyPairTest : public testing::Test {
 protected:
  void SetUp() override { MkeyNode::Connect(a, b); }
  int Finish() { return ibv_wr_complete(a.ex); }
  void Start(unsigned flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE) {
    ibv_wr_start(a.ex);
    a.ex->wr_id = 1;
    a.ex->wr_flags = flags;
  }
  void Configure(mlx5dv_mkey* key, uint8_t setters, uint32_t flags = 0, uint64_t comp_mask = 0) {
    mlx5dv_mkey_conf_attr conf{.conf_flags = flags, .comp_mask = comp_mask};
    mlx5dv_wr_mkey_configure(a.dv, key, setters, &conf);
  }

  MkeyNode a, b;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_MKEY_NODE_H_
