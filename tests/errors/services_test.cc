// SPDX-License-Identifier: Apache-2.0
//
// docs/errors.md, what the services say that any server may register.
#include <gtest/gtest.h>

#include <memory>

#include "middleware/api/in_process.h"
#include "middleware/services/health_service.h"
#include "middleware/services/reflection_service.h"
#include "tests/errors/catalogue.h"

namespace sluice {
namespace {

using testing_support::ExpectCatalogued;

TEST(ServiceErrors, NamesThatNobodyKnows) {
  HealthService health;
  auto described = InProcess::Start({&health});
  ASSERT_TRUE(described.ok()) << described.status();
  ReflectionService reflection(&(*described)->server());
  auto world = InProcess::Start({&health, &reflection});
  ASSERT_TRUE(world.ok()) << world.status();
  const auto channel = (*world)->NewChannel();
  ASSERT_TRUE(channel.ok()) << channel.status();

  CallContext context(absl::Seconds(60));
  health::v1::HealthCheckRequest of_health;
  of_health.set_service("sluice.Nothing");
  ExpectCatalogued("health-unknown",
                   health::v1::HealthClient(*channel).Check(context, of_health).status());
  reflection::v1::FilesOfRequest of_files;
  of_files.set_service("sluice.Nothing");
  ExpectCatalogued("service-unknown",
                   reflection::v1::ReflectionClient(*channel).FilesOf(context, of_files).status());
}

}  // namespace
}  // namespace sluice
