// SPDX-License-Identifier: Apache-2.0
//
// SimRequester: the send engine of one simulated queue. It puts WQEs on the wire, channel by channel, takes
// the answers, and keeps the retry and RNR timers, all in virtual time.
//
//   RunPosted -> queue of a channel -> Pump: one message each -> wire -> ... -> OnAnswer -> Finish
//                                          ^                                       |
//                                          +---- timeout, RNR, refusal: Restart ---+
//
// A DCI with streams has 2^log_concurrent_streams channels; a stream uses the channel of its id modulo their
// number. Every other queue has one channel.
//
// Threads       The thread of the simulation. The lock of the queue is held as model/fabric.h says.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_SIM_REQUESTER_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_SIM_REQUESTER_H_

#include <cstdint>
#include <map>
#include <vector>

#include "transport/softdc/model/fabric.h"
#include "transport/softdc/model/send_queue.h"
#include "transport/softdc/sim/channel.h"
#include "transport/softdc/sim/message.h"
#include "transport/softdc/sim/world.h"

namespace sluice::softdc::sim {

class SimPort;

class SimRequester final : public Requester {
 public:
  // All arguments must outlive the object.
  SimRequester(World& world, SimPort& port, SendQueue& queue);
  ~SimRequester() override;

  void RunPosted(uint64_t first) override;
  void RunWaiting() override;
  void Forget() override;

  SendQueue& queue() { return queue_; }
  // Simulates dead firmware: no WQE of the queue completes until it is reset, although its state does not
  // change.
  void Stick() { stuck_ = true; }

  // Events of the clock. Each takes the lock of the queue.
  void OnAnswer(Message& message);
  void OnTimer(Channel& channel);
  void OnRested(Channel& channel);
  // For unacknowledged transports: the message has left.
  void OnSent(Channel& channel, uint64_t sequence);
  // Called when the target has accepted a message. The target is busy with it until `until_ns`.
  void OnExecuted(const Message& message, int64_t until_ns);

 private:
  static void TakeTurn(void*, void* channel);
  void OnTurn(Channel& channel);  // on the node's way out
  // State of the WQE of a slot on the wire.
  struct Flight {
    uint64_t sequence = UINT64_MAX;  // sequence of the WQE
    Channel* channel = nullptr;
    bool in_flight = false;   // sent in this round of its channel, not answered
    bool reads = false;       // READ or atomic
    bool executed = false;    // executed at the target, in any round
    bool considered = false;  // already checked for a planned failure
    uint64_t original = 0;    // result of an atomic, for a repeated request
    int64_t sent_ns = 0;
  };

  Channel& ChannelOf(const Wqe& wqe);
  Flight& flight(uint64_t sequence) { return flights_[sequence & (flights_.size() - 1)]; }
  // Returns whether the slot still holds the WQE and the WQE has not ended. An error may have flushed it.
  bool Alive(uint64_t sequence) {
    return sequence >= queue_.emitted() && !SendQueue::Ended(queue_.slot(sequence));
  }
  bool Halted() const;  // the process or the firmware of the queue is dead

  // Sends as many messages as possible, at most `limit`.
  void Pump(Channel& channel, uint32_t limit);
  void PumpAll();
  enum class Step { kGoOn, kStop };
  Step PumpOne(Channel& channel, uint64_t sequence, uint32_t* sent);
  bool MayStart(Channel& channel, const Wqe& wqe) const;
  void StandInLine(Channel& channel);
  Message* Pack(Channel& channel, uint64_t sequence);
  void Transmit(Channel& channel, uint64_t sequence);
  FaultState::Request RequestOf(uint64_t sequence) const;
  // Returns true if the fault plan makes this WQE fail.
  bool WillFail(uint64_t sequence);
  // Starts the planned failure of this WQE. Returns false if there is none.
  bool StartPlannedFailure(Channel& channel, uint64_t sequence);
  static uint32_t VendorErrorOf(ibv_wc_status status);
  void ArmTimer(Channel& channel);
  int64_t DeadlineNs(Channel& channel);
  int64_t TryNs() const;

  void TakeDown(Flight& state);
  void PopFront(Channel& channel);
  void DropDead(Channel& channel);
  void Restart(Channel& channel);
  // Completes all WQEs before `sequence`, because an answer to a later WQE also acknowledges them. Returns
  // false if `sequence` is not the first WQE afterwards.
  bool AnswerUpTo(Channel& channel, uint64_t sequence);
  void TakeAnswer(Channel& channel, Message& message);
  void FinishFailed(uint64_t sequence, ibv_wc_status status, uint32_t vendor_error);
  void OnNotReady(Channel& channel, const Message& message);
  bool TakeResult(Message& message);
  void EndPass();
  void Settle();

  World& world_;
  SimPort& port_;
  SendQueue& queue_;
  std::vector<Channel*> channels_;           // null until first used
  std::vector<Flight> flights_;              // by slot
  std::map<uint64_t, RequestRule> planned_;  // failures not yet reported, by sequence
  bool stuck_ = false;
  uint64_t completions_ = 0;  // completions of the queue that were reported to the observer
  uint64_t failures_ = 0;
  bool fenced_ = false;  // a channel waits for WQEs of other channels
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_SIM_REQUESTER_H_
