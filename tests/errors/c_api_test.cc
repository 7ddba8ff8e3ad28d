// SPDX-License-Identifier: Apache-2.0
//
// docs/errors.md, what the C API adds to the errors of the library.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "middleware/api/server.h"
#include "middleware/c_api/sluice.h"
#include "middleware/services/health_service.h"
#include "tests/errors/catalogue.h"

namespace sluice {
namespace {

using testing_support::ExpectCatalogued;

// Takes over the C status.
absl::Status StatusOf(sluice_status* from) {
  const std::unique_ptr<sluice_status, decltype(&sluice_status_free)> owned(from,
                                                                            &sluice_status_free);
  absl::Status status(static_cast<absl::StatusCode>(sluice_status_code(from)),
                      sluice_status_message(from));
  for (size_t i = 0; i < sluice_status_payload_count(from); ++i) {
    const char* url = nullptr;
    const void* data = nullptr;
    size_t bytes = 0;
    sluice_status_payload(from, i, &url, &data, &bytes);
    status.SetPayload(url, absl::Cord(absl::string_view(static_cast<const char*>(data), bytes)));
  }
  return status;
}

TEST(CApiErrors, ArgumentsChannelsAndCalls) {
  ServerOptions options;
  options.device = "softdc0";
  HealthService health;
  const auto server = Server::Create(options);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Register(&health).ok());
  const auto port = (*server)->Listen("127.0.0.1:0");
  ASSERT_TRUE(port.ok()) << port.status();
  sluice_options* const device = sluice_options_new();
  ASSERT_EQ(sluice_options_set(device, "device", "softdc0"), nullptr);
  sluice_channel* channel = nullptr;
  const std::string address = absl::StrCat("127.0.0.1:", *port);
  const absl::Status connected =
      StatusOf(sluice_channel_connect(address.c_str(), device, &channel));
  sluice_options_free(device);
  ASSERT_TRUE(connected.ok()) << connected;

  const auto call = [&channel](const char* method) {
    return StatusOf(sluice_call_unary(channel, method, nullptr, 0, nullptr, nullptr));
  };
  constexpr char kCheck[] = "sluice.health.v1.Health/Check";
  ASSERT_TRUE(call(kCheck).ok());
  ExpectCatalogued("c-argument", call("Check"));

  sluice_call* started = nullptr;
  ASSERT_EQ(sluice_call_start(channel, kCheck, nullptr, 0, nullptr, 0, &started), nullptr);
  ASSERT_TRUE(StatusOf(sluice_call_finish(started, nullptr)).ok());
  ExpectCatalogued("c-finished", StatusOf(sluice_call_finish(started, nullptr)));
  sluice_call_free(started);

  // The child says what it was told through a pipe.
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    sluice_status* const status = sluice_call_unary(channel, kCheck, nullptr, 0, nullptr, nullptr);
    const char* url = nullptr;
    const void* data = nullptr;
    size_t bytes = 0;
    sluice_status_payload(status, 0, &url, &data, &bytes);
    const std::string text = sluice_status_message(status);
    const uint64_t head[] = {static_cast<uint64_t>(sluice_status_code(status)), text.size(), bytes};
    const bool wrote = write(pipe_ends[1], head, sizeof(head)) == sizeof(head) &&
                       write(pipe_ends[1], text.data(), text.size()) > 0 &&
                       write(pipe_ends[1], data, bytes) > 0;
    _exit(wrote ? 0 : 1);
  }
  int how = -1;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  ASSERT_TRUE(WIFEXITED(how) && WEXITSTATUS(how) == 0) << how;
  uint64_t head[3] = {};
  ASSERT_EQ(read(pipe_ends[0], head, sizeof(head)), static_cast<ssize_t>(sizeof(head)));
  std::string text(head[1], '\0');
  std::string payload(head[2], '\0');
  ASSERT_EQ(read(pipe_ends[0], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ASSERT_EQ(read(pipe_ends[0], payload.data(), payload.size()),
            static_cast<ssize_t>(payload.size()));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  absl::Status forked(static_cast<absl::StatusCode>(head[0]), text);
  forked.SetPayload("type.googleapis.com/sluice.ErrorDetail", absl::Cord(payload));
  ExpectCatalogued("c-forked", forked);

  sluice_channel_close(channel);
  ExpectCatalogued("c-closed", call(kCheck));
  sluice_channel_free(channel);
}

}  // namespace
}  // namespace sluice
