// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/inbound_links.h"

#include <sys/epoll.h>

#include <cerrno>
#include <optional>
#include <span>
#include <utility>

#include "transport/softdc/loop/loop.h"
#include "transport/softdc/loop/messages.h"
#include "transport/softdc/loop/names.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/dct.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/shm/repair.h"

namespace sluice::softdc {

using shm::ControlKind;
using shm::ControlMessage;

namespace {
constexpr int64_t kRepairAgainNs =
    1'000'000;  // while a living sender may hold what a dead one claimed
}

struct InboundLinks::Link {
  uint32_t id = 0;
  UniqueFd socket;
  uint64_t journal_offset = 0;
  std::optional<shm::ClaimJournal> journal;  // set by the hello
  bool shunned = false;                      // not answered any more
  bool closed = false;                       // its process, or its context, has ended
};

InboundLinks::InboundLinks(Context& context) : context_(context) {}

InboundLinks::~InboundLinks() {
  Loop::Get().RunAndWait([this] {
    for (const int fd : listening_) Loop::Get().Unwatch(fd);
    for (auto& [id, link] : links_) {
      if (!link->closed) Loop::Get().Unwatch(link->socket.get());
      link->closed = true;
    }
    links_.clear();
    if (repair_timer_ != 0) Loop::Get().Cancel(repair_timer_);
  });
}

void InboundLinks::Serve(int listening_fd) {
  Loop::Get().RunAndWait([this, listening_fd] {
    listening_.insert(listening_fd);
    Loop::Get().Watch(listening_fd, EPOLLIN,
                      [this, listening_fd](uint32_t) { OnConnect(listening_fd); });
  });
}

void InboundLinks::StopServing(int listening_fd) {
  Loop::Get().RunAndWait([this, listening_fd] {
    if (listening_.erase(listening_fd) != 0) Loop::Get().Unwatch(listening_fd);
  });
}

void InboundLinks::OnConnect(int listening_fd) {
  for (;;) {
    UniqueFd socket = AcceptSameUser(listening_fd);
    if (!socket) {
      if (errno == EACCES) continue;
      return;
    }
    if (links_.size() >= kMaxInboundLinks) continue;
    auto link = std::make_shared<Link>();
    while (next_id_ == 0 || links_.contains(next_id_)) {
      next_id_ = (next_id_ + 1) % shm::ArmedWord::kMaxLinks;
    }
    link->id = next_id_;
    next_id_ = (next_id_ + 1) % shm::ArmedWord::kMaxLinks;
    link->socket = std::move(socket);
    if (Loop::Get().Watch(link->socket.get(), EPOLLIN,
                          [this, link](uint32_t) { OnReadable(link); }) == 0) {
      links_[link->id] = link;
    }
  }
}

void InboundLinks::OnReadable(const std::shared_ptr<Link>& link) {
  while (!link->closed) {
    ControlMessage request;
    const ssize_t size =
        RecvWithFds(link->socket.get(), std::as_writable_bytes(std::span(&request, 1)));
    if (size < 0 && errno == EAGAIN) return;
    // Only the end of the socket proves that nobody over there writes into our queues any more.
    if (size == 0 || (size < 0 && errno != EMSGSIZE)) return OnDeath(link);
    if (link->shunned) continue;
    // It talks nonsense, or does not read its answers: it gets none from now on. What it has
    // claimed stays its own until its end.
    link->shunned =
        size != sizeof(request) || request.magic != shm::kControlMagic || !Answer(*link, request);
  }
}

bool InboundLinks::Answer(Link& link, const ControlMessage& request) {
  switch (request.kind) {
    case ControlKind::kHello:
      return AnswerHello(link, request);
    case ControlKind::kResolve:
      return link.journal.has_value() && AnswerResolve(link, request);
    case ControlKind::kSegment:
      return link.journal.has_value() && AnswerSegment(link, request);
  }
  return false;
}

bool InboundLinks::Reply(Link& link, ControlMessage answer, int fd) {
  answer.layout_version = shm::kLayoutVersion;
  answer.context_id = context_.id();
  answer.link_id = link.id;
  const std::span<const int> fds = fd < 0 ? std::span<const int>() : std::span<const int>(&fd, 1);
  // Never blocks: the socket is non-blocking.
  return SendWithFds(link.socket.get(), std::as_bytes(std::span(&answer, 1)), fds) == 0;
}

bool InboundLinks::AnswerHello(Link& link, const ControlMessage& request) {
  if (link.journal || request.layout_version != shm::kLayoutVersion) return false;
  link.journal_offset = context_.arena().Allocate(shm::ClaimJournal::Bytes());
  if (link.journal_offset == 0) return false;
  link.journal = shm::ClaimJournal::Create(context_.arena().At(link.journal_offset),
                                           shm::ClaimJournal::Bytes());
  ControlMessage answer;
  answer.kind = ControlKind::kHello;
  answer.object_offset = link.journal_offset;
  answer.size_bytes = shm::kArenaBytes;
  return Reply(link, answer, context_.arena().fd());
}

bool InboundLinks::AnswerResolve(Link& link, const ControlMessage& request) {
  ControlMessage answer;
  answer.kind = ControlKind::kResolve;
  answer.number = request.number;
  answer.error = ENOENT;
  int event_fd = -1;
  context_.WithDct(request.number, [&](Dct* dct) {
    if (dct == nullptr) return;  // only a DCT in RTR is registered
    Cq& cq = dct->recv_cq();
    const Cq::RingPlace ring = cq.RingFor(link.id);
    answer.error = ring.offset == 0 ? ENOMEM : 0;
    answer.object_offset = dct->descriptor_offset();
    answer.cq_id = cq.id();
    answer.ring_offset = ring.offset;
    answer.ring_capacity = ring.capacity;
    answer.size_bytes = ring.size_bytes;
    event_fd = cq.event_fd();
  });
  return Reply(link, answer, answer.error == 0 ? event_fd : -1);
}

bool InboundLinks::AnswerSegment(Link& link, const ControlMessage& request) {
  ControlMessage answer;
  answer.kind = ControlKind::kSegment;
  answer.number = request.number;
  const UniqueFd fd = context_.SegmentFd(request.number, &answer.size_bytes);
  answer.error = fd ? 0 : ENOENT;
  return Reply(link, answer, fd.get());
}

void InboundLinks::OnDeath(const std::shared_ptr<Link>& link) {
  if (std::exchange(link->closed, true)) return;
  Loop::Get().Unwatch(link->socket.get());
  link->socket.Reset();
  if (!link->journal) {
    links_.erase(link->id);
    return;
  }
  Repair();
  context_.WithCqs([&](const std::vector<Cq*>& cqs) {
    for (Cq* cq : cqs) {
      if (cq != nullptr) cq->LinkDied(link->id);
    }
  });
}

uint32_t InboundLinks::RepairAfter(const shm::ClaimIntent& dead,
                                   const std::vector<shm::ClaimJournal>& living) {
  uint32_t deferred = 0;
  context_.WithCqs([&](const std::vector<Cq*>& cqs) {
    Srq* srq = dead.count == 0 ? nullptr : context_.FindSrq(dead.srq_id);
    if (srq == nullptr) return;
    std::vector<const shm::CqeConsumer*> rings;
    for (Cq* cq : cqs) {
      if (cq == nullptr) continue;
      cq->lock().Lock();
      cq->AppendConsumers(&rings);
    }
    {
      SpinLockHolder hold(srq->lock());
      deferred = shm::Repair(dead, living, rings, &srq->owner()).deferred;
    }
    for (Cq* cq : cqs) {
      if (cq != nullptr) cq->lock().Unlock();
    }
  });
  return deferred;
}

void InboundLinks::Repair() {
  std::vector<shm::ClaimJournal> living;
  for (const auto& [id, link] : links_) {
    if (!link->closed && link->journal) living.push_back(*link->journal);
  }
  bool again = false;
  for (auto it = links_.begin(); it != links_.end();) {
    Link& link = *it->second;
    if (!link.closed) {
      ++it;
      continue;
    }
    if (RepairAfter(link.journal->Read(), living) != 0) {
      again = true;
      ++it;
      continue;
    }
    context_.arena().Free(link.journal_offset, shm::ClaimJournal::Bytes());
    it = links_.erase(it);
  }
  if (links_.empty()) context_.arena().ReclaimRetired();
  if (again && repair_timer_ == 0) {
    repair_timer_ = Loop::Get().After(kRepairAgainNs, [this] {
      repair_timer_ = 0;
      Repair();
    });
  }
}

}  // namespace sluice::softdc
