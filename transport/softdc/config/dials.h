// SPDX-License-Identifier: Apache-2.0
//
// Dials: the capabilities of a softdc device, and its behaviour where real devices differ or their behaviour
// is unknown. SOFTDC_CONFIG (config.h) sets them for softdc0 and for simulated devices. For simulated
// devices, code can set them too. proto/softdc_config.proto describes each member and the facts behind it.
//
// Ownership     A plain struct with the documented defaults. The dials of a device do not change once it is open.
#ifndef SLUICE_TRANSPORT_SOFTDC_CONFIG_DIALS_H_
#define SLUICE_TRANSPORT_SOFTDC_CONFIG_DIALS_H_

#include <cstdint>

namespace sluice::softdc {

enum class CqeOrder : uint8_t { kPosting, kPerStream };
enum class WrongDcKey : uint8_t { kNoResponse, kRemoteAccessError };
enum class FenceScope : uint8_t { kQueue, kStream };
enum class TooLongAtTarget : uint8_t { kLocalLengthError, kSilent };
enum class InOrder : uint8_t { kWholeMessage, kBlocks128, kNone };
enum class FullCq : uint8_t { kOverrun, kWait };
enum class UnsignalledFlush : uint8_t { kCompletion, kSilent };
enum class LinkLayer : uint8_t { kRoce, kInfiniband };
enum class ForeignGid : uint8_t { kAnswered, kLost };
enum class RoceV1 : uint8_t { kNone, kBefore, kAfter };

struct Dials {
  struct Streams {
    bool enabled = true;
    uint8_t max_log_concurrent = 6;
    uint8_t max_log_errored = 4;
    int64_t error_state_delay_ns = 0;
    CqeOrder cqe_order = CqeOrder::kPosting;
    bool operator==(const Streams&) const = default;
  } streams;

  struct Unknowns {
    WrongDcKey wrong_dc_key = WrongDcKey::kNoResponse;
    FenceScope fence_scope = FenceScope::kQueue;
    TooLongAtTarget too_long_at_target = TooLongAtTarget::kLocalLengthError;
    FullCq full_receive_cq = FullCq::kOverrun;
    ForeignGid foreign_gid = ForeignGid::kAnswered;
    UnsignalledFlush unsignalled_flush = UnsignalledFlush::kCompletion;
    bool operator==(const Unknowns&) const = default;
  } unknowns;

  struct Features {
    InOrder in_order = InOrder::kWholeMessage;
    bool ece = true;
    uint32_t ece_options = 0x30000003;
    bool ah_mapping = true;
    bool reserved_qpns = true;
    bool reissue_dead_numbers = true;
    bool signature = true;
    bool signature_pipelining = true;
    bool atomics = true;
    bool dc = true;
    bool operator==(const Features&) const = default;
  } features;

  struct Port {
    LinkLayer link_layer = LinkLayer::kRoce;
    uint16_t lid = 1;  // InfiniBand only
    RoceV1 roce_v1 = RoceV1::kNone;
    bool second_device = false;
    uint16_t active_mtu = 4096;
    uint16_t second_pkey = 0;  // 0: none
    bool operator==(const Port&) const = default;
  } port;

  struct Limits {
    uint32_t max_send_wr = 32768;
    uint32_t max_recv_wr = 32768;
    uint32_t max_sge = 30;
    uint32_t max_inline_bytes = 512;
    uint32_t max_cqe = (1 << 22) - 1;
    uint32_t max_srq_wr = 32767;
    uint32_t max_rd_atomic = 16;
    uint32_t max_message_bytes = 1u << 30;
    bool operator==(const Limits&) const = default;
  } limits;

  // RDMA_CM. Defaults as in a Linux kernel.
  struct Cm {
    int64_t retry_ns = 6'400'000'000;
    uint32_t max_attempts = 16;
    uint8_t packet_lifetime = 16;  // log2 of 4.096 us
    bool static_rate = false;
    bool flow_labels = false;
    bool operator==(const Cm&) const = default;
  } cm;

  // How the shm fabric reaches memory that peers cannot map, and how much memory can be registered.
  struct Memory {
    bool move_private = true;
    bool process_vm = true;
    uint64_t memlock_bytes = 0;  // 0: no limit
    bool operator==(const Memory&) const = default;
  } memory;

  // Retries of a request that is not acknowledged.
  struct Retries {
    uint8_t min_timeout = 0;  // log2 of 4.096 us
    uint8_t timeout_factor = 1;
    int64_t total_retry_ns = 0;  // 0: timeout and retry count of the queue
    bool operator==(const Retries&) const = default;
  } retries;

  bool operator==(const Dials&) const = default;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_CONFIG_DIALS_H_
