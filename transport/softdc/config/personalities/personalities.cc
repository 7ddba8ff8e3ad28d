// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/config/personalities/personalities.h"

namespace sluice::softdc {

std::span<const Personality> Personalities() {
  static constexpr Personality kAll[] = {
#include "transport/softdc/config/personalities/personalities.inc"
  };
  return kAll;
}

}  // namespace sluice::softdc
