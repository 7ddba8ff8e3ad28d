// SPDX-License-Identifier: Apache-2.0
//
// Echo with calls of Cap'n Proto over a Unix socket (echo_run.h has the command line). echo.capnp has the interface.
#include <capnp/ez-rpc.h>

#include "echo.capnp.h"
#include "echo_run.h"

namespace {

class Server final : public Echo::Server {
  kj::Promise<void> say(SayContext context) override {
    const auto payload = context.getParams().getPayload();
    context.getResults(capnp::MessageSize{payload.size() / sizeof(capnp::word) + 16, 0})
        .setPayload(payload);
    return kj::READY_NOW;
  }
};

capnp::ReaderOptions Limits() {
  capnp::ReaderOptions limits;
  limits.traversalLimitInWords = kj::maxValue;
  return limits;
}

class Client {
 public:
  Client(const std::string& address, size_t size_bytes)
      : payload_(kj::heapArray<kj::byte>(size_bytes)),
        rpc_(kj::StringPtr(address.c_str()), 0, Limits()),
        echo_(rpc_.getMain<Echo>()) {}

  void Start() {
    auto request =
        echo_.sayRequest(capnp::MessageSize{payload_.size() / sizeof(capnp::word) + 16, 0});
    request.setPayload(payload_);
    calls_.push_back(request.send().then([this](capnp::Response<Echo::SayResults>&& reply) {
      if (reply.getPayload().size() != payload_.size()) peers::Die("reply", "it has another size");
    }));
  }

  // Replies come in the order of their calls.
  int Take() {
    kj::Promise<void> oldest = kj::mv(calls_[first_]);
    if (++first_ == calls_.size()) {
      calls_.clear();
      first_ = 0;
    } else if (first_ == 4096) {
      calls_.erase(calls_.begin(), calls_.begin() + 4096);
      first_ = 0;
    }
    oldest.wait(rpc_.getWaitScope());
    return 1;
  }

 private:
  kj::Array<kj::byte> payload_;
  capnp::EzRpcClient rpc_;
  Echo::Client echo_;
  std::vector<kj::Promise<void>> calls_;
  size_t first_ = 0;
};

class CapnProto {
 public:
  void Prepare() { path_ = "/tmp/capnp_echo." + std::to_string(getpid()); }
  void Serve(size_t) {
    const std::string address = "unix:" + path_;
    capnp::EzRpcServer server(kj::heap<Server>(), kj::StringPtr(address.c_str()), 0, Limits());
    kj::NEVER_DONE.wait(server.getWaitScope());
  }
  Client* Connect(size_t size_bytes) {
    while (access(path_.c_str(), F_OK) != 0) sched_yield();  // the server binds it
    usleep(10'000);                                          // and then listens
    auto* client = new Client("unix:" + path_, size_bytes);
    client->Start();
    client->Take();
    unlink(path_.c_str());
    return client;
  }

 private:
  std::string path_;
};

}  // namespace

int main(int argc, char** argv) { return peers::Main<CapnProto>(argc, argv); }
