// SPDX-License-Identifier: Apache-2.0
#include "transport/base/error.h"

#include <cerrno>

#include "gtest/gtest.h"

namespace sluice::base {
namespace error_test {

TEST(Error, SaysWhatWhoWhyAndWhatToDo) {
  const absl::Status status = Error(absl::StatusCode::kUnavailable, "connect refused",
                                    {.layer = "cm",
                                     .peer = "host:1",
                                     .operation = "connect",
                                     .cause = "nobody listens",
                                     .remedy = "start the server",
                                     .vendor_code = 8,
                                     .retry_safe = true});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(std::string(status.message()),
            "connect refused (peer host:1): nobody listens; start the server");
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->layer(), "cm");
  EXPECT_EQ(detail->peer(), "host:1");
  EXPECT_EQ(detail->operation(), "connect");
  EXPECT_EQ(detail->vendor_code(), 8u);
  EXPECT_TRUE(detail->retry_safe());
}

TEST(Error, LeavesEmptyPartsOut) {
  EXPECT_EQ(std::string(Error(absl::StatusCode::kInternal, "broke", {}).message()), "broke");
}

TEST(ErrnoError, NamesTheErrnoAndKeepsItAsSyndrome) {
  const absl::Status status = ErrnoError(ENOMEM, "ibv_create_cq", {.layer = "verbs"});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()),
            "ibv_create_cq failed with ENOMEM (Cannot allocate memory)");
  EXPECT_EQ(DetailOf(status)->syndrome(), static_cast<uint32_t>(ENOMEM));
}

TEST(Prefix, KeepsCodeAndPayload) {
  const absl::Status inner = Error(absl::StatusCode::kNotFound, "no device", {.layer = "device"});
  const absl::Status outer = Prefix(inner, "open");
  EXPECT_EQ(outer.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(outer.message()), "open: no device");
  EXPECT_EQ(DetailOf(outer)->layer(), "device");
  EXPECT_TRUE(Prefix(absl::OkStatus(), "x").ok());
}

TEST(AddPeer, NamesAPeerWhereThereIsNone) {
  const absl::Status status = Error(absl::StatusCode::kInternal, "reply too large",
                                    {.layer = "call", .cause = "9 bytes", .remedy = "send less"});
  const absl::Status named = AddPeer(status, "h:1");
  EXPECT_EQ(named.message(), "reply too large (peer h:1): 9 bytes; send less");
  EXPECT_EQ(DetailOf(named)->peer(), "h:1");
  EXPECT_EQ(DetailOf(named)->cause(), "9 bytes");
  EXPECT_EQ(AddPeer(named, "other:2"), named);
  EXPECT_EQ(AddPeer(Error(absl::StatusCode::kInternal, "broke", {}), "h:1").message(),
            "broke (peer h:1)");
}

TEST(NotRetrySafe, TakesTheClaimAndLeavesTheRest) {
  const absl::Status status =
      Error(absl::StatusCode::kUnavailable, "not connected",
            {.layer = "call", .cause = "nobody listens", .retry_safe = true});
  const absl::Status passed_on = NotRetrySafe(status);
  EXPECT_TRUE(IsRetrySafe(status));
  EXPECT_FALSE(IsRetrySafe(passed_on));
  EXPECT_EQ(passed_on.message(), status.message());
  EXPECT_EQ(DetailOf(passed_on)->cause(), "nobody listens");
  EXPECT_EQ(NotRetrySafe(absl::NotFoundError("x")), absl::NotFoundError("x"));
}

TEST(AddPeer, LeavesWhatIsNotOursAsItIs) {
  EXPECT_EQ(AddPeer(absl::OkStatus(), "h:1"), absl::OkStatus());
  EXPECT_EQ(AddPeer(absl::NotFoundError("x"), "h:1"), absl::NotFoundError("x"));
}

}  // namespace error_test
}  // namespace sluice::base
