// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/event_log.h"

#include <array>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace sluice::softdc::sim {
namespace {

struct Kind {
  const char* name;
  std::array<const char*, 3> fields;  // null: not used
};

constexpr std::array<Kind, static_cast<size_t>(LogKind::kCount)> kKinds = {{
    {"transmit", {"qp", "place", "bytes"}},
    {"connect", {"qp", "to_node", "to_qp"}},
    {"deliver", {"from_node", "from_qp", "place"}},
    {"acknowledge", {"qp", "place", nullptr}},
    {"refuse", {"from_node", "place", "status"}},
    {"lost", {"qp", "place", "to_node"}},
    {"unheard", {"from_node", "from_qp", "place"}},
    {"not_ready", {"from_node", "from_qp", "place"}},
    {"timeout", {"qp", "place", "tries"}},
    {"give_up", {"qp", "place", "status"}},
    {"ghost", {"from_node", "place", "landed"}},
    {"injected", {"qp", "place", "status"}},
    {"duplicate", {"from_node", "from_qp", "place"}},
    {"block", {"from_node", "place", "offset"}},
    {"answer_lost", {"qp", "place", nullptr}},
    {"kill", {nullptr, nullptr, nullptr}},
    {"revive", {"life", nullptr, nullptr}},
    {"pause", {nullptr, nullptr, nullptr}},
    {"resume", {nullptr, nullptr, nullptr}},
    {"link", {"peer", "up", nullptr}},
    {"port", {"up", nullptr, nullptr}},
    {"gid", {"index", "high", "low"}},
    {"fatal", {nullptr, nullptr, nullptr}},
    {"stuck", {"qp", nullptr, nullptr}},
    {"cm_message", {"to_node", "wire", "type"}},
    {"cm_lost", {"to_node", "wire", "type"}},
    {"cm_delayed", {"to_node", "wire", "by_ns"}},
    {"cm_duplicated", {"to_node", "wire", "type"}},
    {"cm_rejected", {"to_node", "wire", "reason"}},
    {"plug", {"in", nullptr, nullptr}},
    {"address", {nullptr, nullptr, nullptr}},
}};
static_assert(kKinds.back().name != nullptr);

}  // namespace

std::string EventLog::Text() const {
  std::string text;
  for (const Record& record : records_) {
    const Kind& kind = kKinds[static_cast<size_t>(record.kind)];
    absl::StrAppend(&text, record.when_ns, " n", record.node, " ", kind.name);
    const std::array<uint64_t, 3> values = {record.a, record.b, record.c};
    for (size_t i = 0; i < values.size(); ++i) {
      if (kind.fields[i] != nullptr) absl::StrAppend(&text, " ", kind.fields[i], "=", values[i]);
    }
    text += '\n';
  }
  return text;
}

}  // namespace sluice::softdc::sim
