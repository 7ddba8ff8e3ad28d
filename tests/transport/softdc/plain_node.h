// SPDX-License-Identifier: Apache-2.0
//
// A small program with one RC, UC or UD queue pair for tests: context, CQs, a registered slab, made
// with the plainest calls that a user would write. Every failing call fails the test.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_PLAIN_NODE_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_PLAIN_NODE_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice::softdc {

struct PlainNodeOptions {
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t receives = 16;        // posted once in INIT
  uint32_t receive_bytes = 256;  // each
  bool srq = false;
  uint8_t timeout = 10;  // 4 ms
  uint8_t retry_count = 1;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;  // 10 us
  uint32_t qkey = 0x11111111;
  unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                    IBV_ACCESS_REMOTE_ATOMIC;
  unsigned mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                       IBV_ACCESS_REMOTE_ATOMIC;
};

class PlainNode {
 public:
  static constexpr size_t kSlabBytes = 1 << 18;
  static constexpr size_t kSendArea = kSlabBytes / 2;  // receives below, the test's own above

  explicit PlainNode(const PlainNodeOptions& options = {});  // leaves the queue pair in INIT
  ~PlainNode();
  PlainNode(const PlainNode&) = delete;
  PlainNode& operator=(const PlainNode&) = delete;

  // To RTR and RTS. `peer` is the number to be connected to; UD has none.
  void ToReady(uint32_t peer);
  int ToState(ibv_qp_state state);  // ERR or RESET
  void ToInit();
  ibv_qp_state State();

  // The result of ibv_post_recv, or ibv_post_srq_recv.
  int PostReceive(uint64_t wr_id);
  // A WR with one SGE over [offset, offset + length) of the slab, signaled. Not posted.
  ibv_send_wr Wr(ibv_wr_opcode opcode, size_t offset, uint32_t length);
  int Post(ibv_send_wr wr);
  // A SEND of `text`, copied into the slab.
  int Send(const std::string& text, uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED);

  ibv_wc PollSend() { return Poll(send_cq); }
  ibv_wc PollReceive() { return Poll(receive_cq); }
  std::byte* Buffer(uint64_t wr_id) { return slab + wr_id * options_.receive_bytes; }
  std::string Text(uint64_t wr_id, size_t skip, size_t length) {
    return {reinterpret_cast<char*>(Buffer(wr_id)) + skip, length};
  }
  uint64_t Address(size_t offset) const { return reinterpret_cast<uint64_t>(slab) + offset; }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_ah* ah = nullptr;
  ibv_mr* mr = nullptr;
  std::byte* slab = nullptr;

 private:
  static ibv_wc Poll(ibv_cq* cq);

  const PlainNodeOptions options_;
  ibv_sge sge_{};
};

// Two nodes, connected to each other.
struct PlainPair {
  explicit PlainPair(const PlainNodeOptions& options = {}) : PlainPair(options, options) {}
  PlainPair(const PlainNodeOptions& first, const PlainNodeOptions& second) : a(first), b(second) {
    a.ToReady(b.qp->qp_num);
    b.ToReady(a.qp->qp_num);
  }
  PlainNode a, b;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_PLAIN_NODE_H_
