// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/config/config.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "proto/softdc_config.pb.h"

namespace sluice::softdc {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// Keeps the first complaint; the parser's later ones follow from it.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty()) {
      text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
    }
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// One pass over all settings serves both ways: `Way` copies between a member and its field.
struct FromConfig {
  template <typename T, typename V, typename Set>
  static void Copy(T& member, V value, Set) {
    member = static_cast<T>(value);
  }
};
struct ToConfig {
  template <typename T, typename V, typename Set>
  static void Copy(const T& member, V value, Set set) {
    if (static_cast<V>(member) != value) set(static_cast<V>(member));
  }
};

#define SOFTDC_DIAL(group, member)                       \
  Way::Copy(dials.group.member, config.group().member(), \
            [&](auto value) { config.mutable_##group()->set_##member(value); })

template <typename Way>
void CopyAll(Dials& dials, Config& config) {
  SOFTDC_DIAL(streams, enabled);
  SOFTDC_DIAL(streams, max_log_concurrent);
  SOFTDC_DIAL(streams, max_log_errored);
  SOFTDC_DIAL(streams, error_state_delay_ns);
  SOFTDC_DIAL(streams, cqe_order);
  SOFTDC_DIAL(unknowns, wrong_dc_key);
  SOFTDC_DIAL(unknowns, fence_scope);
  SOFTDC_DIAL(unknowns, too_long_at_target);
  SOFTDC_DIAL(unknowns, full_receive_cq);
  SOFTDC_DIAL(features, in_order);
  SOFTDC_DIAL(features, ece);
  SOFTDC_DIAL(features, ece_options);
  SOFTDC_DIAL(features, ah_mapping);
  SOFTDC_DIAL(features, reserved_qpns);
  SOFTDC_DIAL(features, reissue_dead_numbers);
  SOFTDC_DIAL(features, signature);
  SOFTDC_DIAL(features, signature_pipelining);
  SOFTDC_DIAL(features, atomics);
  SOFTDC_DIAL(port, link_layer);
  SOFTDC_DIAL(port, lid);
  SOFTDC_DIAL(limits, max_send_wr);
  SOFTDC_DIAL(limits, max_recv_wr);
  SOFTDC_DIAL(limits, max_sge);
  SOFTDC_DIAL(limits, max_inline_bytes);
  SOFTDC_DIAL(limits, max_cqe);
  SOFTDC_DIAL(limits, max_srq_wr);
  SOFTDC_DIAL(limits, max_rd_atomic);
  SOFTDC_DIAL(limits, max_message_bytes);
  SOFTDC_DIAL(cm, retry_ns);
  SOFTDC_DIAL(cm, max_attempts);
  SOFTDC_DIAL(cm, packet_lifetime);
  SOFTDC_DIAL(memory, move_private);
  SOFTDC_DIAL(memory, process_vm);
}

#undef SOFTDC_DIAL

// What a member's type may cut off is checked before it is copied.
struct Range {
  const char* name;
  int64_t value;
  int64_t lowest;
  int64_t highest;
};

absl::Status CheckConfig(const Config& config) {
  const Range ranges[] = {
      {"streams.max_log_concurrent", config.streams().max_log_concurrent(), 0, 15},
      {"streams.max_log_errored", config.streams().max_log_errored(), 0, 15},
      {"streams.error_state_delay_ns", config.streams().error_state_delay_ns(), 0, 10 * kSecondNs},
      {"port.lid", config.port().lid(), 1, 0xbfff},
      {"limits.max_send_wr", config.limits().max_send_wr(), 1, 32768},
      {"limits.max_recv_wr", config.limits().max_recv_wr(), 1, 32768},
      {"limits.max_sge", config.limits().max_sge(), 1, 16},
      {"limits.max_inline_bytes", config.limits().max_inline_bytes(), 0, 512},
      {"limits.max_cqe", config.limits().max_cqe(), 1, 1 << 16},
      {"limits.max_srq_wr", config.limits().max_srq_wr(), 16, 1 << 16},
      {"limits.max_rd_atomic", config.limits().max_rd_atomic(), 1, 128},
      {"limits.max_message_bytes", config.limits().max_message_bytes(), 4096, 1 << 30},
      {"cm.retry_ns", config.cm().retry_ns(), 1'000'000, 3600 * kSecondNs},
      {"cm.max_attempts", config.cm().max_attempts(), 1, 16},
      {"cm.packet_lifetime", config.cm().packet_lifetime(), 0, 31},
  };
  for (const Range& range : ranges) {
    if (range.value < range.lowest || range.value > range.highest) {
      return absl::InvalidArgumentError(absl::StrCat(
          range.name, " is ", range.value, "; it must be ", range.lowest, " to ", range.highest));
    }
  }
  if (config.streams().max_log_errored() > config.streams().max_log_concurrent()) {
    return absl::InvalidArgumentError(
        absl::StrCat("streams.max_log_errored is ", config.streams().max_log_errored(),
                     ", above streams.max_log_concurrent (", config.streams().max_log_concurrent(),
                     "): more streams could fail than there are"));
  }
  if (config.features().signature_pipelining() && !config.features().signature()) {
    // Said on purpose, it contradicts itself; by default it only follows.
    if (config.features().has_signature_pipelining()) {
      return absl::InvalidArgumentError(
          "features.signature_pipelining is set without features.signature");
    }
  }
  return absl::OkStatus();
}

Dials DialsOf(Config config) {
  Dials dials;
  CopyAll<FromConfig>(dials, config);
  if (!dials.features.signature) dials.features.signature_pipelining = false;
  return dials;
}

Config ConfigOf(Dials dials) {
  Config config;
  CopyAll<ToConfig>(dials, config);
  return config;
}

}  // namespace

absl::StatusOr<Dials> ParseDials(std::string_view text) {
  Config config;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&stream, &config)) {
    return absl::InvalidArgumentError(
        absl::StrCat(error.text(), "; settings are listed in proto/softdc_config.proto"));
  }
  if (absl::Status status = CheckConfig(config); !status.ok()) return status;
  return DialsOf(config);
}

absl::Status CheckDials(const Dials& dials) {
  Config config = ConfigOf(dials);
  if (dials.features.signature_pipelining)
    config.mutable_features()->set_signature_pipelining(true);
  return CheckConfig(config);
}

absl::StatusOr<Dials> LoadDials(std::string_view value) {
  if (value.empty() || value.front() != '@') {
    absl::StatusOr<Dials> dials = ParseDials(value);
    if (dials.ok()) return dials;
    return absl::InvalidArgumentError(absl::StrCat("SOFTDC_CONFIG: ", dials.status().message()));
  }
  const std::string name(value.substr(1));
  std::error_code error;
  std::ifstream file(name);
  if (!file || !std::filesystem::is_regular_file(name, error)) {
    return absl::NotFoundError(
        absl::StrCat("SOFTDC_CONFIG: '", name, "' is not a file that can be read"));
  }
  std::stringstream text;
  text << file.rdbuf();
  absl::StatusOr<Dials> dials = ParseDials(text.str());
  if (dials.ok()) return dials;
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", dials.status().message()));
}

const absl::StatusOr<Dials>& EnvironmentDials() {
  static const auto* const dials = [] {
    const char* value = std::getenv("SOFTDC_CONFIG");
    return new absl::StatusOr<Dials>(LoadDials(value == nullptr ? "" : value));
  }();
  return *dials;
}

std::string PrintDials(const Dials& dials) {
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.PrintToString(ConfigOf(dials), &text);
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace sluice::softdc
