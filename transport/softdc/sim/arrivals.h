// SPDX-License-Identifier: Apache-2.0
//
// Arrivals: the far end of the simulated network: what happens to a message where it arrives. It is
// judged by the model's own rules (model/arrival.h), takes a receive WQE, its bytes land, it
// completes there, and an answer goes back.
//
//   SendOff -> OnArrive -> judged -> landed (at once, or block by block) -> OnLanded -> AnswerAt
//                 |                                                                        |
//                 +-> lost, unheard, not ready, refused                     OnAnswer, at the sender
//
// Where the target device promises no order within a message, its blocks land one by one at times
// of their own, in chance order; its completion comes after the last one, and after that of each
// message before it on the channel.
//
// Threads       One thread; calls no queue with a lock held.
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

  // The message reaches its target then. Takes it over, as do the others.
  void SendOff(Message* message, int64_t arrival_ns);
  void AnswerAt(Message* message, int64_t when_ns);
  // The failure of this WRITE was reported just now; its bytes come later all the same.
  void SendGhost(Message& message);
  // What was held up at a node that was paused goes on.
  void Resume(Node& node);

 private:
  struct Target {
    SimPort* port = nullptr;
    Responder* responder = nullptr;  // null: nobody has that number, or its process is dead
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
  // Null: refused, the message is dealt with.
  const shm::MemoryRegionEntry* JudgeMemory(Message* message, const Target& target);

  // The same for what goes through an indirect key; false: refused.
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
