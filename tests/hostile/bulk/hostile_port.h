// SPDX-License-Identifier: Apache-2.0
//
// HostilePort: a process that has tickets for a victim's bulk port, speaks the wire by hand, and does what its script says.
//
// Purpose       DCIs and a DCT of its own; several peers of the victim at once (personas), each with what an honest port would
//               know of the victim, so that a lie is a lie about something. What the script does not break, it does right.
// Offences      Some acts no honest port ever does. Once its device has acknowledged such a message, the victim has to end the
//               persona; OffendersUp() has those that are still up.
// Ownership     The trial; the simulation and the victim outlive it.
// Threads       One thread.
#ifndef SLUICE_TESTS_HOSTILE_BULK_HOSTILE_PORT_H_
#define SLUICE_TESTS_HOSTILE_BULK_HOSTILE_PORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "middleware/bulk/capability.h"
#include "middleware/bulk/notice.h"
#include "middleware/bulk/port_word.h"
#include "middleware/bulk/ticket.h"
#include "tests/hostile/bulk/port_host.h"
#include "tests/hostile/bulk/script.h"
#include "tests/hostile/host.h"
#include "transport/integrity/signed_queue.h"
#include "transport/memory/slab.h"
#include "transport/onesided/word.h"
#include "transport/queue/dci_pool.h"
#include "transport/receive/receive_queue.h"
#include "transport/verbs/handles.h"

namespace sluice::hostile::bulk_port {

class HostilePort final : public Host, private queue::QueueUser {
 public:
  HostilePort(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed, PortHost& victim,
              bulk::Reach reach);
  ~HostilePort() override;

  // Begins; `over` is called when the script has come to its end, its ending included.
  void Play(const Script& script, std::function<void()> over);
  uint64_t words() const { return words_; }
  uint64_t writes() const { return writes_; }
  uint64_t joined() const { return joined_; }
  // What was done that ends whoever does it, of those who are up.
  std::vector<std::string> OffendersUp() const;

 private:
  struct Persona;

  int Poll() override;
  bool PrepareToSleep() override { return true; }
  int64_t SleepLimitNs() override { return -1; }

  void DoNext();
  void End();
  void Do(const Act& act);

  // Joining.
  void Join(uint32_t number, bool lying, base::SeededRandom& dice);
  std::string MakeTicket(Persona& persona, uint32_t number, base::SeededRandom* lies);
  std::string MakeCapability(base::SeededRandom* lies);
  bool MeetVictim(Persona& persona, const std::string& ticket);
  void Retire(uint32_t number);

  // What it sends. The head is true, but for what `change` makes of it. `offence`: what is certain to end it; null: nothing.
  using Change = std::function<void(onesided::Head&)>;
  void Send(Persona& persona, onesided::WordKind kind, std::span<const std::byte> body,
            const char* offence = nullptr, const Change& change = nullptr);
  void Say(Persona& persona, std::span<const std::byte> word, const char* offence = nullptr);
  void Say(Persona& persona, const bulk::PortWord& word, const char* offence = nullptr);
  void Say(Persona& persona, const bulk::Notice& notice, const char* offence = nullptr);
  void Touch(Persona& persona, queue::Operation operation, uint64_t address, uint32_t key,
             uint32_t bytes);
  static bool HasCredit(const Persona& persona);

  // Operations: hostile_port_acts.cc.
  void DoNotice(const Act& act, Persona& persona, base::SeededRandom& dice);
  void DoHead(const Act& act, Persona& persona, base::SeededRandom& dice);
  void DoQueue(const Act& act, Persona& persona, base::SeededRandom& dice);
  void DoMemory(const Act& act, Persona& persona, base::SeededRandom& dice);
  bulk::Notice NextNotice(Persona& persona, base::SeededRandom& dice);
  bool MakeQueue(Persona& persona);
  void CloseQueue(Persona& persona);
  // What is lent to it now; remembered for later.
  std::optional<bulk::Capability> Lent(const Persona& persona);
  void ConnectQueue(Persona& persona);

  // What comes in.
  void OnReceived(const ibv_wc& wc);
  void OnWord(Persona& persona, std::span<const std::byte> bytes);

  // queue::QueueUser
  void OnSent(queue::Target* target, uint32_t slot, bool ok) override;
  // It never gives up.
  void OnTargetReset(queue::Target* target, const absl::Status&) override {
    queue_->Resume(target);
  }
  void OnTargetFailed(queue::Target* target, const absl::Status&) override;
  void OnUnanswered(queue::Target*) override {}
  void OnTargetQuiet(queue::Target*) override {}
  void OnQueueDead(const absl::Status&) override {}

  PortHost& victim_;
  const bulk::Reach reach_;
  verbs::Cq send_cq_;
  verbs::Cq receive_cq_;
  std::unique_ptr<receive::ReceiveQueue> receive_;
  memory::Slab memory_;  // of what it sends
  memory::Slab lent_;    // that the victim may read and write
  std::optional<queue::SlotTable> slots_;
  std::unique_ptr<queue::DciPool> queue_;

  Script script_;
  size_t next_ = 0;
  std::function<void()> on_over_;
  std::vector<std::unique_ptr<Persona>> personas_;  // who it is now, by number
  std::vector<std::unique_ptr<Persona>> retired_;   // while queues may name them
  std::map<uint32_t, const char*> offences_;        // by slot, under way
  std::vector<bulk::Capability> known_;             // all that was ever lent to it
  uint64_t tokens_ = 1000;
  uint64_t words_ = 0;
  uint64_t writes_ = 0;
  uint64_t joined_ = 0;
};

}  // namespace sluice::hostile::bulk_port

#endif  // SLUICE_TESTS_HOSTILE_BULK_HOSTILE_PORT_H_
