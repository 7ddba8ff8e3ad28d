// SPDX-License-Identifier: Apache-2.0
//
// A small DC program for tests: one context with a DCI, a DCT, their SRQ and CQs and one registered
// slab, made with the plainest calls that a user would write. Every failing call fails the test.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_DC_NODE_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_DC_NODE_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sluice::softdc {

struct DcNodeOptions {
  uint32_t receives = 64;        // posted at the start
  uint32_t receive_bytes = 256;  // each
  uint32_t send_wr = 64;
  int cqe = 256;
  bool streams = true;
  uint8_t log_errored_streams = 2;
  uint8_t timeout = 10;  // 4 ms
  uint8_t retry_count = 1;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;  // 10 us
  uint64_t dc_key = 0x1234567890abcdef;
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  bool private_memory = false;
  bool channel = false;
  uint64_t wc_flags = 0;  // of the receive CQ; not 0: an extended one
  bool one_cq = false;    // sends complete there too
  unsigned dct_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
};

// What a peer has to know, exchanged by whatever means.
struct DcAddress {
  uint32_t dctn = 0;
  uint64_t dc_key = 0;
  uint64_t slab_address = 0;
  uint32_t rkey = 0;
};

class DcNode {
 public:
  static constexpr size_t kSlabBytes = 1 << 20;
  static constexpr size_t kSendAreaOffset = kSlabBytes / 2;  // receives below, the test's own above

  explicit DcNode(const DcNodeOptions& options = {});
  ~DcNode();
  DcNode(const DcNode&) = delete;
  DcNode& operator=(const DcNode&) = delete;

  DcAddress Address() const;
  void PostReceives(uint32_t count);
  // Post one WR; the result of ibv_wr_complete.
  int Send(const DcAddress& to, const std::string& text, uint64_t wr_id, uint16_t stream = 0,
           unsigned flags = IBV_SEND_SIGNALED);
  int Write(const DcAddress& to, size_t slab_offset, const std::string& text, uint64_t wr_id,
            uint16_t stream = 0, uint32_t rkey = 0);
  int WriteImm(const DcAddress& to, size_t slab_offset, const std::string& text, uint32_t imm,
               uint64_t wr_id);
  int Read(const DcAddress& from, size_t slab_offset, size_t length, size_t to_offset,
           uint64_t wr_id, uint16_t stream = 0);

  // Polls until there is a completion; the firmware thread or a peer makes progress meanwhile.
  ibv_wc PollSend();
  ibv_wc PollReceive();
  std::string ReceivedText(const ibv_wc& wc) const;
  void DestroyTarget();  // the DCT and its memory region, for good
  // A further DCT on those queues, in RTR. Null with errno set if the device refuses it. The caller destroys it.
  ibv_qp* MakeDct(ibv_cq* cq, ibv_srq* target_srq, uint64_t dc_key);
  void RenewTarget();  // an SRQ without receives, the memory region and a DCT
  void Recover();      // RESET, INIT, RTR, RTS

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* dci = nullptr;
  ibv_qp_ex* dci_ex = nullptr;
  mlx5dv_qp_ex* dci_dv = nullptr;
  ibv_qp* dct = nullptr;
  ibv_ah* ah = nullptr;
  ibv_mr* mr = nullptr;
  std::byte* slab = nullptr;

 private:
  void CreateQueue();
  void CreateDci();
  void ToReadyToSend();
  std::byte* StageText(const std::string& text);

  const DcNodeOptions options_;
  int slab_fd_ = -1;
  uint64_t next_receive_ = 0;
  size_t next_stage_ = 0;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_DC_NODE_H_
