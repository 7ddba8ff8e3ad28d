// SPDX-License-Identifier: Apache-2.0
//
// The page of HttpPages, status_page.html, as a string. Each reply replaces @NONCE@ with a new random number.
#ifndef SLUICE_MIDDLEWARE_SERVICES_STATUS_PAGE_HTML_H_
#define SLUICE_MIDDLEWARE_SERVICES_STATUS_PAGE_HTML_H_

namespace sluice {

extern const char kStatusPage[];

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_STATUS_PAGE_HTML_H_
