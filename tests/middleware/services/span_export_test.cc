// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/span_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

namespace sluice {
namespace span_export_test {

using google::protobuf::ListValue;
using google::protobuf::Struct;
using google::protobuf::Value;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kNoonNs = 1'700'049'600'000'000'000 + 43'200'000'000'000;

// The output is read with google.protobuf.Struct.
class SpanExportTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the class of google.protobuf.Struct has another layout in the library, which "
                    "was built without the sanitizer";
#endif
  }
};
class SpansAsOtlpTest : public SpanExportTest {};
class SpansAsChromeTraceTest : public SpanExportTest {};

Struct Parsed(const std::string& json) {
  Struct value;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &value);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << json;
  return value;
}
const Value& Field(const Struct& object, const std::string& key) {
  static const Value kNone;
  const auto found = object.fields().find(key);
  EXPECT_NE(found, object.fields().end()) << key;
  return found == object.fields().end() ? kNone : found->second;
}
std::string Text(const Struct& object, const std::string& key) {
  return Field(object, key).string_value();
}
double Number(const Struct& object, const std::string& key) {
  return Field(object, key).number_value();
}
const ListValue& List(const Struct& object, const std::string& key) {
  return Field(object, key).list_value();
}
const Struct& Object(const ListValue& list, int index) { return list.values(index).struct_value(); }

std::map<std::string, std::string> Attributes(const Struct& span) {
  std::map<std::string, std::string> attributes;
  for (const Value& one : List(span, "attributes").values()) {
    attributes[Text(one.struct_value(), "key")] =
        Text(Field(one.struct_value(), "value").struct_value(), "stringValue");
  }
  return attributes;
}

Span ClientSpan(uint64_t span_id, int64_t start_ns, int64_t end_ns) {
  return {.trace_id = {0x0af7651916cd43dd, 0x8448eb211c80319c},
          .span_id = span_id,
          .kind = Span::Kind::kClient,
          .name = "pkg.Orders/Place",
          .peer = "10.0.0.5:7471",
          .start_unix_ns = kNoonNs + start_ns,
          .end_unix_ns = kNoonNs + end_ns};
}

Span ServerSpan(uint64_t span_id, uint64_t parent_id, int64_t start_ns, int64_t end_ns) {
  Span span = ClientSpan(span_id, start_ns, end_ns);
  span.kind = Span::Kind::kServer;
  span.parent_id = parent_id;
  return span;
}

TEST_F(SpansAsOtlpTest, SpanHasTheFieldsOfTheFormat) {
  Span span = ServerSpan(0xb7ad6b7169203331, 7, 1, 1'001);
  span.status = absl::NotFoundError("no such order");
  const std::string json = SpansAsOtlp("orders", std::vector<Span>{span});
  EXPECT_THAT(json, Not(HasSubstr("\n")));
  const Struct data = Parsed(json);
  const Struct& of_resource = Object(List(data, "resourceSpans"), 0);
  EXPECT_EQ(Attributes(Field(of_resource, "resource").struct_value())["service.name"], "orders");
  const Struct& of_scope = Object(List(of_resource, "scopeSpans"), 0);
  ASSERT_EQ(List(of_scope, "spans").values_size(), 1);
  const Struct& out = Object(List(of_scope, "spans"), 0);
  EXPECT_EQ(Text(out, "traceId"), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(Text(out, "spanId"), "b7ad6b7169203331");
  EXPECT_EQ(Text(out, "parentSpanId"), "0000000000000007");
  EXPECT_EQ(Text(out, "name"), "pkg.Orders/Place");
  EXPECT_EQ(Number(out, "kind"), 2);
  EXPECT_EQ(Text(out, "startTimeUnixNano"), "1700092800000000001");
  EXPECT_EQ(Text(out, "endTimeUnixNano"), "1700092800000001001");
  auto attributes = Attributes(out);
  EXPECT_EQ(attributes["rpc.service"], "pkg.Orders");
  EXPECT_EQ(attributes["rpc.method"], "Place");
  EXPECT_EQ(attributes["network.peer.address"], "10.0.0.5:7471");
  EXPECT_EQ(attributes["rpc.sluice.status"], "NOT_FOUND");
  const Struct& status = Field(out, "status").struct_value();
  EXPECT_EQ(Number(status, "code"), 2);
  EXPECT_EQ(Text(status, "message"), "no such order");
}

TEST_F(SpansAsOtlpTest, RootHasNoParentAndSuccessNoStatus) {
  const std::string json = SpansAsOtlp("orders", std::vector<Span>{ClientSpan(1, 0, 5)});
  EXPECT_THAT(json, Not(HasSubstr("parentSpanId")));
  EXPECT_THAT(json, Not(HasSubstr("\"status\":")));
}

TEST_F(SpansAsOtlpTest, BytesOfAPeerDoNotBreakTheFormat) {
  Span span = ClientSpan(1, 0, 5);
  span.status = absl::UnknownError("\xff\xfe \"quoted\"\n</script>");
  const Struct data = Parsed(SpansAsOtlp("a \"b\" \xff", std::vector<Span>{span}));
  const Struct& of_scope = Object(List(Object(List(data, "resourceSpans"), 0), "scopeSpans"), 0);
  EXPECT_EQ(Text(Field(Object(List(of_scope, "spans"), 0), "status").struct_value(), "message"),
            "?? \"quoted\"?</script>");
}

TEST_F(SpansAsOtlpTest, NoSpansIsAMessageToo) {
  const Struct data = Parsed(SpansAsOtlp("orders", {}));
  EXPECT_EQ(List(data, "resourceSpans").values_size(), 1);
}

// Events of a phase, in their order.
std::vector<Struct> Events(const Struct& file, const std::string& phase) {
  std::vector<Struct> events;
  for (const Value& one : List(file, "traceEvents").values()) {
    if (Text(one.struct_value(), "ph") == phase) events.push_back(one.struct_value());
  }
  return events;
}

TEST_F(SpansAsChromeTraceTest, TimesKeepTheirNanoseconds) {
  const std::vector<Span> spans = {ClientSpan(1, 1, 1'502), ClientSpan(2, 2'003, 3'000)};
  const auto events = Events(Parsed(SpansAsChromeTrace("orders", 42, spans)), "X");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_NEAR(Number(events[0], "dur"), 1.501, 1e-4);
  EXPECT_NEAR(Number(events[1], "ts") - Number(events[0], "ts"), 2.002, 1e-4);
  EXPECT_EQ(Number(events[0], "pid"), 42);
}

TEST_F(SpansAsChromeTraceTest, CallsThatOverlapHaveRowsOfTheirOwn) {
  const std::vector<Span> spans = {ClientSpan(1, 0, 100), ClientSpan(2, 50, 150),
                                   ClientSpan(3, 100, 200)};
  const auto events = Events(Parsed(SpansAsChromeTrace("orders", 1, spans)), "X");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_NE(Number(events[0], "tid"), Number(events[1], "tid"));
  EXPECT_EQ(Number(events[0], "tid"), Number(events[2], "tid")) << "the first has ended";
}

TEST_F(SpansAsChromeTraceTest, PartsStandInTheRowOfTheirCall) {
  Span handler = {.span_id = 9, .parent_id = 2, .name = "handler"};
  handler.start_unix_ns = kNoonNs + 60;
  handler.end_unix_ns = kNoonNs + 70;
  const std::vector<Span> spans = {ServerSpan(1, 0, 0, 100), handler, ServerSpan(2, 5, 50, 150)};
  const auto events = Events(Parsed(SpansAsChromeTrace("orders", 1, spans)), "X");
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(Number(events[1], "tid"), Number(events[2], "tid"));
  EXPECT_NE(Number(events[0], "tid"), Number(events[1], "tid"));
}

TEST_F(SpansAsChromeTraceTest, ArrowLeadsFromTheChannelsCallToTheServers) {
  const auto starts =
      Events(Parsed(SpansAsChromeTrace("client", 1, std::vector<Span>{ClientSpan(7, 0, 9)})), "s");
  const auto finishes = Events(
      Parsed(SpansAsChromeTrace("server", 2, std::vector<Span>{ServerSpan(8, 7, 2, 5)})), "f");
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_EQ(finishes.size(), 1u);
  EXPECT_EQ(Text(starts[0], "id"), Text(finishes[0], "id"));
}

}  // namespace span_export_test
}  // namespace sluice
