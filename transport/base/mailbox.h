// SPDX-License-Identifier: Apache-2.0
//
// Mailbox: work for one thread, posted by any thread.
//
// Purpose       A list of nodes that their senders own. A post allocates nothing and takes no lock. The reader takes all nodes at
//               once, so no two threads search the list.
// Ownership     The reader. A node belongs to the mailbox from Post() until its `run` is called.
// Threads       Post(): any. Run(), Remove(), empty(): the reader's.
// Limits        None: a sender has one node for each piece of work that can be in progress.
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

  bool empty() const {
    return taken_ == nullptr && newest_.load(std::memory_order_seq_cst) == nullptr;
  }

  // Runs what has been posted so far, in the order of each sender. The number of nodes.
  int Run() {
    if (newest_.load(std::memory_order_relaxed) == nullptr && taken_ == nullptr) return 0;
    Take();
    int count = 0;
    while (taken_ != nullptr) {
      MailNode* const node = taken_;
      taken_ = node->next;
      node->run(node);
      ++count;
    }
    return count;
  }

  // Takes back a node that was posted, so that it does not run; its sender may post it again, or destroy it. False: it was
  // not there. Walks the list: for rare cases.
  bool Remove(MailNode* node) {
    Take();
    for (MailNode** link = &taken_; *link != nullptr; link = &(*link)->next) {
      if (*link != node) continue;
      *link = node->next;
      return true;
    }
    return false;
  }

 private:
  // Appends what has been posted to what was taken before.
  void Take() {
    MailNode* newest = newest_.exchange(nullptr, std::memory_order_acquire);
    MailNode* oldest = nullptr;
    while (newest != nullptr) {
      MailNode* const before = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = before;
    }
    MailNode** end = &taken_;
    while (*end != nullptr) end = &(*end)->next;
    *end = oldest;
  }

  std::atomic<MailNode*> newest_{nullptr};
  MailNode* taken_ = nullptr;  // the reader's: in the order of each sender, not run yet
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_MAILBOX_H_
