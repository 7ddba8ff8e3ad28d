// SPDX-License-Identifier: Apache-2.0
#include "transport/base/mailbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace sluice::base {
namespace mailbox_test {

struct Letter : MailNode {
  Letter() {
    run = [](MailNode* node) {
      auto* letter = static_cast<Letter*>(node);
      letter->read->push_back(letter->number);
    };
  }
  std::vector<int>* read = nullptr;
  int number = 0;
};

TEST(MailboxTest, EmptyRunsNothing) {
  Mailbox mailbox;
  EXPECT_TRUE(mailbox.empty());
  EXPECT_EQ(mailbox.Run(), 0);
}

TEST(MailboxTest, RunsInTheOrderOfPosting) {
  Mailbox mailbox;
  std::vector<int> read;
  Letter letters[5];
  for (int i = 0; i < 5; ++i) {
    letters[i].read = &read;
    letters[i].number = i;
    mailbox.Post(&letters[i]);
  }
  EXPECT_FALSE(mailbox.empty());
  EXPECT_EQ(mailbox.Run(), 5);
  EXPECT_EQ(read, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_TRUE(mailbox.empty());
}

TEST(MailboxTest, NodeThatIsPostedAgainRunsInTheNextRound) {
  struct Again : MailNode {
    Mailbox* mailbox = nullptr;
    int runs = 0;
  } again;
  Mailbox mailbox;
  again.mailbox = &mailbox;
  again.run = [](MailNode* node) {
    auto* self = static_cast<Again*>(node);
    if (++self->runs < 3) self->mailbox->Post(self);
  };
  mailbox.Post(&again);
  EXPECT_EQ(mailbox.Run(), 1);
  EXPECT_EQ(mailbox.Run(), 1);
  EXPECT_EQ(mailbox.Run(), 1);
  EXPECT_EQ(mailbox.Run(), 0);
  EXPECT_EQ(again.runs, 3);
}

TEST(MailboxTest, NodeThatIsTakenBackDoesNotRun) {
  Mailbox mailbox;
  std::vector<int> log;
  Letter letters[4];
  for (int i = 0; i < 4; ++i) {
    letters[i].read = &log;
    letters[i].number = i;
  }
  EXPECT_FALSE(mailbox.Remove(&letters[0])) << "it was not posted";
  for (Letter& letter : letters) mailbox.Post(&letter);
  EXPECT_TRUE(mailbox.Remove(&letters[1]));
  EXPECT_TRUE(mailbox.Remove(&letters[3]));
  EXPECT_FALSE(mailbox.Remove(&letters[3]));
  EXPECT_FALSE(mailbox.empty());
  mailbox.Post(&letters[1]);
  EXPECT_EQ(mailbox.Run(), 3);
  EXPECT_EQ(log, (std::vector<int>{0, 2, 1}));
  EXPECT_TRUE(mailbox.empty());
}

TEST(MailboxTest, NodeMayTakeBackTheOneBehindIt) {
  struct Taker : MailNode {
    Mailbox* mailbox = nullptr;
    MailNode* behind = nullptr;
  };
  Mailbox mailbox;
  std::vector<int> log;
  Letter behind;
  behind.read = &log;
  Taker taker;
  taker.mailbox = &mailbox;
  taker.behind = &behind;
  taker.run = [](MailNode* node) {
    auto* self = static_cast<Taker*>(node);
    EXPECT_TRUE(self->mailbox->Remove(self->behind));
  };
  mailbox.Post(&taker);
  mailbox.Post(&behind);
  EXPECT_EQ(mailbox.Run(), 1);
  EXPECT_TRUE(log.empty());
}

TEST(MailboxTest, NodeMayDestroyItself) {
  struct Own : MailNode {
    int* count = nullptr;
  };
  Mailbox mailbox;
  int count = 0;
  for (int i = 0; i < 3; ++i) {
    auto own = std::make_unique<Own>();
    own->count = &count;
    own->run = [](MailNode* node) {
      const std::unique_ptr<Own> self(static_cast<Own*>(node));
      ++*self->count;
    };
    mailbox.Post(own.release());
  }
  EXPECT_EQ(mailbox.Run(), 3);
  EXPECT_EQ(count, 3);
}

TEST(MailboxTest, ManySendersLoseNothingAndKeepTheirOrder) {
  constexpr int kSenders = 3, kEach = 2000;
  Mailbox mailbox;
  std::vector<int> read;
  std::vector<std::vector<Letter>> letters(kSenders);
  std::vector<std::thread> senders;
  for (int s = 0; s < kSenders; ++s) {
    letters[s] = std::vector<Letter>(kEach);
    senders.emplace_back([&, s] {
      for (int i = 0; i < kEach; ++i) {
        letters[s][i].read = &read;
        letters[s][i].number = s * kEach + i;
        mailbox.Post(&letters[s][i]);
      }
    });
  }
  while (read.size() < size_t{kSenders} * kEach) mailbox.Run();
  for (std::thread& sender : senders) sender.join();
  EXPECT_EQ(mailbox.Run(), 0);
  std::vector<int> next(kSenders, 0);
  for (const int number : read) {
    EXPECT_EQ(number % kEach, next[number / kEach]++);
  }
}

}  // namespace mailbox_test
}  // namespace sluice::base
