/* SPDX-License-Identifier: Apache-2.0 */
// sluice.h: the C API of Sluice: channels, calls, streams and statuses over raw bytes, for other languages.
//
//   sluice_channel* channel = NULL;
//   sluice_status* status = sluice_channel_connect("127.0.0.1:7471", NULL, &channel);
//   if (status != NULL) { fprintf(stderr, "%s\n", sluice_status_message(status)); … }
//   sluice_call_options options = SLUICE_CALL_OPTIONS_INIT;
//   sluice_message* reply = NULL;
//   status = sluice_call_unary(channel, "pkg.Service/Method", request, request_bytes, &options, &reply);
//   …
//   sluice_message_free(reply);
//   sluice_channel_free(channel);
//
// Purpose       Client side only. A message is its bytes: a serialised protobuf message.
// Ownership     A function that returns an object through a pointer gives it to the caller, who frees it with the function of its type.
//               Free objects in any order. Freeing NULL does nothing. A returned object may be NULL only if this header states it.
// Threads       Any thread may call any function, several at a time with the same channel. A stream: one read, one write and one
//               finish at a time. A call: one wait or finish at a time; cancel at any time. Free an object when no function uses it.
//               To end calls of other threads first, call sluice_channel_close(). A waiting thread polls, as in C++
//               (docs/threads.md).
// Errors        A function that can fail returns a status: NULL is success, everything else is freed with sluice_status_free(). No
//               exception leaves the library.
// ABI           Stable. A function keeps its name, its version (SLUICE_C_0) and its meaning as long as the library is libsluice_c.so.0. New
//               functions get new versions. sluice_call_options begins with its size, and grows at its end only. sluice_metadata does not
//               change. Constants keep their values.
// Fork          A channel belongs to the process that connected it. In a forked child its functions fail with FAILED_PRECONDITION, and
//               freeing its objects releases nothing.
// Not supported Servers, flows, bulk transfers, initial metadata of streams, attachments without a copy.
#ifndef SLUICE_H_
#define SLUICE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_status sluice_status;
typedef struct sluice_options sluice_options;
typedef struct sluice_channel sluice_channel;
typedef struct sluice_message sluice_message;
typedef struct sluice_call sluice_call;
typedef struct sluice_stream sluice_stream;

/* ---- Version */

/* Version of this header: major * 10000 + minor * 100 + patch. */
#define SLUICE_C_VERSION 100
/* Returns the version of the library. */
uint32_t sluice_c_version(void);

/* ---- Status */

/* Codes of statuses; those of gRPC and Abseil. */
enum {
  SLUICE_OK = 0,
  SLUICE_CANCELLED = 1,
  SLUICE_UNKNOWN = 2,
  SLUICE_INVALID_ARGUMENT = 3,
  SLUICE_DEADLINE_EXCEEDED = 4,
  SLUICE_NOT_FOUND = 5,
  SLUICE_ALREADY_EXISTS = 6,
  SLUICE_PERMISSION_DENIED = 7,
  SLUICE_RESOURCE_EXHAUSTED = 8,
  SLUICE_FAILED_PRECONDITION = 9,
  SLUICE_ABORTED = 10,
  SLUICE_OUT_OF_RANGE = 11,
  SLUICE_UNIMPLEMENTED = 12,
  SLUICE_INTERNAL = 13,
  SLUICE_UNAVAILABLE = 14,
  SLUICE_DATA_LOSS = 15,
  SLUICE_UNAUTHENTICATED = 16
};

/* Details of an error of Sluice (docs/errors.md). */
enum {
  SLUICE_DETAIL_LAYER = 0,     /* layer that detected the error: "cm", "call", … */
  SLUICE_DETAIL_OPERATION = 1, /* operation that failed */
  SLUICE_DETAIL_PEER = 2,      /* "host:port" */
  SLUICE_DETAIL_CAUSE = 3,     /* likely cause; the message has it too */
  SLUICE_DETAIL_REMEDY = 4     /* what to do; the message has it too */
};

/* These functions accept NULL, which is OK. Results are valid until the status is freed. */
int32_t sluice_status_code(const sluice_status* status);
/* Text, zero-terminated, UTF-8 in general; "" if there is none. */
const char* sluice_status_message(const sluice_status* status);
/* A SLUICE_DETAIL_…; "" if the error is not of Sluice (for example a handler's own), or has no such part. */
const char* sluice_status_detail(const sluice_status* status, int32_t which);
/* 1: the call provably did not run at the server, so a retry cannot run it twice. Otherwise 0. */
int32_t sluice_status_retry_safe(const sluice_status* status);
/* Number of payloads, and the payload `index`: 1, or 0 if there is none. Each result pointer may be NULL. */
size_t sluice_status_payload_count(const sluice_status* status);
int32_t sluice_status_payload(const sluice_status* status, size_t index, const char** type_url,
                              const void** data, size_t* bytes);
/* Metadata that the server sent with the error: as for sluice_message_metadata(). */
size_t sluice_status_metadata_count(const sluice_status* status);
int32_t sluice_status_metadata(const sluice_status* status, size_t index, const char** key,
                               const void** value, size_t* bytes);
void sluice_status_free(sluice_status* status);
/* "OK", "CANCELLED", …; "" for a number that is no code. Static. */
const char* sluice_code_name(int32_t code);

/* ---- Options of a channel */

/* Returns options with their defaults; NULL: out of memory. */
sluice_options* sluice_options_new(void);
/* Sets one option from text: a name that `sluice_info --config` lists, without "channel.": "device", "authentication.secret_file",
   "connect_timeout" ("2s"), "limits.max_message_bytes". Also "connect_in_background": "true" or "false".
   INVALID_ARGUMENT: no such option, or the value cannot be parsed. Ranges are checked by sluice_channel_connect(). */
sluice_status* sluice_options_set(sluice_options* options, const char* name, const char* value);
void sluice_options_free(sluice_options* options);

/* ---- Channel */

/* Time that does not end, and deadline of a call that has none. A `timeout_ns` or `wait_ns` of zero or less does not wait, whatever its
   value. */
#define SLUICE_FOREVER INT64_MAX

/* Connects to "host:port", to several ("a:7471,b:7471"), or to a list in a file ("file:/path"). Blocks until a connection is up or the
   first attempt has failed, for at most the option connect_timeout. `options`: NULL means defaults. */
sluice_status* sluice_channel_connect(const char* address, const sluice_options* options,
                                      sluice_channel** channel);
/* Blocks until a server is connected. DEADLINE_EXCEEDED: `timeout_ns` has passed. FAILED_PRECONDITION: the channel was closed, before or
   meanwhile. A `timeout_ns` of zero or less returns the present state, and an idle channel starts to connect. */
sluice_status* sluice_channel_wait_connected(sluice_channel* channel, int64_t timeout_ns);
/* Device in use, and why: "softdc0, because …". Valid until the channel is freed. */
const char* sluice_channel_device(const sluice_channel* channel);
/* Ends the calls and streams of the channel with CANCELLED, those of other threads too, and disconnects. Later calls fail with
   FAILED_PRECONDITION. Does not wait for other threads to leave their functions. Closing twice does nothing. */
void sluice_channel_close(sluice_channel* channel);
/* Closes the channel and frees it. Its calls and streams are still freed by their own functions. */
void sluice_channel_free(sluice_channel* channel);

/* ---- Messages: replies, and messages of a stream */

/* Bytes of the message. Valid until it is freed; NULL if there are none. */
const void* sluice_message_data(const sluice_message* message);
size_t sluice_message_bytes(const sluice_message* message);
/* Bytes that the server sent beside a reply; NULL if there are none. */
const void* sluice_message_attachment(const sluice_message* message, size_t* bytes);
/* Metadata that the server sent with a reply: number of entries, and entry `index`: 1, or 0 if there is none. A key may occur more than
   once. Values are bytes, with a zero behind them. Each result pointer may be NULL. */
size_t sluice_message_metadata_count(const sluice_message* message);
int32_t sluice_message_metadata(const sluice_message* message, size_t index, const char** key,
                                const void** value, size_t* bytes);
void sluice_message_free(sluice_message* message);

/* ---- Calls */

typedef struct sluice_metadata {
  const char* key; /* 1 to 64 characters of "a-z 0-9 - _ ." */
  const void* value;
  size_t value_bytes;
} sluice_metadata;

/* Options of a call. Begin with SLUICE_CALL_OPTIONS_INIT. A library that is older than a field ignores the field; a field that an older
   program does not have has its default. */
typedef struct sluice_call_options {
  size_t struct_bytes; /* sizeof(sluice_call_options) */
  /* Time after which the call ends with DEADLINE_EXCEEDED, from its start. Zero or less: it has passed. SLUICE_FOREVER: no deadline.
     Default: 5 seconds. */
  int64_t timeout_ns;
  /* 1: if not connected, wait for a connection until the deadline. 0 (default): fail with UNAVAILABLE. */
  int32_t wait_for_ready;
  /* 1: running the method twice has the effect of running it once, so that it may be retried. Default: 0. */
  int32_t idempotent;
  /* Metadata of the request; at most 8 KiB together. Default: none. Copied. */
  const sluice_metadata* metadata;
  size_t metadata_count;
  /* Bytes beside the message. Default: none. Copied, except by sluice_call_unary(). */
  const void* attachment;
  size_t attachment_bytes;
} sluice_call_options;

#define SLUICE_CALL_OPTIONS_INIT \
  { sizeof(sluice_call_options), INT64_C(5000000000), 0, 0, NULL, 0, NULL, 0 }

/* Makes a call, and blocks until it has ended. `method`: "pkg.Service/Method", with or without a slash in front. `options`: NULL means
   defaults. `reply`: a message if the call succeeds, otherwise NULL; NULL if it is not wanted. */
sluice_status* sluice_call_unary(sluice_channel* channel, const char* method, const void* request,
                                 size_t request_bytes, const sluice_call_options* options,
                                 sluice_message** reply);

/* Starts a call, and waits until it has ended, for at most `wait_ns`; 0: does not block. To start and wait at once is faster than
   sluice_call_wait() afterwards. Success: `*call` was started; its own errors come with sluice_call_finish(). The request is copied. */
sluice_status* sluice_call_start(sluice_channel* channel, const char* method, const void* request,
                                 size_t request_bytes, const sluice_call_options* options,
                                 int64_t wait_ns, sluice_call** call);
/* Waits until the call has ended, for at most `timeout_ns`. 1: it has ended; 0: not yet. */
int32_t sluice_call_wait(sluice_call* call, int64_t timeout_ns);
/* Blocks until the call has ended, and returns its status. `reply` as above. Once; a second one returns FAILED_PRECONDITION. */
sluice_status* sluice_call_finish(sluice_call* call, sluice_message** reply);
/* Ends the call with CANCELLED, soon. Does not block. */
void sluice_call_cancel(sluice_call* call);
/* Frees the call. If it has not ended, cancels it first and waits for its end, which is near. */
void sluice_call_free(sluice_call* call);

/* ---- Streams */

/* Which sides send more than one message. */
enum { SLUICE_CLIENT_STREAMS = 1, SLUICE_SERVER_STREAMS = 2, SLUICE_BOTH_STREAM = 3 };

/* Results of sluice_stream_read() and sluice_stream_write(). */
enum {
  SLUICE_STREAM_TIMEOUT =
      -1, /* time is over, and nothing was read or written: call again, or do not */
  SLUICE_STREAM_END =
      0, /* no more messages, or the call has ended: sluice_stream_finish() has the status */
  SLUICE_STREAM_DONE = 1 /* read or written */
};

/* Starts a call in which at least one side streams. Does not block. `request`: copied. INVALID_ARGUMENT: the client streams, and
   `request_bytes` is not 0. */
sluice_status* sluice_stream_open(sluice_channel* channel, const char* method, int32_t streams,
                                  const void* request, size_t request_bytes,
                                  const sluice_call_options* options, sluice_stream** stream);
/* Reads the next message; waits for at most `timeout_ns`. `*message` is set if the result is SLUICE_STREAM_DONE, otherwise NULL. */
int32_t sluice_stream_read(sluice_stream* stream, int64_t timeout_ns, sluice_message** message);
/* Writes a message; waits for at most `timeout_ns` while the window of the stream is full. A message that is not accepted (too large, NULL
   with a size) ends the call: the result is SLUICE_STREAM_END, and sluice_stream_finish() has the reason. SLUICE_STREAM_END also if the
   client may not stream. */
int32_t sluice_stream_write(sluice_stream* stream, const void* data, size_t bytes,
                            int64_t timeout_ns);
/* Ends the stream of requests. Call it before sluice_stream_finish() if the server waits for the end. */
void sluice_stream_end_writes(sluice_stream* stream);
/* Waits until the call has ended, for at most `timeout_ns`. 1: it has ended; 0: not yet. */
int32_t sluice_stream_wait(sluice_stream* stream, int64_t timeout_ns);
/* Blocks until the call has ended, and returns its status. Messages that were not read are dropped. `reply`: as for a call, if the
   server does not stream; otherwise a message without bytes, which has the metadata. */
sluice_status* sluice_stream_finish(sluice_stream* stream, sluice_message** reply);
/* Ends the call with CANCELLED, soon. Does not block. Any thread. */
void sluice_stream_cancel(sluice_stream* stream);
/* Frees the stream. If the call has not ended, cancels it first and waits for its end, which is near. */
void sluice_stream_free(sluice_stream* stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SLUICE_H_ */
