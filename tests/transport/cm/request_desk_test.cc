// SPDX-License-Identifier: Apache-2.0
//
// The inbox of a seat: its descriptor stays readable while there is a request, whenever that came. connection_manager_test has
// the rest of the desk.
#include "transport/cm/request_desk.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <utility>

#include "transport/verbs/verbs_api.h"

namespace {

// What happens just before the seat's descriptor is read next.
int watched_fd = -1;
std::function<void()> before_read;

}  // namespace

// Instead of the C library's, for this program.
extern "C" ssize_t read(int fd, void* bytes, size_t count) {
  if (fd == watched_fd && before_read) std::exchange(before_read, nullptr)();
  return syscall(SYS_read, fd, bytes, count);
}

namespace sluice::cm {
namespace {

class RequestDeskTest : public ::testing::Test {
 protected:
  void SetUp() override {
    table_.cm_migrate_id = [](rdma_cm_id*, rdma_event_channel*) { return 0; };
    auto seat = desk_.Sit(&channel_);
    ASSERT_TRUE(seat.ok()) << seat.status();
    seat_ = *seat;
    watched_fd = seat_->fd();
  }
  void TearDown() override {
    watched_fd = -1;
    before_read = nullptr;
  }
  void Give(rdma_cm_id* id) {
    ASSERT_EQ(desk_.Choose(), seat_);
    Request request;
    request.event.id = id;
    ASSERT_TRUE(seat_->Take(table_, request));
  }
  bool Readable() const {
    pollfd inbox{seat_->fd(), POLLIN, 0};
    return poll(&inbox, 1, 0) == 1;
  }

  verbs::VerbsApi table_ = {};
  rdma_event_channel channel_ = {};
  rdma_cm_id first_ = {}, second_ = {};
  RequestDesk desk_;
  std::shared_ptr<Seat> seat_;
};

TEST_F(RequestDeskTest, DescriptorIsReadableWhileThereIsARequest) {
  EXPECT_FALSE(Readable());
  Give(&first_);
  EXPECT_TRUE(Readable());
  EXPECT_TRUE(seat_->Next().has_value());
  EXPECT_FALSE(seat_->Next().has_value());
  EXPECT_FALSE(Readable());
}

// Between the look that finds nothing and the reading of the descriptor, which takes the request's signal back.
TEST_F(RequestDeskTest, RequestThatComesWhileTheDescriptorIsReadIsNotMissed) {
  Give(&first_);
  EXPECT_TRUE(seat_->Next().has_value());
  bool came = false;
  before_read = [&] {
    Give(&second_);
    came = true;
  };
  const auto next = seat_->Next();
  ASSERT_TRUE(came);
  EXPECT_TRUE(next.has_value() || Readable()) << "its manager may sleep now";
  if (next.has_value()) {
    EXPECT_EQ(next->event.id, &second_);
  }
  EXPECT_FALSE(seat_->Next().has_value());
  EXPECT_FALSE(Readable());
}

}  // namespace
}  // namespace sluice::cm
