// SPDX-License-Identifier: Apache-2.0
//
// The address of the sender of a datagram (man ibv_create_ah_from_wc). The 40 bytes before the payload are an IPv6-like routing header, or, on
// RoCE v2 between IPv4 addresses, 20 undefined bytes and an IPv4 header.
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_PRELOAD_ADDRESS_FROM_WC_H_
#define SLUICE_TRANSPORT_SOFTDC_PRELOAD_ADDRESS_FROM_WC_H_

#include <infiniband/verbs.h>

#include <cstdint>

namespace sluice::softdc::preload {

// Returns 0, or -1 with errno: EINVAL if the 40 bytes are no header, or if the destination is not in this port's GID table.
int InitAhFromWc(ibv_context* context, uint8_t port_num, ibv_wc* wc, ibv_grh* grh,
                 ibv_ah_attr* attr);
// Returns null with errno on failure.
ibv_ah* CreateAhFromWc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port_num);

}  // namespace sluice::softdc::preload

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_ADDRESS_FROM_WC_H_
