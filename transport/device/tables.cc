// SPDX-License-Identifier: Apache-2.0
#include "transport/device/tables.h"

#include "transport/softdc/verbs.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::device {

Tables AllTables() { return {&verbs::NativeVerbs(), &softdc::Verbs()}; }

}  // namespace sluice::device
