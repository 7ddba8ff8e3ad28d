// SPDX-License-Identifier: Apache-2.0
//
// Names of RDMA_CM events, for comparisons and messages of tests.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_CM_EVENT_NAMES_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_CM_EVENT_NAMES_H_

#include <rdma/rdma_cma.h>

#include <string>

namespace sluice::softdc::cm {

// Without the prefix RDMA_CM_EVENT_.
inline std::string NameOf(rdma_cm_event_type type) {
  switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return "ADDR_RESOLVED";
    case RDMA_CM_EVENT_ADDR_ERROR:
      return "ADDR_ERROR";
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return "ROUTE_RESOLVED";
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      return "CONNECT_REQUEST";
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      return "CONNECT_RESPONSE";
    case RDMA_CM_EVENT_ESTABLISHED:
      return "ESTABLISHED";
    case RDMA_CM_EVENT_REJECTED:
      return "REJECTED";
    case RDMA_CM_EVENT_UNREACHABLE:
      return "UNREACHABLE";
    case RDMA_CM_EVENT_DISCONNECTED:
      return "DISCONNECTED";
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      return "TIMEWAIT_EXIT";
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return "DEVICE_REMOVAL";
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return "ADDR_CHANGE";
    default:
      return "event " + std::to_string(type);
  }
}

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_CM_EVENT_NAMES_H_
