// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/preload/device_library.h"

#include <gtest/gtest.h>

#include "transport/softdc/verbs.h"

namespace sluice::softdc {
namespace device_library_test {

TEST(SoftdcFunctionTest, FunctionsOfTheTableByTheNamesOfTheirLibraries) {
  EXPECT_EQ(softdc_function("ibv_alloc_pd"), reinterpret_cast<void*>(Verbs().alloc_pd));
  EXPECT_EQ(softdc_function("ibv_reg_mr"), reinterpret_cast<void*>(Verbs().reg_mr));
  EXPECT_EQ(softdc_function("mlx5dv_create_qp"), reinterpret_cast<void*>(Verbs().dv_create_qp));
}

TEST(SoftdcFunctionTest, WhatOnlyUnmodifiedProgramsNeed) {
  EXPECT_NE(softdc_function("_ibv_query_gid_ex"), nullptr);
  EXPECT_NE(softdc_function("softdc_ucma_open"), nullptr);
}

TEST(SoftdcFunctionTest, NothingForOtherNames) {
  EXPECT_EQ(softdc_function("mlx5dv_devx_general_cmd"), nullptr);
  EXPECT_EQ(softdc_function("ibv_"), nullptr);
  EXPECT_EQ(softdc_function("rdma_connect"), nullptr);  // librdmacm's own
}

}  // namespace device_library_test
}  // namespace sluice::softdc
