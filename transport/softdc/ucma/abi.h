// SPDX-License-Identifier: Apache-2.0
//
// The command structures of /dev/infiniband/rdma_cm, from the kernel's own header. They are in a namespace,
// because librdmacm's public header has enumerators of the same names.
#ifndef SLUICE_TRANSPORT_SOFTDC_UCMA_ABI_H_
#define SLUICE_TRANSPORT_SOFTDC_UCMA_ABI_H_

// The headers that rdma_user_cm.h includes, so that only its own contents are in the namespace. netinet/in.h
// comes before the kernel's in6.h.
#include <netinet/in.h>
// clang-format off
#include <linux/types.h>
#include <linux/socket.h>
#include <linux/in6.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/ib_user_sa.h>
// clang-format on

namespace sluice::softdc::ucma::abi {
#include <rdma/rdma_user_cm.h>
}  // namespace sluice::softdc::ucma::abi

#endif  // SLUICE_TRANSPORT_SOFTDC_UCMA_ABI_H_
