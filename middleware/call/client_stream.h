// SPDX-License-Identifier: Apache-2.0
//
// ClientStream: the caller's end of a streaming call.
//
// Ownership     The caller, from Start() of a call that names it (CallSpec::stream) until `done` of the call. Messages that arrived before
//               `done` may be read after it.
// Threads       The thread that drives the ClientEngine. Read(), Write() and EndWrites() of the engine take the stream.
#ifndef SLUICE_MIDDLEWARE_CALL_CLIENT_STREAM_H_
#define SLUICE_MIDDLEWARE_CALL_CLIENT_STREAM_H_

#include <cstdint>
#include <string>

#include "middleware/call/stream_end.h"

namespace sluice::call {

struct ClientStream {
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void OnReadable() {}  // after a Read() that found nothing
    virtual void OnWritable() {}  // after a Write() that was refused
    virtual void OnOpened() {}    // `opened` is true, which wants_opened asked for
  };

  Observer* observer = nullptr;
  // The rest is the engine's.
  StreamEnd end;
  uint64_t call_id = 0;  // 0: not started, or over
  // Initial metadata, or a message without, has come in; what was sent of it, serialised.
  bool opened = false;
  bool has_initial_metadata = false;
  std::string initial_metadata;
  bool wants_opened = false;  // the owner's to set
  bool wants_to_read = false;
  bool wants_to_write = false;
  bool blocked = false;       // in the engine's list of those that wait for credit
  bool window_owed = false;   // to be said when there is credit
  bool end_owed = false;      // the same
  bool writes_ended = false;  // by EndWrites()
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CLIENT_STREAM_H_
