// SPDX-License-Identifier: Apache-2.0
//
// Secrets and keys are not left in memory that was freed. This binary looks at every block that it frees.
#include <malloc.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/peer/keyring.h"
#include "transport/peer/secrets.h"

namespace {

// Neither is ever in the heap by way of these.
constexpr char kSecret[] = "Zu39-never-in-freed-memory-Qp71";
bool g_watching = false;
int g_left = 0;

void Look(const void* block) {
  if (!g_watching || block == nullptr) return;
  if (memmem(block, malloc_usable_size(const_cast<void*>(block)), kSecret, sizeof(kSecret) - 1)) {
    ++g_left;
  }
}

}  // namespace

void* operator new(size_t size) {
  void* block = std::malloc(size);
  if (block == nullptr) std::abort();
  return block;
}
void operator delete(void* block) noexcept {
  Look(block);
  std::free(block);
}
void operator delete(void* block, size_t) noexcept {
  Look(block);
  std::free(block);
}

namespace sluice::peer {
namespace {

class WipedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/wiped_test";
    std::ofstream file(path_);
    file.rdbuf()->pubsetbuf(nullptr, 0);
    file << "# the secret of this test\n" << kSecret << "\n";
    file.close();
    ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  }
  // How many freed blocks had the secret in them.
  template <typename Run>
  static int LeftBy(const Run& run) {
    g_left = 0;
    g_watching = true;
    run();
    g_watching = false;
    return g_left;
  }
  std::string path_;
};

TEST_F(WipedTest, TheWatchSeesASecretThatIsLeft) {
  EXPECT_EQ(LeftBy([] { std::string copy(kSecret); }), 1);
}

TEST_F(WipedTest, KeyringFromAFileLeavesNothing) {
  EXPECT_EQ(LeftBy([&] {
              const Keyring ring = Keyring::Read({SecretsFromFile(path_)});
              EXPECT_TRUE(ring.Check().ok()) << ring.Check();
            }),
            0);
}

TEST_F(WipedTest, KeyringFromAFunctionLeavesNothing) {
  EXPECT_EQ(LeftBy([] {
              const Keyring ring = Keyring::Read({[]() -> SecretSource::Texts {
                std::vector<std::string> texts;
                texts.emplace_back(kSecret);
                return texts;
              }});
              EXPECT_TRUE(ring.Check().ok()) << ring.Check();
            }),
            0);
}

TEST_F(WipedTest, FileWithABadSecretBesideAGoodOneLeavesNothing) {
  {
    std::ofstream file(path_, std::ios::app);
    file << "too short\n";
  }
  EXPECT_EQ(LeftBy([&] { EXPECT_FALSE(Keyring::Read({SecretsFromFile(path_)}).Check().ok()); }), 0);
}

}  // namespace
}  // namespace sluice::peer
