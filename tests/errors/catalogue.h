// SPDX-License-Identifier: Apache-2.0
//
// The catalogue of errors (docs/errors.md) against the errors themselves.
#ifndef SLUICE_TESTS_ERRORS_CATALOGUE_H_
#define SLUICE_TESTS_ERRORS_CATALOGUE_H_

#include <string>

#include "absl/status/status.h"

namespace sluice::testing_support {

// Expects the code and the text that the page gives for the entry, and that the status says why and what to do. At the
// end of the program each entry of the page must have been here once, unless a filter chose the tests.
void ExpectCatalogued(const std::string& entry, const absl::Status& status);

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_ERRORS_CATALOGUE_H_
