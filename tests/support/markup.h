// SPDX-License-Identifier: Apache-2.0
//
// UnclosedElements(): a check that each element of a page is closed, in order.
#ifndef SLUICE_TESTS_SUPPORT_MARKUP_H_
#define SLUICE_TESTS_SUPPORT_MARKUP_H_

#include <set>
#include <string>
#include <vector>

namespace sluice::support {

// The first end tag without its start tag, or the innermost element without an end tag; empty if there is none. For pages without
// comments and scripts whose attributes contain no '>'.
inline std::string UnclosedElements(const std::string& page) {
  static const std::set<std::string> kVoid = {"meta", "link", "br", "hr", "img", "input"};
  std::vector<std::string> open;
  for (size_t at = page.find('<'); at != std::string::npos; at = page.find('<', at + 1)) {
    const size_t end = page.find('>', at);
    if (end == std::string::npos) return page.substr(at);
    if (page[at + 1] == '!' || page[end - 1] == '/') continue;
    const bool closes = page[at + 1] == '/';
    const size_t from = at + (closes ? 2 : 1);
    const std::string name = page.substr(from, page.find_first_of(" \n>", from) - from);
    if (kVoid.count(name) != 0) continue;
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return "/" + name;
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back();
}

}  // namespace sluice::support

#endif  // SLUICE_TESTS_SUPPORT_MARKUP_H_
