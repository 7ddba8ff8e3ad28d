// SPDX-License-Identifier: Apache-2.0
#include "tools/build_info.h"

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/stubs/common.h"

namespace sluice::tools {
namespace {

#ifdef __clang__
constexpr char kCompiler[] = __VERSION__;
#else
constexpr char kCompiler[] = "GCC " __VERSION__;
#endif

}  // namespace

BuildInfo ThisBuild() {
  BuildInfo build;
  build.set_version(SLUICE_VERSION);
  build.set_compiler(kCompiler);
  build.set_mode(SLUICE_BUILD_MODE);
  build.set_protobuf(google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION));
#ifdef ABSL_LTS_RELEASE_VERSION
  build.set_abseil(absl::StrCat(ABSL_LTS_RELEASE_VERSION, ".", ABSL_LTS_RELEASE_PATCH_LEVEL));
#else
  build.set_abseil("head");
#endif
  return build;
}

std::string ThisBuildText() { return absl::StrCat(SLUICE_VERSION, " ", SLUICE_BUILD_MODE); }

}  // namespace sluice::tools
