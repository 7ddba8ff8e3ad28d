// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/qp_transitions.h"

#include <cstddef>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "transport/softdc/model/mutation.h"

namespace sluice::softdc {
namespace {

constexpr QpTransition kDci[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN,
     IBV_QP_MIN_RNR_TIMER},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_MIN_RNR_TIMER},
    {kAnyState, IBV_QPS_RESET, 0, 0},
    {IBV_QPS_INIT, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTR, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_RTS, IBV_QPS_ERR, 0, 0},
    {IBV_QPS_ERR, IBV_QPS_ERR, 0, 0},
};

constexpr QpTransition kDct[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT, 0},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU, 0},
};

constexpr QpTransition kRc[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR,
     IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_MIN_RNR_TIMER,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE},
    {kAnyState, IBV_QPS_RESET, 0, 0},
    {kAnyState, IBV_QPS_ERR, 0, 0},
};

constexpr QpTransition kUc[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
     IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0,
     IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PATH_MIG_STATE},
    {kAnyState, IBV_QPS_RESET, 0, 0},
    {kAnyState, IBV_QPS_ERR, 0, 0},
};

constexpr QpTransition kUd[] = {
    {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
    {IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {kAnyState, IBV_QPS_RESET, 0, 0},
    {kAnyState, IBV_QPS_ERR, 0, 0},
};

struct Name {
  int value;
  const char* name;
};

constexpr Name kStates[] = {{kAnyState, "any"},   {IBV_QPS_RESET, "RESET"}, {IBV_QPS_INIT, "INIT"},
                            {IBV_QPS_RTR, "RTR"}, {IBV_QPS_RTS, "RTS"},     {IBV_QPS_SQD, "SQD"},
                            {IBV_QPS_ERR, "ERR"}};

constexpr Name kBits[] = {{IBV_QP_CUR_STATE, "CUR_STATE"},
                          {IBV_QP_QKEY, "QKEY"},
                          {IBV_QP_DEST_QPN, "DEST_QPN"},
                          {IBV_QP_RQ_PSN, "RQ_PSN"},
                          {IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"},
                          {IBV_QP_ALT_PATH, "ALT_PATH"},
                          {IBV_QP_PATH_MIG_STATE, "PATH_MIG_STATE"},
                          {IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS"},
                          {IBV_QP_PKEY_INDEX, "PKEY_INDEX"},
                          {IBV_QP_PORT, "PORT"},
                          {IBV_QP_AV, "AV"},
                          {IBV_QP_PATH_MTU, "PATH_MTU"},
                          {IBV_QP_TIMEOUT, "TIMEOUT"},
                          {IBV_QP_RETRY_CNT, "RETRY_CNT"},
                          {IBV_QP_RNR_RETRY, "RNR_RETRY"},
                          {IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC"},
                          {IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER"},
                          {IBV_QP_SQ_PSN, "SQ_PSN"}};

std::string StateName(int state) {
  for (const Name& n : kStates) {
    if (n.value == state) return n.name;
  }
  return absl::StrCat("state ", state);
}

std::string MaskNames(int mask) {
  std::string names;
  for (const Name& n : kBits) {
    if ((mask & n.value) != 0) absl::StrAppend(&names, names.empty() ? "" : "|", n.name);
  }
  return names.empty() ? "-" : names;
}

}  // namespace

std::span<const QpTransition> DciTransitions() { return kDci; }
std::span<const QpTransition> DctTransitions() { return kDct; }
std::span<const QpTransition> RcTransitions() { return kRc; }
std::span<const QpTransition> UcTransitions() { return kUc; }
std::span<const QpTransition> UdTransitions() { return kUd; }

const QpTransition* FindTransition(std::span<const QpTransition> table, ibv_qp_state from,
                                   ibv_qp_state to, int attr_mask) {
  const int mask = attr_mask & ~IBV_QP_STATE;
  for (const QpTransition& row : table) {
    const bool mask_fits =
        (mask & row.required) == row.required && (mask & ~(row.required | row.optional)) == 0;
    if ((row.from == kAnyState || row.from == static_cast<int>(from)) &&
        row.to == static_cast<int>(to) && (mask_fits || Mutated(Mutation::kSkipMaskCheck))) {
      return &row;
    }
  }
  return nullptr;
}

std::string PrintTransitions(std::span<const QpTransition> table) {
  std::string out;
  for (const QpTransition& row : table) {
    absl::StrAppend(&out, StateName(row.from), " -> ", StateName(row.to), "  required ",
                    MaskNames(row.required), "  optional ", MaskNames(row.optional), "\n");
  }
  return out;
}

}  // namespace sluice::softdc
