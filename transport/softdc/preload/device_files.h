// SPDX-License-Identifier: Apache-2.0
//
// Files in which programs look for a device, as a kernel would have them: character devices in /dev/infiniband, and
// softdc0's attributes below /sys/class/infiniband. No such file exists; the preload library asks here when a program
// opens one or asks about it (path_calls.cc).
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

// The interface that has the address of the GID; 0: none.
uint32_t InterfaceIndexOf(const ibv_gid& gid);

// An attribute of softdc0 by its path below /sys/class/infiniband/softdc0, such as "node_guid" or
// "ports/1/gid_attrs/types/0", without a newline. False: there is none.
bool DeviceAttribute(const std::string& path, std::string* value);

enum class DeviceFileKind : int { kNone, kCharacterDevice, kFolder, kText };

// For the preload library, by name (device_library.h). What stands at an absolute path: a DeviceFileKind.
int KindOfDeviceFile(const char* path);
// A descriptor that reads the text of an attribute, from its start; it cannot be written to. -1 and errno: ENOENT, or
// EACCES with flags that ask for more than reading.
int OpenDeviceFile(const char* path, int flags);

}  // namespace sluice::softdc::preload

#endif  // SLUICE_TRANSPORT_SOFTDC_PRELOAD_DEVICE_FILES_H_
