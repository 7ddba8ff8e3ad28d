// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/ucma/commands.h"

#include <fcntl.h>
#include <infiniband/ib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/ucma/abi.h"
#include "transport/softdc/ucma/query.h"
#include "transport/softdc/ucma/user_memory.h"

namespace sluice::softdc::ucma {
namespace {

// Offset of the end of a member, for structures of which older callers send less.
#define SLUICE_END_OF(type, member) (offsetof(type, member) + sizeof(type::member))

constexpr size_t kMaxOptionBytes = 4 << 20;  // maximum allocation of the kernel

struct Command {
  cm::Channel* channel;
  uint64_t body;      // address of the structure
  size_t body_bytes;  // bytes of the structure that the caller wrote
  uint16_t in;        // size of the structure according to the header
  uint16_t out;       // room for the response
  const FindChannel& find;

  cm::Engine& engine() const { return *channel->engine(); }

  template <typename T>
  int Read(T* structure) const {
    std::memset(static_cast<void*>(structure), 0, sizeof(T));
    return CopyFromUser(structure, body, std::min(sizeof(T), body_bytes));
  }
  // Writes the response, truncated to the caller's room, since responses grew over time.
  template <typename T>
  int Respond(uint64_t address, const T& response) const {
    return CopyToUser(address, &response, std::min<size_t>(sizeof(T), out));
  }
};

const sockaddr* Generic(const void* address) { return static_cast<const sockaddr*>(address); }

// librdmacm uses this address only to test whether the kernel supports AF_IB. It does not connect with it
// here. The address stands for all addresses of the host, like the wildcard of IPv4.
bool WildcardOfInfiniband(const void* address, sockaddr_storage* wildcard) {
  sockaddr_ib ib;
  std::memcpy(&ib, address, sizeof(ib));
  static constexpr ib_addr kAny{};
  if (ib.sib_family != AF_IB || std::memcmp(&ib.sib_addr, &kAny, sizeof(kAny)) != 0) return false;
  *wildcard = cm::WildcardOf(AF_INET);
  cm::SetPort(htons(static_cast<uint16_t>(be64toh(ib.sib_sid))), wildcard);
  return true;
}

int CreateId(const Command& command) {
  abi::rdma_ucm_create_id given;
  abi::rdma_ucm_create_id_resp response{};
  if (command.out < sizeof(response)) return ENOSPC;
  if (const int error = command.Read(&given); error != 0) return error;
  int error =
      command.engine().CreateId(command.channel, given.uid, static_cast<rdma_port_space>(given.ps),
                                static_cast<ibv_qp_type>(given.qp_type), &response.id);
  if (error != 0) return error;
  error = CopyToUser(given.response, &response, sizeof(response));
  uint32_t reported;
  if (error != 0) command.engine().DestroyId(command.channel, response.id, &reported);
  return error;
}

int DestroyId(const Command& command) {
  abi::rdma_ucm_destroy_id given;
  abi::rdma_ucm_destroy_id_resp response{};
  if (command.out < sizeof(response)) return ENOSPC;
  if (const int error = command.Read(&given); error != 0) return error;
  const int error =
      command.engine().DestroyId(command.channel, given.id, &response.events_reported);
  return error != 0 ? error : CopyToUser(given.response, &response, sizeof(response));
}

int BindIp(const Command& command) {
  abi::rdma_ucm_bind_ip given;
  if (const int error = command.Read(&given); error != 0) return error;
  if (AddressBytes(&given.addr, sizeof(given.addr)) == 0) return EINVAL;
  return command.engine().Bind(command.channel, given.id, Generic(&given.addr));
}

int Bind(const Command& command) {
  abi::rdma_ucm_bind given;
  if (const int error = command.Read(&given); error != 0) return error;
  if (given.reserved != 0 || given.addr_size == 0 ||
      given.addr_size != AddressBytes(&given.addr, sizeof(given.addr))) {
    return EINVAL;
  }
  sockaddr_storage wildcard;
  const bool ib = WildcardOfInfiniband(&given.addr, &wildcard);
  return command.engine().Bind(command.channel, given.id,
                               ib ? Generic(&wildcard) : Generic(&given.addr));
}

int ResolveIp(const Command& command) {
  abi::rdma_ucm_resolve_ip given;
  if (const int error = command.Read(&given); error != 0) return error;
  const bool has_source = given.src_addr.sin6_family != 0;
  if ((has_source && AddressBytes(&given.src_addr, sizeof(given.src_addr)) == 0) ||
      AddressBytes(&given.dst_addr, sizeof(given.dst_addr)) == 0) {
    return EINVAL;
  }
  return command.engine().ResolveAddr(command.channel, given.id,
                                      has_source ? Generic(&given.src_addr) : nullptr,
                                      Generic(&given.dst_addr));
}

int ResolveAddr(const Command& command) {
  abi::rdma_ucm_resolve_addr given;
  if (const int error = command.Read(&given); error != 0) return error;
  if (given.reserved != 0 ||
      (given.src_size != 0 &&
       given.src_size != AddressBytes(&given.src_addr, sizeof(given.src_addr))) ||
      given.dst_size == 0 ||
      given.dst_size != AddressBytes(&given.dst_addr, sizeof(given.dst_addr))) {
    return EINVAL;
  }
  return command.engine().ResolveAddr(command.channel, given.id,
                                      given.src_size != 0 ? Generic(&given.src_addr) : nullptr,
                                      Generic(&given.dst_addr));
}

int ResolveRoute(const Command& command) {
  abi::rdma_ucm_resolve_route given;
  if (const int error = command.Read(&given); error != 0) return error;
  return command.engine().ResolveRoute(command.channel, given.id);
}

int QueryRoute(const Command& command) {
  using Response = abi::rdma_ucm_query_route_resp;
  if (command.out < offsetof(Response, ibdev_index)) return ENOSPC;
  abi::rdma_ucm_query given;
  if (const int error = command.Read(&given); error != 0) return error;
  cm::IdInfo info;
  const int error = command.engine().Query(command.channel, given.id, &info);
  return error != 0 ? error : command.Respond(given.response, RouteOf(info));
}

int QueryPath(const Command& command, const abi::rdma_ucm_query& given, const cm::IdInfo& info) {
  using Head = abi::rdma_ucm_query_path_resp;
  if (command.out < sizeof(Head)) return ENOSPC;
  const bool whole = info.has_path && command.out - sizeof(Head) > sizeof(ib_path_rec_data);
  std::array<std::byte, sizeof(Head) + sizeof(ib_path_rec_data)> response{};
  const uint32_t paths = info.has_path ? 1 : 0;
  std::memcpy(&response[offsetof(Head, num_paths)], &paths, sizeof(paths));
  const ib_path_rec_data path = PathOf(info);
  std::memcpy(&response[sizeof(Head)], &path, sizeof(path));
  return CopyToUser(given.response, response.data(), whole ? response.size() : sizeof(Head));
}

int Query(const Command& command) {
  abi::rdma_ucm_query given;
  if (const int error = command.Read(&given); error != 0) return error;
  cm::IdInfo info;
  const int error = command.engine().Query(command.channel, given.id, &info);
  if (error != 0) return error;
  if (given.option == abi::RDMA_USER_CM_QUERY_PATH) return QueryPath(command, given, info);
  const bool addresses = given.option == abi::RDMA_USER_CM_QUERY_ADDR;
  if (!addresses && given.option != abi::RDMA_USER_CM_QUERY_GID) return ENOSYS;
  using Response = abi::rdma_ucm_query_addr_resp;
  if (command.out < offsetof(Response, ibdev_index)) return ENOSPC;
  return command.Respond(given.response, addresses ? AddressesOf(info) : GidsOf(info));
}

rdma_conn_param ParamOf(const abi::rdma_ucm_conn_param& given) {
  rdma_conn_param param{};
  param.private_data = given.private_data;
  param.private_data_len = given.private_data_len;
  param.responder_resources = given.responder_resources;
  param.initiator_depth = given.initiator_depth;
  param.flow_control = given.flow_control;
  param.retry_count = given.retry_count;
  param.rnr_retry_count = given.rnr_retry_count;
  param.srq = given.srq;
  param.qp_num = given.qp_num;
  return param;
}

int Connect(const Command& command) {
  using Given = abi::rdma_ucm_connect;
  if (command.in < SLUICE_END_OF(Given, reserved)) return EINVAL;
  Given given;
  if (const int error = command.Read(&given); error != 0) return error;
  if (given.conn_param.valid == 0) return EINVAL;
  ibv_ece ece{};
  if (command.in >= SLUICE_END_OF(Given, ece)) ece = {given.ece.vendor_id, given.ece.attr_mod, 0};
  return command.engine().Connect(command.channel, given.id, ParamOf(given.conn_param), ece);
}

int Listen(const Command& command) {
  abi::rdma_ucm_listen given;
  if (const int error = command.Read(&given); error != 0) return error;
  return command.engine().Listen(command.channel, given.id, static_cast<int>(given.backlog));
}

int Accept(const Command& command) {
  using Given = abi::rdma_ucm_accept;
  if (command.in < SLUICE_END_OF(Given, reserved)) return EINVAL;
  Given given;
  if (const int error = command.Read(&given); error != 0) return error;
  ibv_ece ece{};
  if (command.in >= SLUICE_END_OF(Given, ece)) ece = {given.ece.vendor_id, given.ece.attr_mod, 0};
  const rdma_conn_param param = ParamOf(given.conn_param);
  return command.engine().Accept(command.channel, given.id, given.uid,
                                 given.conn_param.valid != 0 ? &param : nullptr, ece);
}

int Reject(const Command& command) {
  abi::rdma_ucm_reject given;
  if (const int error = command.Read(&given); error != 0) return error;
  if (given.reason == 0) given.reason = cm::kRejConsumerDefined;
  if (given.reason != cm::kRejConsumerDefined && given.reason != cm::kRejVendorOptionNotSupported) {
    return EINVAL;
  }
  return command.engine().Reject(command.channel, given.id, given.private_data,
                                 given.private_data_len, given.reason);
}

int Disconnect(const Command& command) {
  abi::rdma_ucm_disconnect given;
  if (const int error = command.Read(&given); error != 0) return error;
  return command.engine().Disconnect(command.channel, given.id);
}

int InitQpAttr(const Command& command) {
  if (command.out < sizeof(ib_uverbs_qp_attr)) return ENOSPC;
  abi::rdma_ucm_init_qp_attr given;
  if (const int error = command.Read(&given); error != 0) return error;
  if (given.qp_state > IBV_QPS_ERR) return EINVAL;
  ibv_qp_attr attr{};
  attr.qp_state = static_cast<ibv_qp_state>(given.qp_state);
  int mask = 0;
  const int error = command.engine().InitQpAttr(command.channel, given.id, &attr, &mask);
  if (error != 0) return error;
  const ib_uverbs_qp_attr response = ToKernel(attr, mask);
  return CopyToUser(given.response, &response, sizeof(response));
}

abi::rdma_ucm_event_resp ResponseOf(const cm::Event& event) {
  abi::rdma_ucm_event_resp response{};
  response.uid = event.uid;
  response.id = event.id;
  response.event = event.type;
  response.status = static_cast<uint32_t>(event.status);
  if (event.is_ud) {
    abi::rdma_ucm_ud_param& ud = response.param.ud;
    ud.qp_num = event.ud.qp_num;
    ud.qkey = event.ud.qkey;
    ud.ah_attr = ToKernel(event.ud.ah_attr);
    ud.private_data_len = event.private_data_bytes;
    std::memcpy(ud.private_data, event.private_data, event.private_data_bytes);
  } else {
    abi::rdma_ucm_conn_param& conn = response.param.conn;
    conn.qp_num = event.conn.qp_num;
    conn.private_data_len = event.private_data_bytes;
    std::memcpy(conn.private_data, event.private_data, event.private_data_bytes);
    conn.srq = event.conn.srq;
    conn.responder_resources = event.conn.responder_resources;
    conn.initiator_depth = event.conn.initiator_depth;
    conn.flow_control = event.conn.flow_control;
    conn.retry_count = event.conn.retry_count;
    conn.rnr_retry_count = event.conn.rnr_retry_count;
  }
  response.ece.vendor_id = event.ece.vendor_id;
  response.ece.attr_mod = event.ece.options;
  return response;
}

int GetEvent(const Command& command) {
  // Callers older than ECE have less room.
  if (command.out < offsetof(abi::rdma_ucm_event_resp, reserved)) return ENOSPC;
  abi::rdma_ucm_get_event given;
  if (const int error = command.Read(&given); error != 0) return error;
  return command.engine().TakeEvent(command.channel, [&](const cm::Event& event) {
    return command.Respond(given.response, ResponseOf(event));
  });
}

// Treats a path that the application found itself as a resolved route.
int SetPath(const Command& command, uint32_t id, const std::vector<std::byte>& value) {
  constexpr uint32_t kWanted = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  if (value.size() % sizeof(ib_path_rec_data) != 0) return EINVAL;
  for (size_t at = 0; at < value.size(); at += sizeof(ib_path_rec_data)) {
    uint32_t flags;
    std::memcpy(&flags, &value[at], sizeof(flags));
    if (flags == kWanted) return command.engine().ResolveRoute(command.channel, id);
  }
  return EINVAL;
}

int SetOption(const Command& command) {
  abi::rdma_ucm_set_option given;
  if (const int error = command.Read(&given); error != 0) return error;
  if (given.optlen > kMaxOptionBytes) return EINVAL;
  cm::IdInfo info;
  int error = command.engine().Query(command.channel, given.id, &info);
  if (error != 0) return error;
  std::vector<std::byte> value(given.optlen);
  error = CopyFromUser(value.data(), given.optval, value.size());
  if (error != 0) return error;
  if (given.level == abi::RDMA_OPTION_IB && given.optname == abi::RDMA_OPTION_IB_PATH) {
    return SetPath(command, given.id, value);
  }
  return command.engine().SetOption(command.channel, given.id, static_cast<int>(given.level),
                                    static_cast<int>(given.optname), value.data(), value.size());
}

int Notify(const Command& command) {
  abi::rdma_ucm_notify given;
  if (const int error = command.Read(&given); error != 0) return error;
  return command.engine().Notify(command.channel, given.id,
                                 static_cast<ibv_event_type>(given.event));
}

int MigrateId(const Command& command) {
  abi::rdma_ucm_migrate_id given;
  if (const int error = command.Read(&given); error != 0) return error;
  const std::shared_ptr<cm::Channel> from = command.find(static_cast<int>(given.fd));
  if (from == nullptr) return fcntl(static_cast<int>(given.fd), F_GETFD) < 0 ? ENOENT : EINVAL;
  if (from->engine() != command.channel->engine()) return EINVAL;
  abi::rdma_ucm_migrate_resp response{};
  const int error =
      command.engine().MigrateId(from.get(), given.id, command.channel, &response.events_reported);
  return error != 0 ? error : CopyToUser(given.response, &response, sizeof(response));
}

int Multicast(const Command& /*command*/) { return EOPNOTSUPP; }

using Handler = int (*)(const Command&);

// In the order of the kernel's numbers.
constexpr std::array<Handler, abi::RDMA_USER_CM_CMD_JOIN_MCAST + 1> kHandlers = {
    &CreateId,      // CREATE_ID
    &DestroyId,     // DESTROY_ID
    &BindIp,        // BIND_IP
    &ResolveIp,     // RESOLVE_IP
    &ResolveRoute,  // RESOLVE_ROUTE
    &QueryRoute,    // QUERY_ROUTE
    &Connect,       // CONNECT
    &Listen,        // LISTEN
    &Accept,        // ACCEPT
    &Reject,        // REJECT
    &Disconnect,    // DISCONNECT
    &InitQpAttr,    // INIT_QP_ATTR
    &GetEvent,      // GET_EVENT
    nullptr,        // GET_OPTION: not in the kernel either
    &SetOption,     // SET_OPTION
    &Notify,        // NOTIFY
    &Multicast,     // JOIN_IP_MCAST
    &Multicast,     // LEAVE_MCAST
    &MigrateId,     // MIGRATE_ID
    &Query,         // QUERY
    &Bind,          // BIND
    &ResolveAddr,   // RESOLVE_ADDR
    &Multicast,     // JOIN_MCAST
};

}  // namespace

int Execute(cm::Channel* channel, uint64_t address, size_t bytes, const FindChannel& find) {
  abi::rdma_ucm_cmd_hdr header;
  if (bytes < sizeof(header)) return EINVAL;
  if (const int error = CopyFromUser(&header, address, sizeof(header)); error != 0) return error;
  if (header.cmd >= kHandlers.size() || header.in + sizeof(header) > bytes) return EINVAL;
  const Handler handler = kHandlers[header.cmd];
  if (handler == nullptr) return ENOSYS;
  return handler(Command{channel, address + sizeof(header), bytes - sizeof(header), header.in,
                         header.out, find});
}

}  // namespace sluice::softdc::ucma
