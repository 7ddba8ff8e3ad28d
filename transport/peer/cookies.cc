// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/cookies.h"

#include <algorithm>

#include "transport/peer/wire.h"

namespace sluice::peer {

Cookie Cookies::Make(std::string_view source, int64_t bucket) const {
  std::array<std::byte, sizeof(bucket)> number;
  Store(number.data(), bucket);
  const Key key = Derive(seed_, "sluice cookie", number);
  const Mac mac = MacOf(key, {reinterpret_cast<const std::byte*>(source.data()), source.size()});
  Cookie cookie;
  std::copy_n(mac.begin(), cookie.size(), cookie.begin());
  return cookie;
}

Cookie Cookies::For(std::string_view source, int64_t now_ns) const {
  return Make(source, BucketOf(now_ns));
}

bool Cookies::Good(const Cookie& cookie, std::string_view source, int64_t now_ns) const {
  const int64_t bucket = BucketOf(now_ns);
  bool good = false;
  for (const int64_t of : {bucket, bucket - 1}) {
    Mac expected = {}, claimed = {};
    const Cookie made = Make(source, of);
    std::copy(made.begin(), made.end(), expected.begin());
    std::copy(cookie.begin(), cookie.end(), claimed.begin());
    good |= Equal(expected, claimed.data());
  }
  return good;
}

}  // namespace sluice::peer
