// SPDX-License-Identifier: Apache-2.0
//
// softdc: the software DC NIC, as a table of verbs. Processes of the same user on the same host reach each other through shared memory. The
// environment variable SOFTDC_DOMAIN separates groups of processes. docs/softdc.md lists what softdc supports. The contract of each call is
// its man page.
#ifndef SLUICE_TRANSPORT_SOFTDC_VERBS_H_
#define SLUICE_TRANSPORT_SOFTDC_VERBS_H_

#include "transport/verbs/verbs_api.h"

namespace sluice::softdc {

const verbs::VerbsApi& Verbs();

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_VERBS_H_
