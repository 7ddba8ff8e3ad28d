// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/secret_reader.h"

#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::peer {
namespace {

using Texts = std::vector<std::string>;

constexpr char kOld[] = "the old secret, used so far";
constexpr char kNew[] = "the new secret, used from now";
constexpr int64_t kGrainNs = SecretReader::kGrainNs;

SecretId IdOf(const char* text) { return Secrets::FromTexts({text})->own().id; }

// A source that counts how often it is read.
struct Counted {
  SecretSource Source() {
    return SecretSource(
        [this]() -> SecretSource::Texts {
          ++reads;
          if (!why.ok()) return why;
          return texts;
        },
        [this] { return version; });
  }
  Texts texts = {kOld};
  std::string version = "1";
  absl::Status why;
  int reads = 0;
};

TEST(SecretReader, SameVersionIsReadUntilItsGrainHasPassedAndThenNoMore) {
  Counted counted;
  SecretReader reader({counted.Source()});
  EXPECT_EQ(reader.Read(0)->own()->id, IdOf(kOld));
  // Within the grain the file may have changed without its time doing so.
  counted.texts = {kNew};
  EXPECT_EQ(reader.Read(kGrainNs - 1)->own()->id, IdOf(kNew));
  EXPECT_EQ(reader.Read(kGrainNs)->own()->id, IdOf(kNew));
  EXPECT_EQ(counted.reads, 3);
  for (int i = 1; i <= 1000; ++i) reader.Read(kGrainNs + i);
  EXPECT_EQ(counted.reads, 3);
}

TEST(SecretReader, AnotherVersionIsReadAtOnce) {
  Counted counted;
  SecretReader reader({counted.Source()});
  reader.Read(0);
  reader.Read(kGrainNs);
  counted.texts = {kNew};
  counted.version = "2";
  EXPECT_EQ(reader.Read(kGrainNs + 1)->own()->id, IdOf(kNew));
}

TEST(SecretReader, WithoutAVersionItIsReadEachTime) {
  Counted counted;
  counted.version.clear();
  SecretReader reader({counted.Source()});
  for (int i = 0; i < 3; ++i) reader.Read(i * 10 * kGrainNs);
  EXPECT_EQ(counted.reads, 3);
}

TEST(SecretReader, WhatCouldNotBeReadIsTriedAgain) {
  Counted counted;
  counted.why = absl::UnavailableError("the vault is closed");
  SecretReader reader({counted.Source()});
  reader.Read(0);
  EXPECT_EQ(reader.Read(10 * kGrainNs)->Check().code(), absl::StatusCode::kUnavailable);
  counted.why = absl::OkStatus();
  EXPECT_TRUE(reader.Read(20 * kGrainNs)->Check().ok());
}

TEST(SecretReader, OnlyTheSourceThatChangedIsReadAgain) {
  Counted red, blue;
  blue.texts = {kNew};
  SecretReader reader({red.Source(), blue.Source()});
  reader.Read(0);
  reader.Read(kGrainNs);
  blue.version = "2";
  EXPECT_EQ(reader.Read(2 * kGrainNs)->Find(IdOf(kNew))->tenant, 1u);
  EXPECT_EQ(red.reads, 2);
  EXPECT_EQ(blue.reads, 3);
}

TEST(SecretReader, AfterCloseNoSourceIsAsked) {
  Counted counted;
  SecretReader reader({counted.Source()});
  reader.Read(0);
  reader.Close();
  EXPECT_NE(reader.Read(1), nullptr);
  EXPECT_EQ(counted.reads, 1);
}

TEST(SecretReader, FileThatChangesInBytesOrRightsHasAnotherVersion) {
  const std::string path = testing::TempDir() + "/secret_reader_test";
  const auto write = [&](const char* text) {
    std::ofstream(path + ".new") << text << "\n";
    ASSERT_EQ(chmod((path + ".new").c_str(), 0600), 0);
    ASSERT_EQ(rename((path + ".new").c_str(), path.c_str()), 0);
  };
  write(kOld);
  SecretReader reader({SecretsFromFile(path)});
  reader.Read(0);
  const auto settled = reader.Read(kGrainNs);
  EXPECT_EQ(settled->own()->id, IdOf(kOld));
  EXPECT_EQ(reader.Read(2 * kGrainNs), settled) << "nothing was made anew";
  write(kNew);
  EXPECT_EQ(reader.Read(3 * kGrainNs)->own()->id, IdOf(kNew));
  reader.Read(5 * kGrainNs);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_EQ(reader.Read(6 * kGrainNs)->own().status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(reader.Read(7 * kGrainNs)->own().status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace sluice::peer
