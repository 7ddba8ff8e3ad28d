// SPDX-License-Identifier: Apache-2.0
//
// RDMA_CM as a program finds it at /dev/infiniband/rdma_cm: a descriptor that takes commands by write()
// (commands.h) and polls readable while events wait. librdmacm uses this interface, so the distribution's own
// library, and programs that use it, run over softdc. It is the second interface of the engine in cm/.
//
// Ids have a device only if softdc::Verbs() was called before the first Open(). librdmacm looks for the
// device that has the node GUID of the answers.
//
// A descriptor belongs to the process that opened it. In the child of a fork, commands fail with ENODEV, and
// a close does not affect the parent's descriptor. Closing a descriptor destroys all its ids.
//
// Threads       Any. Owns() is lock-free and async-signal-safe for descriptors below 65,536, because every
//               write() and close() of a program may call it.
#ifndef SLUICE_TRANSPORT_SOFTDC_UCMA_UCMA_H_
#define SLUICE_TRANSPORT_SOFTDC_UCMA_UCMA_H_

#include <sys/types.h>

#include <cstddef>

namespace sluice::softdc::ucma {

// As open(2) with O_RDWR | O_CLOEXEC: returns a descriptor, or -1 with errno.
int Open();

bool Owns(int fd);

// As write(2): returns `length`, or -1 with the errno of the kernel for such a command. EBADF: not a
// descriptor of this interface. GET_EVENT blocks unless the descriptor is O_NONBLOCK (then EAGAIN). It is a
// cancellation point only while it blocks.
ssize_t Write(int fd, const void* command, size_t length);

// As close(2).
int Close(int fd);

}  // namespace sluice::softdc::ucma

#endif  // SLUICE_TRANSPORT_SOFTDC_UCMA_UCMA_H_
