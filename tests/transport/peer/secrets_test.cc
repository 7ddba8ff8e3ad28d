// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/secrets.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "transport/base/error.h"

namespace sluice::peer {
namespace secrets_test {

constexpr char kFirst[] = "first secret, long enough";
constexpr char kSecond[] = "second secret, long enough";

// A file of this test's own; gone with it.
class SecretFile {
 public:
  explicit SecretFile(const std::string& text, mode_t mode = 0600)
      : path_(testing::TempDir() + "/secrets." + std::to_string(getpid())) {
    std::ofstream(path_) << text;
    EXPECT_EQ(chmod(path_.c_str(), mode), 0);
  }
  ~SecretFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(Secrets, NoneIsTheEmptyTextAndDemandsNothing) {
  const Secrets none;
  EXPECT_FALSE(none.demanded());
  EXPECT_EQ(none.own().id, 0u);
  EXPECT_NE(none.Find(0), nullptr);
}

TEST(Secrets, IdComesFromTheSecretAndFirstIsOwn) {
  const auto both = Secrets::FromTexts({kFirst, kSecond});
  const auto turned = Secrets::FromTexts({kSecond, kFirst});
  ASSERT_TRUE(both.ok() && turned.ok());
  EXPECT_TRUE(both->demanded());
  EXPECT_NE(both->own().id, 0u);
  EXPECT_NE(both->own().id, turned->own().id);
  EXPECT_EQ(both->Find(both->own().id), &both->own());
  EXPECT_NE(both->Find(turned->own().id), nullptr);
  EXPECT_EQ(both->Find(0), nullptr);
  EXPECT_EQ(both->Find(both->own().id + 1), nullptr);
}

TEST(Secrets, NoneTooManyTooShortAndTooLongAreRefusedWithoutSayingThem) {
  EXPECT_FALSE(Secrets::FromTexts({}).ok());
  EXPECT_FALSE(Secrets::FromTexts(std::vector<std::string>(17, kFirst)).ok());
  EXPECT_TRUE(Secrets::FromTexts(std::vector<std::string>(16, kFirst)).ok());
  EXPECT_FALSE(Secrets::FromTexts({std::string(257, 'x')}).ok());
  const absl::Status status = Secrets::FromTexts({kFirst, "fifteen letters"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "secret number 2 has 15 bytes: a secret has 16 to 256 bytes, and should be random; "
            "make one with: head -c 32 /dev/urandom | base64");
}

TEST(ReadSecretFile, LinesWithoutBlanksAndComments) {
  const SecretFile file("# of the test cluster\n\n  " + std::string(kFirst) + " \r\n" + kSecond);
  const auto lines = ReadSecretFile(file.path());
  ASSERT_TRUE(lines.ok()) << lines.status();
  EXPECT_EQ(*lines, (std::vector<std::string>{kFirst, kSecond}));
}

TEST(ReadSecretFile, RightsOfOthersAreRefused) {
  for (const mode_t mode : {0640, 0620, 0610, 0604, 0602, 0601}) {
    const SecretFile file(kFirst, mode);
    const absl::Status status = ReadSecretFile(file.path()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << std::oct << mode;
    EXPECT_NE(status.message().find("chmod 600 " + file.path()), absl::string_view::npos) << status;
  }
  const SecretFile file(kFirst, 0644);
  EXPECT_NE(ReadSecretFile(file.path()).status().message().find("its mode is 644"),
            absl::string_view::npos);
  const SecretFile read_only(kFirst, 0400);
  EXPECT_TRUE(ReadSecretFile(read_only.path()).ok());
}

TEST(ReadSecretFile, AnotherUsersFileIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "giving a file away takes root";
  const SecretFile file(kFirst);
  ASSERT_EQ(chown(file.path().c_str(), 12345, static_cast<gid_t>(-1)), 0);
  const absl::Status status = ReadSecretFile(file.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_NE(status.message().find("belongs to user 12345"), absl::string_view::npos) << status;
}

TEST(ReadSecretFile, WhatIsNotThereOrNoFileIsNamed) {
  const std::string missing = testing::TempDir() + "/no-such-secrets";
  const absl::Status status = ReadSecretFile(missing).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_NE(status.message().find(missing), absl::string_view::npos) << status;
  EXPECT_EQ(ReadSecretFile(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  const SecretFile huge(std::string(70'000, 'x'));
  EXPECT_EQ(ReadSecretFile(huge.path()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SecretsFromFile, SaysTheFilesNameAndReadsItAnew) {
  const SecretFile file(kFirst);
  const SecretSource source = SecretsFromFile(file.path());
  EXPECT_EQ(source.Read()->front(), kFirst);
  std::ofstream(file.path()) << kSecond;
  EXPECT_EQ(source.Read()->front(), kSecond);
  std::ofstream(file.path()) << "short";
  const absl::Status status = source.Read().status();
  EXPECT_NE(status.message().find("secret file " + file.path()), absl::string_view::npos) << status;
  std::ofstream(file.path()) << "# nothing else\n";
  EXPECT_EQ(source.Read().status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace secrets_test
}  // namespace sluice::peer
