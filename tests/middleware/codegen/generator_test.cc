// SPDX-License-Identifier: Apache-2.0
//
// What protoc-gen-sluice writes, against golden files; that it compiles, is generated_code_test's.
//
// After a wanted change of the generator, write the golden files anew:
//   tests/middleware/codegen/regenerate_golden.sh
#include "middleware/codegen/generator.h"

#include <google/protobuf/compiler/importer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

namespace sluice::codegen {
namespace generator_test {

constexpr char kFolder[] = "tests/middleware/codegen/testdata/";

class Output final : public google::protobuf::compiler::GeneratorContext {
 public:
  google::protobuf::io::ZeroCopyOutputStream* Open(const std::string& name) override {
    return new google::protobuf::io::StringOutputStream(&files[name]);
  }
  std::map<std::string, std::string> files;
};

class Errors final : public google::protobuf::compiler::MultiFileErrorCollector {
 public:
  void AddError(const std::string& file, int line, int, const std::string& message) override {
    ADD_FAILURE() << file << ":" << line << ": " << message;
  }
};

class GeneratorTest : public ::testing::Test {
 protected:
  GeneratorTest() : importer_(&tree_, &errors_) { tree_.MapPath("", ""); }

  // The error; empty when it went well.
  std::string Run(const std::string& name, const std::string& parameter = "") {
    const auto* file = importer_.Import(kFolder + name);
    if (file == nullptr) return "not imported";
    std::string error;
    const bool ok = Generator().Generate(file, parameter, &output_, &error);
    EXPECT_EQ(ok, error.empty());
    return error;
  }

  void ExpectGolden(const std::string& name) {
    std::ifstream stream(kFolder + name + ".golden");
    ASSERT_TRUE(stream.good()) << "no golden file for " << name;
    std::stringstream golden;
    golden << stream.rdbuf();
    EXPECT_EQ(output_.files[kFolder + name], golden.str());
  }

  google::protobuf::compiler::DiskSourceTree tree_;
  Errors errors_;
  google::protobuf::compiler::Importer importer_;
  Output output_;
};

TEST_F(GeneratorTest, ServicesWithPackageImportAndNestedMessages) {
  EXPECT_EQ(Run("shop.proto"), "");
  EXPECT_EQ(output_.files.size(), 2u);
  ExpectGolden("shop.sluice.h");
  ExpectGolden("shop.sluice.cc");
}

TEST_F(GeneratorTest, FileWithoutPackage) {
  EXPECT_EQ(Run("no_package.proto"), "");
  ExpectGolden("no_package.sluice.h");
  ExpectGolden("no_package.sluice.cc");
}

TEST_F(GeneratorTest, MethodsThatStream) {
  EXPECT_EQ(Run("streaming.proto"), "");
  ExpectGolden("streaming.sluice.h");
  ExpectGolden("streaming.sluice.cc");
}

// A backslash at the end of a line would join the next one to the comment.
TEST_F(GeneratorTest, CommentThatEndsInABackslashSwallowsNothing) {
  EXPECT_EQ(Run("names.proto"), "");
  const std::string& header = output_.files[std::string(kFolder) + "names.sluice.h"];
  EXPECT_NE(header.find("C:\\"), std::string::npos) << header;
  EXPECT_NE(header.find("and blanks \\"), std::string::npos) << header;
  std::istringstream lines(header);
  for (std::string line; std::getline(lines, line);) {
    const size_t last = line.find_last_not_of(" \t\r\v\f");
    EXPECT_TRUE(last == std::string::npos || line[last] != '\\') << line;
  }
}

TEST_F(GeneratorTest, UnknownParameterIsAnError) {
  const std::string error = Run("shop.proto", "fast=1");
  EXPECT_NE(error.find("fast=1"), std::string::npos) << error;
}

}  // namespace generator_test
}  // namespace sluice::codegen
