// SPDX-License-Identifier: Apache-2.0
//
// Echo with messages of ZeroMQ, a pair of sockets over ipc:// (echo_run.h has the command line).
#include <zmq.h>

#include "echo_run.h"

namespace {

void* Socket() {
  void* socket = zmq_socket(zmq_ctx_new(), ZMQ_PAIR);
  if (socket == nullptr) peers::Die("zmq_socket", zmq_strerror(zmq_errno()));
  return socket;
}

class Client {
 public:
  Client(const std::string& address, size_t size_bytes)
      : out_(size_bytes, 'x'), in_(size_bytes, 'y'), socket_(Socket()) {
    if (zmq_connect(socket_, address.c_str()) != 0)
      peers::Die("connect", zmq_strerror(zmq_errno()));
  }
  void Start() {
    if (zmq_send(socket_, out_.data(), out_.size(), 0) < 0)
      peers::Die("send", zmq_strerror(zmq_errno()));
  }
  int Take() {
    const int bytes = zmq_recv(socket_, in_.data(), in_.size(), 0);
    if (bytes != static_cast<int>(in_.size())) peers::Die("reply", "it has another size");
    return 1;
  }

 private:
  std::string out_, in_;
  void* socket_;
};

class ZeroMq {
 public:
  void Prepare() { address_ = "ipc://@zeromq_echo." + std::to_string(getpid()); }
  void Serve(size_t) {
    void* socket = Socket();
    if (zmq_bind(socket, address_.c_str()) != 0) peers::Die("bind", zmq_strerror(zmq_errno()));
    for (;;) {
      zmq_msg_t message;
      zmq_msg_init(&message);
      if (zmq_msg_recv(&message, socket, 0) < 0 || zmq_msg_send(&message, socket, 0) < 0) return;
    }
  }
  Client* Connect(size_t size_bytes) {
    auto* client = new Client(address_, size_bytes);
    client->Start();
    client->Take();
    return client;
  }

 private:
  std::string address_;
};

}  // namespace

int main(int argc, char** argv) { return peers::Main<ZeroMq>(argc, argv); }
