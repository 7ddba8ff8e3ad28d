// SPDX-License-Identifier: Apache-2.0
//
// SecretReader: builds the keyring of an endpoint, and reads only sources that have changed.
//
// Purpose       A source with a version is read again if its version changed, or was first seen less than kGrainNs ago. In that time a
//               file can change without a new modification time. A source without a version is read each time. The reader keeps keys,
//               not texts.
// Ownership     The endpoint, and work in progress that reads.
// Threads       Read() blocks as the sources do; one call at a time, others wait. Close(): any.
// End           Close(): after it returns, no source is read.
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

  // Returns the current secrets. Reads `clock` before and after each query of a version, because a query may take long. Does not use
  // `clock` after Close() has returned.
  std::shared_ptr<const Keyring> Read(base::Clock& clock);
  void Close();

 private:
  struct Source {
    SecretSource source;
    std::string version;   // empty: unknown
    int64_t since_ns = 0;  // the version was seen first at this time or before
    bool settled = false;  // `secrets` are the secrets of this version
    absl::StatusOr<Secrets> secrets = Secrets();
  };

  std::mutex mutex_;
  std::vector<Source> sources_;             // mutex_
  std::shared_ptr<const Keyring> keyring_;  // mutex_
  bool closed_ = false;                     // mutex_
};

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_SECRET_READER_H_
