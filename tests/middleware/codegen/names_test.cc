// SPDX-License-Identifier: Apache-2.0
//
// Names that are generated twice are refused. That the others compile is generated_code_test's (names.proto).
#include <google/protobuf/compiler/importer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "middleware/codegen/generator.h"

namespace sluice::codegen {
namespace names_test {

class Written final : public google::protobuf::compiler::SourceTree {
 public:
  google::protobuf::io::ZeroCopyInputStream* Open(const std::string& name) override {
    const auto file = files.find(name);
    if (file == files.end()) return nullptr;
    return new google::protobuf::io::ArrayInputStream(file->second.data(),
                                                      static_cast<int>(file->second.size()));
  }
  std::map<std::string, std::string> files;
};

class Errors final : public google::protobuf::compiler::MultiFileErrorCollector {
 public:
  void AddError(const std::string& file, int line, int, const std::string& message) override {
    ADD_FAILURE() << file << ":" << line << ": " << message;
  }
};

class Output final : public google::protobuf::compiler::GeneratorContext {
 public:
  google::protobuf::io::ZeroCopyOutputStream* Open(const std::string&) override {
    ++opened;
    return new google::protobuf::io::StringOutputStream(&text);
  }
  int opened = 0;
  std::string text;
};

constexpr char kHead[] = "syntax = \"proto3\";\npackage p;\n";

// The generator's error for a file of package p, which imports the second.
std::string ErrorOf(const std::string& body, const std::string& imported = "") {
  Written tree;
  tree.files["imported.proto"] = std::string(kHead) + "message M {}\nmessage N {}\n" + imported;
  tree.files["file.proto"] = std::string(kHead) + "import \"imported.proto\";\n" + body;
  Errors errors;
  google::protobuf::compiler::Importer importer(&tree, &errors);
  const auto* file = importer.Import("file.proto");
  if (file == nullptr) return "not imported";
  Output output;
  std::string error;
  const bool generated = Generator().Generate(file, "", &output, &error);
  EXPECT_EQ(generated, error.empty());
  EXPECT_EQ(output.opened, error.empty() ? 2 : 0) << "all files or none";
  return error;
}

std::string Service(const std::string& name, const std::string& methods) {
  return "service " + name + " {\n" + methods + "}\n";
}
std::string Method(const std::string& name) { return "rpc " + name + "(M) returns (M);\n"; }

struct Clash {
  std::string body;
  std::string imported;
  // In the order in which the error says them.
  std::string name, first, second;
};

TEST(NamesTest, NameThatIsGeneratedTwiceIsAnErrorThatNamesBoth) {
  const Clash clashes[] = {
      {Service("A", "") + Service("ACo", ""), "", "ACoServiceBase", "service p.A", "service p.ACo"},
      {Service("ACo", "") + Service("A", ""), "", "ACoServiceBase", "service p.ACo", "service p.A"},
      {Service("A", ""), Service("ACo", ""), "ACoServiceBase", "service p.ACo", "service p.A"},
      {Service("A", "") + "message AClient {}\n", "", "AClient", "message p.AClient",
       "service p.A"},
      {Service("B_A", ""), "message B { message AClient {} }\n", "B_AClient", "message p.B.AClient",
       "service p.B_A"},
      {Service("A", "") + "enum AServiceBase { ZERO = 0; }\n", "", "AServiceBase",
       "enum p.AServiceBase", "service p.A"},
      {Service("A", "") + "enum E { AClient = 0; }\n", "", "AClient", "enum p.E", "service p.A"},
      {Service("A", Method("Get") + Method("CoGet")), "", "AClient::CoGet(context, const p.M&)",
       "method p.A.Get", "method p.A.CoGet"},
      {Service("A", Method("Get") + "rpc CoGet(M) returns (stream N);\n"), "",
       "AClient::CoGet(context, const p.M&)", "method p.A.Get", "method p.A.CoGet"},
      {Service("A", Method("AClient")), "", "AClient", "service p.A", "method p.A.AClient"},
      {Service("A", Method("channel_")), "", "channel_", "service p.A", "method p.A.channel_"},
  };
  for (const Clash& clash : clashes) {
    EXPECT_EQ(ErrorOf(clash.body, clash.imported),
              "C++ name " + clash.name + " would be generated for " + clash.first + " and for " +
                  clash.second + ": rename one of the two")
        << clash.body;
  }
}

TEST(NamesTest, NamesThatLookAlikeAreNone) {
  EXPECT_EQ(ErrorOf(Service("A", Method("Up") + Method("StartUp") + Method("UpMethod"))), "");
  EXPECT_EQ(ErrorOf(Service("A", Method("Up") + "rpc CoUp(N) returns (M);\n")), "");
  EXPECT_EQ(ErrorOf(Service("A", Method("Up") + "rpc CoUp(stream M) returns (M);\n")), "");
  EXPECT_EQ(ErrorOf(Service("A", "") + "message Outer { message AClient {} }\n"), "");
  // Between themselves two imported services are not this file's matter.
  EXPECT_EQ(ErrorOf(Service("B", ""), Service("A", "") + Service("ACo", "")), "");
}

}  // namespace names_test
}  // namespace sluice::codegen
