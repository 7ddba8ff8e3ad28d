// SPDX-License-Identifier: Apache-2.0
//
// FakeStack: the name by which tests know LocalStack.
#ifndef SLUICE_TESTS_SUPPORT_FAKE_STACK_H_
#define SLUICE_TESTS_SUPPORT_FAKE_STACK_H_

#include "middleware/api/local_stack.h"
#include "tests/support/fake_endpoint.h"

namespace sluice::testing_support {

using FakeStack = LocalStack;

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_FAKE_STACK_H_
