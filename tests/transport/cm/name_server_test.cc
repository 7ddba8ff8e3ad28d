// SPDX-License-Identifier: Apache-2.0
//
// A name server that says nothing for as long as it likes.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/cm/raw_connector.h"
#include "transport/cm/address.h"

namespace sluice::cm {
namespace name_server_test {

constexpr int64_t kPatienceNs = 20'000'000'000;

// Outlives whoever asks it.
class NameServer {
 public:
  absl::StatusOr<std::vector<sockaddr_storage>> Ask(const std::string& host, uint16_t port) {
    if (IsNumeric(host)) return Resolve(host, port, /*passive=*/false);
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return answers_; });
    ++answered_;
    changed_.notify_all();
    return Resolve("127.0.0.1", port, /*passive=*/false);
  }
  void WaitUntilAsked() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return asked_ != 0; });
  }
  void Answer() {
    std::lock_guard lock(mutex_);
    answers_ = true;
    changed_.notify_all();
  }
  void WaitUntilAnswered() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return answered_ == asked_; });
  }
  int asked() {
    std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool answers_ = false;
  int asked_ = 0;
  int answered_ = 0;
};

Options Asking(const std::shared_ptr<NameServer>& names) {
  Options options;
  options.resolve = [names](const std::string& host, uint16_t port, bool) {
    return names->Ask(host, port);
  };
  return options;
}

struct Counting : RawConnector {
  using RawConnector::RawConnector;
  void OnUp(ConnectionId) override { ++ups; }
  int ups = 0;
};

TEST(NameServerThatHangs, HoldsUpNobodyButWhoAskedIt) {
  const auto names = std::make_shared<NameServer>();
  Counting server, client(&softdc::Verbs(), Asking(names));
  const auto port = server.manager->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  const int64_t deadline_ns = client.clock.NowNs() + kPatienceNs;
  ASSERT_TRUE(client.manager->Connect("slow.example", *port, deadline_ns, {}).ok());
  names->WaitUntilAsked();
  ASSERT_TRUE(client.manager->Connect("127.0.0.1", *port, deadline_ns, {}).ok());
  const auto drive_until = [&](int ups) {
    while (!client.down && (server.ups < ups || client.ups < ups)) {
      client.Poll();
      server.Poll();
    }
    EXPECT_FALSE(client.down) << client.why;
  };
  drive_until(1);
  EXPECT_EQ(client.manager->size(), 2u);
  names->Answer();
  drive_until(2);
}

TEST(NameServerThatHangs, KeepsNoRecordBeyondItsDeadlineAndNobodyFromGoing) {
  const auto names = std::make_shared<NameServer>();
  {
    RawConnector client(&softdc::Verbs(), Asking(names));
    const int64_t deadline_ns = client.clock.NowNs() + 10'000'000;
    ASSERT_TRUE(client.manager->Connect("slow.example", 1, deadline_ns, {}).ok());
    ASSERT_TRUE(client.manager->Connect("other.example", 1, deadline_ns, {}).ok());
    names->WaitUntilAsked();
    while (client.manager->size() != 0) client.Poll();
    EXPECT_TRUE(client.down);
    EXPECT_EQ(client.why.code(), absl::StatusCode::kDeadlineExceeded) << client.why;
  }
  EXPECT_EQ(names->asked(), 1);  // the second had ended before its turn
  names->Answer();
  names->WaitUntilAnswered();
}

}  // namespace name_server_test
}  // namespace sluice::cm
