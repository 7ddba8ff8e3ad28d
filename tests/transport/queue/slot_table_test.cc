// SPDX-License-Identifier: Apache-2.0
#include "transport/queue/slot_table.h"

#include <sys/resource.h>

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace sluice::queue {
namespace slot_table_test {

struct Area {
  std::vector<std::byte> data = std::vector<std::byte>(4 * 128);
  std::vector<std::byte> control = std::vector<std::byte>(2 * 64);
  SlotTable slots{data.data(), 4, 128, control.data(), 2, 64};
};

TEST(SlotTableTake, BothKindsRunOutOnTheirOwn) {
  Area area;
  std::set<std::byte*> buffers;
  for (int i = 0; i < 4; ++i) {
    const uint32_t slot = area.slots.Take(false);
    ASSERT_NE(slot, kNoSlot);
    EXPECT_FALSE(area.slots[slot].control);
    buffers.insert(area.slots[slot].data);
  }
  EXPECT_EQ(buffers.size(), 4u);
  EXPECT_EQ(*buffers.begin(), area.data.data());
  EXPECT_EQ(area.slots.Take(false), kNoSlot);
  EXPECT_EQ(area.slots.free_data(), 0u);
  const uint32_t control = area.slots.Take(true);
  ASSERT_NE(control, kNoSlot);
  EXPECT_TRUE(area.slots[control].control);
  EXPECT_EQ(area.slots[control].data, area.control.data());
  EXPECT_EQ(area.slots.free_control(), 1u);
}

TEST(SlotTableTake, LastGivenComesFirst) {
  Area area;
  const uint32_t a = area.slots.Take(false);
  const uint32_t b = area.slots.Take(false);
  area.slots.Give(a);
  area.slots.Give(b);
  EXPECT_EQ(area.slots.Take(false), b);
  EXPECT_EQ(area.slots.Take(false), a);
}

TEST(SlotTableControl, SlotsAreCountedForTheirOwnersUntilTheyAreFree) {
  Area area;
  constexpr uint64_t kAnn = 7, kBob = uint64_t{1} << 32 | 7;
  EXPECT_EQ(area.slots.control_slots(), 2u);
  const uint32_t first = area.slots.TakeControlFor(kAnn);
  const uint32_t second = area.slots.TakeControlFor(kAnn);
  ASSERT_NE(second, kNoSlot);
  EXPECT_EQ(area.slots.TakeControlFor(kBob), kNoSlot);
  EXPECT_EQ(area.slots.ControlOf(kAnn), 2u);
  EXPECT_EQ(area.slots.ControlOf(kBob), 0u);
  area.slots[first].use = SlotUse::kPosted;
  area.slots.Complete(first);
  EXPECT_EQ(area.slots.ControlOf(kAnn), 1u);
  ASSERT_EQ(area.slots.TakeControlFor(kBob), first);
  EXPECT_EQ(area.slots.ControlOf(kBob), 1u);
  area.slots.Give(second);
  EXPECT_EQ(area.slots.ControlOf(kAnn), 0u);
  EXPECT_EQ(area.slots.ControlOf(kBob), 1u);
  // Without an owner it counts for nobody.
  ASSERT_EQ(area.slots.Take(true), second);
  area.slots.Give(second);
  area.slots.Give(first);
  EXPECT_EQ(area.slots.ControlOf(kBob), 0u);
  EXPECT_EQ(area.slots.free_control(), 2u);
}

TEST(SlotTablePosted, OnlyThePostedSlotOfThisGeneration) {
  Area area;
  const uint32_t slot = area.slots.Take(false);
  const uint64_t wr_id = area.slots.WrId(slot);
  EXPECT_FALSE(area.slots.Posted(wr_id).has_value());  // reserved
  area.slots[slot].use = SlotUse::kPosted;
  EXPECT_EQ(area.slots.Posted(wr_id), slot);
  area.slots.Give(slot);
  ASSERT_EQ(area.slots.Take(false), slot);
  area.slots[slot].use = SlotUse::kPosted;
  EXPECT_FALSE(area.slots.Posted(wr_id).has_value());  // a late completion of the earlier use
  EXPECT_FALSE(area.slots.Posted(999).has_value());
  EXPECT_TRUE(area.slots.Posted(area.slots.WrId(slot)).has_value());
}

TEST(SlotTableComplete, HoldsWhatIsNotReleasedUnderAnotherGeneration) {
  Area area;
  const uint32_t slot = area.slots.Take(false);
  const uint64_t wr_id = area.slots.WrId(slot);
  area.slots[slot].use = SlotUse::kPosted;
  area.slots.Complete(slot);
  EXPECT_EQ(area.slots[slot].use, SlotUse::kHeld);
  area.slots[slot].use = SlotUse::kPosted;  // again
  EXPECT_FALSE(area.slots.Posted(wr_id).has_value());
  area.slots[slot].released = true;
  area.slots.Complete(slot);
  EXPECT_EQ(area.slots[slot].use, SlotUse::kFree);
  EXPECT_FALSE(area.slots[slot].released);
  const uint32_t control = area.slots.Take(true);
  area.slots.Complete(control);
  EXPECT_EQ(area.slots[control].use, SlotUse::kFree);
}

TEST(SlotTableGive, GenerationSkipsZeroWhenItWraps) {
  Area area;
  const uint32_t slot = area.slots.Take(false);
  area.slots[slot].generation = 0xffffffff;
  area.slots.Give(slot);
  EXPECT_EQ(area.slots[slot].generation, 1u);
}

TEST(SlotTableTake, GivenSlotsComeBeforeFreshOnes) {
  Area area;
  const uint32_t first = area.slots.Take(false);
  area.slots.Give(first);
  EXPECT_EQ(area.slots.free_data(), 4u);
  EXPECT_EQ(area.slots.Take(false), first);
  std::set<uint32_t> others;
  for (int i = 0; i < 3; ++i) others.insert(area.slots.Take(false));
  EXPECT_EQ(others.size(), 3u);
  EXPECT_EQ(others.count(first), 0u);
  EXPECT_EQ(area.slots.Take(false), kNoSlot);
}

TEST(SlotTablePosted, SlotThatWasNeverTaken) {
  Area area;
  for (uint64_t generation = 0; generation < 3; ++generation) {
    EXPECT_FALSE(area.slots.Posted(generation << 32 | 2).has_value());
  }
}

TEST(SlotTableCells, BeginningAgainChangesNothing) {
  std::vector<std::byte> data(4 * 128), control(2 * 64);
  SlotTable slots{data.data(), 4, 128, control.data(), 2, 64, 0, /*cells=*/4};
  slots.BeginCells(6, 2);
  slots[7].use = SlotUse::kPosted;
  slots.BeginCells(6, 2);
  EXPECT_TRUE(slots.IsUnderWay(7));
  EXPECT_FALSE(slots.IsUnderWay(8));
}

// A client with one server uses few of its slots.
TEST(SlotTableTake, TakesMemoryAsItsSlotsAreTaken) {
  std::vector<std::byte> memory(64);
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
  };
  const long before = faults();
  SlotTable slots{memory.data(), 10'000, 0, memory.data(), 1'000, 0, 1'000, 10'000};
  ASSERT_NE(slots.Take(false), kNoSlot);
  ASSERT_NE(slots.Take(true), kNoSlot);
  ASSERT_NE(slots.TakeBulk(), kNoSlot);
  EXPECT_LT(faults() - before, 40);
}

TEST(SlotList, FirstInFirstOut) {
  Area area;
  SlotList list;
  EXPECT_TRUE(list.empty());
  std::vector<uint32_t> in;
  for (int i = 0; i < 4; ++i) {
    in.push_back(area.slots.Take(false));
    list.PushBack(area.slots, in.back());
  }
  EXPECT_EQ(list.PopFront(area.slots), in[0]);
  list.PushBack(area.slots, in[0]);
  for (int i : {1, 2, 3, 0}) EXPECT_EQ(list.PopFront(area.slots), in[i]);
  EXPECT_TRUE(list.empty());
}

TEST(SlotTableCells, AreNeitherTakenNorGivenBack) {
  std::vector<std::byte> data(4 * 128), control(2 * 64);
  SlotTable slots{data.data(), 4, 128, control.data(), 2, 64, /*bulk_slots=*/3, /*cells=*/5};
  ASSERT_EQ(slots.first_cell(), 6u);
  ASSERT_EQ(slots.first_bulk(), 11u);
  EXPECT_FALSE(slots.is_cell(5));
  EXPECT_TRUE(slots.is_cell(6));
  EXPECT_TRUE(slots.is_cell(10));
  EXPECT_FALSE(slots.is_cell(11));
  EXPECT_EQ(slots.free_data() + slots.free_control() + slots.free_bulk(), 4u + 2u + 3u);
  slots.BeginCells(6, 5);
  Slot& cell = slots[6];
  EXPECT_TRUE(cell.cell && cell.released);
  cell.use = SlotUse::kPosted;
  cell.messages = 3;
  cell.signal = true;
  EXPECT_TRUE(slots.IsUnderWay(6));
  const uint64_t wr_id = slots.WrId(6);
  slots.Complete(6);
  EXPECT_FALSE(slots.IsUnderWay(6));
  EXPECT_EQ(cell.use, SlotUse::kFree);
  EXPECT_EQ(cell.messages, 3) << "its ring wants to know";
  EXPECT_FALSE(cell.signal);
  EXPECT_FALSE(slots.Posted(wr_id).has_value()) << "of an earlier generation";
  EXPECT_EQ(slots.free_data() + slots.free_control() + slots.free_bulk(), 4u + 2u + 3u);
  EXPECT_EQ(slots.TakeBulk(), 11u);
}

TEST(SlotListCount, CountsMessagesOfCells) {
  std::vector<std::byte> data(4 * 128), control(2 * 64);
  SlotTable slots{data.data(), 4, 128, control.data(), 2, 64, 0, 2};
  slots.BeginCells(6, 2);
  SlotList list;
  slots[6].messages = 5;
  list.PushBack(slots, 6);
  list.PushBack(slots, slots.Take(/*control=*/true));
  list.PushBack(slots, slots.Take(/*control=*/false));
  EXPECT_EQ(list.CountData(slots, 100), 6u);
  EXPECT_GE(list.CountData(slots, 2), 2u);
}

}  // namespace slot_table_test
}  // namespace sluice::queue
