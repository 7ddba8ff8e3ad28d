// SPDX-License-Identifier: Apache-2.0
//
// Converts the properties of an id and of a queue pair to the layouts of the kernel's commands. Pure
// functions.
#ifndef SLUICE_TRANSPORT_SOFTDC_UCMA_QUERY_H_
#define SLUICE_TRANSPORT_SOFTDC_UCMA_QUERY_H_

#include <infiniband/sa.h>
#include <infiniband/verbs.h>

#include "transport/softdc/cm/engine.h"
#include "transport/softdc/ucma/abi.h"

namespace sluice::softdc::ucma {

// Returns the size of an address by its family. Returns 0 if the family is not IPv4, IPv6 or InfiniBand, or
// the size is more than `room`.
size_t AddressBytes(const void* address, size_t room);

abi::rdma_ucm_query_route_resp RouteOf(const cm::IdInfo& info);
abi::rdma_ucm_query_addr_resp AddressesOf(const cm::IdInfo& info);
// Returns the same with GIDs, as AF_IB addresses.
abi::rdma_ucm_query_addr_resp GidsOf(const cm::IdInfo& info);
// Returns one path, in the format of the subnet administrator.
ib_path_rec_data PathOf(const cm::IdInfo& info);

ib_uverbs_ah_attr ToKernel(const ibv_ah_attr& from);
ib_uverbs_qp_attr ToKernel(const ibv_qp_attr& from, int mask);

}  // namespace sluice::softdc::ucma

#endif  // SLUICE_TRANSPORT_SOFTDC_UCMA_QUERY_H_
