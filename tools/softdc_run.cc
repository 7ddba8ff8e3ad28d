// SPDX-License-Identifier: Apache-2.0
//
// softdc_run: runs a program that was built for libibverbs on the software DC NIC. Exit codes: the program's own; 2 for
// wrong usage or a configuration that no device could have, 126 and 127 as a shell has them for a program that cannot
// be run and one that is not there.
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tools/softdc_run_options.h"
#include "transport/softdc/config/config.h"

namespace sluice::tools {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitCannotRun = 126;
constexpr int kExitNotFound = 127;

int Fail(int exit_code, const std::string& why) {
  std::fprintf(stderr, "softdc_run: %s\n", why.c_str());
  return exit_code;
}

// Where the library is, from the folder of this program: as built, as installed, beside it.
std::string FindLibrary() {
  char self[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length <= 0) return "";
  self[length] = '\0';
  *std::strrchr(self, '/') = '\0';
  for (const char* place : {"/../transport/softdc/preload/", "/../lib/", "/../lib/sluice/", "/"}) {
    char resolved[PATH_MAX];
    const std::string candidate = absl::StrCat(self, place, "libsoftdc_preload.so");
    if (realpath(candidate.c_str(), resolved) != nullptr) return resolved;
  }
  return "";
}

int Main(int argc, char** argv) {
  const absl::StatusOr<SoftdcRunOptions> options =
      ParseSoftdcRunOptions(std::vector<std::string>(argv + 1, argv + argc));
  if (!options.ok()) return Fail(kExitUsage, std::string(options.status().message()));
  if (options->help) {
    std::fputs(kSoftdcRunHelp, stdout);
    return 0;
  }
  const std::string library = FindLibrary();
  if (library.empty()) {
    return Fail(kExitUsage,
                "libsoftdc_preload.so is neither beside this program nor where the build puts it");
  }
  if (library.find_first_of(" :") != std::string::npos) {
    return Fail(kExitUsage,
                absl::StrCat("the loader takes no path with a blank or a colon: ", library));
  }
  if (!options->domain.empty()) setenv("SOFTDC_DOMAIN", options->domain.c_str(), 1);
  if (!options->config_file.empty()) {
    char resolved[PATH_MAX];
    if (realpath(options->config_file.c_str(), resolved) == nullptr) {
      return Fail(kExitUsage,
                  absl::StrCat("--config ", options->config_file, ": ", std::strerror(errno)));
    }
    setenv("SOFTDC_CONFIG", absl::StrCat("@", resolved).c_str(), 1);
  }
  if (const char* config = getenv("SOFTDC_CONFIG"); config != nullptr) {
    // The device would refuse it too, but only once the program asks for devices.
    const auto dials = softdc::LoadDials(config);
    if (!dials.ok()) return Fail(kExitUsage, std::string(dials.status().message()));
  }
  const char* others = getenv("LD_PRELOAD");
  const bool alone = others == nullptr || *others == '\0';
  setenv("LD_PRELOAD", alone ? library.c_str() : absl::StrCat(library, ":", others).c_str(), 1);

  char** program = argv + (argc - static_cast<int>(options->program.size()));
  execvp(program[0], program);
  const int error = errno;
  return Fail(error == ENOENT ? kExitNotFound : kExitCannotRun,
              absl::StrCat(program[0], ": ", std::strerror(error)));
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) { return sluice::tools::Main(argc, argv); }
