// SPDX-License-Identifier: Apache-2.0
#include "tools/json_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "proto/bench_result.pb.h"

namespace sluice::tools {
namespace json_output_test {

using ::testing::HasSubstr;

std::string WrittenFile(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(ReadJsonTest, ReadsWhatWasWritten) {
  BenchResult result;
  result.set_test("rpc");
  result.mutable_config()->add_arguments("--size=64");
  result.mutable_latency()->set_p50_ns(973);
  const std::string path = ::testing::TempDir() + "/result.json";
  ASSERT_TRUE(WriteJson(result, path).ok());
  BenchResult read;
  ASSERT_TRUE(ReadJson(path, &read).ok());
  EXPECT_EQ(read.SerializeAsString(), result.SerializeAsString());
}

TEST(ReadJsonTest, IgnoresFieldsOfALaterVersion) {
  BenchResult read;
  ASSERT_TRUE(
      ReadJson(WrittenFile("later.json", R"({"test": "rpc", "later": [1, 2]})"), &read).ok());
  EXPECT_EQ(read.test(), "rpc");
}

TEST(ReadJsonTest, FileThatIsNotThereIsNamed) {
  BenchResult read;
  const absl::Status status = ReadJson("/no/such/file.json", &read);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/file.json"));
}

TEST(ReadJsonTest, WhatIsNoSuchMessageIsInvalid) {
  for (const char* text : {"garbage", "{\"latency\": 3}", "[]", "{"}) {
    BenchResult read;
    const absl::Status status = ReadJson(WrittenFile("wrong.json", text), &read);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not a sluice.BenchResult")) << text;
  }
}

TEST(ReadJsonTest, EmptyFileIsAnError) {
  BenchResult read;
  const absl::Status status = ReadJson(WrittenFile("empty.json", ""), &read);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("empty"));
}

}  // namespace json_output_test
}  // namespace sluice::tools
