// SPDX-License-Identifier: Apache-2.0
//
// SignatureTest: two connected programs with indirect keys, and CRC32C signatures over blocks of 512.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_SIGNATURE_TEST_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_SIGNATURE_TEST_H_

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/transport/softdc/conformance/conformance_test.h"
#include "tests/transport/softdc/conformance/plain_node.h"

namespace sluice::conformance {

inline constexpr uint32_t kBlock = 512;
inline constexpr uint32_t kProtected = kBlock + 4;
inline constexpr size_t kData = PlainNode::kFreeOffset;
inline constexpr size_t kElsewhere = PlainNode::kFreeOffset + 8192;
inline constexpr uint32_t kReadWrite = IBV_ACCESS_LOCAL_WRITE | kRemoteRights;
inline constexpr PlainOptions kWithKeys{
    .receives = 0, .inline_bytes = 512, .mkey_ops = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE};

// CRC32C bit by bit: reflected, complemented at both ends.
inline uint32_t Crc32c(const std::byte* bytes, size_t size) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < size; ++i) {
    crc ^= static_cast<uint32_t>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

// CRC32C over blocks of 512, in one domain.
struct CrcSignature {
  explicit CrcSignature(bool on_wire) {
    domain.sig_type = MLX5DV_SIG_TYPE_CRC;
    domain.sig.crc = &crc;
    domain.block_size = MLX5DV_BLOCK_SIZE_512;
    (on_wire ? attr.wire : attr.mem) = &domain;
    attr.check_mask = MLX5DV_SIG_MASK_CRC32C;
  }
  mlx5dv_sig_crc crc{.type = MLX5DV_SIG_CRC_TYPE_CRC32C, .seed = UINT32_MAX};
  mlx5dv_sig_block_domain domain{};
  mlx5dv_sig_block_attr attr{};
};

class SignatureTest : public Mlx5Test {
 protected:
  void TearDown() override { DestroyKeys(); }
  void DestroyKeys() {
    for (mlx5dv_mkey* key : keys_) EXPECT_EQ(api().dv_destroy_mkey(key), 0);
    keys_.clear();
  }
  bool CanSign() {
    PlainNode probe(bed());
    mlx5dv_context caps{};
    caps.comp_mask = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
    return api().dv_query_device(probe.context, &caps) == 0 && caps.sig_caps.block_prot != 0;
  }
  void Connect(const PlainOptions& options = kWithKeys) {
    DestroyKeys();
    pair_ = std::make_unique<PlainPair>(bed(), options);
    for (size_t i = kData; i < PlainNode::kSlabBytes; ++i) {
      a().slab[i] = static_cast<std::byte>(i * 7 + i / 251);
    }
  }
  PlainNode& a() { return pair_->a; }
  PlainNode& b() { return pair_->b; }

  mlx5dv_mkey* Key(PlainNode& node, bool signature = true, uint16_t max_entries = 4) {
    mlx5dv_mkey_init_attr init{
        .pd = node.pd,
        .create_flags = uint32_t{MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT} |
                        (signature ? uint32_t{MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE} : 0),
        .max_entries = max_entries};
    mlx5dv_mkey* key = api().dv_create_mkey(&init);
    if (key == nullptr) throw std::runtime_error("create_mkey failed");
    keys_.push_back(key);
    return key;
  }
  // What ibv_wr_complete says; if 0, the completion was a good DRIVER1.
  int Configure(PlainNode& node, mlx5dv_mkey* key, std::vector<ibv_sge> layout,
                const mlx5dv_sig_block_attr* signature = nullptr, uint32_t access = kReadWrite,
                unsigned flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE) {
    ibv_wr_start(node.ex);
    node.ex->wr_id = 0xc0;
    node.ex->wr_flags = flags;
    mlx5dv_mkey_conf_attr conf{};
    mlx5dv_wr_mkey_configure(node.dv, key, signature != nullptr ? 3 : 2, &conf);
    mlx5dv_wr_set_mkey_access_flags(node.dv, access);
    mlx5dv_wr_set_mkey_layout_list(node.dv, static_cast<uint16_t>(layout.size()), layout.data());
    if (signature != nullptr) mlx5dv_wr_set_mkey_sig_block(node.dv, signature);
    const int error = ibv_wr_complete(node.ex);
    if (error == 0) {
      const ibv_wc wc = node.AwaitSend();
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      EXPECT_EQ(wc.opcode, IBV_WC_DRIVER1);
    }
    return error;
  }
  static ibv_sge Through(const mlx5dv_mkey* key, uint64_t offset, uint32_t length) {
    return {.addr = offset, .length = length, .lkey = key->lkey};
  }
  static int Post(PlainNode& node, ibv_wr_opcode opcode, const ibv_sge& sge, uint64_t wr_id,
                  uint32_t rkey = 0, uint64_t remote = 0, unsigned flags = IBV_SEND_SIGNALED) {
    ibv_wr_start(node.ex);
    node.ex->wr_id = wr_id;
    node.ex->wr_flags = flags;
    if (opcode == IBV_WR_SEND) {
      ibv_wr_send(node.ex);
    } else if (opcode == IBV_WR_RDMA_WRITE) {
      ibv_wr_rdma_write(node.ex, rkey, remote);
    } else {
      ibv_wr_rdma_read(node.ex, rkey, remote);
    }
    ibv_wr_set_sge(node.ex, sge.lkey, sge.addr, sge.length);
    return ibv_wr_complete(node.ex);
  }
  static void Receive(PlainNode& node, const ibv_sge& sge, uint64_t wr_id) {
    ibv_sge piece = sge;
    ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_recv(node.qp, &wr, &bad), 0);
  }
  mlx5dv_mkey_err Check(mlx5dv_mkey* key) {
    mlx5dv_mkey_err error{};
    EXPECT_EQ(api().dv_mkey_check(key, &error), 0);
    return error;
  }
  // Makes protected blocks of the first blocks of data that stand there; the data as it was.
  static std::string Protect(PlainNode& node, size_t offset, uint32_t blocks) {
    const std::string data = node.Text(offset, blocks * kBlock);
    std::string wire;
    for (uint32_t i = 0; i < blocks; ++i) {
      const std::string block = data.substr(i * kBlock, kBlock);
      const uint32_t crc = Crc32c(reinterpret_cast<const std::byte*>(block.data()), kBlock);
      wire += block;
      wire.append(reinterpret_cast<const char*>(&crc), sizeof(crc));  // little-endian
    }
    node.Fill(offset, wire);
    return data;
  }

  std::unique_ptr<PlainPair> pair_;
  std::vector<mlx5dv_mkey*> keys_;
};
#define NEEDS_SIGNATURES() \
  if (!CanSign()) GTEST_SKIP() << "the device has no signatures"

}  // namespace sluice::conformance

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_SIGNATURE_TEST_H_
