// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/status_report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/protobuf/util/json_util.h"
#include "middleware/api/config.h"
#include "middleware/services/look.h"
#include "proto/status_page.pb.h"

namespace sluice {
namespace {

using Rights = PageViewer::Rights;

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  return status.ok() ? json : "{}";  // a message of our own classes is always printed
}

void FillProcess(status_page::v1::Process* process) {
  if (std::FILE* file = std::fopen("/proc/self/statm", "re"); file != nullptr) {
    unsigned long long size = 0, resident = 0;
    if (std::fscanf(file, "%llu %llu", &size, &resident) == 2) {
      process->set_resident_bytes(resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
    }
    std::fclose(file);
  }
  if (std::FILE* file = std::fopen("/proc/self/status", "re"); file != nullptr) {
    char line[256];
    unsigned threads = 0;
    while (std::fgets(line, sizeof(line), file) != nullptr) {
      if (std::sscanf(line, "Threads: %u", &threads) == 1) process->set_threads(threads);
    }
    std::fclose(file);
  }
}

bool HasTenant(const ServerOptions& options, const std::string& name) {
  return std::any_of(options.tenants.begin(), options.tenants.end(),
                     [&](const Tenant& tenant) { return tenant.name == name; });
}

const char* HowAuthenticated(const Authentication& authentication) {
  if (authentication.secret_source != nullptr) return "set by the program";
  return authentication.secret_file.empty() ? "none" : "from a file";
}

void FillChannel(Channel& channel, absl::Duration patience, const std::string& name,
                 status_page::v1::ChannelStatus* one) {
  const ChannelSnapshot snapshot = channel.Snapshot(patience);
  one->set_fresh(snapshot.fresh);
  one->set_name(name);
  one->set_server(channel.server());
  one->set_device(channel.device_choice());
  FillMethods(snapshot.methods, one->mutable_methods());
  if (snapshot.fresh) {
    one->set_state(call::Name(snapshot.state));
    one->set_outstanding(snapshot.outstanding);
    FillCounts(ReadCounters(snapshot), one->mutable_counts());
  }
  FillCapabilities(channel.capabilities(), one->mutable_capabilities());
}

void FillConfig(const NamedObjects::Served& served, const std::string& name,
                status_page::v1::ServerConfig* one) {
  constexpr std::string_view kPrefix = "server.";
  one->set_name(name);
  one->set_authentication(HowAuthenticated(served.options.authentication));
  for (const Tenant& tenant : served.options.tenants) one->add_tenants(tenant.name);
  Config options;
  options.server = served.options;
  for (const Config::Setting& from : options.Settings()) {
    if (!absl::StartsWith(from.name, "server.") || absl::StrContains(from.name, "secret")) continue;
    status_page::v1::Setting* setting = one->add_settings();
    setting->set_name(from.name.substr(kPrefix.size()));
    setting->set_value(from.value);
    setting->set_default_value(from.default_value);
    setting->set_allowed(from.allowed);
    setting->set_meaning(from.meaning);
  }
}

}  // namespace

void StatusReport::FillServer(const PageViewer& viewer, const std::string& name,
                              const NamedObjects::Served& served,
                              status_page::v1::Status* status) const {
  const bool with_tenants = !served.options.tenants.empty();
  if (viewer.rights == Rights::kTenant && !HasTenant(served.options, viewer.tenant)) return;
  std::optional<std::string_view> only_tenant;
  if (viewer.rights == Rights::kTenant) only_tenant = viewer.tenant;
  status_page::v1::ServerStatus* one = status->add_servers();
  one->set_name(name);
  if (viewer.rights == Rights::kAnyone && with_tenants) {
    only_tenant = "";  // no peer has this tenant
    one->set_withheld(
        "the server has tenants, and the pages require no token: set PagesOptions::readers");
  }
  introspection::v1::LookReply* look = one->mutable_look();
  one->set_fresh(FillLook({.server = served.server,
                           .options = &served.options,
                           .max_peers = kMaxPeers,
                           .patience = patience_,
                           .only_tenant = only_tenant},
                          look));
  ShortenLook(kMaxBytes, look);
  if (only_tenant) return;
  std::vector<std::string> methods;
  for (const auto& method : look->methods()) methods.push_back(method.name());
  FillTrace(*served.server, methods, kMaxEvents, one->mutable_events());
}

std::string StatusReport::StatusJson(const PageViewer& viewer) const {
  status_page::v1::Status status;
  status.set_unix_ms(absl::ToUnixMillis(absl::Now()));
  if (viewer.rights == Rights::kNone) return ToJson(status);
  objects_.Read([&](const auto& servers, const auto& channels, const auto& sources) {
    for (const auto& [name, served] : servers) FillServer(viewer, name, served, &status);
    if (viewer.rights == Rights::kTenant) {
      status.set_only_tenant(viewer.tenant);
      return;
    }
    const absl::Time until = absl::Now() + patience_;  // for all channels together
    for (const auto& [name, channel] : channels) {
      FillChannel(*channel, until - absl::Now(), name, status.add_channels());
    }
    for (const auto& [name, source] : sources) {
      status_page::v1::SourceStatus* one = status.add_sources();
      one->set_name(name);
      FillCounts(source(), one->mutable_counts());
    }
    FillProcess(status.mutable_process());
  });
  return ToJson(status);
}

std::string StatusReport::ConfigJson() const {
  status_page::v1::Config config;
  objects_.Read([&](const auto& servers, const auto&, const auto&) {
    for (const auto& [name, served] : servers) FillConfig(served, name, config.add_servers());
  });
  return ToJson(config);
}

bool StatusReport::AllAnswer() const {
  return objects_.Read([this](const auto& servers, const auto&, const auto&) {
    return std::all_of(servers.begin(), servers.end(), [this](const auto& named) {
      return named.second.server->Snapshot(0, patience_).fresh;
    });
  });
}

}  // namespace sluice
