// SPDX-License-Identifier: Apache-2.0
//
// RawHttp2Client: a gRPC client of one call that sends the frames that a test names, wrong ones too. It answers no ping.
//
//   RawHttp2Client client(port, "/sluice.tests.route.RouteGuide/RecordRoute", "gzip");
//   client.SendData(RawHttp2Client::Message("", 0));
//   client.SendData("garbage", RawHttp2Client::kEndStream);
//   EXPECT_THAT(client.ReadUntil("grpc-status"), HasSubstr("..."));
//
// Ownership     The test. The destructor closes the connection.
// Threads       One.
#ifndef SLUICE_TESTS_TOOLS_GATEWAY_RAW_HTTP2_CLIENT_H_
#define SLUICE_TESTS_TOOLS_GATEWAY_RAW_HTTP2_CLIENT_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sluice::testing_support {

class RawHttp2Client {
 public:
  static constexpr uint8_t kEndStream = 1;

  // Connects to a port of this host and sends the headers of a call. `encoding`: header "grpc-encoding", if not empty.
  RawHttp2Client(uint16_t port, const std::string& path, const std::string& encoding = "")
      : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    std::string headers =
        absl::StrCat(Header(":method", "POST"), Header(":scheme", "http"), Header(":path", path),
                     Header(":authority", "test"), Header("te", "trailers"),
                     Header("content-type", "application/grpc"));
    if (!encoding.empty()) headers += Header("grpc-encoding", encoding);
    constexpr uint8_t kHeaders = 1, kSettings = 4, kEndHeaders = 4;
    Send(absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Frame(kSettings, 0, 0, ""),
                      Frame(kHeaders, kEndHeaders, 1, headers)));
  }
  ~RawHttp2Client() { ::close(socket_); }
  RawHttp2Client(const RawHttp2Client&) = delete;
  RawHttp2Client& operator=(const RawHttp2Client&) = delete;

  // A message of gRPC: its flag (1: compressed), length and bytes.
  static std::string Message(absl::string_view bytes, uint8_t flag) {
    return absl::StrCat(std::string(1, static_cast<char>(flag)), Number(bytes.size(), 4), bytes);
  }
  void SendData(absl::string_view bytes, uint8_t flags = 0) { Send(Frame(0, flags, 1, bytes)); }
  // Reads until `what` has come, or the server has closed the connection. Returns all that came.
  std::string ReadUntil(absl::string_view what) {
    char piece[4096];
    while (received_.find(what.data(), 0, what.size()) == std::string::npos) {
      const ssize_t bytes = ::recv(socket_, piece, sizeof(piece), 0);
      if (bytes <= 0) break;
      received_.append(piece, static_cast<size_t>(bytes));
    }
    return received_;
  }

 private:
  static std::string Number(uint64_t value, int bytes) {
    std::string text;
    while (bytes-- > 0) text.push_back(static_cast<char>(value >> (8 * bytes)));
    return text;
  }
  static std::string Frame(uint8_t type, uint8_t flags, uint32_t stream,
                           absl::string_view payload) {
    return absl::StrCat(Number(payload.size(), 3), Number(type, 1), Number(flags, 1),
                        Number(stream, 4), payload);
  }
  // HPACK: a literal that is not indexed.
  static std::string Header(absl::string_view key, absl::string_view value) {
    return absl::StrCat(Number(0, 1), Number(key.size(), 1), key, Number(value.size(), 1), value);
  }
  void Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the server has closed the connection
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }

  const int socket_;
  std::string received_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_TOOLS_GATEWAY_RAW_HTTP2_CLIENT_H_
