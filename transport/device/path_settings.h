// SPDX-License-Identifier: Apache-2.0
//
// PathSettings: options of the path over the network that all queue pairs and address handles of a process have in common. Errors
// name the options as path.gid_index and so on.
//
// Ownership     A value.
// Threads       As any value.
#ifndef SLUICE_TRANSPORT_DEVICE_PATH_SETTINGS_H_
#define SLUICE_TRANSPORT_DEVICE_PATH_SETTINGS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace sluice::device {

struct PathSettings {
  // Entry of the port's GID table, which gives the source address and the RoCE version of all packets. Connections use it as
  // source address. Range: 0 to 254, an entry that is not empty. Default: the first IPv4 address of RoCE v2, or the address that
  // selects the device.
  std::optional<uint32_t> gid_index;
  // Traffic class of all packets: DSCP << 2 | ECN of the IP header, or the traffic class of the GRH. RDMA_CM gets it as type of
  // service. Range: 0 to 255. Default: what RDMA_CM selects, and 0 for acknowledgements and data that the peer reads.
  std::optional<uint32_t> traffic_class;
  // Service level of all packets; on RoCE the priority of frames with a VLAN tag. Range: 0 to 15, on RoCE 0 to 7. Default: what
  // RDMA_CM selects, and 0 for acknowledgements and data that the peer reads.
  std::optional<uint32_t> service_level;
  // Partition key, not its index. Selects the entry of the port's table with the same lower 15 bits, a full member if there is one.
  // A peer in another partition drops all packets without an answer, so all peers need the same key.
  // Range: 1 to 65,535. Default: the entry at index 0. On RoCE the table has 0xffff only.
  std::optional<uint32_t> pkey;
  // Ack timeout of the queue pairs of protected bulk transfers: 4.096 us * 2^ack_timeout. Range: 1 to 31. That of DCIs, and of the RC
  // queue pairs of peers, follows from the dead-peer timeout and retry_count.
  uint32_t ack_timeout = 14;
  // Maximum number of retries of a request that the peer does not acknowledge, of all queue pairs. Then the request fails. Range: 0
  // to 7.
  uint32_t retry_count = 7;
  // Maximum number of retries of a message for which the peer has no receive buffer, of DCIs. Then the message fails. RC queue pairs
  // retry without limit. Range: 0 to 6.
  uint32_t rnr_retry = 6;
  // Number of flow labels for each destination host on RoCE v2, where switches see the label as UDP source port and choose by it among
  // paths of equal cost (ECMP). A connection takes the label with the fewest users. No effect on RC queue pairs. Connections with the same label share an address handle.
  // More labels spread the connections of two hosts over more paths, and take as many handles. Range: 1 to 64.
  uint32_t flow_labels = 1;

  // Checks the ranges. Returns INVALID_ARGUMENT with the option, its value and its range. Device::UsePath() checks the values against the
  // port.
  absl::Status Validate() const;
};

}  // namespace sluice::device

#endif  // SLUICE_TRANSPORT_DEVICE_PATH_SETTINGS_H_
