// SPDX-License-Identifier: Apache-2.0
#include "middleware/observe/overload.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace sluice::observe {
namespace {
constexpr size_t kMaxTextBytes = 1024;  // the text may be a peer's
}

void Overload::Refused(int64_t now_ns, const absl::Status& why, base::EventLog* log) {
  last_ns_ = now_ns;
  if (refused_++ != 0) return;
  since_ns_ = now_ns;
  log->Say(base::Severity::kWarning, "overload begins", "",
           absl::StrCat(std::string(what_), ": ",
                        absl::Utf8SafeCHexEscape(why.message().substr(0, kMaxTextBytes))));
}

void Overload::Look(int64_t now_ns, base::EventLog* log) {
  if (refused_ == 0 || now_ns - last_ns_ < kQuietNs) return;
  log->Say(base::Severity::kWarning, "overload ends", "",
           std::string(what_) + " no more: there were " + std::to_string(refused_) + " in " +
               std::to_string((last_ns_ - since_ns_) / 1'000'000) + " ms");
  refused_ = 0;
}

}  // namespace sluice::observe
