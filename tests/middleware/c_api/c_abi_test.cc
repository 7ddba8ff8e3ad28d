// SPDX-License-Identifier: Apache-2.0
//
// sluice.h as programs that were compiled before have it: values of constants, sizes and places. What is here does not change while the
// library is libsluice_c.so.0; tests/tools/install/c_api_symbols.txt has the functions.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "middleware/c_api/sluice.h"

namespace sluice {
namespace c_abi_test {

static_assert(SLUICE_FOREVER == INT64_MAX);
static_assert(SLUICE_DETAIL_LAYER == 0 && SLUICE_DETAIL_OPERATION == 1 && SLUICE_DETAIL_PEER == 2 &&
              SLUICE_DETAIL_CAUSE == 3 && SLUICE_DETAIL_REMEDY == 4);
static_assert(SLUICE_CLIENT_STREAMS == 1 && SLUICE_SERVER_STREAMS == 2 && SLUICE_BOTH_STREAM == 3);
static_assert(SLUICE_STREAM_TIMEOUT == -1 && SLUICE_STREAM_END == 0 && SLUICE_STREAM_DONE == 1);

// 64-bit machines, on which Sluice runs.
static_assert(sizeof(size_t) == 8 && sizeof(void*) == 8);
static_assert(std::is_standard_layout_v<sluice_metadata> && alignof(sluice_metadata) == 8);
static_assert(sizeof(sluice_metadata) == 24);
static_assert(offsetof(sluice_metadata, key) == 0 && offsetof(sluice_metadata, value) == 8 &&
              offsetof(sluice_metadata, value_bytes) == 16);

// It may grow; what it has stays where it is.
static_assert(std::is_standard_layout_v<sluice_call_options> && alignof(sluice_call_options) == 8);
static_assert(sizeof(sluice_call_options) >= 56);
static_assert(offsetof(sluice_call_options, struct_bytes) == 0 &&
              offsetof(sluice_call_options, timeout_ns) == 8 &&
              offsetof(sluice_call_options, wait_for_ready) == 16 &&
              offsetof(sluice_call_options, idempotent) == 20 &&
              offsetof(sluice_call_options, metadata) == 24 &&
              offsetof(sluice_call_options, metadata_count) == 32 &&
              offsetof(sluice_call_options, attachment) == 40 &&
              offsetof(sluice_call_options, attachment_bytes) == 48);

TEST(CAbiTest, CodesKeepTheirNumbers) {
  static_assert(SLUICE_OK == 0 && SLUICE_CANCELLED == 1 && SLUICE_UNKNOWN == 2 &&
                SLUICE_INVALID_ARGUMENT == 3 && SLUICE_DEADLINE_EXCEEDED == 4 &&
                SLUICE_NOT_FOUND == 5 && SLUICE_ALREADY_EXISTS == 6 &&
                SLUICE_PERMISSION_DENIED == 7 && SLUICE_RESOURCE_EXHAUSTED == 8 &&
                SLUICE_FAILED_PRECONDITION == 9 && SLUICE_ABORTED == 10 &&
                SLUICE_OUT_OF_RANGE == 11 && SLUICE_UNIMPLEMENTED == 12 && SLUICE_INTERNAL == 13 &&
                SLUICE_UNAVAILABLE == 14 && SLUICE_DATA_LOSS == 15 && SLUICE_UNAUTHENTICATED == 16);
  const char* const names[] = {"OK",
                               "CANCELLED",
                               "UNKNOWN",
                               "INVALID_ARGUMENT",
                               "DEADLINE_EXCEEDED",
                               "NOT_FOUND",
                               "ALREADY_EXISTS",
                               "PERMISSION_DENIED",
                               "RESOURCE_EXHAUSTED",
                               "FAILED_PRECONDITION",
                               "ABORTED",
                               "OUT_OF_RANGE",
                               "UNIMPLEMENTED",
                               "INTERNAL",
                               "UNAVAILABLE",
                               "DATA_LOSS",
                               "UNAUTHENTICATED",
                               ""};
  for (int32_t code = 0; code <= 17; ++code)
    EXPECT_EQ(std::string(sluice_code_name(code)), names[code]);
  EXPECT_EQ(std::string(sluice_code_name(-1)), "");
}

TEST(CAbiTest, DefaultsOfACallStay) {
  const sluice_call_options options = SLUICE_CALL_OPTIONS_INIT;
  EXPECT_EQ(options.struct_bytes, sizeof(options));
  EXPECT_EQ(options.timeout_ns, 5'000'000'000);
  EXPECT_EQ(options.wait_for_ready, 0);
  EXPECT_EQ(options.idempotent, 0);
  EXPECT_EQ(options.metadata, nullptr);
  EXPECT_EQ(options.metadata_count, 0u);
  EXPECT_EQ(options.attachment, nullptr);
  EXPECT_EQ(options.attachment_bytes, 0u);
}

}  // namespace c_abi_test
}  // namespace sluice
