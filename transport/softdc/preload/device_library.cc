// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/preload/device_library.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "transport/softdc/device_attributes.h"
#include "transport/softdc/model/traffic.h"
#include "transport/softdc/preload/address_from_wc.h"
#include "transport/softdc/preload/device_files.h"
#include "transport/softdc/preload/lookups.h"
#include "transport/softdc/preload/registration.h"
#include "transport/softdc/ucma/ucma.h"
#include "transport/softdc/verbs.h"
#include "transport/softdc/verbs_mkey.h"

namespace {

using sluice::verbs::VerbsApi;

struct Function {
  const char* name;
  void* address;
};

template <typename Signature>
void* Address(Signature* function) {
  return reinterpret_cast<void*>(function);
}

// The functions of the table, except those of RDMA_CM: librdmacm itself runs, on softdc's kernel interface.
void* InTable(const char* name) {
  const VerbsApi& api = sluice::softdc::Verbs();
  const Function functions[] = {
#define SLUICE_IBV(function) {"ibv_" #function, Address(api.function)},
#define SLUICE_DV(function) {"mlx5dv_" #function, Address(api.dv_##function)},
#define SLUICE_CM(function)
#include "transport/verbs/verbs_functions.inc"
#undef SLUICE_IBV
#undef SLUICE_DV
#undef SLUICE_CM
      {"ibv_reg_mr", Address(api.reg_mr)},
      {"ibv_query_port", Address(api.query_port)},
  };
  for (const Function& function : functions) {
    if (std::strcmp(function.name, name) == 0) return function.address;
  }
  return nullptr;
}

void* InLookups(const char* name) {
  namespace preload = sluice::softdc::preload;
  static const Function kFunctions[] = {
      {"_ibv_query_gid_ex", Address(&preload::QueryGidEx)},
      {"_ibv_query_gid_table", Address(&preload::QueryGidTable)},
      {"ibv_query_gid_type", Address(&preload::QueryGidType)},
      {"ibv_get_pkey_index", Address(&preload::GetPkeyIndex)},
      {"ibv_init_ah_from_wc", Address(&preload::InitAhFromWc)},
      {"ibv_create_ah_from_wc", Address(&preload::CreateAhFromWc)},
      {"ibv_read_sysfs_file", Address(&preload::ReadSysfsFile)},
      {"ibv_read_ibdev_sysfs_file", Address(&preload::ReadIbdevSysfsFile)},
      {"ibv_reg_mr_iova", Address(&preload::RegMrIova)},
      {"ibv_reg_mr_iova2", Address(&preload::RegMrIova2)},
      {"ibv_resolve_eth_l2_from_gid", Address(&preload::ResolveEthL2FromGid)},
      {"softdc_device_file_kind", Address(&preload::KindOfDeviceFile)},
      {"softdc_device_file_open", Address(&preload::OpenDeviceFile)},
      {"softdc_ucma_open", Address(&sluice::softdc::ucma::Open)},
      {"softdc_ucma_write", Address(&sluice::softdc::ucma::Write)},
      {"softdc_ucma_close", Address(&sluice::softdc::ucma::Close)},
      {"mlx5dv_open_device", Address(&preload::DvOpenDevice)},
      {"_mlx5dv_query_port", Address(&sluice::softdc::DvQueryPort)},
      {"_mlx5dv_mkey_check", Address(&sluice::softdc::DvMkeyCheckSized)},
  };
  for (const Function& function : kFunctions) {
    if (std::strcmp(function.name, name) == 0) return function.address;
  }
  return nullptr;
}

// Appends the traffic of this process to the file that SOFTDC_TRAFFIC names, as one line: "program requests bytes".
void ReportTraffic() {
  const char* const path = std::getenv("SOFTDC_TRAFFIC");
  if (path == nullptr) return;
  const sluice::softdc::Traffic total = sluice::softdc::Traffic::Total();
  char line[128];
  const int length = std::snprintf(line, sizeof(line), "%s %" PRIu64 " %" PRIu64 "\n",
                                   program_invocation_short_name, total.requests, total.bytes);
  const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return;
  // An error cannot be reported: the process ends.
  [[maybe_unused]] const ssize_t written =
      write(fd, line, std::min<size_t>(static_cast<size_t>(length), sizeof(line) - 1));
  close(fd);
}

}  // namespace

void* softdc_function(const char* name) {
  static const bool reports [[maybe_unused]] = std::atexit(&ReportTraffic) == 0;
  void* function = InTable(name);
  return function != nullptr ? function : InLookups(name);
}
