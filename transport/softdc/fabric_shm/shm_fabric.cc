// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/fabric_shm/shm_fabric.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "transport/softdc/fabric_shm/shm_requester.h"
#include "transport/softdc/loop/gids.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/context.h"

namespace sluice::softdc {
namespace {
constexpr NodeId kThisHost = 1;

shm::CopyOrder CopyOrderOf(InOrder promise) {
  switch (promise) {
    case InOrder::kWholeMessage:
      return shm::CopyOrder::kWholeMessage;
    case InOrder::kBlocks128:
      return shm::CopyOrder::kBlocks128;
    case InOrder::kNone:
      break;
  }
  return shm::CopyOrder::kNone;
}

}  // namespace

ShmFabric& ShmFabric::Get() {
  static auto* const fabric = new ShmFabric;
  return *fabric;
}

int64_t ShmFabric::NowNs() { return Loop::NowNs(); }

uint64_t ShmFabric::After(int64_t delay_ns, std::function<void()> task) {
  return Loop::Get().After(delay_ns, std::move(task));
}

bool ShmFabric::Cancel(uint64_t timer) { return Loop::Get().Cancel(timer); }

std::unique_ptr<FabricPort> ShmFabric::Attach(Context& context) {
  return std::make_unique<ShmPort>(context);
}

std::vector<ibv_gid> ShmFabric::Gids(const SoftDevice& device) {
  const Dials::Port& port = device.dials().port;
  if (device.base.name != std::string_view(kSecondDeviceName)) {
    return WithRoceV1(LocalGids(), port.roce_v1);
  }
  Gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  const uint32_t address = SecondDeviceAddress();
  std::memcpy(&gid.raw[12], &address, sizeof(address));
  return WithRoceV1({gid}, port.roce_v1);
}

NodeId ShmFabric::NodeOf(const SoftDevice& from, const ibv_ah_attr& address) {
  if (address.is_global != 0) return IndexOfGid(address.grh.dgid) >= 0 ? kThisHost : kNoNode;
  return address.dlid == from.dials().port.lid ? kThisHost : kNoNode;
}

NodeId ShmFabric::SelfNode(const SoftDevice&) { return kThisHost; }

ShmPort::ShmPort(Context& context)
    : outbound_(std::make_unique<OutboundLinks>(
          context.id(), [this] { KickWaiting(); },
          [this](std::shared_ptr<Dropped> dropped) { pass_ends_.Destroy(std::move(dropped)); })),
      bounce_(std::make_unique<shm::BounceServer>(context.id(), context.memory_regions())),
      inbound_(std::make_unique<InboundLinks>(context)) {
  outbound_->copy_order = CopyOrderOf(context.dials().features.in_order);
  outbound_->process_vm = context.dials().memory.process_vm;
  const auto on_block = [this](int fd) { inbound_->Serve(fd); };
  const auto off_block = [this](int fd) { inbound_->StopServing(fd); };
  const uint32_t first_block =
      context.dials().features.reissue_dead_numbers ? kFirstBlock : BlockOfTime(Loop::NowNs());
  numbers_ = std::make_unique<NumberSpace>(on_block, off_block, first_block);
  reserved_numbers_ = std::make_unique<NumberSpace>(on_block, off_block, first_block);
}

ShmPort::~ShmPort() {
  // Numbers first, so that no new sender finds this port. Then the links in both directions, with their callbacks.
  reserved_numbers_.reset();
  numbers_.reset();
  inbound_.reset();
  bounce_.reset();
  outbound_.reset();
}

std::unique_ptr<Requester> ShmPort::NewRequester(SendQueue& queue) {
  return std::make_unique<ShmRequester>(*this, queue);
}

void ShmPort::AddWaiting(const std::shared_ptr<Continuation>& continuation) {
  std::lock_guard lock(waiting_mutex_);
  if (std::exchange(continuation->listed, true)) return;
  waiting_.push_back(continuation);
}

size_t ShmPort::waiting() {
  std::lock_guard lock(waiting_mutex_);
  return waiting_.size();
}

void ShmPort::KickWaiting() {
  std::vector<std::shared_ptr<Continuation>> waiting;
  {
    std::lock_guard lock(waiting_mutex_);
    waiting.swap(waiting_);
    for (const auto& continuation : waiting) continuation->listed = false;
  }
  for (const auto& continuation : waiting) {
    std::lock_guard lock(continuation->mutex);
    if (continuation->requester != nullptr)
      continuation->requester->Continue(ShmRequester::kAnswer);
  }
}

}  // namespace sluice::softdc
