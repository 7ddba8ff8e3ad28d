// SPDX-License-Identifier: Apache-2.0
//
// One long file, because all of it uses Channel, which is private to it.
#include "transport/softdc/shm/outbound_links.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <span>
#include <unordered_set>
#include <utility>

#include "transport/softdc/loop/loop.h"
#include "transport/softdc/loop/messages.h"
#include "transport/softdc/loop/names.h"
#include "transport/softdc/loop/out_of_descriptors.h"
#include "transport/softdc/shm/kill_point.h"
#include "transport/softdc/shm/number_space.h"

namespace sluice::softdc {

using shm::ControlKind;
using shm::ControlMessage;

namespace {

// Maximum number of unanswered requests on one socket. Neither side waits for room in the socket, so further
// requests or answers would be lost.
constexpr uint32_t kMaxUnanswered = 32;

struct Question {
  ControlKind kind;
  uint32_t number;
};

// Whether the answer to a hello may carry this message.
bool MayBeCarried(const ControlMessage& message) {
  return message.magic == shm::kControlMagic && message.layout_version == shm::kLayoutVersion &&
         (message.kind == ControlKind::kSegment || message.kind == ControlKind::kResolve);
}

}  // namespace

struct OutboundLinks::Channel {
  uint32_t block = 0;
  UniqueFd socket;  // moves into the link when the hello is answered
  std::unique_ptr<shm::OutboundLink> link;
  bool closed = false;
  bool named = false;                    // the hello named a number
  uint32_t segments_asked = 0;           // ids 1 to this were requested, or came with the hello
  std::vector<Target*> pending_targets;  // targets that wait for the hello or their answer
  std::deque<Question> asks;             // requests that are not sent yet
  uint32_t unanswered = 0;               // requests sent and not answered
  int fd() const { return link != nullptr ? link->socket() : socket.get(); }
};

namespace {

// Reports once per process why programs of two builds do not reach each other.
void ReportOtherLayout(uint32_t layout_version) {
  static std::atomic<bool> reported{false};
  if (reported.exchange(true)) return;
  std::fprintf(
      stderr,
      "softdc: another process of this domain has shared-memory layout %u and this one %u, "
      "so they do not reach each other; use one build, or two values of SOFTDC_DOMAIN\n",
      layout_version, shm::kLayoutVersion);
}

// Maps the segment of an answer, unless the link has it.
void MapSegment(shm::OutboundLink& link, const ControlMessage& answer, const UniqueFd& fd) {
  if (link.HasSegment(answer.number)) return;
  auto file = shm::MappedFile::Map(fd.get(), answer.size_bytes);
  if (file != nullptr) link.AddSegment(answer.number, std::move(file));
}

}  // namespace

OutboundLinks::OutboundLinks(uint64_t context_id, std::function<void()> on_change,
                             std::function<void(std::shared_ptr<Dropped>)> drop)
    : context_id_(context_id), on_change_(std::move(on_change)), drop_(std::move(drop)) {}

OutboundLinks::~OutboundLinks() {
  Loop::Get().RunAndWait([this] {
    for (auto& [block, channel] : channels_) Loop::Get().Unwatch(channel->fd());
    for (auto& channel : retired_) Loop::Get().Unwatch(channel->fd());
    channels_.clear();
    retired_.clear();
  });
}

Target* OutboundLinks::Find(uint32_t qp_number) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<Target>& target = targets_[qp_number];
  if (target == nullptr) target = std::make_unique<Target>(qp_number);
  return target.get();
}

void OutboundLinks::Ask(Target* target) {
  TargetStatus expected = TargetStatus::kUnknown;
  if (!target->status.compare_exchange_strong(expected, TargetStatus::kAsking)) return;
  Loop::Get().Run([this, target] { AskOnLoop(target); });
}

void OutboundLinks::AskAnew(Target* target) {
  TargetStatus expected = TargetStatus::kReady;
  if (!target->status.compare_exchange_strong(expected, TargetStatus::kAsking)) return;
  Loop::Get().Run([this, target] { AskOnLoop(target); });
}

void OutboundLinks::AskOnLoop(Target* target) {
  const std::shared_ptr<Channel> channel = ChannelFor(target->qp_number);
  if (channel == nullptr) {
    target->status.store(TargetStatus::kUnknown);
    on_change_();
    return;
  }
  channel->pending_targets.push_back(target);
  if (channel->link != nullptr) AskResolve(*channel, target->qp_number);
}

std::shared_ptr<OutboundLinks::Channel> OutboundLinks::ChannelFor(uint32_t qp_number) {
  const uint32_t block = qp_number / kNumbersPerBlock;
  if (const auto it = channels_.find(block); it != channels_.end()) return it->second;
  auto channel = std::make_shared<Channel>();
  channel->block = block;
  channel->socket = ConnectAbstract(BlockSocketName(block));
  if (!channel->socket) {
    if (IsOutOfDescriptors(errno)) ReportOutOfDescriptors();
    return nullptr;
  }
  const int error =
      Loop::Get().Watch(channel->fd(), EPOLLIN, [this, channel](uint32_t) { OnReadable(channel); });
  if (error != 0) return nullptr;
  channels_[block] = channel;
  channel->named = !plain_hellos_;
  SendRequest(*channel, ControlKind::kHello, channel->named ? qp_number : kNoQpNumber);
  SOFTDC_KILL_POINT(kHelloSent);
  return channel;
}

void OutboundLinks::SendRequest(Channel& channel, ControlKind kind, uint32_t number,
                                int32_t error) {
  ControlMessage request;
  request.error = error;
  request.layout_version = shm::kLayoutVersion;
  request.kind = kind;
  request.context_id = context_id_;
  request.number = number;
  // If this fails, the end of the socket follows, which OnReadable handles.
  SendWithFds(channel.fd(), std::as_bytes(std::span(&request, 1)));
}

void OutboundLinks::SendAsks(Channel& channel) {
  while (!channel.asks.empty() && channel.unanswered < kMaxUnanswered) {
    const Question ask = channel.asks.front();
    channel.asks.pop_front();
    ++channel.unanswered;
    SendRequest(channel, ask.kind, ask.number);
    if (ask.kind == ControlKind::kResolve) SOFTDC_KILL_POINT(kTargetAsked);
  }
}

void OutboundLinks::AskResolve(Channel& channel, uint32_t qp_number) {
  // Requests segments first: their answers arrive before the target's, so that all memory is mapped when the
  // target is ready.
  const auto* header = reinterpret_cast<const shm::ArenaHeader*>(
      channel.link->arena().At(0, sizeof(shm::ArenaHeader)));
  const uint32_t segments = std::min(header->segment_count.load(), shm::kMaxPeerSegments - 1);
  for (; channel.segments_asked < segments; ++channel.segments_asked) {
    channel.asks.push_back({ControlKind::kSegment, channel.segments_asked + 1});
  }
  channel.asks.push_back({ControlKind::kResolve, qp_number});
  SendAsks(channel);
}

void OutboundLinks::OnReadable(const std::shared_ptr<Channel>& channel) {
  while (!channel->closed) {
    std::array<ControlMessage, shm::kMaxPacketMessages> packet;
    ControlMessage& answer = packet.front();
    std::vector<UniqueFd> fds;
    ssize_t size = RecvWithFds(channel->fd(), std::as_writable_bytes(std::span(packet)), &fds);
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0 && errno == EMFILE) {
      if (channel->link == nullptr && channel->named) return ConnectPlainly(*channel);
      // The link continues with the segments and targets that it has.
      ReportOutOfDescriptors();
      answer.error = EMFILE;
      size = sizeof(answer);
    }
    const size_t count = size < 0 ? 0 : static_cast<size_t>(size) / sizeof(answer);
    if (count == 0 || static_cast<size_t>(size) % sizeof(answer) != 0 ||
        answer.magic != shm::kControlMagic) {
      return Close(*channel);
    }
    if (answer.layout_version != shm::kLayoutVersion) {
      ReportOtherLayout(answer.layout_version);
      return Close(*channel);
    }
    const auto carried = std::span(packet).subspan(1, count - 1);
    if (!carried.empty() && (answer.kind != ControlKind::kHello || !channel->named ||
                             !std::all_of(carried.begin(), carried.end(), &MayBeCarried))) {
      return Close(*channel);
    }
    switch (answer.kind) {
      case ControlKind::kHello:
        if (!OnHello(*channel, answer, carried, fds)) {
          return Close(*channel);
        }
        break;
      case ControlKind::kResolve:
        OnResolve(*channel, answer, fds);
        break;
      case ControlKind::kSegment:
        OnSegment(*channel, answer, fds);
        break;
      case ControlKind::kForget:
        OnForget(channel, answer.number);
        continue;
      default:
        return Close(*channel);
    }
    if (answer.kind == ControlKind::kHello || channel->unanswered == 0) continue;
    --channel->unanswered;
    SendAsks(*channel);
  }
}

bool OutboundLinks::OnHello(Channel& channel, const ControlMessage& answer,
                            std::span<const ControlMessage> carried, std::vector<UniqueFd>& fds) {
  // Uses the PID as the kernel reports it here. The PID that the peer knows may belong to another process in
  // our namespace.
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(channel.fd(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  // (Missing descriptors in this process were reported where they were detected.)
  if (answer.error == EMFILE && answer.context_id == 0) ReportTurnedAway(peer.pid);
  if (channel.link != nullptr || answer.error != 0) return false;
  // Arena and bell, then the segments, then perhaps the event descriptor of the targets.
  const auto segments =
      static_cast<size_t>(std::count_if(carried.begin(), carried.end(), [](const auto& message) {
        return message.kind == ControlKind::kSegment;
      }));
  const size_t most = 2 + segments + (segments < carried.size() ? 1 : 0);
  if (fds.size() < 2 + segments || fds.size() > most) return false;
  auto arena = shm::MappedFile::Map(fds[0].get(), answer.size_bytes);
  if (arena == nullptr) return false;
  const auto* header =
      reinterpret_cast<const shm::ArenaHeader*>(arena->At(0, sizeof(shm::ArenaHeader)));
  std::byte* line = arena->At(answer.object_offset, shm::ClaimJournal::Bytes());
  if (header == nullptr || line == nullptr || header->magic != shm::kArenaMagic ||
      header->layout_version != shm::kLayoutVersion) {
    return false;
  }
  const auto journal = shm::ClaimJournal::Attach(line, shm::ClaimJournal::Bytes());
  if (!journal) return false;
  channel.link = std::make_unique<shm::OutboundLink>(
      std::move(channel.socket), peer.pid, answer.context_id, answer.link_id, std::move(arena),
      *journal, std::move(fds[1]), process_vm);
  SOFTDC_KILL_POINT(kLinkMade);
  fds.erase(fds.begin(), fds.begin() + 2);
  TakeCarried(channel, carried, fds);
  for (const Target* target : channel.pending_targets) {
    AskResolve(channel, target->qp_number);
  }
  return true;
}

// Each answer passes the checks of an answer to a question. OnHello has counted the descriptors.
void OutboundLinks::TakeCarried(Channel& channel, std::span<const ControlMessage> carried,
                                std::vector<UniqueFd>& fds) {
  size_t segments = 0;
  for (const ControlMessage& answer : carried) {
    if (answer.kind != ControlKind::kSegment) continue;
    MapSegment(*channel.link, answer, fds[segments++]);
    if (answer.number < shm::kMaxPeerSegments) {
      channel.segments_asked = std::max(channel.segments_asked, answer.number);
    }
  }
  fds.erase(fds.begin(), fds.begin() + static_cast<ptrdiff_t>(segments));
  for (const ControlMessage& answer : carried) {
    // Another block may belong to another context, for which this one does not answer.
    if (answer.kind != ControlKind::kResolve || answer.error != 0 ||
        answer.number / kNumbersPerBlock != channel.block) {
      continue;
    }
    Target* target = Find(answer.number);
    auto& pending = channel.pending_targets;
    if (std::find(pending.begin(), pending.end(), target) == pending.end()) {
      // As Ask() does. Fails if the target is ready, or if its question is on the way to this thread.
      TargetStatus expected = TargetStatus::kUnknown;
      if (!target->status.compare_exchange_strong(expected, TargetStatus::kAsking)) continue;
      pending.push_back(target);
    }
    OnResolve(channel, answer, fds);
  }
}

void OutboundLinks::ConnectPlainly(Channel& channel) {
  plain_hellos_ = true;
  const std::vector<Target*> targets = std::exchange(channel.pending_targets, {});
  Close(channel);
  channel.socket.Reset();  // its descriptor is needed
  for (Target* target : targets) AskOnLoop(target);
  plain_hellos_ = false;  // for later links there may be enough descriptors
}

void OutboundLinks::OnResolve(Channel& channel, const ControlMessage& answer,
                              std::vector<UniqueFd>& fds) {
  const auto it = std::find_if(channel.pending_targets.begin(), channel.pending_targets.end(),
                               [&](Target* t) { return t->qp_number == answer.number; });
  if (it == channel.pending_targets.end() || channel.link == nullptr) return;
  Target* target = *it;
  channel.pending_targets.erase(it);
  if (answer.error == ESTALE) {
    Retire(channel);
    return AskOnLoop(target);
  }
  auto reach = std::make_unique<Target::Reach>();
  auto dropped = std::make_shared<Dropped>();
  bool usable = false;
  if (answer.error == 0) {
    const shm::MappedFile& arena = channel.link->arena();
    reach->link = channel.link.get();
    reach->descriptor = reinterpret_cast<shm::TargetDescriptor*>(
        arena.At(answer.object_offset, sizeof(shm::TargetDescriptor)));
    if (reach->descriptor != nullptr) {
      const uint64_t srq_offset = reach->descriptor->srq_offset;
      std::byte* srq = srq_offset < shm::kArenaBytes ? arena.At(srq_offset, 1) : nullptr;
      if (srq != nullptr) {
        reach->srq = shm::SrqClaimer::Attach(srq, shm::kArenaBytes - srq_offset);
      }
      std::unique_ptr<shm::RemoteCq> replaced;
      reach->cq =
          channel.link->AddRemoteCq(answer, reach->descriptor->armed_offset,
                                    fds.empty() ? UniqueFd() : std::move(fds[0]), &replaced);
      usable = reach->srq.has_value() && reach->cq != nullptr;
      if (replaced != nullptr) {
        DropReaches([&](const Target::Reach& old) { return old.cq == replaced.get(); },
                    dropped.get());
        dropped->cqs.push_back(std::move(replaced));
      }
    }
  }
  if (usable) {
    Target::Reach* old = target->reach.exchange(reach.release(), std::memory_order_acq_rel);
    if (old != nullptr) dropped->reaches.emplace_back(old);
    target->status.store(TargetStatus::kReady, std::memory_order_release);
  } else {
    target->status.store(TargetStatus::kUnknown, std::memory_order_release);
  }
  drop_(std::move(dropped));
  on_change_();
}

void OutboundLinks::OnForget(const std::shared_ptr<Channel>& channel, uint32_t round) {
  if (channel->link == nullptr) return;
  shm::OutboundLink& link = *channel->link;
  auto dropped = std::make_shared<Dropped>();
  DropReaches(
      [&](const Target::Reach& reach) {
        return reach.link == &link && reach.descriptor->state.load(std::memory_order_acquire) ==
                                          static_cast<uint32_t>(shm::TargetState::kGone);
      },
      dropped.get());
  std::unordered_set<const shm::RemoteCq*> used;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [number, target] : targets_) {
      if (const Target::Reach* reach = target->reach.load()) used.insert(reach->cq);
    }
  }
  link.DropRemoteCqs(used, &dropped->cqs);
  dropped->then = [this, channel = std::weak_ptr(channel), round] {
    const std::shared_ptr<Channel> alive = channel.lock();
    if (alive == nullptr || alive->closed) return;
    SOFTDC_KILL_POINT(kTargetsForgotten);
    SendRequest(*alive, ControlKind::kForget, round);
  };
  drop_(std::move(dropped));
}

void OutboundLinks::Retire(const Channel& channel) {
  const auto it = channels_.find(channel.block);
  if (it == channels_.end() || it->second.get() != &channel) return;
  retired_.push_back(std::move(it->second));
  channels_.erase(it);
}

OutboundLinks::Channel* OutboundLinks::Find(const shm::OutboundLink* link) {
  for (const auto& [block, channel] : channels_) {
    if (channel->link.get() == link) return channel.get();
  }
  for (const auto& channel : retired_) {
    if (channel->link.get() == link) return channel.get();
  }
  return nullptr;
}

void OutboundLinks::AskSegment(shm::OutboundLink* link, uint32_t segment) {
  Loop::Get().Run([this, link, segment] {
    Channel* channel = Find(link);
    if (channel == nullptr || link->HasSegment(segment)) return on_change_();
    channel->asks.push_back({ControlKind::kSegment, segment});
    SendAsks(*channel);
  });
}

void OutboundLinks::TellBadRequest(shm::OutboundLink* link, uint32_t qp_number, int event) {
  Loop::Get().Run([this, link, qp_number, event] {
    Channel* channel = Find(link);
    if (channel != nullptr) SendRequest(*channel, ControlKind::kBadRequest, qp_number, event);
  });
}

void OutboundLinks::OnSegment(Channel& channel, const ControlMessage& answer,
                              std::vector<UniqueFd>& fds) {
  if (channel.link == nullptr) return;
  if (answer.error == 0 && fds.size() == 1) MapSegment(*channel.link, answer, fds[0]);
  on_change_();
}

template <typename Which>
void OutboundLinks::DropReaches(Which which, Dropped* dropped) {
  std::lock_guard lock(mutex_);
  for (auto it = targets_.begin(); it != targets_.end();) {
    Target& target = *it->second;
    Target::Reach* reach = target.reach.load();
    if (reach == nullptr || !which(*reach)) {
      ++it;
      continue;
    }
    target.reach.store(nullptr);
    dropped->reaches.emplace_back(reach);
    TargetStatus status = TargetStatus::kReady;
    // A target with a pending request stays, for the answer.
    if (!target.status.compare_exchange_strong(status, TargetStatus::kDropped)) {
      ++it;
      continue;
    }
    dropped->targets.push_back(std::move(it->second));
    it = targets_.erase(it);
  }
}

void OutboundLinks::DropUnknown(Dropped* dropped) {
  std::lock_guard lock(mutex_);
  for (auto it = targets_.begin(); it != targets_.end();) {
    TargetStatus status = TargetStatus::kUnknown;
    if (it->second->status.compare_exchange_strong(status, TargetStatus::kDropped)) {
      dropped->targets.push_back(std::move(it->second));
      it = targets_.erase(it);
    } else {
      ++it;
    }
  }
}

void OutboundLinks::Close(Channel& channel) {
  if (std::exchange(channel.closed, true)) return;
  Loop::Get().Unwatch(channel.fd());
  for (Target* target : channel.pending_targets) target->status.store(TargetStatus::kUnknown);
  channel.pending_targets.clear();
  if (channel.link != nullptr) {
    auto dropped = std::make_shared<Dropped>();
    channel.link->MarkDead();
    DropReaches([&](const Target::Reach& reach) { return reach.link == channel.link.get(); },
                dropped.get());
    DropUnknown(dropped.get());
    dropped->links.push_back(std::move(channel.link));
    drop_(std::move(dropped));
  }
  const auto it = channels_.find(channel.block);
  if (it != channels_.end() && it->second.get() == &channel) channels_.erase(it);
  std::erase_if(retired_, [&](const auto& retired) { return retired.get() == &channel; });
  on_change_();
}

}  // namespace sluice::softdc
