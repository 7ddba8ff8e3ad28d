// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint/reception.h"

#include "transport/base/error.h"

namespace sluice::endpoint {
namespace {

absl::Status Exhausted(const Reception& reception, const std::string& what, const char* remedy) {
  const std::string whose =
      reception.tenant.empty() ? "" : " of tenant \"" + reception.tenant + "\"";
  return base::Error(absl::StatusCode::kResourceExhausted, "all " + what + whose + " are taken",
                     {.layer = "endpoint",
                      .operation = "connect",
                      .cause = std::to_string(reception.peers) + " peers are connected",
                      .remedy = remedy,
                      .retry_safe = true});
}

}  // namespace

peer::TenantTargets Reception::TargetsOf(bool old) const {
  if (old) return renewal.old;
  return {.data_dctn = data->dctn(),
          .control_dctn = control->dctn(),
          .data_key = data->access_key(),
          .control_key = control->access_key()};
}

absl::Status Reception::CheckPlace() const {
  if (!full()) return absl::OkStatus();
  return Exhausted(*this, std::to_string(max_peers) + " places for peers", "raise max_peers");
}

uint32_t Reception::WindowForOne(uint32_t most) const {
  const uint32_t window = std::min({most, std::max(left() / kShareOfRest, kLeastWindow), left()});
  return window >= std::min(kLeastWindow, most) ? window : 0;
}

uint32_t Reception::Missing(uint32_t most) const {
  const uint64_t wanted = uint64_t{line.size()} * std::min(kLeastWindow, most);
  const uint64_t there = uint64_t{left()} + coming;
  return wanted <= there ? 0 : static_cast<uint32_t>(std::min<uint64_t>(wanted - there, srq_size));
}

void Reception::Promise(uint32_t peer_index, uint32_t window) {
  if (window == 0) return;
  promised += window;
  holders.push_back(peer_index);
}

void Reception::Expect(uint32_t peer_index, uint32_t window) {
  coming += window;
  std::erase(holders, peer_index);
}

void Reception::Free(uint32_t peer_index, uint32_t window, bool expected) {
  if (window == 0) return;
  promised -= window;
  if (expected) {
    coming -= window;
  } else {
    std::erase(holders, peer_index);
  }
}

}  // namespace sluice::endpoint
