// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/config/config.h"

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/text_format.h"
#include "transport/softdc/config/settings.h"

namespace sluice::softdc {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// Keeps the first error. Later errors of the parser follow from it.
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

// CopyAll serves both directions: `Way` copies between a member and its setting.
struct FromSettings {
  template <typename T>
  static void Copy(T& member, Settings& settings, const char* group, const char* name) {
    member = static_cast<T>(settings.Get(group, name));
  }
};
struct ToSettings {
  template <typename T>
  static void Copy(const T& member, Settings& settings, const char* group, const char* name) {
    const auto value = static_cast<int64_t>(member);
    if (settings.Get(group, name) != value) settings.Set(group, name, value);
  }
};

#define SOFTDC_DIAL(group, member) Way::Copy(dials.group.member, settings, #group, #member)

template <typename Way>
void CopyAll(Dials& dials, Settings& settings) {
  SOFTDC_DIAL(streams, enabled);
  SOFTDC_DIAL(streams, max_log_concurrent);
  SOFTDC_DIAL(streams, max_log_errored);
  SOFTDC_DIAL(streams, error_state_delay_ns);
  SOFTDC_DIAL(streams, cqe_order);
  SOFTDC_DIAL(unknowns, wrong_dc_key);
  SOFTDC_DIAL(unknowns, fence_scope);
  SOFTDC_DIAL(unknowns, too_long_at_target);
  SOFTDC_DIAL(unknowns, full_receive_cq);
  SOFTDC_DIAL(unknowns, foreign_gid);
  SOFTDC_DIAL(unknowns, unsignalled_flush);
  SOFTDC_DIAL(features, in_order);
  SOFTDC_DIAL(features, ece);
  SOFTDC_DIAL(features, ece_options);
  SOFTDC_DIAL(features, ah_mapping);
  SOFTDC_DIAL(features, reserved_qpns);
  SOFTDC_DIAL(features, reissue_dead_numbers);
  SOFTDC_DIAL(features, signature);
  SOFTDC_DIAL(features, signature_pipelining);
  SOFTDC_DIAL(features, atomics);
  SOFTDC_DIAL(features, dc);
  SOFTDC_DIAL(port, link_layer);
  SOFTDC_DIAL(port, lid);
  SOFTDC_DIAL(port, roce_v1);
  SOFTDC_DIAL(port, second_device);
  SOFTDC_DIAL(port, active_mtu);
  SOFTDC_DIAL(port, second_pkey);
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
  SOFTDC_DIAL(cm, static_rate);
  SOFTDC_DIAL(cm, flow_labels);
  SOFTDC_DIAL(memory, move_private);
  SOFTDC_DIAL(memory, process_vm);
  SOFTDC_DIAL(memory, memlock_bytes);
  SOFTDC_DIAL(retries, min_timeout);
  SOFTDC_DIAL(retries, timeout_factor);
  SOFTDC_DIAL(retries, total_retry_ns);
}

#undef SOFTDC_DIAL

// Checks the settings before they are copied, because the type of a member may truncate a value.
struct Range {
  const char* group;
  const char* name;
  int64_t lowest;
  int64_t highest;
};

absl::Status CheckSettings(const Settings& settings) {
  static constexpr Range kRanges[] = {
      {"streams", "max_log_concurrent", 0, 15},
      {"streams", "max_log_errored", 0, 15},
      {"streams", "error_state_delay_ns", 0, 10 * kSecondNs},
      {"port", "lid", 1, 0xbfff},
      {"port", "active_mtu", 256, 4096},
      {"port", "second_pkey", 0, 0xffff},
      {"limits", "max_send_wr", 1, 32768},
      {"limits", "max_recv_wr", 1, 32768},
      {"limits", "max_sge", 1, 30},
      {"limits", "max_inline_bytes", 0, 512},
      {"limits", "max_cqe", 1, (1 << 22) - 1},
      {"limits", "max_srq_wr", 16, 1 << 16},
      {"limits", "max_rd_atomic", 1, 128},
      {"limits", "max_message_bytes", 4096, 1 << 30},
      {"cm", "retry_ns", 1'000'000, 3600 * kSecondNs},
      {"cm", "max_attempts", 1, 16},
      {"cm", "packet_lifetime", 0, 31},
      {"memory", "memlock_bytes", 0, int64_t{1} << 62},
      {"retries", "min_timeout", 0, 31},
      {"retries", "timeout_factor", 1, 16},
      {"retries", "total_retry_ns", 0, 100 * kSecondNs},
  };
  for (const Range& range : kRanges) {
    const int64_t value = settings.Get(range.group, range.name);
    if (value < range.lowest || value > range.highest) {
      return absl::InvalidArgumentError(absl::StrCat(range.group, ".", range.name, " is ", value,
                                                     "; it must be ", range.lowest, " to ",
                                                     range.highest));
    }
  }
  const int64_t errored = settings.Get("streams", "max_log_errored");
  const int64_t concurrent = settings.Get("streams", "max_log_concurrent");
  if (errored > concurrent) {
    return absl::InvalidArgumentError(
        absl::StrCat("streams.max_log_errored is ", errored, ", above streams.max_log_concurrent (",
                     concurrent, "): more streams could fail than there are"));
  }
  const auto mtu_bytes = static_cast<uint64_t>(settings.Get("port", "active_mtu"));
  if (!std::has_single_bit(mtu_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("port.active_mtu is ", mtu_bytes,
                                                   "; it must be 256, 512, 1024, 2048 or 4096"));
  }
  // An explicit setting contradicts `signature`. The default follows `signature`.
  if (settings.Has("features", "signature_pipelining") &&
      settings.Get("features", "signature_pipelining") != 0 &&
      settings.Get("features", "signature") == 0) {
    return absl::InvalidArgumentError(
        "features.signature_pipelining is set without features.signature");
  }
  return absl::OkStatus();
}

Dials DialsOf(Settings& settings) {
  Dials dials;
  CopyAll<FromSettings>(dials, settings);
  if (!dials.features.signature) dials.features.signature_pipelining = false;
  return dials;
}

Settings SettingsOf(Dials dials) {
  Settings settings;
  CopyAll<ToSettings>(dials, settings);
  return settings;
}

}  // namespace

absl::StatusOr<Dials> ParseDials(std::string_view text) {
  Settings settings;
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  if (!parser.Parse(&stream, &settings.message())) {
    return absl::InvalidArgumentError(
        absl::StrCat(error.text(), "; settings are listed in proto/softdc_config.proto"));
  }
  if (absl::Status status = CheckSettings(settings); !status.ok()) return status;
  return DialsOf(settings);
}

absl::Status CheckDials(const Dials& dials) {
  Settings settings = SettingsOf(dials);
  if (dials.features.signature_pipelining) settings.Set("features", "signature_pipelining", 1);
  return CheckSettings(settings);
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

const Dials& DialsOfThisProcess() {
  const absl::StatusOr<Dials>& dials = EnvironmentDials();
  if (!dials.ok()) {
    std::fprintf(stderr, "%s\n", std::string(dials.status().message()).c_str());
    std::abort();
  }
  return *dials;
}

std::string PrintDials(const Dials& dials) {
  std::string text;
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  printer.PrintToString(SettingsOf(dials).message(), &text);
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

}  // namespace sluice::softdc
