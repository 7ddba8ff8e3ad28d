// SPDX-License-Identifier: Apache-2.0
//
// peers_page FIGURES HTML: the figures of ./dev bench --peers as a page.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "tools/page_frame.h"
#include "tools/peers_page.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: peers_page FIGURES HTML\n");
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    std::fprintf(stderr, "peers_page: can't read %s\n", argv[1]);
    return 1;
  }
  const auto figures = sluice::tools::ParsePeersFigures(text);
  const absl::Status status =
      figures.ok() ? sluice::tools::WritePage(sluice::tools::PeersPage(*figures), argv[2])
                   : figures.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "peers_page: %s\n", status.ToString().c_str());
  return 1;
}
