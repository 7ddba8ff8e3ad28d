// SPDX-License-Identifier: Apache-2.0
//
// address_shim: a library to preload into the library's own tests in the lab. RDMA_CM does not take 127.0.0.1 to a RoCE device: to the
// kernel it means any device. The tests name no other address. Here 127.0.0.1 becomes the address of the lab's device, SLUICE_LAB_ADDRESS.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

// Returns `address`, or a copy in `*copy` with the address of the device.
static struct sockaddr *OfDevice(struct sockaddr *address, struct sockaddr_in *copy) {
  const char *device = getenv("SLUICE_LAB_ADDRESS");
  if (address == NULL || address->sa_family != AF_INET || device == NULL) return address;
  memcpy(copy, address, sizeof(*copy));
  if (copy->sin_addr.s_addr != htonl(INADDR_LOOPBACK)) return address;
  return inet_pton(AF_INET, device, &copy->sin_addr) == 1 ? (struct sockaddr *)copy : address;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address) {
  static int (*next)(struct rdma_cm_id *, struct sockaddr *);
  if (next == NULL) next = (int (*)(struct rdma_cm_id *, struct sockaddr *))dlsym(RTLD_NEXT, "rdma_bind_addr");
  struct sockaddr_in copy;
  return next(id, OfDevice(address, &copy));
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source, struct sockaddr *target, int timeout_ms) {
  static int (*next)(struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int);
  if (next == NULL) {
    next = (int (*)(struct rdma_cm_id *, struct sockaddr *, struct sockaddr *, int))dlsym(RTLD_NEXT, "rdma_resolve_addr");
  }
  struct sockaddr_in source_copy, target_copy;
  return next(id, OfDevice(source, &source_copy), OfDevice(target, &target_copy), timeout_ms);
}
