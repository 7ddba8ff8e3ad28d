// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/service.h"

#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice {

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
