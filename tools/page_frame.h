// SPDX-License-Identifier: Apache-2.0
//
// PageHead(), PageEnd(): what all HTML pages of the tools have in common. A page is one file without scripts and outside resources, light
// or dark as the reader's system is.
//
// Colours       The style sheet has a colour for each of kMostSeries series: class s0, s1, … for lines, b0, b1, … for areas.
// Threads       Any: pure functions, but for WritePage().
#ifndef SLUICE_TOOLS_PAGE_FRAME_H_
#define SLUICE_TOOLS_PAGE_FRAME_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sluice::tools {

inline constexpr size_t kMostSeries = 8;

// Up to and including the title as a heading. `title`: text, not markup.
std::string PageHead(absl::string_view title);
std::string PageEnd();

// The text as it has to stand in markup, in attributes too.
std::string Escaped(absl::string_view text);

// UNAVAILABLE and others, as errno says: the file can't be written.
absl::Status WritePage(const std::string& page, const std::string& path);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_PAGE_FRAME_H_
