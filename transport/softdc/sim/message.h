// SPDX-License-Identifier: Apache-2.0
//
// Message: a request on its way through the simulated network and back. It holds a copy of the WQE at the
// time of sending, a copy of the bytes, and the result. A MessagePool creates and recycles messages. It keeps
// their memory, so a message costs no allocation after warm-up.
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

// A memory range of the process that a node stands for.
struct Place {
  std::byte* address = nullptr;
  uint32_t length_bytes = 0;
};

struct Message {
  Channel* channel = nullptr;  // holds a reference
  uint64_t sequence = 0;       // in the sender's queue
  uint32_t round = 0;          // round of the channel when the message was sent
  uint32_t from_node = 0;
  uint32_t from_number = 0;
  shm::TargetType meant_for = shm::TargetType::kDct;
  ibv_mtu path_mtu = IBV_MTU_4096;
  uint16_t pkey = 0xffff;
  bool acknowledged = false;
  bool executed_before = false;  // retransmitted, although it was executed before
  bool ghost = false;            // its failure was reported; the sender expects no answer
  bool on_the_way = false;       // has left the sender's port
  Wqe wqe;
  WqeOperands operands{};
  int64_t wire_end_ns = 0;  // time at which the last bit leaves
  // For a WRITE with a planned failure: delay of its bytes after the failure.
  int64_t lands_late_ns = 0;

  bool planned = false;     // planned failure: other faults do not apply
  bool unanswered = false;  // executed, but another message reports its failure

  // Filled in at the target.
  bool has_receive = false;
  TakenReceive receive;
  Answer answer = Answer::kDone;
  ibv_wc_status status = IBV_WC_SUCCESS;
  uint32_t vendor_error = 0;
  int64_t rnr_ns = 0;
  uint64_t original = 0;  // an atomic's result
  uint32_t answer_bytes = 0;
  Message* next_answer = nullptr;  // next answer of the same channel that waits behind this answer

  std::byte* Resize(uint32_t length_bytes) {
    length_ = length_bytes;
    if (length_bytes > small_.size() && large_.size() < length_bytes) large_.resize(length_bytes);
    return data();
  }
  std::byte* data() { return length_ <= small_.size() ? small_.data() : large_.data(); }

 private:
  friend class MessagePool;
  static constexpr size_t kKeptBytes = 64 << 10;  // larger buffers are freed
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
