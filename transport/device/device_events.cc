// SPDX-License-Identifier: Apache-2.0
#include "transport/device/device_events.h"

namespace sluice::device {
namespace {

using R = Reaction;

constexpr EventRule kRules[] = {
    {IBV_EVENT_PORT_ERR, "port error", R::kPortDown, "endpoint",
     "new connections fail at once; peers stay while their traffic arrives"},
    {IBV_EVENT_PORT_ACTIVE, "port active", R::kPortUp, "endpoint", "connects again"},
    {IBV_EVENT_GID_CHANGE, "GID change", R::kAddresses, "path, receive",
     "new address handles for new peers; our own address moved: peers end, new targets"},
    {IBV_EVENT_LID_CHANGE, "LID change", R::kAddresses, "path, receive", "as with GID change"},
    {IBV_EVENT_PKEY_CHANGE, "P_Key change", R::kCount, "queue",
     "requests that no longer pass fail, and say so"},
    {IBV_EVENT_SM_CHANGE, "SM change", R::kCount, "kernel", "asks the new one for paths"},
    {IBV_EVENT_CLIENT_REREGISTER, "client reregister", R::kCount, "kernel",
     "registers again; Sluice is in no multicast group"},
    {IBV_EVENT_DEVICE_FATAL, "device fatal", R::kBroken, "endpoint",
     "all peers end, nothing new begins; unplugged devices say this too"},
    {IBV_EVENT_CQ_ERR, "CQ error", R::kBroken, "endpoint",
     "as with device fatal: completions are lost"},
    {IBV_EVENT_SRQ_ERR, "SRQ error", R::kBroken, "endpoint",
     "as with device fatal: no message is received"},
    {IBV_EVENT_SRQ_LIMIT_REACHED, "SRQ limit", R::kCount, "receive", "never armed"},
    {IBV_EVENT_QP_FATAL, "QP fatal", R::kTarget, "receive, queue",
     "a DCT: peers end, a new one is made; a DCI: its completions tell, the queue recovers it"},
    {IBV_EVENT_QP_REQ_ERR, "QP request error", R::kTarget, "receive, queue", "as with QP fatal"},
    {IBV_EVENT_QP_ACCESS_ERR, "QP access error", R::kTarget, "receive, queue", "as with QP fatal"},
    {IBV_EVENT_COMM_EST, "communication established", R::kCount, "nobody", "not for DC"},
    {IBV_EVENT_SQ_DRAINED, "SQ drained", R::kCount, "integrity",
     "a wrong signature stopped a signed queue, whose owner tells it so"},
    {IBV_EVENT_PATH_MIG, "path migrated", R::kCount, "nobody", "no alternate paths"},
    {IBV_EVENT_PATH_MIG_ERR, "path migration error", R::kCount, "nobody", "no alternate paths"},
    {IBV_EVENT_QP_LAST_WQE_REACHED, "last WQE reached", R::kTarget, "onesided",
     "an RC queue pair of a mover: its peer ends; also comes of ending a queue pair ourselves"},
    {IBV_EVENT_WQ_FATAL, "WQ fatal", R::kCount, "nobody", "no work queues"},
};

std::string_view Name(Reaction reaction) {
  switch (reaction) {
    case R::kCount:
      return "counted";
    case R::kPortDown:
      return "port down";
    case R::kPortUp:
      return "port up";
    case R::kAddresses:
      return "addresses";
    case R::kTarget:
      return "target";
    case R::kBroken:
      return "broken";
  }
  return "";
}

}  // namespace

std::span<const EventRule> EventRules() { return kRules; }

const EventRule* FindRule(int type) {
  for (const EventRule& rule : kRules) {
    if (rule.type == type) return &rule;
  }
  return nullptr;
}

const void* ObjectOf(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp;
    default:
      return nullptr;
  }
}

std::string PrintEventRules() {
  std::string text;
  for (const EventRule& rule : kRules) {
    text.append(rule.name).append(": ").append(Name(rule.reaction)).append("; ");
    text.append(rule.owner).append(": ").append(rule.what).append("\n");
  }
  return text.append("anything else: counted\n");
}

}  // namespace sluice::device
