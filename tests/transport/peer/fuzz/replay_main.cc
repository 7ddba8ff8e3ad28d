// SPDX-License-Identifier: Apache-2.0
//
// usage: replay FOLDER
// Runs a fuzz target over the kept corpus, and over every truncation of each input. Fails if the decoder accepts none of them.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/transport/peer/fuzz/fuzz_target.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    for (size_t length = 0; length <= text.size(); ++length) {
      // A copy of exactly that length, so that a sanitizer sees a byte read too many.
      const std::vector<uint8_t> bytes(text.begin(), text.begin() + static_cast<long>(length));
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    }
    ++inputs;
  }
  std::printf("%d inputs, with their truncations %llu accepted\n", inputs,
              static_cast<unsigned long long>(sluice::peer::accepted));
  return inputs == 0 || sluice::peer::accepted == 0 ? 1 : 0;
}
