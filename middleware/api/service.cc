// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/service.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "middleware/call/retry.h"
#include "transport/base/error.h"

namespace sluice {

uint32_t ServerContext::attempt() const {
  uint32_t number = 1;
  if (incoming_.metadata.empty()) return number;
  const Metadata& all = metadata();
  const std::string_view text = all.Find(call::kAttemptKey).value_or("1");
  return absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &number) ? number : 1;
}

absl::Status NotOverridden(const Method& method) {
  return base::Error(absl::StatusCode::kUnimplemented,
                     absl::StrCat("method ", method.full_name, " is not implemented"),
                     {.layer = "api",
                      .operation = method.full_name,
                      .cause = "the server's service does not override it",
                      .remedy = "override it in the class derived from the generated base",
                      .retry_safe = true});
}

Task<absl::Status> NotOverriddenTask(const Method& method) { co_return NotOverridden(method); }

}  // namespace sluice
