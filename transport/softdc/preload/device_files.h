// SPDX-License-Identifier: Apache-2.0
//
// Files in which programs look for a device, as a kernel would provide them: character devices in /dev/infiniband, and softdc0's attributes
// below /sys/class/infiniband. No such file exists. The preload library calls these functions when a program opens or queries such a file
// (path_calls.cc).
//
// Not supported: listing these folders, realpath() of them, counters other than traffic.
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_PRELOAD_DEVICE_FILES_H_
#define SLUICE_TRANSPORT_SOFTDC_PRELOAD_DEVICE_FILES_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace sluice::softdc::preload {

// Returns the index of the interface that has the address of the GID, or 0 if there is none.
uint32_t InterfaceIndexOf(const ibv_gid& gid);

// Reads an attribute of softdc0, without a newline. `path` is relative to /sys/class/infiniband/softdc0, such as "node_guid" or
// "ports/1/gid_attrs/types/0". Returns false if there is no such attribute.
bool DeviceAttribute(const std::string& path, std::string* value);

enum class DeviceFileKind : int { kNone, kCharacterDevice, kFolder, kText };

// Called by the preload library, by name (device_library.h). Returns the kind of the file at an absolute path, a DeviceFileKind.
int KindOfDeviceFile(const char* path);
// Returns a read-only descriptor for the text of an attribute, positioned at its start. On failure returns -1 with errno: ENOENT, or EACCES
// if `flags` request more than reading.
int OpenDeviceFile(const char* path, int flags);

}  // namespace sluice::softdc::preload

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_DEVICE_FILES_H_
