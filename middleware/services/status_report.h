// SPDX-License-Identifier: Apache-2.0
//
// StatusReport: the state of a program's servers and channels as JSON (proto/status_page.proto). HttpPages serves
// it; a program with an HTTP server of its own may serve it there.
//
//   sluice::StatusReport report;
//   report.Add(server.get(), "orders", server_options);
//   std::string json = report.StatusJson({sluice::PageViewer::Rights::kOperator, ""});
//
// Access        PageViewer. Viewers of a tenant see what IntrospectionService shows to a caller of the tenant.
// Ownership     The user's. Servers outlive it, or are removed before they are destroyed.
// Threads       Any. A report waits at most `patience` for each server whose handler blocks, and as long for all channels
//               whose callbacks block. Add() and Remove() wait for it.
#ifndef SLUICE_MIDDLEWARE_SERVICES_STATUS_REPORT_H_
#define SLUICE_MIDDLEWARE_SERVICES_STATUS_REPORT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "middleware/api/channel.h"
#include "middleware/api/options.h"
#include "middleware/api/server.h"
#include "middleware/services/counter_table.h"
#include "middleware/services/named_objects.h"
#include "middleware/services/page_readers.h"

namespace sluice::status_page::v1 {
class Status;
}

namespace sluice {

class StatusReport {
 public:
  static constexpr uint32_t kMaxPeers = 128;  // listed for each server and tenant
  static constexpr uint32_t kMaxEvents = 64;  // listed for each server
  static constexpr size_t kMaxBytes =
      1 << 20;  // of each server; beyond it peers and calls are omitted

  explicit StatusReport(absl::Duration patience = absl::Milliseconds(200)) : patience_(patience) {}
  StatusReport(const StatusReport&) = delete;
  StatusReport& operator=(const StatusReport&) = delete;

  // `name`: shown on the page; replaces an entry of the same kind and name. `options`: the options that the server was
  // created with.
  void Add(const Server* server, const std::string& name, const ServerOptions& options) {
    objects_.Add(NamedObjects::Served{server, options}, name);
  }
  void Add(std::shared_ptr<Channel> channel, const std::string& name) {
    objects_.Add(std::move(channel), name);
  }
  void Add(CounterSource source, const std::string& name) { objects_.Add(std::move(source), name); }
  void Remove(const std::string& name) { objects_.Remove(name); }

  std::string StatusJson(const PageViewer& viewer) const;
  // Returns the options in effect, for viewers that see everything. Secrets and their files are omitted.
  std::string ConfigJson() const;
  // Returns true if the polling threads of all servers have answered within `patience`.
  bool AllAnswer() const;

 private:
  void FillServer(const PageViewer& viewer, const std::string& name,
                  const NamedObjects::Served& served, status_page::v1::Status* status) const;

  const absl::Duration patience_;
  NamedObjects objects_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_STATUS_REPORT_H_
