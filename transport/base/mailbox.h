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
  MailNode* next = nullptr;               // used by the mailbox only
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
      // Sequentially consistent with the reader's "asleep" flag: either the reader sees the node before it sleeps, or the
      // sender sees the flag.
    } while (!newest_.compare_exchange_weak(seen, node, std::memory_order_seq_cst,
                                            std::memory_order_relaxed));
  }

  bool empty() const {
    return taken_ == nullptr && newest_.load(std::memory_order_seq_cst) == nullptr;
  }

  // Runs the nodes that have been posted, and keeps the order of each sender. Returns the number of nodes that ran.
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

  // Removes a posted node before it runs. The sender may then post it again or destroy it. Returns false if the node was not in the
  // mailbox. Walks the list: for rare cases.
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
  // Appends the posted nodes to `taken_`, oldest first.
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
  MailNode* taken_ = nullptr;  // reader only: nodes that have not run yet
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_MAILBOX_H_
