// SPDX-License-Identifier: Apache-2.0
//
// Mailbox: work for one thread, posted by any.
//
// What it is    A list of nodes that their senders own: posting allocates nothing and takes no lock. The reader takes
//               all of them at once, so no node is ever looked for in the list by two threads.
// Who owns it   The reader. A node belongs to the mailbox from Post() until its `run` is called.
// Which thread  Post() any; Run() and empty() the reader's.
// Bound         None of its own: whoever posts has one node for each thing that may be under way.
#ifndef SLUICE_TRANSPORT_BASE_MAILBOX_H_
#define SLUICE_TRANSPORT_BASE_MAILBOX_H_

#include <atomic>

namespace sluice::base {

struct MailNode {
  void (*run)(MailNode* node) = nullptr;  // may post the node again, or destroy it
  MailNode* next = nullptr;               // the mailbox's
};

class Mailbox {
 public:
  Mailbox() = default;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void Post(MailNode* node) {
    MailNode* seen = newest_.load(std::memory_order_relaxed);
    do {
      node->next = seen;
      // Ordered with a flag that says "asleep": either the reader sees the node before it sleeps, or the sender
      // sees the flag.
    } while (!newest_.compare_exchange_weak(seen, node, std::memory_order_seq_cst,
                                            std::memory_order_relaxed));
  }

  bool empty() const { return newest_.load(std::memory_order_seq_cst) == nullptr; }

  // Runs what has been posted so far, in the order of each sender. The number of nodes.
  int Run() {
    if (newest_.load(std::memory_order_relaxed) == nullptr) return 0;
    MailNode* newest = newest_.exchange(nullptr, std::memory_order_acquire);
    MailNode* oldest = nullptr;
    while (newest != nullptr) {
      MailNode* const before = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = before;
    }
    int count = 0;
    while (oldest != nullptr) {
      MailNode* const next = oldest->next;
      oldest->run(oldest);
      oldest = next;
      ++count;
    }
    return count;
  }

 private:
  std::atomic<MailNode*> newest_{nullptr};
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_MAILBOX_H_
