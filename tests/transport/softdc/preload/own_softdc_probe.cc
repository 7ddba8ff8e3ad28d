// SPDX-License-Identifier: Apache-2.0
//
// A program that contains softdc and calls libibverbs besides: preloaded, it has softdc twice.
#include <infiniband/verbs.h>

#include <cstdio>

#include "transport/softdc/config/config.h"

int main() {
  const auto dials = sluice::softdc::ParseDials("port { lid: 7 }");
  std::printf("own_lid %d\n", dials.ok() ? dials->port.lid : -1);
  int count = 0;
  ibv_device** devices = ibv_get_device_list(&count);
  std::printf("preloaded %s\n", count == 1 ? ibv_get_device_name(devices[0]) : "nothing");
  ibv_free_device_list(devices);
  return 0;
}
