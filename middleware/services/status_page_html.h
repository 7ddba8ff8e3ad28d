// SPDX-License-Identifier: Apache-2.0
//
// The page of HttpPages, status_page.html, as a string. @NONCE@ stands where each reply has a number of its own.
#ifndef SLUICE_MIDDLEWARE_SERVICES_STATUS_PAGE_HTML_H_
#define SLUICE_MIDDLEWARE_SERVICES_STATUS_PAGE_HTML_H_

namespace sluice {

extern const char kStatusPage[];

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_STATUS_PAGE_HTML_H_
