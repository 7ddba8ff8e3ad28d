// SPDX-License-Identifier: Apache-2.0
#include "middleware/session/session.h"

namespace sluice::session {

std::string_view Explain(Verdict verdict) {
  switch (verdict) {
    case Verdict::kDeliver:
      return "in order";
    case Verdict::kDuplicate:
      return "seen before";
    case Verdict::kGap:
      return "a message before it is missing";
    case Verdict::kBogusAck:
      return "it acknowledges a message that was never sent";
  }
  return "unknown verdict";
}

}  // namespace sluice::session
