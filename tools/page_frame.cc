// SPDX-License-Identifier: Apache-2.0
#include "tools/page_frame.h"

#include <cerrno>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "transport/base/error.h"

namespace sluice::tools {
namespace {

// The same look as the status page (middleware/services/status_page.html).
constexpr char kStyle[] = R"(<style>
:root {
  color-scheme: light dark;
  --ground: #f5f6f4; --card: #ffffff; --line: #dfe3df; --ink: #1d2522; --soft: #5a6661;
  --s0: #0b6e66; --s1: #b3261e; --s2: #3a5fcd; --s3: #8a5a00; --s4: #7a3b8f; --s5: #4d5a20;
  --s6: #5f6b76; --s7: #a0522d;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #141817; --card: #1d2321; --line: #333c39; --ink: #e6ebe8; --soft: #a1aea9;
    --s0: #4fb3a6; --s1: #ff9a90; --s2: #8fb0ff; --s3: #f0c067; --s4: #d9a3ea; --s5: #b9c97a;
    --s6: #a9b4be; --s7: #e0a080;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
main { max-width: 1160px; margin: 0 auto; padding: 16px; }
h1 { font-size: 20px; margin: 0 0 12px; font-weight: 650; }
h2 { font-size: 15px; margin: 0 0 8px; font-weight: 650; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; margin-bottom: 12px; min-width: 0; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 0 12px; align-items: start; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px; }
th { text-align: left; font-weight: 500; color: var(--soft); font-size: 13px; white-space: nowrap; }
th, td { padding: 4px 16px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: anywhere; min-width: 110px; }
tr:last-child th, tr:last-child td { border-bottom: 0; }
.key { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px; color: var(--soft); margin-bottom: 4px; }
.key i { display: inline-block; width: 14px; height: 3px; margin-right: 6px; vertical-align: middle; }
p { margin: 4px 0; font-size: 13px; color: var(--soft); }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 11px; }
.axis { stroke: var(--line); }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); } .s2 { stroke: var(--s2); }
.s3 { stroke: var(--s3); } .s4 { stroke: var(--s4); } .s5 { stroke: var(--s5); }
.s6 { stroke: var(--s6); } .s7 { stroke: var(--s7); }
.b0 { background: var(--s0); } .b1 { background: var(--s1); } .b2 { background: var(--s2); }
.b3 { background: var(--s3); } .b4 { background: var(--s4); } .b5 { background: var(--s5); }
.b6 { background: var(--s6); } .b7 { background: var(--s7); }
.bar { display: block; height: 12px; min-width: 1px; border-radius: 2px; }
</style>
</head>
<body><main>
)";

}  // namespace

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string PageHead(absl::string_view title) {
  return absl::StrCat(R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>)",
                      Escaped(title), "</title>\n<link rel=\"icon\" href=\"data:,\">\n", kStyle,
                      "<h1>", Escaped(title), "</h1>\n");
}

std::string PageEnd() { return "</main></body></html>\n"; }

absl::Status WritePage(const std::string& page, const std::string& path) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << page;
  file.close();
  if (file) return absl::OkStatus();
  return base::ErrnoError(
      errno != 0 ? errno : EIO, absl::StrCat("writing ", path),
      {.layer = "tools",
       .operation = "write a page",
       .cause = "the folder does not exist, is not writable, or the disk is full",
       .remedy = "choose another --html"});
}

}  // namespace sluice::tools
