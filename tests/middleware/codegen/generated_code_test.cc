// SPDX-License-Identifier: Apache-2.0
//
// Generated code compiles, and its parts fit together: names, numbers, binding, the default of a
// method.
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "tests/middleware/codegen/testdata/names.sluice.h"
#include "tests/middleware/codegen/testdata/no_package.sluice.h"
#include "tests/middleware/codegen/testdata/shop.sluice.h"

namespace generated_code_test {

using acme::shop::v1::EmptyServiceBase;
using acme::shop::v1::Order;
using acme::shop::v1::ShopClient;
using acme::shop::v1::ShopServiceBase;

class Shop final : public ShopServiceBase {
 public:
  absl::Status Price(sluice::ServerContext& context, const Order::Line& line,
                     acme::money::Amount* amount) override {
    EXPECT_STREQ(context.method(), "/acme.shop.v1.Shop/Price");
    amount->set_cents(5 * line.count());
    return absl::OkStatus();
  }
};

TEST(GeneratedCodeTest, MethodsHaveTheNumbersOfTheirNames) {
  EXPECT_STREQ(ShopClient::PriceMethod().full_name, "/acme.shop.v1.Shop/Price");
  EXPECT_EQ(ShopClient::PriceMethod().id, sluice::frame::MethodId("/acme.shop.v1.Shop/Price"));
  EXPECT_STREQ(PingerClient::PingMethod().full_name, "/Pinger/Ping");
}

TEST(GeneratedCodeTest, MethodsOfServicesWithSimilarNamesAreApart) {
  EXPECT_STREQ(acme::names::A_BClient::CMethod().full_name, "/acme.names.A_B/C");
  EXPECT_STREQ(acme::names::AClient::B_CMethod().full_name, "/acme.names.A/B_C");
  EXPECT_STREQ(acme::names::LookClient::UpMethod().full_name, "/acme.names.Look/Up");
  EXPECT_STREQ(acme::names::LookClient::UpMethodMethod().full_name, "/acme.names.Look/UpMethod");
}

TEST(GeneratedCodeTest, BoundHandlersReachTheService) {
  Shop shop;
  EXPECT_STREQ(shop.name(), "acme.shop.v1.Shop");
  sluice::MethodBinder binder;
  shop.Bind(binder);
  auto handlers = binder.TakeHandlers();
  ASSERT_EQ(handlers.size(), 2u);
  const std::string peer = "somebody";
  const std::string tenant;
  const sluice::call::Incoming incoming{handlers[0].method, &peer, &tenant, 0, 0, {}};
  Order::Line line;
  line.set_count(3);
  ASSERT_TRUE(handlers[0].run(handlers[0].service, incoming, line, handlers[0].reply.get()).ok());
  EXPECT_EQ(static_cast<acme::money::Amount&>(*handlers[0].reply).cents(), 15);
}

// XMethod() may be called with messages of each type.
TEST(GeneratedCodeTest, OnlyBoundMethodsHaveTheCodecsOfTheirTypes) {
  Shop shop;
  sluice::MethodBinder binder;
  shop.Bind(binder);
  const auto handlers = binder.TakeHandlers();
  const sluice::call::Method& price = *handlers[0].method;
  EXPECT_NE(price.request_codec, &sluice::call::kAnyMessage);
  EXPECT_NE(price.reply_codec, &sluice::call::kAnyMessage);
  EXPECT_EQ(ShopClient::PriceMethod().request_codec, &sluice::call::kAnyMessage);
  EXPECT_EQ(ShopClient::PriceMethod().reply_codec, &sluice::call::kAnyMessage);
  EXPECT_EQ(price.id, ShopClient::PriceMethod().id);
  EXPECT_TRUE(price.idempotent);
  // Orders have a repeated field.
  EXPECT_EQ(handlers[1].method->request_codec, &sluice::call::kAnyMessage);

  Order::Line line;
  line.set_article("screw");
  line.set_count(300);
  std::string bytes(price.request_codec->size(line), '?');
  price.request_codec->write(line, bytes.size(), reinterpret_cast<std::byte*>(bytes.data()));
  EXPECT_EQ(bytes, line.SerializeAsString());
  Order::Line read;
  ASSERT_TRUE(price.request_codec->read(std::as_bytes(std::span(bytes)), &read));
  EXPECT_EQ(read.article(), "screw");
  EXPECT_EQ(read.count(), 300u);
}

TEST(GeneratedCodeTest, MethodThatIsNotOverriddenIsUnimplemented) {
  Shop shop;
  sluice::MethodBinder binder;
  shop.Bind(binder);
  auto handlers = binder.TakeHandlers();
  const std::string peer;
  const std::string tenant;
  const sluice::call::Incoming incoming{handlers[1].method, &peer, &tenant, 0, 0, {}};
  const absl::Status status =
      handlers[1].run(handlers[1].service, incoming, *handlers[1].request, handlers[1].reply.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(status.message()).find("/acme.shop.v1.Shop/Place"), std::string::npos);
}

TEST(GeneratedCodeTest, ServiceWithoutMethods) {
  EmptyServiceBase empty;
  sluice::MethodBinder binder;
  empty.Bind(binder);
  EXPECT_TRUE(binder.TakeHandlers().empty());
}

}  // namespace generated_code_test
