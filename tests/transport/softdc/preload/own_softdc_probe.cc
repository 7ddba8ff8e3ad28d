// SPDX-License-Identifier: Apache-2.0
//
// A program that contains softdc and calls libibverbs besides: preloaded, it has softdc twice. It finds libibverbs'
// functions as the loader would, by name.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cstdio>

#include "transport/softdc/config/config.h"

namespace {

template <typename Signature>
Signature* Find(const char* name) {
  return reinterpret_cast<Signature*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

int main() {
  const auto dials = sluice::softdc::ParseDials("port { lid: 7 }");
  std::printf("own_lid %d\n", dials.ok() ? dials->port.lid : -1);
  int count = 0;
  ibv_device** devices = Find<decltype(ibv_get_device_list)>("ibv_get_device_list")(&count);
  std::printf("preloaded %s\n",
              count == 1 ? Find<decltype(ibv_get_device_name)>("ibv_get_device_name")(devices[0])
                         : "nothing");
  Find<decltype(ibv_free_device_list)>("ibv_free_device_list")(devices);
  return 0;
}
