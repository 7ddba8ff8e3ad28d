// SPDX-License-Identifier: Apache-2.0
//
// Arrivals: the receiving end of the simulated network. A message that arrives is checked by the rules of the
// model (model/arrival.h). It takes a receive WQE, its bytes land, it completes at the target, and an answer
// goes back.
//
//   SendOff -> OnArrive -> judged -> landed (at once, or block by block) -> OnLanded -> AnswerAt
//                 |                                                                        |
//                 +-> lost, unheard, not ready, refused                     OnAnswer, at the sender
//
// If the target device guarantees no order within a message, the blocks of a message land at different times,
// in random order. The message completes after its last block, and after all earlier messages of the channel.
//
// Threads       One thread. Calls no queue while it holds a lock.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_ARRIVALS_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_ARRIVALS_H_

#include <cstdint>
#include <span>

#include "transport/softdc/model/arrival.h"
#include "transport/softdc/model/responder.h"
#include "transport/softdc/sim/landing.h"
#include "transport/softdc/sim/message.h"
#include "transport/softdc/sim/world.h"

namespace sluice::softdc::sim {

class Arrivals {
 public:
  explicit Arrivals(World& world) : world_(world), landings_(world) {}

  // SendOff delivers the message to its target at `arrival_ns`. AnswerAt delivers the answer to the sender at
  // `when_ns`. Both take ownership of the message.
  void SendOff(Message* message, int64_t arrival_ns);
  void AnswerAt(Message* message, int64_t when_ns);
  // Lets the bytes of a WRITE land late, after its failure was just reported.
  void SendGhost(Message& message);
  // Delivers the messages that were held while the node was paused.
  void Resume(Node& node);

 private:
  struct Target {
    SimPort* port = nullptr;
    Responder* responder = nullptr;  // null: the number is not in use, or its process is dead
  };
  static void FireArrive(void* self, uint64_t message);
  static void FireExecute(void* self, uint64_t message);
  static void FireLanded(void* self, uint64_t message);
  static void FireAnswer(void* self, uint64_t message);
  static void FireGhost(void* self, uint64_t message);

  void OnArrive(Message* message);
  void OnExecute(Message* message);
  void OnLanded(Message* message);
  void OnAnswer(Message* message);
  void OnGhost(Message* message);
  bool HeldUp(Message* message, uint32_t node, bool answer);
  bool WayIsUp(const Message& message) const;

  Target Find(const Message& message) const;
  void Execute(Message* message, const Target& target);
  void ExecuteSend(Message* message, const Target& target);
  void ExecuteWrite(Message* message, const Target& target);
  void ExecuteRead(Message* message, const Target& target);
  void ExecuteAtomic(Message* message, const Target& target);
  // Returns null if the request is refused. The refusal is then already answered.
  const shm::MemoryRegionEntry* JudgeMemory(Message* message, const Target& target);

  // The same for requests through an indirect key. JudgeKey returns false if the request is refused.
  static bool IsThroughKey(const Wqe& wqe);
  bool JudgeKey(Message* message, const Target& target);
  void ReceiveThroughKeys(Message* message, const Target& target, std::span<const std::byte> head,
                          std::span<const ibv_sge> buffer);

  void Land(Message* message, const Target& target, std::span<const Place> places);
  void Landed(Message* message, const Target& target, int64_t landed_ns);
  void Complete(Message* message, const Target& target);
  void PushReceive(const Message& message, const Target& target, ibv_wc_status status);
  void GiveBackReceive(const Message& message, const Target& target);
  void Answered(Message* message, uint32_t wire_bytes);
  static void TellExecuted(const Message& message, int64_t until_ns);
  void SendAnswer(Message* message);
  static void TakeTurn(void* self, void* message);
  void OnTurn(Message* message);

  void Lose(Message* message);
  void Refuse(Message* message, const Target& target, Verdict verdict);
  void RefuseWith(Message* message, ibv_wc_status status, uint32_t vendor_error);
  void NotReady(Message* message, const Target& target);

  World& world_;
  Landings landings_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_ARRIVALS_H_
