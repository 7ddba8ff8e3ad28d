// SPDX-License-Identifier: Apache-2.0
//
// PageReaders: tokens of people and programs that read HttpPages, and what each of them may see.
//
// Ownership     A value.
// Threads       Any, after Read().
#ifndef SLUICE_MIDDLEWARE_SERVICES_PAGE_READERS_H_
#define SLUICE_MIDDLEWARE_SERVICES_PAGE_READERS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

// The tokens of a group of readers, and what these readers may see.
struct PageReader {
  // A file of tokens, one a line, 16 to 256 visible ASCII characters each (head -c 32 /dev/urandom |
  // base64). Lines that begin with # are ignored. Its owner is this process's user or root; mode 600
  // or 400. Each line is a valid token. The file is read once, by Start().
  std::string token_file;
  // Empty (default): the reader sees everything. Otherwise the reader sees what
  // IntrospectionService shows to a caller of this tenant, and neither metrics nor options.
  std::string tenant;
};

struct PageViewer {
  enum class Rights {
    kNone,      // no valid token, and one is required
    kAnyone,    // no token is required: everything except what belongs to tenants
    kTenant,    // what belongs to one tenant
    kOperator,  // everything
  };
  Rights rights = Rights::kNone;
  std::string tenant;  // kTenant only
};

class PageReaders {
 public:
  // Reads the tokens. Errors: those of secret files (PERMISSION_DENIED, NOT_FOUND, INVALID_ARGUMENT),
  // INVALID_ARGUMENT (a token that is too short or too long, or belongs to two readers; no tokens).
  absl::Status Read(const std::vector<PageReader>& readers);
  // Returns the viewer that a request's Authorization header identifies. Takes the same time for each
  // wrong token of the same length.
  PageViewer Identify(std::string_view authorization) const;
  bool token_required() const { return !tokens_.empty(); }

 private:
  struct Token {
    std::string text;
    std::string tenant;
  };
  std::vector<Token> tokens_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_PAGE_READERS_H_
