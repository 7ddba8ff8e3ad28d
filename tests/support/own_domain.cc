// SPDX-License-Identifier: Apache-2.0
//
// A fabric of its own for each test process: numbers and ports of softdc are those of the host, and a
// number that one test gives back may be taken by another at once. Linked in, it names the domain
// before main(); a test that sets SOFTDC_DOMAIN itself, or inherits it, keeps what it has.
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace sluice {
namespace {

[[maybe_unused]] const bool kNamed =
    setenv("SOFTDC_DOMAIN", ("test-" + std::to_string(getpid())).c_str(), /*overwrite=*/0) == 0;

}  // namespace
}  // namespace sluice
