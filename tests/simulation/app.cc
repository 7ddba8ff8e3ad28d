// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/app.h"

#include <arpa/inet.h>

#include <string>
#include <utility>

#include "tests/simulation/payload.h"

namespace sluice::simulation {
namespace {

constexpr int64_t kMs = 1'000'000;
// In a frame that nobody else reads.
constexpr uint64_t kWantsReply = 1;

std::string AddressOf(uint32_t node) {
  char text[INET_ADDRSTRLEN];
  const in_addr address = softdc::sim::Simulation::Address(node);
  return inet_ntop(AF_INET, &address, text, sizeof(text));
}

// The host of "10.x.y.z" or "10.x.y.z:port".
uint32_t NodeOf(const std::string& address) {
  in_addr parsed = {};
  inet_pton(AF_INET, address.substr(0, address.find(':')).c_str(), &parsed);
  return (ntohl(parsed.s_addr) & 0xffffff) - 1;
}

uint64_t NameOf(uint32_t end, uint32_t number) { return uint64_t{end} << 32 | number; }

}  // namespace

App::App(Scene& scene, uint32_t node, uint32_t life, RunAs run)
    : scene_(scene),
      node_(node),
      life_(life),
      run_(std::move(run)),
      random_(scene.plan.network.seed * 31 + node * 1'000'003u + life) {}

void App::Listen() {
  const auto port = endpoint_->Listen("*", kPort);
  if (!port.ok()) scene_.ledger.Break("listen", port.status().ToString(), node_, node_);
}

void App::Connect(uint32_t to) {
  if (leaving_) return;
  const auto id = endpoint_->Connect(AddressOf(to), kPort, scene_.now_ns() + 300 * kMs);
  scene_.trail.Add(scene_.now_ns(), node_, to, Step::kDial,
                   static_cast<uint64_t>(id.status().code()), 0);
  if (!id.ok()) return Redial(to);
  attempts_.push_back({*id, to});
}

void App::Redial(uint32_t to) {
  if (leaving_) return;
  const auto wait_ns = kMs + static_cast<int64_t>(random_.Below(10 * kMs));
  run_(wait_ns, [this, to] { Connect(to); });
}

void App::LeaveSometimes(Link& link) {
  if (scene_.quiet || link.left || !random_.Chance(scene_.plan.workload.leave_ppm)) return;
  link.left = true;
  endpoint_->Disconnect(link.id);
}

App::Link* App::Find(endpoint::PeerId peer) {
  if (peer.index >= links_.size() || links_[peer.index].id != peer) return nullptr;
  return &links_[peer.index];
}

void App::OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) {
  if (dead_)
    return;  // the event had come before the end, and is found when the remains are cleared away
  if (peer.index >= links_.size()) links_.resize(peer.index + 1);
  Link& link = links_[peer.index];
  link = {};
  link.id = peer;
  link.to = NodeOf(info.address);
  if (!Alike(link.to)) {
    scene_.ledger.Break("refusal", "a host with DC and one with RC are connected", node_, link.to);
  }
  link.most_bytes = info.max_message_bytes - frame::kHeaderBytes;
  link.end = scene_.ledger.Up(node_, link.to);
  link.dialled = std::erase_if(attempts_, [&](const Attempt& a) { return a.id == peer; }) != 0;
  scene_.trail.Add(scene_.now_ns(), node_, link.to, Step::kUp, link.end, 0);
  scene_.Note(uint64_t{link.end} << 8 | 1);
  std::vector<endpoint::SendBuffer> buffers;
  for (auto buffer = sessions_->Reserve(peer, 0); buffer.ok();
       buffer = sessions_->Reserve(peer, 0)) {
    buffers.push_back(*buffer);
  }
  link.credits = static_cast<uint32_t>(buffers.size());
  for (const endpoint::SendBuffer& buffer : buffers) sessions_->Cancel(peer, buffer);
  StartBurst(peer);
}

void App::OnPeerDown(endpoint::PeerId peer, const absl::Status& why) {
  scene_.Note(uint64_t{peer.index} << 8 | 2);
  Link* link = Find(peer);
  if (link == nullptr) {
    for (size_t i = 0; i < attempts_.size(); ++i) {
      if (attempts_[i].id != peer) continue;
      const uint32_t to = attempts_[i].to;
      scene_.trail.Add(scene_.now_ns(), node_, to, Step::kDown, kNoEnd,
                       static_cast<uint64_t>(why.code()));
      attempts_.erase(attempts_.begin() + static_cast<ptrdiff_t>(i));
      scene_.ledger.NotUp(node_, to);
      if (!Alike(to) && absl::IsFailedPrecondition(why)) {
        scene_.refused.emplace(node_, to);
        return;
      }
      return Redial(to);
    }
    return;
  }
  const uint32_t to = link->to;
  scene_.trail.Add(scene_.now_ns(), node_, to, Step::kDown, link->end,
                   static_cast<uint64_t>(why.code()));
  scene_.ledger.Down(link->end, why.ToString(), leaving_ || link->left);
  const bool dialled = link->dialled;
  *link = {};
  if (dialled) Redial(to);
}

void App::StartBurst(endpoint::PeerId peer) {
  Link* link = Find(peer);
  if (link == nullptr || scene_.quiet) return;
  link->burst += scene_.plan.workload.DrawBurst(random_);
  Pump(*link);
  endpoint_->Flush();
}

void App::Pump(Link& link) {
  const Workload& workload = scene_.plan.workload;
  while (link.replies != 0) {
    if (!SendOne(link, /*wants_reply=*/false, /*wants_report=*/false)) return;
    --link.replies;
  }
  while (link.burst != 0) {
    if (scene_.ledger.sent() >= scene_.plan.stop_after) link.burst = 0;
    if (link.burst == 0) break;
    const bool wants_reply = random_.Chance(workload.reply_ppm);
    if (!SendOne(link, wants_reply, random_.Chance(workload.report_ppm))) return;
    if (--link.burst == 0) {
      run_(workload.DrawPauseNs(random_), [this, id = link.id] { StartBurst(id); });
    }
  }
  if (link.last && SendOne(link, /*wants_reply=*/false, /*wants_report=*/true)) link.last = false;
}

bool App::SendOne(Link& link, bool wants_reply, bool wants_report) {
  const uint32_t bytes = scene_.plan.workload.DrawBytes(random_, link.most_bytes);
  auto buffer = sessions_->Reserve(link.id, bytes);
  if (!buffer.ok()) {
    if (buffer.status().code() != absl::StatusCode::kResourceExhausted &&
        buffer.status().code() != absl::StatusCode::kUnavailable) {
      scene_.ledger.Break("reserve", buffer.status().ToString(), node_, link.to);
    }
    return false;
  }
  const uint32_t number = scene_.ledger.Sent(link.end);
  const uint64_t name = NameOf(link.end, number);
  FillPayload(name, {buffer->data, bytes});
  frame::Header header;
  header.call_id = name;
  header.method_id = PayloadWord(name, bytes) | 1;
  header.timeout_ns = wants_reply ? kWantsReply : 0;
  header.payload_bytes = bytes;
  sessions_->Commit(link.id, *buffer, header, wants_report);
  scene_.trail.Add(scene_.now_ns(), node_, link.to, Step::kCommit, link.end, number);
  return true;
}

void App::OnMessage(endpoint::PeerId peer, const frame::Header& header,
                    std::span<const std::byte> payload) {
  Link* link = Find(peer);
  if (dead_) return;
  if (link == nullptr) {
    return scene_.ledger.Break("1 Delivery", "a message from a peer that is not up", node_, node_);
  }
  const auto from = static_cast<uint32_t>(header.call_id >> 32);
  const auto number = static_cast<uint32_t>(header.call_id);
  scene_.trail.Add(scene_.now_ns(), node_, link->to, Step::kDeliver, link->end, number);
  scene_.Note(header.call_id);
  scene_.ledger.Delivered(link->end, from, number);
  if (header.method_id != (PayloadWord(header.call_id, payload.size()) | 1) ||
      !IsPayload(header.call_id, payload)) {
    scene_.ledger.Break("1 Delivery", "message " + std::to_string(number) + " has other bytes",
                        node_, link->to);
  }
  LeaveSometimes(*link);
  if (header.timeout_ns != kWantsReply) return;
  ++link->replies;
  Pump(*link);
}

void App::OnWritable(endpoint::PeerId peer) {
  Link* link = Find(peer);
  if (link == nullptr) return;
  LeaveSometimes(*link);
  Pump(*link);
}

void App::OnDelivered(endpoint::PeerId peer, uint32_t sequence) {
  Link* link = Find(peer);
  if (link == nullptr) return;
  scene_.trail.Add(scene_.now_ns(), node_, link->to, Step::kAcked, link->end, sequence);
  scene_.ledger.Acknowledged(link->end, sequence);
  LeaveSometimes(*link);
}

void App::OnProtocolError(endpoint::PeerId peer, std::string_view what,
                          std::string_view explanation) {
  const Link* link = Find(peer);
  scene_.ledger.Break("1 Delivery", std::string(what) + ": " + std::string(explanation), node_,
                      link == nullptr ? node_ : link->to);
  endpoint_->Disconnect(peer);
}

void App::Die() {
  leaving_ = dead_ = true;
  for (Link& link : links_) {
    if (link.end != kNoEnd) scene_.ledger.Down(link.end, "killed", /*announced=*/true);
    link = {};
  }
  for (const Attempt& attempt : attempts_) scene_.ledger.NotUp(node_, attempt.to);
  attempts_.clear();
}

void App::SendLast() {
  for (Link& link : links_) {
    if (link.end == kNoEnd) continue;
    link.last = true;
    Pump(link);
  }
  endpoint_->Flush();
}

bool App::said_last() const {
  for (const Link& link : links_) {
    if (link.end != kNoEnd && (link.last || link.replies != 0)) return false;
  }
  return true;
}

App::Room App::Measure() {
  Room room;
  std::vector<std::pair<endpoint::PeerId, endpoint::SendBuffer>> taken;
  for (const Link& link : links_) {
    if (link.end == kNoEnd) continue;
    uint32_t credits = 0;
    for (;; ++credits) {
      auto buffer = sessions_->Reserve(link.id, 0);
      if (buffer.ok()) {
        taken.emplace_back(link.id, *buffer);
        continue;
      }
      if (buffer.status().message().find("buffer") != std::string_view::npos) {
        room.short_of_buffers = true;
      } else if (credits < link.credits) {
        room.missing_credits += link.credits - credits;
      }
      break;
    }
  }
  room.reserved = static_cast<uint32_t>(taken.size());
  for (const auto& [peer, buffer] : taken) sessions_->Cancel(peer, buffer);
  return room;
}

void App::Leave() {
  leaving_ = true;
  for (const Link& link : links_) {
    if (link.end != kNoEnd) endpoint_->Disconnect(link.id);
  }
  for (const Attempt& attempt : attempts_) endpoint_->Disconnect(attempt.id);
}

}  // namespace sluice::simulation
