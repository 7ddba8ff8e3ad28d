// SPDX-License-Identifier: Apache-2.0
//
// Options of Channel, Server and Messenger. Create() and Connect() check the values; the error has
// the option, its value and its range.
//
// Ownership     Values.
// Threads       As any value.
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
#include "transport/device/path_settings.h"

namespace sluice {

class ClientInterceptor;
class Resolver;
class Runtime;
class ServerContext;
class ServerInterceptor;

// Lanes: memory of this side into which busy peers write their messages. This side polls the
// memory, so messages need no completion (docs/decisions/0024). Messages that do not fit are sent.
// There is no other difference.
enum class Lanes : uint8_t {
  kOff,   // no lanes to this side; this side still writes into lanes that a peer grants
  kAuto,  // if the device guarantees the order in which bytes arrive
  kOn,    // always; without that guarantee a completion announces each message, so there is no gain
};

// Selects the threads that poll (docs/threads.md).
enum class Driving : uint8_t {
  kThreads,  // threads of Sluice, and threads that wait for calls
  kCaller,   // your loop: Poll(), PrepareToSleep() and fd(). Callbacks run only in it
};

// Limits of a channel, a server or a messenger. For a connection the lower limit of the two sides
// applies.
struct EndpointLimits {
  // Maximum size in bytes of a message that is sent directly, with its 48 bytes of header. Range:
  // 1024 to 1 MiB. It limits a status with text and payloads too: a longer status is cut, and its
  // text says so.
  uint32_t max_message_bytes = 16384;
  // Maximum size of a message in bytes. A message over max_message_bytes stays in registered memory
  // of its sender, and the receiver reads it from there in pieces. 0: no such messages. Range:
  // below 2 GiB.
  uint64_t max_large_message_bytes = 128u << 20;
  // Maximum registered memory in bytes for such messages that this side sends, and the same amount
  // for messages that it receives. Allocated when needed, and kept. Range: max_large_message_bytes
  // to 1 TiB.
  uint64_t large_memory_bytes = 256u << 20;
  // Maximum number of messages that one peer may have in flight to this side. At the limit the peer
  // waits. Range: 4 to 4096.
  uint32_t credits_per_peer = 64;
  // Number of receive buffers, shared by all peers that are busy at the same time. If they need more,
  // they take turns; idle peers need none. Range: 16 to 32,768, at least credits_per_peer.
  uint32_t receive_buffers = 1024;
  // Maximum number of RC queue pairs of an endpoint: on a device without DC each peer has one (docs/devices.md). At the limit a Server
  // asks the client that was longest unused to leave; it connects again for its next call. The new client is refused with
  // RESOURCE_EXHAUSTED, and its channel finds the place when it tries again. A Messenger and a channel only refuse. 0 (default): as
  // many as the device has. An endpoint has at most 16,384 peers, whatever the limit. No effect on a device with DC. Range: 0 to 65,535.
  uint32_t max_rc_queue_pairs = 0;
  // Time after which an unresponsive peer is declared dead (approximate). Range: 10 ms to 60 s.
  absl::Duration dead_peer_timeout = absl::Seconds(1);
  // Time after which a connected peer that is silent and does not answer probes is declared dead:
  // its program hangs, or has lost the connection. Set it higher than the longest time for which a
  // handler blocks its thread. 0: never. Range: 0 to 1 h. Second effect: a
  // peer that does not return its receive buffers while other peers wait for them is disconnected
  // after this time (30 s if it is 0). If such peers hold more than half of receive_buffers, a third
  // of this time applies.
  absl::Duration keepalive = absl::Seconds(30);
  Lanes lanes = Lanes::kAuto;
  // Maximum memory for lanes in bytes, lanes being created and freed included. The busiest peers
  // get lanes. 0: no lanes. Range: 0 to 1 GiB.
  uint32_t lane_memory_bytes = 2u << 20;
  // Maximum number of slots of a lane; a peer with fewer credits gets fewer. Range: 4 to 4096.
  uint32_t lane_slots = 128;
  // Size of a slot in bytes, for one message with headers and stamps. Longer messages are sent.
  // Range: 128 to 4096, a multiple of 128.
  uint32_t lane_slot_bytes = 256;
  // Number of messages from a peer, while this side does not sleep, after which the peer gets a
  // lane. Range: 1 to 32,768.
  uint32_t lane_after_messages = 64;
  // Path MTU: maximum payload of a packet in bytes. Set the same value in all processes that connect to each other: otherwise the
  // connection is refused with FAILED_PRECONDITION. If the port's active MTU is smaller, it applies. The default fits Ethernet
  // frames of 1500 bytes. Set 4096 everywhere if all ports and switches support it. Values: 256, 512, 1024, 2048, 4096.
  uint32_t path_mtu = 1024;
};

// Options of the path over the network: GID, traffic class, service level, partition, retries. Set the same pkey in all processes that
// connect to each other. Each side sends with its own traffic class and service level. gid_index refers to the table of this host.
using PathOptions = device::PathSettings;

// Authentication of peers. Each side proves that it holds a common secret before the other side
// gives keys or credits. A wrong or missing secret: UNAUTHENTICATED. Default: no authentication;
// any peer that reaches the port may call. Nothing on the wire is encrypted. docs/decisions/0011
// lists what this protects against.
struct Authentication {
  // A file of secrets, one a line, 16 to 256 bytes each (head -c 32 /dev/urandom | base64). Lines
  // that begin with # are ignored. Its owner is this process's user or root; mode 600 or 400. This
  // side proves the first secret, and accepts all. To change a secret without an interruption: add
  // the new one everywhere, move it to the first line everywhere, remove the old one. The file is
  // checked for each new connection, and read again if it has changed. Existing connections stay.
  std::string secret_file;
  // Returns the secrets, instead of a file. Called on a helper thread for each connection; it may
  // block.
  std::function<absl::StatusOr<std::vector<std::string>>()> secret_source;

  absl::Status Validate() const;
};

// Selects the connected server for each call.
using call::Balancing;

// Retries of calls that ended with UNAVAILABLE. The channel retries a call if its request provably
// did not run, or if its method is declared idempotent (option idempotency_level in the .proto). It
// retries a streaming call only if no part of it was sent or delivered. The deadline covers all
// attempts. ServerContext::attempt() has the number of the attempt.
struct RetryOptions {
  // Maximum number of attempts of a call, the first included. 1: no retries. Range: 1 to 16.
  uint32_t max_attempts = 3;
  // Pause between two attempts: a random time between half of the value and the value, which
  // doubles with each attempt from pause_min to pause_max. The first retry of a request that did
  // not run has no pause. Range: 1 ms to 1 min, pause_min at most pause_max.
  absl::Duration pause_min = absl::Milliseconds(5);
  absl::Duration pause_max = absl::Milliseconds(500);
  // Retry budget, so that an outage does not multiply the load. `budget`: maximum number of retries
  // in stock; each retry takes one. Range: 0 to 1,000,000. `refill`: retries that each successful
  // call adds; health checks add none. Range: 0 to 1.
  uint32_t budget = 10;
  double refill = 0.1;
};

// Health checks of a channel's servers (middleware/services/health_service.h). A server that
// reports NOT_SERVING or does not answer receives calls only if no connected server reports
// SERVING. A server without a health service counts as SERVING.
struct HealthOptions {
  // Period of the checks of each server, varied by a quarter, and timeout of each check. 0
  // (default): no checks. Range: 0 to 1 h.
  absl::Duration period = absl::ZeroDuration();
  std::string service;  // "package.Service"; empty: the server as a whole
};

// Options of a Runtime, for all channels in it.
struct RuntimeOptions {
  std::string device = "auto";  // as for ChannelOptions
  // The connections of all channels share receive_buffers. Connections that are busy at the same time take turns if they need more.
  EndpointLimits limits;
  PathOptions path;
  Authentication authentication;
  // Sink for conditions of the queues (log.h); a channel has its own for its calls and connections.
  std::shared_ptr<LogSink> log;
  LogLevel log_level = LogLevel::kWarning;
  // Selects the threads that poll for all channels. kCaller: one loop polls for all of them.
  Driving driving = Driving::kThreads;
  // As for ChannelOptions. Range: 0 to 1 s.
  absl::Duration spin = absl::Microseconds(50);

  absl::Status Validate() const;
};

struct ChannelOptions {
  // Runtime that the channel shares with other channels (runtime.h). The runtime's device, limits, path, authentication, driving
  // and spin apply. The values of the channel have no effect. nullptr (default): the channel has a device, queues and threads of its own.
  std::shared_ptr<Runtime> runtime;
  // RDMA device. "auto": an active mlx5 device with DC, or the software device if there is none, or a device with RC. Or
  // the name of a device, with or without a port ("mlx5_0:2"). Or an address of this host
  // ("10.0.0.5"): the device and port with this address. With "/rc" at its end ("mlx5_0/rc"), and on a device
  // without DC: RC queue pairs, one for each peer (docs/devices.md).
  std::string device = "auto";
  EndpointLimits limits;
  PathOptions path;
  Authentication authentication;
  // Timeout of each attempt to connect. Connect() makes one attempt. Range: 1 ms to 1 h.
  absl::Duration connect_timeout = absl::Seconds(5);
  // True: Connect() returns at once, and the channel connects in the background, as it does after a
  // connection was lost. Calls with wait_for_ready wait for a server until their deadline. Other
  // calls wait for the attempt in progress, and fail with UNAVAILABLE between two attempts.
  // Channel::WaitUntilConnected() waits for a server. Connect() still fails for an invalid address,
  // option or device. With Driving::kCaller the channel connects in the caller's Poll(). False
  // (default): Connect() waits, and returns the error of the first attempt.
  bool connect_in_background = false;
  // Maximum number of calls in flight. Further calls fail with RESOURCE_EXHAUSTED. Range: 1 to
  // 1,048,576.
  uint32_t max_outstanding_calls = 1024;
  // Maximum number of messages of a stream that the server has sent and this side has not read. At the limit the server waits. A
  // message over 1 MiB counts once for each MiB begun, and as 8 at most. A stream that is not read keeps up to this many messages
  // and MiB in memory here (more if messages exceed 8 MiB). For the other direction see ServerOptions::stream_window. Range: 16 to
  // 65,536.
  uint32_t stream_window = 16;
  // The channel reconnects after backoff_min, then after twice the time, up to backoff_max, each varied by a quarter. After
  // max_reconnect_attempts failures in a row it waits for the next call. While another server takes the calls, a call starts one more
  // attempt after each backoff_max. Range: 1 ms to 1 h, backoff_min to 1 h, 0 to 4,294,967,295.
  absl::Duration backoff_min = absl::Milliseconds(20);
  absl::Duration backoff_max = absl::Seconds(2);
  uint32_t max_reconnect_attempts = 20;
  // Selects the server for each call, if the channel has several (channel.h).
  Balancing balancing = Balancing::kPickFirst;
  HealthOptions health;
  RetryOptions retry;
  // Has an effect in a Runtime only. True (default): channels with the same address and the same options share connections, counters
  // and retry budget; a further channel connects at once. The limit of their calls is max_outstanding_calls times the number of
  // channels; one channel may use the part of another. False: the channel has its own connections. A channel with a resolver, or with
  // the address of a file, always has its own.
  bool share_connections = true;
  // Source of the servers' addresses, instead of the address given to Connect() (resolver.h).
  std::shared_ptr<Resolver> resolver;
  // Interceptors, which see each call (interceptor.h). The first is called first.
  std::vector<std::shared_ptr<ClientInterceptor>> interceptors;
  // Number of recent events kept in memory, 32 bytes each. Rounded up to a power of two. Range: 0 to
  // 1,048,576.
  uint32_t trace_records = 4096;
  // `log`: sink for conditions that no call reports (log.h); nullptr (default): standard error.
  // `log_level`: minimum severity.
  std::shared_ptr<LogSink> log;
  LogLevel log_level = LogLevel::kWarning;
  Driving driving = Driving::kThreads;
  // Time for which a waiting thread polls before it sleeps. A longer time lowers latency and uses
  // more CPU. Range: 0 to 1 s.
  absl::Duration spin = absl::Microseconds(50);

  absl::Status Validate() const;
};

// A group of callers that is isolated from other groups. The secret that a caller proves selects
// its tenant.
struct Tenant {
  std::string name;               // 1 to 64 bytes
  Authentication authentication;  // required; each secret belongs to one tenant only
  // Number of receive buffers of this tenant. Range: 16 to 32,768, at least credits_per_peer.
  uint32_t receive_buffers = 1024;
  // Maximum number of connections of this tenant. Further connections are refused. Range: 1 to 65,536.
  uint32_t max_peers = 64;
};

// Limits of calls that wait for a thread of their service's executor (RegisterOptions::executor).
struct ExecutorOptions {
  // Maximum number of waiting calls. Further calls are refused with RESOURCE_EXHAUSTED. Range: 1 to
  // 16,777,216.
  uint32_t max_waiting_calls = 4096;
  // Maximum time that a call waits. After it, or after the call's deadline, the call is refused
  // when a thread is free, and its handler does not run. 0 (default): no limit. Range: 0 to 1 h.
  absl::Duration max_wait = absl::ZeroDuration();
};

struct ServerOptions {
  std::string device = "auto";  // as above
  EndpointLimits limits;
  PathOptions path;
  Authentication authentication;
  // Tenants. Each has its own receive queues, keys, buffers and protection domain, so that the
  // device refuses its callers access to memory of other tenants. If not empty, `authentication`
  // must be empty, and limits.receive_buffers has no effect. ServerContext::tenant() returns the
  // tenant of a call. More than one needs a device with DC (INVALID_ARGUMENT).
  std::vector<Tenant> tenants;
  // Maximum number and size in bytes of replies to one peer that wait for its credit. A peer that
  // exceeds a limit is disconnected. Range: 1 to 1,048,576, and limits.max_message_bytes to 1 TiB.
  uint32_t max_waiting_replies_per_peer = 4096;
  uint64_t max_waiting_bytes_per_peer = 16u << 20;
  // Maximum number of calls in progress whose handlers are coroutines or run on an executor.
  // Further calls are refused with RESOURCE_EXHAUSTED. Range: 1 to 16,777,216.
  uint32_t max_concurrent_calls = 65536;
  // Maximum number of messages of a stream that a client has sent and this side has not read, counted as for
  // ChannelOptions::stream_window. It limits the memory here for each stream of each client. Range: 16 to 65,536.
  uint32_t stream_window = 16;
  ExecutorOptions executor;  // for services with an executor; RegisterOptions may replace them
  // Authorizes each call by its method, metadata (for example a token), peer or tenant, before
  // interceptors and handlers. A status other than OK is the reply: UNAUTHENTICATED (unknown
  // caller) or PERMISSION_DENIED (not allowed). Runs on the polling thread; must not block.
  // Default: all calls are allowed.
  std::function<absl::Status(const ServerContext& context)> authorize;
  // Interceptors, which see each call (interceptor.h). The first is called first.
  std::vector<std::shared_ptr<ServerInterceptor>> interceptors;
  // Time after which a call counts as slow. The last 32 slow calls are kept (snapshot.h). Range: 1
  // us to 1 h.
  absl::Duration slow_call = absl::Milliseconds(100);
  // Number of recent events kept in memory, 32 bytes each. Rounded up to a power of two. Range: 0 to
  // 1,048,576.
  uint32_t trace_records = 4096;
  std::shared_ptr<LogSink> log;  // as above
  LogLevel log_level = LogLevel::kWarning;
  // Number of polling threads, each with its own queues, buffers, limits and peers. A new client
  // goes to the poller with the fewest clients, and stays there. With several pollers, handlers,
  // authorize and interceptors run on all of them at the same time. Range: 1 to 64; with kCaller 1.
  // docs/decisions/0032.
  uint32_t pollers = 1;
  Driving driving = Driving::kThreads;           // kCaller: your loop polls from Listen() on
  absl::Duration spin = absl::Microseconds(50);  // as above

  absl::Status Validate() const;
};

struct MessengerOptions {
  std::string device = "auto";  // as above
  EndpointLimits limits;
  PathOptions path;
  Authentication authentication;
  std::vector<Tenant> tenants;  // tenants of inbound peers, as above
  // Timeout of the connection that the first flow to an address needs. Range: 1 ms to 1 h.
  absl::Duration connect_timeout = absl::Seconds(5);
  // Maximum number of open flows, 80 bytes each. Further flows are refused. Range: 1 to 16,777,216.
  uint32_t max_flows = 1u << 20;
  std::shared_ptr<LogSink> log;  // as above
  LogLevel log_level = LogLevel::kWarning;
  absl::Duration spin = absl::Microseconds(50);  // for Drive(), as above

  absl::Status Validate() const;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_OPTIONS_H_
