// SPDX-License-Identifier: Apache-2.0
//
// A server killed under load: its clients' calls end, and go on when it is back.
#include <dirent.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/examples/echo/echo_fixture.h"

namespace sluice::examples::echo {
namespace server_death_test {

constexpr absl::Duration kDeadline = absl::Seconds(5);
constexpr int kWindow = 64;
constexpr int kCallsBeforeTheKill = 1000;

// Of ours: other programs of this host come and go.
std::vector<std::string> SharedMemoryNames() {
  std::vector<std::string> names;
  DIR* folder = opendir("/dev/shm");
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name.find("softdc") != name.npos || name.find("sluice") != name.npos) names.push_back(name);
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

bool IsExpectedEnd(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Calls in a closed loop until one fails; then each place stops. All of it on the thread that
// drives.
struct Load {
  struct Place {
    Load* load = nullptr;
    SayRequest request;
    SayReply reply;
  };

  explicit Load(Channel* to) : channel(to), places(kWindow) {
    for (Place& place : places) {
      place.load = this;
      place.request.set_payload("under load");
    }
  }

  void StartAll() {
    for (Place& place : places) Start(place);
  }
  void Start(Place& place) {
    ++in_flight;
    const absl::Status status = channel->StartCall(
        EchoClient::SayMethod(), context, place.request, &place.reply,
        [](void* argument, const absl::Status& end) {
          auto* ended = static_cast<Place*>(argument);
          ended->load->OnEnd(*ended, end);
        },
        &place);
    if (!status.ok()) OnEnd(place, status);
  }
  void OnEnd(Place& place, const absl::Status& status) {
    --in_flight;
    if (status.ok()) {
      ++ok;
      Start(place);
      return;
    }
    ends.push_back(status);
  }

  Channel* const channel;
  CallContext context{kDeadline};
  std::vector<Place> places;
  int in_flight = 0;
  int64_t ok = 0;
  std::vector<absl::Status> ends;
};

TEST_F(EchoTest, ServerKilledUnderLoadEndsEachCallAndCallsGoOnWhenItIsBack) {
  const auto before = SharedMemoryNames();
  StartServer();
  auto channel = MustConnect();
  ASSERT_NE(channel, nullptr);

  Load load(channel.get());
  bool started = false;
  bool killed = false;
  const bool all_ended = channel->Drive(
      [&] {
        if (!started) load.StartAll();
        started = true;
        if (!killed && load.ok >= kCallsBeforeTheKill) {
          server_->Signal(SIGKILL);
          killed = true;
        }
        return load.ends.size() == kWindow;
      },
      kLong);
  ASSERT_TRUE(all_ended) << load.ends.size() << " of " << kWindow << " ended";
  EXPECT_TRUE(killed);
  EXPECT_EQ(load.in_flight, 0);
  for (const absl::Status& end : load.ends) EXPECT_TRUE(IsExpectedEnd(end)) << end;
  EXPECT_EQ(server_->Wait(kLong).value_or(-1), 128 + SIGKILL);

  // On the same port again: the channel finds it by itself.
  StartServer(address_);
  EXPECT_TRUE(Say(channel, "you are back", kLong, /*wait_for_ready=*/true).ok());
  EXPECT_GE(channel->counters().connections, 2u);

  channel.reset();
  server_.reset();
  EXPECT_EQ(SharedMemoryNames(), before);
}

TEST_F(EchoTest, ServerKilledUnderThreadsThatWaitEndsEachCallInTime) {
  StartServer();
  auto channel = MustConnect();
  ASSERT_NE(channel, nullptr);
  std::atomic<int> ok{0};
  std::atomic<int> unexpected{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      absl::Status status;
      while ((status = Say(channel, "again", kDeadline)).ok()) ++ok;
      if (!IsExpectedEnd(status)) {
        ++unexpected;
        ADD_FAILURE() << status;
      }
    });
  }
  while (ok.load() < kCallsBeforeTheKill && unexpected.load() == 0) std::this_thread::yield();
  server_->Signal(SIGKILL);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(unexpected.load(), 0);
}

}  // namespace server_death_test
}  // namespace sluice::examples::echo
