// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/named_objects.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace sluice {
namespace {

std::vector<std::string> SourceNames(const NamedObjects& objects) {
  return objects.Read([](const auto&, const auto&, const auto& sources) {
    std::vector<std::string> names;
    for (const auto& [name, source] : sources) names.push_back(name);
    return names;
  });
}

// A source whose end reads the objects, as the end of a channel may in a callback.
CounterSource SourceThatReadsAtItsEnd(NamedObjects* objects, std::vector<std::string>* seen) {
  std::shared_ptr<void> end(nullptr, [objects, seen](void*) { *seen = SourceNames(*objects); });
  return [end] { return std::vector<Reading>(); };
}

TEST(NamedObjectsTest, AddReplacesTheObjectOfTheSameKindAndName) {
  NamedObjects objects;
  objects.Add([] { return std::vector<Reading>{{"a", 1, false, ""}}; }, "x");
  objects.Add([] { return std::vector<Reading>{{"b", 2, false, ""}}; }, "x");
  objects.Add(NamedObjects::Served{}, "x");
  objects.Read([](const auto& servers, const auto& channels, const auto& sources) {
    EXPECT_EQ(servers.size(), 1u);
    EXPECT_TRUE(channels.empty());
    ASSERT_EQ(sources.size(), 1u);
    EXPECT_STREQ(sources.at("x")().at(0).name, "b");
  });
}

TEST(NamedObjectsTest, ReplacedObjectEndsWithoutTheLock) {
  NamedObjects objects;
  std::vector<std::string> seen;
  objects.Add(SourceThatReadsAtItsEnd(&objects, &seen), "x");
  objects.Add([] { return std::vector<Reading>(); }, "x");
  EXPECT_EQ(seen, std::vector<std::string>{"x"});
}

TEST(NamedObjectsTest, RemovedObjectEndsWithoutTheLock) {
  NamedObjects objects;
  std::vector<std::string> seen = {"not ended"};
  objects.Add(SourceThatReadsAtItsEnd(&objects, &seen), "x");
  objects.Add(NamedObjects::Served{}, "x");
  objects.Remove("x");
  EXPECT_TRUE(seen.empty());
  objects.Read([](const auto& servers, const auto&, const auto&) { EXPECT_TRUE(servers.empty()); });
}

TEST(NamedObjectsTest, RemovingAnUnknownNameDoesNothing) {
  NamedObjects objects;
  objects.Add([] { return std::vector<Reading>(); }, "x");
  objects.Remove("y");
  EXPECT_EQ(SourceNames(objects), std::vector<std::string>{"x"});
}

}  // namespace
}  // namespace sluice
