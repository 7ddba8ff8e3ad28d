// SPDX-License-Identifier: Apache-2.0
//
// sluice_status and sluice_message, the values of the C API, and functions that create them from C++ values.
//
// Ownership     The user of the C API owns and frees them.
// Threads       Const: any, at the same time.
// Errors        Guard() turns exceptions into statuses: none leaves a function of the C API.
#ifndef SLUICE_MIDDLEWARE_C_API_OBJECTS_H_
#define SLUICE_MIDDLEWARE_C_API_OBJECTS_H_

#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "middleware/api/metadata.h"
#include "middleware/api/status_detail.h"
#include "middleware/c_api/sluice.h"
#include "middleware/call/buffer.h"

namespace sluice::c_api {

using Pairs = std::vector<std::pair<std::string, std::string>>;

}  // namespace sluice::c_api

struct sluice_status {
  absl::Status status;
  std::string message;  // zero-terminated for C
  std::optional<sluice::StatusDetail> detail;
  sluice::c_api::Pairs payloads;
  sluice::c_api::Pairs metadata;
};

struct sluice_message {
  std::string data;
  sluice::call::Buffer attachment;
  sluice::c_api::Pairs metadata;
};

namespace sluice::c_api {

// Creates a status, which the caller owns. Returns nullptr for OK. `metadata`: metadata of the error; nullptr: none.
sluice_status* NewStatus(const absl::Status& status, const Metadata* metadata = nullptr);

// Returns INVALID_ARGUMENT for an argument of a function of the C API. `function` and `argument`: names as in sluice.h.
absl::Status BadArgument(const char* function, const char* argument, const std::string& cause,
                         const char* remedy);

// Returns FAILED_PRECONDITION: the status of the call was returned before.
absl::Status FinishedTwice(std::string_view function);

// Runs `body`, and returns its result. If an exception leaves `body`, returns the status of the exception.
sluice_status* Guard(absl::FunctionRef<sluice_status*()> body) noexcept;

// The same for functions with other results. Returns `failed` if an exception leaves `body`.
template <typename Result, typename Body>
Result GuardValue(Result failed, Body body) noexcept {
  try {
    return body();
  } catch (...) {
    return failed;
  }
}

// Sets the results to entry `index` of a list. Returns false if there is no such entry. Result pointers may be nullptr.
bool PairAt(const Pairs& pairs, size_t index, const char** key, const void** value, size_t* bytes);

}  // namespace sluice::c_api

#endif  // SLUICE_MIDDLEWARE_C_API_OBJECTS_H_
