// SPDX-License-Identifier: Apache-2.0
//
// RDMA_CM as a program finds it at /dev/infiniband/rdma_cm: a descriptor that takes commands by
// write() (commands.h) and polls readable while events wait. This is what librdmacm speaks, so that
// the distribution's own library, and programs on it, run over softdc. It is the second face of the
// engine in cm/.
//
// Ids have a device only if softdc::Verbs() has been called before the first Open(): librdmacm looks
// for the device with the node GUID that the answers tell.
//
// A descriptor is of the process that opened it: in the child of a fork commands say ENODEV, and
// closing it there leaves the parent's alone. What a descriptor still has when it is closed ends as
// if each id were destroyed.
//
// Threads       All functions; Owns() is lock-free and async-signal-safe for descriptors below 65,536, as every write() and close() of a
//               program may ask it.
#ifndef SLUICE_TRANSPORT_SOFTDC_UCMA_UCMA_H_
#define SLUICE_TRANSPORT_SOFTDC_UCMA_UCMA_H_

#include <sys/types.h>

#include <cstddef>

namespace sluice::softdc::ucma {

// As open(2) with O_RDWR | O_CLOEXEC: a descriptor, or -1 and errno.
int Open();

bool Owns(int fd);

// As write(2): `length`, or -1 and errno: what the kernel says to such a command; EBADF: not ours.
// GET_EVENT waits unless the descriptor is O_NONBLOCK (EAGAIN then); only there it is a
// cancellation point.
ssize_t Write(int fd, const void* command, size_t length);

// As close(2).
int Close(int fd);

}  // namespace sluice::softdc::ucma

#endif  // SLUICE_TRANSPORT_SOFTDC_UCMA_UCMA_H_
