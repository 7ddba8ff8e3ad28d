// SPDX-License-Identifier: Apache-2.0
//
// What servers of a run offer, and what travels in the metadata of each call.
#ifndef SLUICE_TESTS_NODES_SERVICE_H_
#define SLUICE_TESTS_NODES_SERVICE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "middleware/call/method.h"
#include "proto/error_detail.pb.h"  // any message will do as request and reply
#include "proto/metadata.pb.h"

namespace sluice::nodes {

using Text = ErrorDetail;

inline constexpr call::Method kEcho("/nodes.Service/Echo");  // answers before it returns
inline constexpr call::Method kRead("/nodes.Service/Read", call::Streams::kNobody,
                                    /*idempotent=*/true);    // the same
inline constexpr call::Method kHold("/nodes.Service/Hold");  // answers later
inline constexpr call::Method kDown("/nodes.Service/Down", call::Streams::kServer);
inline constexpr call::Method kUp("/nodes.Service/Up", call::Streams::kClient);
inline constexpr call::Method kPipe("/nodes.Service/Pipe", call::Streams::kBoth);

// In Text::layer: what is to become of the call.
inline constexpr char kFails[] = "fails";

// Names the call among all of a run.
struct Label {
  uint64_t serial = 0;
  bool refused = false;  // by the interceptor
};

inline std::string Encode(const Label& label) {
  MetadataEntries all;
  MetadataEntries::Entry* one = all.add_entries();
  one->set_key("serial");
  one->set_value(std::to_string(label.serial));
  if (label.refused) all.add_entries()->set_key("refused");
  return all.SerializeAsString();
}

inline Label LabelOf(std::string_view metadata) {
  Label label;
  MetadataEntries all;
  if (!all.ParseFromArray(metadata.data(), static_cast<int>(metadata.size()))) return label;
  for (const auto& one : all.entries()) {
    if (one.key() == "serial") label.serial = std::stoull(one.value());
    if (one.key() == "refused") label.refused = true;
  }
  return label;
}

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_SERVICE_H_
