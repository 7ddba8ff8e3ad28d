// SPDX-License-Identifier: Apache-2.0
//
// What can be set at a Channel, a Server and a Messenger. Values are checked when the object is made; the
// error says which value, why not, and what is allowed.
#ifndef SLUICE_MIDDLEWARE_API_OPTIONS_H_
#define SLUICE_MIDDLEWARE_API_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/api/log.h"
#include "middleware/call/client_engine.h"

namespace sluice {

class ClientInterceptor;
class Resolver;
class ServerContext;
class ServerInterceptor;

// Lanes: memory of this side into which busy peers write their messages, so that their payload is watched and no
// completion is needed (docs/decisions/0024). Messages that don't fit are sent; nothing else differs.
enum class Lanes : uint8_t {
  kOff,   // none is granted; into those that a peer grants, this side writes all the same
  kAuto,  // where the device promises the order in which bytes land
  kOn,    // also where it does not: a completion announces each message then, so nothing is gained
};

// Who polls (docs/threads.md).
enum class Driving : uint8_t {
  kThreads,  // Sluice: threads of its own, and those that wait for calls
  kCaller,  // the user's own loop: Poll(), PrepareToSleep() and fd(). Nothing runs, and no callback, outside of it
};

// Common to both. The process with the lower limit decides for a connection.
struct EndpointLimits {
  // Largest message, request or reply, that is sent as it is, with the 48 bytes of its header. 1024 to 1 MiB. Text and payloads
  // of a status fit into one as well, or are shortened, and then the text says so.
  uint32_t max_message_bytes = 16384;
  // Largest message at all. What does not fit above stays in registered memory of its sender, and the receiver reads it
  // from there, in pieces. 0: there are none; below 2 GiB.
  uint64_t max_large_message_bytes = 128u << 20;
  // Registered memory for such messages on their way out, and as much again for those on their way in. Taken when it is
  // needed, and kept. At least max_large_message_bytes; to 1 TiB.
  uint64_t large_memory_bytes = 256u << 20;
  // Messages that a peer may have under way to us: what one peer can make us hold. 4 to 4096.
  uint32_t credits_per_peer = 64;
  // Receive buffers, shared by all peers; at least credits_per_peer, 16 to 32768.
  uint32_t receive_buffers = 1024;
  // A peer that does not react is given up after about this time. 10 ms to 60 s.
  absl::Duration dead_peer_timeout = absl::Seconds(1);
  // A connected peer that is silent, and does not answer when asked, is given up after this time: it
  // hangs, or has forgotten this side. Longer than any handler blocks its thread. 0: never; to 1 h.
  absl::Duration keepalive = absl::Seconds(30);
  Lanes lanes = Lanes::kAuto;
  // Memory for lanes, those that are being made and freed included; the busiest peers get them. 0: none; to 1 GiB.
  uint32_t lane_memory_bytes = 2u << 20;
  // One lane has so many slots at most, and fewer for a peer with fewer credits. 4 to 4096.
  uint32_t lane_slots = 128;
  // Of one message with its headers and stamps; longer ones are sent. A multiple of 128, to 4096.
  uint32_t lane_slot_bytes = 256;
  // A peer that sends so many messages while this side does not sleep is worth a lane. 1 to 32768.
  uint32_t lane_after_messages = 64;
  // Path MTU: largest payload of a packet, in bytes. All processes that talk to each other need the same: a connection between unlike
  // ones is refused with FAILED_PRECONDITION. 256, 512, 1024, 2048 or 4096; if the port's active MTU is smaller, that is used. The
  // default passes where Ethernet frames have 1500 bytes. Set it to 4096 on all sides if all ports and switches bear that.
  uint32_t path_mtu = 1024;
};

// Who may talk to whom. Both sides prove that they hold the same secret before the other one gives
// keys or credits; a wrong or missing one ends in UNAUTHENTICATED. With neither member set nobody
// is asked: whoever reaches the port may call. What it protects from, and from what not (nothing on
// the wire is encrypted): docs/decisions/0011.
struct Authentication {
  // A file of secrets, one a line, 16 to 256 bytes each (head -c 32 /dev/urandom | base64); lines
  // that begin with # don't count. Owned by this process's user or root, mode 600 or 400.
  // The first is what this side proves; all are accepted from others. So a secret is changed without
  // an interruption: add the new one everywhere, put it first everywhere, take the old one away.
  // The file is looked at for each connection that is made, and read again if it has changed; connections that stand, stay.
  std::string secret_file;
  // The same from a function, called on a helper thread for each connection; it may block.
  std::function<absl::StatusOr<std::vector<std::string>>()> secret_source;

  absl::Status Validate() const;
};

// Which of a channel's servers that are up gets the next call.
using call::Balancing;

// When a call that ended UNAVAILABLE is tried once more, by the channel: if its request provably did not run, or its method is
// declared idempotent (option idempotency_level in the .proto). Streaming calls: only before anything of them was sent
// or delivered. The deadline is that of all attempts; ServerContext::attempt() says which one a handler sees.
struct RetryOptions {
  uint32_t max_attempts = 3;  // the first one included. 1 (none is tried again) to 16
  // Between two attempts: from half of this to all of it, doubled each time up to pause_max. The first retry of a
  // request that did not run follows at once. 1 ms to 1 min.
  absl::Duration pause_min = absl::Milliseconds(5);
  absl::Duration pause_max = absl::Milliseconds(500);
  // Retries that a channel may have in stock; each takes one, a success gives refill back. So that an outage does not
  // get a multiple of its load. 0 to 1000000; 0 to 1.
  uint32_t budget = 10;
  double refill = 0.1;
};

// Whether a channel asks its servers' health services (middleware/services/health_service.h) if they serve. Who says no, or does not
// answer, gets calls only while no other one that is up says yes; who has no such service counts as serving.
struct HealthOptions {
  // How often each server is asked, varied by a quarter; also how long it may take to answer. 0: nobody is asked; to 1 h.
  absl::Duration period = absl::ZeroDuration();
  std::string service;  // "package.Service"; empty: the server as a whole
};

struct ChannelOptions {
  // "auto": an active mlx5 device with DC if there is one, else the software device. Or a device's
  // name, with a port or without ("mlx5_0:2"), or an address of this host ("10.0.0.5"): the device
  // and port that have it.
  std::string device = "auto";
  EndpointLimits limits;
  Authentication authentication;
  // Of each attempt to connect; Connect() makes one. 1 ms to 1 h.
  absl::Duration connect_timeout = absl::Seconds(5);
  // True: Connect() returns at once, before a server is up, and the channel connects in the background, as it does after a
  // connection was lost. Calls with wait_for_ready wait for a server until their deadline; other calls wait for the attempt
  // that is under way, and fail with UNAVAILABLE between two attempts. Channel::WaitUntilConnected() waits for a server.
  // Connect() still fails for an address, an option or a device that can't be used. With Driving::kCaller the channel
  // connects in the caller's Poll(). Default: Connect() waits, and returns why the first connection failed.
  bool connect_in_background = false;
  // Calls that have not ended; more fail with RESOURCE_EXHAUSTED. 1 to 1048576.
  uint32_t max_outstanding_calls = 1024;
  // A connection that is lost is made again: after backoff_min, then twice that, … up to
  // backoff_max, each varied by a quarter; max_reconnect_attempts times in a row, then not before
  // the next call.
  absl::Duration backoff_min = absl::Milliseconds(20);
  absl::Duration backoff_max = absl::Seconds(2);
  uint32_t max_reconnect_attempts = 20;
  // Of a channel with several servers (channel.h).
  Balancing balancing = Balancing::kPickFirst;
  HealthOptions health;
  RetryOptions retry;
  // Where the servers' addresses come from, if not from the address that Connect() is given (resolver.h).
  std::shared_ptr<Resolver> resolver;
  // What sees each call on its way (interceptor.h).
  std::vector<std::shared_ptr<ClientInterceptor>> interceptors;
  // What happened last, kept in memory: 32 bytes each. 0 to 1048576, rounded up to a power of two.
  uint32_t trace_records = 4096;
  // Where it says what nobody would hear of otherwise (log.h); none: standard error. And how much of it.
  std::shared_ptr<LogSink> log;
  LogLevel log_level = LogLevel::kWarning;
  Driving driving = Driving::kThreads;
  // How long a waiting thread polls before it sleeps. Longer: lower latency, more CPU. 0 to 1 s.
  absl::Duration spin = absl::Microseconds(50);

  absl::Status Validate() const;
};

// Some of a server's callers, kept apart from the others: the secret that a caller proves says whose
// it is.
struct Tenant {
  std::string name;                 // 1 to 64 bytes
  Authentication authentication;    // required; no secret may be two tenants'
  uint32_t receive_buffers = 1024;  // as in EndpointLimits, of its own
  uint32_t max_peers = 64;          // connections at once. 1 to 65536.
};

// Calls that wait for a thread of their service's executor (RegisterOptions::executor).
struct ExecutorOptions {
  // More are refused with RESOURCE_EXHAUSTED at once. 1 to 16777216.
  uint32_t max_waiting_calls = 4096;
  // One that has waited longer, or whose deadline has passed, is refused when its turn comes; its handler does not run. 0: however
  // long; to 1 h.
  absl::Duration max_wait = absl::ZeroDuration();
};

struct ServerOptions {
  std::string device = "auto";  // as above
  EndpointLimits limits;
  Authentication authentication;
  // Not empty: each tenant has receive queues, keys, buffers and a protection domain of its own, so
  // that the device refuses its callers the memory of other tenants. `authentication` stays empty,
  // and limits.receive_buffers is of no effect. ServerContext::tenant() says whose a call is.
  std::vector<Tenant> tenants;
  // Replies to one peer that wait because it grants no credit. A peer that exceeds either is
  // disconnected.
  uint32_t max_waiting_replies_per_peer = 4096;     // 1 to 1048576
  uint64_t max_waiting_bytes_per_peer = 16u << 20;  // at least limits.max_message_bytes
  // Calls whose handlers are coroutines or run on an executor, at the same time; more are refused with
  // RESOURCE_EXHAUSTED. 1 to 16777216.
  uint32_t max_concurrent_calls = 65536;
  ExecutorOptions executor;  // of each service that has one, unless it is registered with others
  // Says who may call what, before interceptors and handlers see the call, by its method, metadata (a token), peer or
  // tenant. What is not OK is the answer: UNAUTHENTICATED (who are you?) or PERMISSION_DENIED (not you). On the polling
  // thread: it must not block. None: everybody may.
  std::function<absl::Status(const ServerContext& context)> authorize;
  // What sees each call on its way (interceptor.h).
  std::vector<std::shared_ptr<ServerInterceptor>> interceptors;
  // Calls that take longer are kept for people, the last 32 of them (snapshot.h). 1 us to 1 h.
  absl::Duration slow_call = absl::Milliseconds(100);
  // What happened last, kept in memory: 32 bytes each. 0 to 1048576, rounded up to a power of two.
  uint32_t trace_records = 4096;
  std::shared_ptr<LogSink> log;  // as above
  LogLevel log_level = LogLevel::kWarning;
  // Threads that poll, each with queues, buffers and peers of its own: a client is one's for as long as it is connected, the
  // one's with the fewest. Limits are each poller's. Handlers, authorize and interceptors then run on all of them at the
  // same time. 1 to 64; kCaller: 1. docs/decisions/0032.
  uint32_t pollers = 1;
  Driving driving = Driving::kThreads;           // kCaller: from Listen() on the caller polls
  absl::Duration spin = absl::Microseconds(50);  // as above

  absl::Status Validate() const;
};

struct MessengerOptions {
  std::string device = "auto";  // as above
  EndpointLimits limits;
  Authentication authentication;
  std::vector<Tenant> tenants;  // of those who connect, as above
  // Of the connection that the first flow to an address needs. 1 ms to 1 h.
  absl::Duration connect_timeout = absl::Seconds(5);
  // Open at the same time; 80 bytes each. More are refused. 1 to 16777216.
  uint32_t max_flows = 1u << 20;
  std::shared_ptr<LogSink> log;  // as above
  LogLevel log_level = LogLevel::kWarning;
  absl::Duration spin = absl::Microseconds(50);  // of Drive(), as above

  absl::Status Validate() const;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_OPTIONS_H_
