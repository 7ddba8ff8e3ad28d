// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/fabric_shm/inbound_links.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "transport/softdc/fabric_shm/inbound_link.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/loop/messages.h"
#include "transport/softdc/loop/names.h"
#include "transport/softdc/loop/out_of_descriptors.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/qp.h"
#include "transport/softdc/model/responder.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/shm/kill_point.h"
#include "transport/softdc/shm/number_space.h"
#include "transport/softdc/shm/repair.h"

namespace sluice::softdc {

using shm::ControlKind;
using shm::ControlMessage;

namespace {
constexpr int64_t kAcceptAgainNs = 50'000'000;  // pause while no descriptors are free
constexpr int64_t kRepairAgainNs =
    1'000'000;  // pause while a living sender may hold WQEs that a dead sender claimed

// Arena and bell; segments; the event descriptor of a CQ.
static_assert(2 + shm::kMaxCarriedSegments + 1 <= kMaxMessageFds);
static_assert(kFewTargets <= shm::kMaxCarriedTargets);
static_assert(shm::kMaxPacketMessages * sizeof(ControlMessage) <= kMaxMessageBytes);
}  // namespace

InboundLinks::InboundLinks(Context& context)
    : context_(context),
      bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spare_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (bell_) {
    Loop::Get().Watch(bell_.get(), EPOLLIN, [this](uint32_t) { OnBell(); });
  }
  context_.arena().OnManyRetired([this] { Loop::Get().Run([this] { StartRound(); }); });
}

InboundLinks::~InboundLinks() {
  context_.arena().OnManyRetired(nullptr);
  Loop::Get().RunAndWait([this] {
    if (bell_) Loop::Get().Unwatch(bell_.get());
    for (const int fd : listening_) Loop::Get().Unwatch(fd);
    for (auto& [id, link] : links_) {
      if (!link->closed) Loop::Get().Unwatch(link->socket.get());
      link->closed = true;
    }
    links_.clear();
    if (repair_timer_ != 0) Loop::Get().Cancel(repair_timer_);
    if (accept_timer_ != 0) Loop::Get().Cancel(accept_timer_);
  });
}

// Watches the socket at once: a child process that is forked later must not keep the socket. The rest may run later, because the functions
// that end it wait for the Loop, and the Loop runs tasks in order.
void InboundLinks::Serve(int listening_fd) {
  Loop::Get().Watch(listening_fd, EPOLLIN,
                    [this, listening_fd](uint32_t) { OnConnect(listening_fd); });
  const auto serve = [this, listening_fd] {
    listening_.insert(listening_fd);
    if (accept_timer_ != 0) Loop::Get().Rewatch(listening_fd, 0);
  };
  if (!Loop::Get().Run(serve)) Loop::Get().RunAndWait(serve);
}

void InboundLinks::StopServing(int listening_fd) {
  Loop::Get().RunAndWait([this, listening_fd] {
    if (listening_.erase(listening_fd) != 0) Loop::Get().Unwatch(listening_fd);
    for (auto& [id, link] : links_) {
      if (link->listening_fd == listening_fd) link->listening_fd = -1;
    }
  });
}

void InboundLinks::OnConnect(int listening_fd) {
  for (;;) {
    UniqueFd socket = AcceptSameUser(listening_fd);
    if (!socket) {
      if (errno == EACCES) continue;
      if (IsOutOfDescriptors(errno) && TurnAway(listening_fd)) continue;
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
    link->listening_fd = listening_fd;
    if (Loop::Get().Watch(link->socket.get(), EPOLLIN,
                          [this, link](uint32_t) { OnReadable(link); }) == 0) {
      links_[link->id] = link;
    }
  }
}

bool InboundLinks::TurnAway(int listening_fd) {
  int error = EMFILE;
  if (spare_) {
    spare_.Reset();
    const UniqueFd socket = AcceptSameUser(listening_fd);
    error = socket ? 0 : errno;
    if (socket) {
      ReportOutOfDescriptors();
      // Reads the hello first: an unread hello would reset the connection, and our answer would be lost.
      ControlMessage hello;
      RecvWithFds(socket.get(), std::as_writable_bytes(std::span(&hello, 1)));
      ControlMessage refusal;
      refusal.layout_version = shm::kLayoutVersion;
      refusal.kind = ControlKind::kHello;
      refusal.error = EMFILE;
      SendWithFds(socket.get(), std::as_bytes(std::span(&refusal, 1)));
    }
  }
  if (!spare_) spare_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  // Another thread may have taken the free descriptor first.
  if (IsOutOfDescriptors(error)) PauseAccepting();
  return error == 0 || error == EACCES;
}

void InboundLinks::PauseAccepting() {
  ReportOutOfDescriptors();
  for (const int fd : listening_) Loop::Get().Rewatch(fd, 0);
  if (accept_timer_ != 0) return;
  accept_timer_ = Loop::Get().After(kAcceptAgainNs, [this] {
    accept_timer_ = 0;
    if (!spare_) spare_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    for (const int fd : listening_) Loop::Get().Rewatch(fd, EPOLLIN);
  });
}

void InboundLinks::OnReadable(const std::shared_ptr<Link>& link) {
  while (!link->closed) {
    ControlMessage request;
    const ssize_t size =
        RecvWithFds(link->socket.get(), std::as_writable_bytes(std::span(&request, 1)));
    if (size < 0 && errno == EAGAIN) return;
    // Only the end of the socket proves that the sender does not write into our queues.
    if (size == 0 || (size < 0 && errno != EMSGSIZE)) return OnDeath(link);
    if (link->shunned) continue;
    // A sender that sends invalid messages or does not read its answers gets no further answers. Its claims stay until it ends.
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
    case ControlKind::kBadRequest:
      OnBadRequest(request);
      return true;
    case ControlKind::kForget:
      return link.journal.has_value() && OnForgotten(link, request.number);
  }
  return false;
}

void InboundLinks::OnBell() {
  uint64_t rings = 0;
  [[maybe_unused]] const ssize_t got = read(bell_.get(), &rings, sizeof(rings));
  context_.CollectNotices();
}

void InboundLinks::WaitForCopies() {
  std::vector<std::shared_ptr<Copier>> copiers;
  {
    std::lock_guard lock(copiers_mutex_);
    copiers = copiers_;
  }
  if (copiers.empty()) return;
  shm::MakeCopiersSee();
  for (const auto& copier : copiers) {
    const uint64_t seen = copier->journal.copies();
    if (seen % 2 == 0) continue;
    while (copier->journal.copies() == seen && !copier->ended.load(std::memory_order_acquire)) {
      std::this_thread::yield();
    }
  }
}

bool InboundLinks::WindowInUse(uint32_t index) {
  shm::FullFence();
  std::lock_guard lock(copiers_mutex_);
  return std::any_of(copiers_.begin(), copiers_.end(), [&](const auto& copier) {
    const uint32_t key = copier->journal.window();
    return key != 0 && key >> 8 == index;
  });
}

bool InboundLinks::Reply(Link& link, ControlMessage answer, std::span<const int> fds) {
  return ReplyAll(link, std::span(&answer, 1), fds);
}

bool InboundLinks::ReplyAll(Link& link, std::span<ControlMessage> answers,
                            std::span<const int> fds) {
  for (ControlMessage& answer : answers) {
    answer.layout_version = shm::kLayoutVersion;
    answer.context_id = context_.id();
    answer.link_id = link.id;
  }
  // Never blocks: the socket is non-blocking.
  return SendWithFds(link.socket.get(), std::as_bytes(answers), fds) == 0;
}

bool InboundLinks::AnswerHello(Link& link, const ControlMessage& request) {
  if (request.layout_version != shm::kLayoutVersion) {
    ControlMessage refusal;
    refusal.kind = ControlKind::kHello;
    refusal.error = EPROTONOSUPPORT;
    Reply(link, refusal, {});
    return false;
  }
  if (link.journal) return false;
  link.journal_offset = context_.arena().Allocate(shm::ClaimJournal::Bytes());
  if (link.journal_offset == 0) return false;
  link.journal = shm::ClaimJournal::Create(context_.arena().At(link.journal_offset),
                                           shm::ClaimJournal::Bytes());
  link.asked_round = link.forgotten_round = last_round_;
  SOFTDC_KILL_POINT(kJournalMade);
  ControlMessage answer;
  answer.kind = ControlKind::kHello;
  answer.object_offset = link.journal_offset;
  answer.size_bytes = shm::kArenaBytes;
  link.copier = std::make_shared<Copier>(*link.journal);
  {
    std::lock_guard lock(copiers_mutex_);
    copiers_.push_back(link.copier);
  }
  bool replied = request.number != kNoQpNumber && ReplyWithTargets(link, answer, request.number);
  if (!replied) {
    const std::array<int, 2> fds = {context_.arena().fd(), bell_.get()};
    replied = Reply(link, answer, fds);
  }
  SOFTDC_KILL_POINT(kHelloAnswered);
  return replied;
}

bool InboundLinks::ReplyWithTargets(Link& link, const ControlMessage& hello, uint32_t qp_number) {
  const std::vector<uint32_t> numbers = context_.FewTargetsWith(qp_number);
  if (numbers.empty()) return false;
  std::vector<ControlMessage> answers = {hello};
  std::vector<int> fds = {context_.arena().fd(), bell_.get()};
  std::vector<Context::SegmentCopy> segments;
  UniqueFd event_fd;
  const bool all = context_.CopySegments(shm::kMaxCarriedSegments, &segments);
  for (const Context::SegmentCopy& segment : segments) {
    ControlMessage& answer = answers.emplace_back();
    answer.kind = ControlKind::kSegment;
    answer.number = segment.segment;
    answer.size_bytes = segment.size_bytes;
    fds.push_back(segment.fd.get());
  }
  // If segments are missing, the sender asks for them first, and for the targets last.
  if (!all) return ReplyAll(link, answers, fds);
  for (const uint32_t number : numbers) {
    if (number / kNumbersPerBlock != qp_number / kNumbersPerBlock) continue;
    UniqueFd other_fd;
    const ControlMessage answer = TargetOf(link, number, &other_fd);
    if (answer.error != 0) continue;
    answers.push_back(answer);
    if (!event_fd) event_fd = std::move(other_fd);  // all have the same CQ
  }
  if (event_fd) fds.push_back(event_fd.get());
  return ReplyAll(link, answers, fds);
}

ControlMessage InboundLinks::TargetOf(Link& link, uint32_t qp_number, UniqueFd* event_fd) {
  ControlMessage answer;
  answer.kind = ControlKind::kResolve;
  answer.number = qp_number;
  // If this context does not serve the block of numbers now, another context may own it: the sender should ask again.
  answer.error = link.listening_fd < 0 ? ESTALE : ENOENT;
  context_.WithResponder(qp_number, [&](Responder* responder) {
    if (responder == nullptr) return;
    Cq& cq = responder->cq();
    const Cq::RingPlace ring = cq.RingFor(link.id);
    SOFTDC_KILL_POINT(kRingMade);
    answer.error = ring.offset == 0 ? ENOMEM : 0;
    answer.object_offset = responder->descriptor_offset();
    answer.cq_id = cq.id();
    answer.ring_offset = ring.offset;
    answer.ring_capacity = ring.capacity;
    answer.size_bytes = ring.size_bytes;
    if (answer.error != 0 || cq.event_fd() < 0) return;
    // A duplicate, because the program may destroy the channel before the answer is sent.
    *event_fd = UniqueFd(fcntl(cq.event_fd(), F_DUPFD_CLOEXEC, 0));
    if (!*event_fd) answer.error = errno;
  });
  return answer;
}

bool InboundLinks::AnswerResolve(Link& link, const ControlMessage& request) {
  UniqueFd event_fd;
  ControlMessage answer = TargetOf(link, request.number, &event_fd);
  if (IsOutOfDescriptors(answer.error)) {
    spare_.Reset();
    answer = TargetOf(link, request.number, &event_fd);
  }
  const int raw = event_fd.get();
  const bool replied = Reply(link, answer, std::span(&raw, event_fd ? 1 : 0));
  event_fd.Reset();
  RenewSpare();
  return replied;
}

void InboundLinks::RenewSpare() {
  if (!spare_) spare_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

bool InboundLinks::AnswerSegment(Link& link, const ControlMessage& request) {
  ControlMessage answer;
  answer.kind = ControlKind::kSegment;
  answer.number = request.number;
  UniqueFd fd = context_.SegmentFd(request.number, &answer.size_bytes);
  if (!fd && IsOutOfDescriptors(errno)) {
    spare_.Reset();
    fd = context_.SegmentFd(request.number, &answer.size_bytes);
  }
  answer.error = fd ? 0 : ENOENT;
  const int raw = fd.get();
  const bool replied = Reply(link, answer, std::span(&raw, fd ? 1 : 0));
  fd.Reset();
  RenewSpare();
  return replied;
}

void InboundLinks::OnBadRequest(const ControlMessage& request) {
  std::shared_ptr<QpLife> life;
  context_.WithResponder(request.number, [&](Responder* responder) {
    if (responder != nullptr) life = responder->life();
  });
  if (life != nullptr) Qp::OnBadRequest(life, request.error);
}

void InboundLinks::OnDeath(const std::shared_ptr<Link>& link) {
  if (std::exchange(link->closed, true)) return;
  Loop::Get().Unwatch(link->socket.get());
  link->socket.Reset();
  if (!link->journal) {
    links_.erase(link->id);
    return;
  }
  link->copier->ended.store(true, std::memory_order_release);
  {
    std::lock_guard lock(copiers_mutex_);
    std::erase(copiers_, link->copier);
  }
  // Collects events that the dead sender recorded but did not report.
  context_.CollectNotices();
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
    srq->LookAtLimit();
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
  FreeForgotten();
  if (again && repair_timer_ == 0) {
    repair_timer_ = Loop::Get().After(kRepairAgainNs, [this] {
      repair_timer_ = 0;
      Repair();
    });
  }
}

}  // namespace sluice::softdc
