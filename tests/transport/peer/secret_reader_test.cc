// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/secret_reader.h"

#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"

namespace sluice::peer {
namespace secret_reader_test {

using Texts = std::vector<std::string>;

constexpr char kOld[] = "the old secret, used so far";
constexpr char kNew[] = "the new secret, used from now";
constexpr int64_t kGrainNs = SecretReader::kGrainNs;

SecretId IdOf(const char* text) { return Secrets::FromTexts({text})->own().id; }

std::shared_ptr<const Keyring> ReadAt(SecretReader& reader, int64_t now_ns) {
  testing_support::ManualClock clock(now_ns);
  return reader.Read(clock);
}

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
  EXPECT_EQ(ReadAt(reader, 0)->own()->id, IdOf(kOld));
  // Within the grain the file may have changed without its time doing so.
  counted.texts = {kNew};
  EXPECT_EQ(ReadAt(reader, kGrainNs - 1)->own()->id, IdOf(kNew));
  EXPECT_EQ(ReadAt(reader, kGrainNs)->own()->id, IdOf(kNew));
  EXPECT_EQ(counted.reads, 3);
  for (int i = 1; i <= 1000; ++i) ReadAt(reader, kGrainNs + i);
  EXPECT_EQ(counted.reads, 3);
}

// What counts is when the version was seen, not when the look at it began.
TEST(SecretReader, GrainCountsFromTheEndOfALookThatHangs) {
  testing_support::ManualClock clock(0);
  Counted counted;
  bool hangs = true;
  SecretReader reader({SecretSource([&]() -> SecretSource::Texts { return counted.texts; },
                                    [&] {
                                      if (std::exchange(hangs, false)) clock.Advance(2 * kGrainNs);
                                      return counted.version;
                                    })});
  reader.Read(clock);
  reader.Read(clock);
  counted.texts = {kNew};
  EXPECT_EQ(reader.Read(clock)->own()->id, IdOf(kNew)) << "it changed within the grain";
}

// A look that hangs between the version and its answer proves nothing about what came meanwhile.
TEST(SecretReader, ASecondLookCountsFromItsBeginning) {
  testing_support::ManualClock clock(0);
  Counted counted;
  int64_t hangs_ns = 0;
  SecretReader reader({SecretSource([&]() -> SecretSource::Texts { return counted.texts; },
                                    [&] {
                                      clock.Advance(std::exchange(hangs_ns, 0));
                                      return counted.version;
                                    })});
  reader.Read(clock);
  hangs_ns = 2 * kGrainNs;
  reader.Read(clock);
  counted.texts = {kNew};
  EXPECT_EQ(reader.Read(clock)->own()->id, IdOf(kNew));
}

TEST(SecretReader, AnotherVersionIsReadAtOnce) {
  Counted counted;
  SecretReader reader({counted.Source()});
  ReadAt(reader, 0);
  ReadAt(reader, kGrainNs);
  counted.texts = {kNew};
  counted.version = "2";
  EXPECT_EQ(ReadAt(reader, kGrainNs + 1)->own()->id, IdOf(kNew));
}

TEST(SecretReader, WithoutAVersionItIsReadEachTime) {
  Counted counted;
  counted.version.clear();
  SecretReader reader({counted.Source()});
  for (int i = 0; i < 3; ++i) ReadAt(reader, i * 10 * kGrainNs);
  EXPECT_EQ(counted.reads, 3);
}

TEST(SecretReader, WhatCouldNotBeReadIsTriedAgain) {
  Counted counted;
  counted.why = absl::UnavailableError("the vault is closed");
  SecretReader reader({counted.Source()});
  ReadAt(reader, 0);
  EXPECT_EQ(ReadAt(reader, 10 * kGrainNs)->Check().code(), absl::StatusCode::kUnavailable);
  counted.why = absl::OkStatus();
  EXPECT_TRUE(ReadAt(reader, 20 * kGrainNs)->Check().ok());
}

TEST(SecretReader, OnlyTheSourceThatChangedIsReadAgain) {
  Counted red, blue;
  blue.texts = {kNew};
  SecretReader reader({red.Source(), blue.Source()});
  ReadAt(reader, 0);
  ReadAt(reader, kGrainNs);
  blue.version = "2";
  EXPECT_EQ(ReadAt(reader, 2 * kGrainNs)->Find(IdOf(kNew))->tenant, 1u);
  EXPECT_EQ(red.reads, 2);
  EXPECT_EQ(blue.reads, 3);
}

TEST(SecretReader, AfterCloseNoSourceIsAsked) {
  Counted counted;
  SecretReader reader({counted.Source()});
  ReadAt(reader, 0);
  reader.Close();
  EXPECT_NE(ReadAt(reader, 1), nullptr);
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
  ReadAt(reader, 0);
  const auto settled = ReadAt(reader, kGrainNs);
  EXPECT_EQ(settled->own()->id, IdOf(kOld));
  EXPECT_EQ(ReadAt(reader, 2 * kGrainNs), settled) << "nothing was made anew";
  write(kNew);
  EXPECT_EQ(ReadAt(reader, 3 * kGrainNs)->own()->id, IdOf(kNew));
  ReadAt(reader, 5 * kGrainNs);
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_EQ(ReadAt(reader, 6 * kGrainNs)->own().status().code(),
            absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(ReadAt(reader, 7 * kGrainNs)->own().status().code(), absl::StatusCode::kNotFound);
}

}  // namespace secret_reader_test
}  // namespace sluice::peer
