// SPDX-License-Identifier: Apache-2.0
//
// Message: one request on its way through the simulated network and back: what its WQE said when it
// was sent, a copy of its bytes, and what became of it. Made and given back by a MessagePool, which
// keeps their memory, so that a message costs no allocation once the simulation is warm.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_MESSAGE_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_MESSAGE_H_

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/softdc/model/srq.h"
#include "transport/softdc/model/wqe.h"
#include "transport/softdc/shm/layout.h"

namespace sluice::softdc::sim {

struct Channel;

enum class Answer : uint8_t {
  kDone,
  kNotReady,  // RNR NAK
  kRefused,   // with `status`
};

// A stretch of memory of the process that a node stands for.
struct Place {
  std::byte* address = nullptr;
  uint32_t length_bytes = 0;
};

struct Message {
  Channel* channel = nullptr;  // counts this message as a reference
  uint64_t sequence = 0;       // in the sender's queue
  uint32_t round = 0;          // of the channel when it was sent
  uint32_t from_node = 0;
  uint32_t from_number = 0;
  shm::TargetType meant_for = shm::TargetType::kDct;
  ibv_mtu path_mtu = IBV_MTU_4096;
  uint16_t pkey = 0xffff;
  bool acknowledged = false;
  bool executed_before = false;  // sent again, though it had been carried out
  bool ghost = false;            // its failure was reported; nobody waits for an answer
  Wqe wqe;
  WqeOperands operands{};
  int64_t wire_end_ns = 0;    // when its last bit leaves
  int64_t lands_late_ns = 0;  // a WRITE that fails by plan: its bytes come this long after that

  bool planned = false;     // fails by plan: nothing on the way matters
  bool unanswered = false;  // carried out, but its failure is reported by another

  // Filled in at the target.
  bool has_receive = false;
  TakenReceive receive;
  Answer answer = Answer::kDone;
  ibv_wc_status status = IBV_WC_SUCCESS;
  uint32_t vendor_error = 0;
  int64_t rnr_ns = 0;
  uint64_t original = 0;  // an atomic's result
  uint32_t answer_bytes = 0;
  Message* next_answer = nullptr;  // of the same channel, waits behind this one

  std::byte* Resize(uint32_t length_bytes) {
    length_ = length_bytes;
    if (length_bytes > small_.size() && large_.size() < length_bytes) large_.resize(length_bytes);
    return data();
  }
  std::byte* data() { return length_ <= small_.size() ? small_.data() : large_.data(); }

 private:
  friend class MessagePool;
  static constexpr size_t kKeptBytes = 64 << 10;  // larger buffers are given back to the heap
  uint32_t length_ = 0;
  std::array<std::byte, 256> small_;
  std::vector<std::byte> large_;
};

class MessagePool {
 public:
  Message* Take() {
    if (free_.empty()) {
      all_.push_back(std::make_unique<Message>());
      return all_.back().get();
    }
    Message* message = free_.back();
    free_.pop_back();
    return message;
  }
  void GiveBack(Message* message) {
    if (message->large_.size() > Message::kKeptBytes) message->large_ = {};
    message->channel = nullptr;
    free_.push_back(message);
  }
  size_t in_use() const { return all_.size() - free_.size(); }

 private:
  std::vector<std::unique_ptr<Message>> all_;
  std::vector<Message*> free_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_MESSAGE_H_
