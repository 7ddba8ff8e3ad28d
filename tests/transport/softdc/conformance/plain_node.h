// SPDX-License-Identifier: Apache-2.0
//
// PlainNode: a small program on a bed with one RC, UC or UD queue pair, its CQs and one registered slab,
// made with the calls that a user would write. It posts with ibv_post_send or, through `ex` and `dv`, with
// ibv_wr_*. What cannot be made throws, and so fails the test.
//
// Threads       As verbs objects; one thread posts.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_PLAIN_NODE_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_PLAIN_NODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/transport/softdc/conformance/bed.h"

namespace sluice::conformance {

inline constexpr uint32_t kQkey = 0x11111111;
inline constexpr unsigned kAllRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
// The masks that RC needs.
inline constexpr int kRcInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
inline constexpr int kRcRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
inline constexpr int kRcRts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

struct PlainOptions {
  int host = 0;
  ibv_qp_type type = IBV_QPT_RC;
  uint32_t receives = 16;        // posted once in INIT
  uint32_t receive_bytes = 256;  // each
  bool srq = false;
  uint32_t send_wr = 32;
  uint32_t inline_bytes = 64;
  uint8_t timeout = 10;  // 4 ms
  uint8_t retry_count = 1;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;  // 10 us
  unsigned access = kAllRights;
  unsigned mr_access = kAllRights | IBV_ACCESS_MW_BIND;
  uint64_t mkey_ops = 0;
  bool pipelining = false;
};

class PlainNode {
 public:
  static constexpr size_t kSlabBytes = 1 << 17;
  static constexpr size_t kFreeOffset = kSlabBytes / 2;  // receives below, the test's own above

  explicit PlainNode(Bed& bed, const PlainOptions& options = {});  // leaves the queue pair in INIT
  ~PlainNode();
  PlainNode(const PlainNode&) = delete;
  PlainNode& operator=(const PlainNode&) = delete;

  // RTR and RTS. UD is connected to nobody.
  void ConnectTo(const PlainNode& peer);
  int ToState(ibv_qp_state state);  // RESET or ERR
  void ToInit();
  ibv_qp_state State();
  ibv_ah_attr Path() const;  // to this node
  ibv_qp_attr AttributesTo(const PlainNode& peer) const;

  // What ibv_post_recv says, or ibv_post_srq_recv.
  int PostReceive(uint64_t wr_id);
  // A signalled WR with one SGE over that part of the slab, which is good until the next call.
  ibv_send_wr Wr(ibv_wr_opcode opcode, size_t offset, uint32_t length);
  ibv_send_wr WrTo(const PlainNode& peer, size_t remote_offset, ibv_wr_opcode opcode, size_t offset,
                   uint32_t length);
  int Post(ibv_send_wr wr);
  // A SEND of `text`, from a place of its own; UD sends need `to`.
  int Send(const std::string& text, uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED);
  int SendDatagram(const PlainNode& to, const std::string& text, uint64_t wr_id,
                   uint32_t qkey = kQkey);
  int SendDatagramTo(uint32_t number, const std::string& text, uint64_t wr_id, uint32_t qkey);

  ibv_wc AwaitSend() { return Await(send_cq); }
  ibv_wc AwaitReceive() { return Await(receive_cq); }
  bool NoCompletion(ibv_cq* cq);
  ibv_async_event AwaitAsync();
  std::string Text(size_t offset, size_t length) const;
  std::string Received(const ibv_wc& wc, size_t skip = 0) const;
  void Fill(size_t offset, const std::string& text);
  uint64_t Address(size_t offset) const { return reinterpret_cast<uint64_t>(slab) + offset; }
  uint64_t& Word(size_t offset) const { return *reinterpret_cast<uint64_t*>(slab + offset); }
  ibv_sge Piece(size_t offset, uint32_t length) const;

  Bed& bed;
  const verbs::VerbsApi& api;
  const PlainOptions options;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* send_cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_qp_ex* ex = nullptr;
  mlx5dv_qp_ex* dv = nullptr;
  ibv_ah* ah = nullptr;  // UD: to the one that ConnectTo named
  ibv_mr* mr = nullptr;
  std::byte* slab = nullptr;

 private:
  ibv_wc Await(ibv_cq* cq);
  void MakeQueuePair();

  ibv_sge sge_{};
};

// Two nodes on two hosts, connected to each other.
struct PlainPair {
  explicit PlainPair(Bed& bed, const PlainOptions& options = {})
      : PlainPair(bed, options, options) {}
  PlainPair(Bed& bed, const PlainOptions& first, PlainOptions second)
      : a(bed, first), b(bed, (second.host = 1, second)) {
    a.ConnectTo(b);
    b.ConnectTo(a);
  }
  PlainNode a, b;
};

}  // namespace sluice::conformance

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CONFORMANCE_PLAIN_NODE_H_
