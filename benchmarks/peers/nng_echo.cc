// SPDX-License-Identifier: Apache-2.0
//
// Echo with messages of nng, a pair of sockets over ipc:// (echo_run.h has the command line).
#include <nng/nng.h>
#include <nng/protocol/pair1/pair.h>

#include "echo_run.h"

namespace {

void Check(int error, const char* what) {
  if (error != 0) peers::Die(what, nng_strerror(error));
}

nng_socket Socket() {
  nng_socket socket;
  Check(nng_pair1_open(&socket), "nng_pair1_open");
  // Room for all that are outstanding, so that no side waits for the other.
  Check(nng_socket_set_int(socket, NNG_OPT_SENDBUF, 2 * peers::kOutstanding), "send buffer");
  Check(nng_socket_set_int(socket, NNG_OPT_RECVBUF, 2 * peers::kOutstanding), "receive buffer");
  return socket;
}

class Client {
 public:
  Client(const std::string& address, size_t size_bytes) : out_(size_bytes, 'x'), socket_(Socket()) {
    Check(nng_dial(socket_, address.c_str(), nullptr, NNG_FLAG_NONBLOCK), "nng_dial");
  }
  void Start() { Check(nng_send(socket_, out_.data(), out_.size(), 0), "nng_send"); }
  int Take() {
    nng_msg* message;
    Check(nng_recvmsg(socket_, &message, 0), "nng_recvmsg");
    if (nng_msg_len(message) != out_.size()) peers::Die("reply", "it has another size");
    nng_msg_free(message);
    return 1;
  }

 private:
  std::string out_;
  nng_socket socket_;
};

class Nng {
 public:
  void Prepare() { address_ = "abstract://nng_echo." + std::to_string(getpid()); }
  void Serve(size_t size_bytes) {
    nng_socket socket = Socket();
    Check(nng_socket_set_size(socket, NNG_OPT_RECVMAXSZ, size_bytes + 64), "maximum size");
    Check(nng_listen(socket, address_.c_str(), nullptr, 0), "nng_listen");
    for (;;) {
      nng_msg* message;
      Check(nng_recvmsg(socket, &message, 0), "nng_recvmsg");
      Check(nng_sendmsg(socket, message, 0), "nng_sendmsg");
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

int main(int argc, char** argv) { return peers::Main<Nng>(argc, argv); }
