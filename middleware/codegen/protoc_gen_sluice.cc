// SPDX-License-Identifier: Apache-2.0
//
// The plugin: protoc --plugin=protoc-gen-sluice=<this> --sluice_out=<folder> foo.proto
#include "google/protobuf/compiler/plugin.h"
#include "middleware/codegen/generator.h"

int main(int argc, char** argv) {
  const sluice::codegen::Generator generator;
  return google::protobuf::compiler::PluginMain(argc, argv, &generator);
}
