// SPDX-License-Identifier: Apache-2.0
//
// Each metric in a query of the dashboard or of an alert is one that a server or channel exports, with the labels that
// the query uses.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "examples/echo/echo_service.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "middleware/api/in_process.h"
#include "middleware/services/prometheus_metrics.h"

namespace sluice {
namespace metric_names_test {

using google::protobuf::Struct;
using google::protobuf::Value;
using Metrics = std::map<std::string, std::set<std::string>>;  // the labels of each

// Of a server and a channel, which have called each other, once with success and once without.
Metrics Exported() {
  examples::echo::EchoService echo;
  auto world = InProcess::Start({&echo});
  EXPECT_TRUE(world.ok()) << world.status();
  auto channel = *(*world)->NewChannel();
  CallContext context(absl::Seconds(60));
  EXPECT_TRUE(examples::echo::EchoClient(channel).Say(context, {}).ok());
  PrometheusMetrics metrics(absl::Seconds(60));
  metrics.Add(&(*world)->server(), "orders");
  metrics.Add(channel, "to_orders");
  Metrics exported;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    std::set<std::string> labels;
    for (const auto& label : family.metric[0].label) labels.insert(label.name);
    if (family.type == prometheus::MetricType::Histogram) {
      exported[family.name + "_sum"] = exported[family.name + "_count"] = labels;
      labels.insert("le");
      exported[family.name + "_bucket"] = labels;
    } else {
      exported[family.name] = labels;
    }
  }
  return exported;
}

std::string Read(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// What is wrong with the metrics of a query; empty: nothing.
std::string WhatIsWrong(const std::string& query, const Metrics& exported) {
  static const std::regex kMetric(R"((sluice_[a-z0-9_]+)(\{([^}]*)\})?)");
  static const std::regex kMatcher(R"(([a-z_]+)\s*(=~|!~|!=|=)\s*")");
  static const std::regex kBy(R"(by \(([a-z_, ]+)\))");
  std::set<std::string> known;
  int count = 0;
  for (std::sregex_iterator at(query.begin(), query.end(), kMetric), end; at != end;
       ++at, ++count) {
    const auto found = exported.find((*at)[1]);
    if (found == exported.end()) return (*at)[1].str() + " is not exported";
    known.insert(found->second.begin(), found->second.end());
    const std::string matchers = (*at)[3];
    for (std::sregex_iterator label(matchers.begin(), matchers.end(), kMatcher); label != end;
         ++label) {
      if (!found->second.contains((*label)[1]))
        return found->first + " has no label " + (*label)[1].str();
    }
  }
  if (count == 0) return "no metric of Sluice";
  static const std::regex kName("[a-z_]+");
  for (std::sregex_iterator by(query.begin(), query.end(), kBy), end; by != end; ++by) {
    const std::string names = (*by)[1];
    for (std::sregex_iterator name(names.begin(), names.end(), kName); name != end; ++name) {
      if (!known.contains(name->str())) return "no label " + name->str();
    }
  }
  return "";
}

// Values of all members `name`, at any depth.
void Collect(const Value& value, const std::string& name, std::vector<std::string>* found) {
  for (const Value& one : value.list_value().values()) Collect(one, name, found);
  for (const auto& [key, member] : value.struct_value().fields()) {
    if (key == name && member.has_string_value()) found->push_back(member.string_value());
    Collect(member, name, found);
  }
}

TEST(MetricNamesTest, QueriesOfTheDashboardAreOfExportedMetrics) {
  const Metrics exported = Exported();
  Value dashboard;
  const auto parsed = google::protobuf::util::JsonStringToMessage(
      Read("tools/monitoring/grafana_dashboard.json"), dashboard.mutable_struct_value());
  ASSERT_TRUE(parsed.ok()) << parsed;
  std::vector<std::string> queries;
  Collect(dashboard, "expr", &queries);
  EXPECT_GT(queries.size(), 30u);
  Collect(dashboard, "definition", &queries);  // of variables
  for (const std::string& query : queries) EXPECT_EQ(WhatIsWrong(query, exported), "") << query;
}

TEST(MetricNamesTest, QueriesOfTheAlertsAreOfExportedMetrics) {
  const Metrics exported = Exported();
  const std::string text = Read("tools/monitoring/prometheus_alerts.yml");
  static const std::regex kExpr(R"(expr: '([^'\n]+)')");
  int count = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), kExpr), end; at != end; ++at, ++count) {
    EXPECT_EQ(WhatIsWrong((*at)[1], exported), "") << at->str();
  }
  EXPECT_GE(count, 10);
}

TEST(MetricNamesTest, WrongQueriesAreFound) {
  const Metrics exported = Exported();
  EXPECT_EQ(WhatIsWrong("sluice_server_peers{server=~\"a\"}", exported), "");
  EXPECT_NE(WhatIsWrong("rate(sluice_server_peers_total[1m])", exported), "");
  EXPECT_NE(WhatIsWrong("sluice_server_peers{method=\"a\"}", exported), "");
  EXPECT_NE(WhatIsWrong("sum by (method) (sluice_server_peers)", exported), "");
  EXPECT_NE(WhatIsWrong("up == 0", exported), "");
}

}  // namespace metric_names_test
}  // namespace sluice
