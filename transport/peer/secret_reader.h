// SPDX-License-Identifier: Apache-2.0
//
// SecretReader: the keyring of an endpoint, made again only of sources that have changed.
//
// What it is    A source with a version is read again when its version is another, or was first seen less than kGrainNs
//               ago: until then a file can change without its time of change doing so. A source without one is read each
//               time. Keys are kept, texts are not.
// Who owns it   The endpoint, and work under way that reads.
// Which thread  Read() blocks as the sources do; one call at a time, others wait. Close() from any thread.
// What ends it  Close(): no source is asked any more once it returns.
#ifndef SLUICE_TRANSPORT_PEER_SECRET_READER_H_
#define SLUICE_TRANSPORT_PEER_SECRET_READER_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/base/clock.h"
#include "transport/peer/keyring.h"
#include "transport/peer/secrets.h"

namespace sluice::peer {

class SecretReader {
 public:
  static constexpr int64_t kGrainNs = 2'000'000'000;

  explicit SecretReader(std::vector<SecretSource> sources);
  SecretReader(const SecretReader&) = delete;
  SecretReader& operator=(const SecretReader&) = delete;

  // The secrets as they are now. `clock` is asked here, before and after each look at a version: a look may take long.
  // It is not asked any more once Close() has returned.
  std::shared_ptr<const Keyring> Read(base::Clock& clock);
  void Close();

 private:
  struct Source {
    SecretSource source;
    std::string version;   // empty: unknown
    int64_t since_ns = 0;  // it was seen first at this time or before
    bool settled = false;  // what was read is what this version has
    absl::StatusOr<Secrets> secrets = Secrets();
  };

  std::mutex mutex_;
  std::vector<Source> sources_;             // mutex_
  std::shared_ptr<const Keyring> keyring_;  // mutex_
  bool closed_ = false;                     // mutex_
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_SECRET_READER_H_
