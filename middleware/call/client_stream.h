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
    virtual void OnOpened() {}    // `opened` became true after wants_opened was set
  };

  Observer* observer = nullptr;
  // The members below belong to the engine, except wants_opened.
  StreamEnd end;
  uint64_t call_id = 0;  // 0: not started, or ended
  // Initial metadata, or a message without initial metadata, has arrived. `initial_metadata` is serialised.
  bool opened = false;
  bool has_initial_metadata = false;
  std::string initial_metadata;
  bool wants_opened = false;  // set by the owner
  bool wants_to_read = false;
  bool wants_to_write = false;
  bool blocked = false;       // in Connection::blocked: waits for credit
  bool window_owed = false;   // a window report is sent when there is credit
  bool end_owed = false;      // the end of the request stream, likewise
  bool writes_ended = false;  // by EndWrites()
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CLIENT_STREAM_H_
