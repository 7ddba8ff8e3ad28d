// SPDX-License-Identifier: Apache-2.0
//
// Finds the features of a device. Each feature needs its query and one trial object: firmware was seen to report features that it then
// refuses, but not to refuse a feature that works.
#include <cerrno>
#include <cstring>
#include <string>

#include "transport/base/error.h"
#include "transport/device/device.h"
#include "transport/verbs/rc.h"

namespace sluice::device {
namespace {

using verbs::Feature;

std::string Reason(const char* call, int error_number) {
  const char* name = strerrorname_np(error_number);
  return std::string(call) + " says " + (name != nullptr ? name : "an unknown errno");
}

// Creates a trial key, and a trial queue pair that would stop at a wrong signature.
void ProbeSignature(const Device& device, bool offered, verbs::CapabilityReport* report) {
  const verbs::VerbsApi& api = device.api();
  if (!offered) {
    report->Set(Feature::kSignature, false, "the device offers no signature mkeys");
    report->Set(Feature::kSigPipelining, false, "needs signature mkeys");
    return;
  }
  mlx5dv_mkey_init_attr attr = {};
  attr.pd = device.pd();
  attr.create_flags =
      MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE;
  attr.max_entries = 1;
  errno = 0;
  mlx5dv_mkey* key = api.dv_create_mkey(&attr);
  if (key == nullptr) {
    report->Set(Feature::kSignature, false,
                Reason("mlx5dv_create_mkey", errno != 0 ? errno : EINVAL));
    report->Set(Feature::kSigPipelining, false, "needs signature mkeys");
    return;
  }
  api.dv_destroy_mkey(key);
  report->Set(Feature::kSignature, true, "a trial signature mkey was made");
  auto cq = verbs::CreateCq(api, device.context(), 16, nullptr);
  absl::Status status = cq.status();
  if (status.ok()) {
    status = verbs::CreateRc(api, device.context(), device.pd(), cq->get(), cq->get(),
                             {.send_depth = 16,
                              .receive_depth = 1,
                              .max_inline_bytes = 64,
                              .mkeys = true,
                              .pipelining = true})
                 .status();
  }
  report->Set(Feature::kSigPipelining, status.ok(),
              status.ok() ? "a trial queue pair would stop at a wrong signature"
                          : std::string(status.message()));
}

}  // namespace

void Device::Probe(Use use) {
  absl::Status status =
      use == Use::kRc ? absl::UnimplementedError("RC was asked for (/rc)") : ProbeDc();
  if (!status.ok()) {
    capabilities_.Set(Feature::kDc, false, std::string(status.message()));
    for (int i = 0; i < verbs::kFeatureCount; ++i) {
      const auto feature = static_cast<Feature>(i);
      if (feature != Feature::kDc) capabilities_.Set(feature, false, "needs DC");
    }
    return;
  }
  ProbeReservedQpn();
  mlx5dv_context dv = {};
  dv.comp_mask = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
  const bool reported = api().dv_query_device(context_.get(), &dv) == 0 &&
                        (dv.comp_mask & MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD) != 0;
  const bool offered = reported && dv.sig_caps.block_prot != 0;
  ProbeSignature(*this, offered, &capabilities_);
}

absl::Status Device::ProbeRc() {
  auto cq = verbs::CreateCq(api(), context_.get(), 16, nullptr);
  if (!cq.ok()) return cq.status();
  auto srq = verbs::CreateSrq(api(), pd_.get(), 16);
  if (!srq.ok()) return srq.status();
  auto qp = verbs::CreateSharedRc(api(), pd_.get(), cq->get(), cq->get(), srq->get(), 16);
  if (!qp.ok()) return qp.status();
  absl::Status status = verbs::InitRc(api(), qp->get(), path_, 0);
  if (status.ok()) ProbeOnRc(qp->get());
  return status;
}

// The answer is about a queue pair in RTS. So the trial queue pair is connected with itself, and sends nothing.
void Device::ProbeOnRc(ibv_qp* qp) {
  verbs::RcRoute route{.ah = verbs::AddressVector(path_), .number = qp->qp_num};
  route.ah.dlid = lid_;
  absl::Status status = absl::NotFoundError("the port has no GID");
  if (api().query_gid(context_.get(), path_.port, path_.sgid_index, &route.ah.grh.dgid) == 0) {
    status = verbs::ConnectRc(api(), qp, path_, route);
  }
  if (status.ok()) rc_write_order_ = verbs::QueryDataOrder(api(), qp, IBV_WR_RDMA_WRITE);
  capabilities_.Set(Feature::kDataInOrder, rc_write_order_ != verbs::DataOrder::kNone,
                    status.ok() ? "the trial RC queue pair in RTS promises " +
                                      std::string(verbs::Name(rc_write_order_))
                                : std::string(status.message()));
}

absl::Status Device::ProbeDc() {
  if (!api().dv_is_supported(context_->device)) {
    return absl::UnimplementedError("not an mlx5 device: no DC transport");
  }
  auto cq = verbs::CreateCq(api(), context_.get(), 16, nullptr);
  if (!cq.ok()) return cq.status();
  auto srq = verbs::CreateSrq(api(), pd_.get(), 16);
  if (!srq.ok()) return srq.status();

  auto dct = verbs::CreateDct(api(), context_.get(), pd_.get(), cq->get(), srq->get(), 1);
  if (!dct.ok()) return dct.status();
  absl::Status status = verbs::ActivateDct(api(), dct->get(), path_, IBV_ACCESS_REMOTE_WRITE);
  if (!status.ok()) return status;

  auto dci = verbs::CreateDci(api(), context_.get(), pd_.get(), cq->get(), {.send_depth = 16});
  if (!dci.ok()) return dci.status();
  status = verbs::ActivateDci(api(), dci->get(), path_);
  if (!status.ok() && path_.max_rd_atomic > 1) {
    // A device may support fewer READs on a DCI than on other queue pairs. Before rdma-core 47, no query reports how many.
    path_.max_rd_atomic = 1;
    status = verbs::ResetDci(api(), dci->get());
    if (status.ok()) status = verbs::ActivateDci(api(), dci->get(), path_);
  }
  if (!status.ok()) return status;
  limits_.reads = path_.max_rd_atomic;

  capabilities_.Set(Feature::kDc, true, "a trial DCI reached RTS, a trial DCT RTR");
  ProbeStreams(cq->get());
  ProbeOnDci(dci->get());
  ProbeOnDct(dct->get());
  return absl::OkStatus();
}

void Device::ProbeStreams(ibv_cq* cq) {
  mlx5dv_context dv = {};
  dv.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS;
  const int error_number = api().dv_query_device(context_.get(), &dv);
  if (error_number != 0 || (dv.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS) == 0 ||
      dv.dci_streams_caps.max_log_num_concurent == 0) {
    const char* why =
        "the device reports no DCI streams: one failed peer costs a whole-DCI recovery";
    capabilities_.Set(Feature::kStreams, false, why);
    capabilities_.Set(Feature::kStreamReset, false, "needs streams");
    return;
  }
  const uint8_t log_streams = dv.dci_streams_caps.max_log_num_concurent;
  const uint8_t log_errored = dv.dci_streams_caps.max_log_num_errored;
  auto dci = verbs::CreateDci(api(), context_.get(), pd_.get(), cq,
                              {.send_depth = 16,
                               .streams = true,
                               .log_concurrent = log_streams,
                               .log_errored = log_errored});
  absl::Status status = dci.status();
  if (status.ok()) status = verbs::ActivateDci(api(), dci->get(), path_);
  if (!status.ok()) {
    capabilities_.Set(Feature::kStreams, false, std::string(status.message()));
    capabilities_.Set(Feature::kStreamReset, false, "needs streams");
    return;
  }
  limits_.log_streams = log_streams;
  limits_.log_errored_streams = log_errored;
  capabilities_.Set(Feature::kStreams, true,
                    std::to_string(1 << log_streams) + " concurrent streams a DCI, " +
                        std::to_string(1 << log_errored) + " may be in error");
  if (log_errored == 0) {
    capabilities_.Set(Feature::kStreamReset, false,
                      "max_log_num_errored is 0: the first errored stream stops the DCI");
    return;
  }
  // No stream is in error, so firmware that has the command refuses it (EINVAL). A device without the command returns EOPNOTSUPP.
  const int reset = api().dv_dci_stream_id_reset(dci->get(), 0);
  const bool on = reset == 0 || reset == EINVAL;
  capabilities_.Set(
      Feature::kStreamReset, on,
      on ? "the trial DCI knows the command" : Reason("mlx5dv_dci_stream_id_reset", reset));
}

void Device::ProbeOnDci(ibv_qp* dci) {
  ibv_ah_attr attr = verbs::AddressVector(path_);
  if (api().query_gid(context_.get(), path_.port, path_.sgid_index, &attr.grh.dgid) == 0) {
    errno = 0;
    verbs::Ah ah(&api(), api().create_ah(pd_.get(), &attr));
    if (!ah) {
      capabilities_.Set(Feature::kAhMapping, false,
                        Reason("ibv_create_ah to this host itself", errno != 0 ? errno : EINVAL));
    } else {
      const int error_number = api().dv_map_ah_to_qp(ah.get(), dci->qp_num);
      capabilities_.Set(Feature::kAhMapping, error_number == 0,
                        error_number == 0 ? "a trial address handle was mapped"
                                          : Reason("mlx5dv_map_ah_to_qp", error_number));
    }
  } else {
    capabilities_.Set(Feature::kAhMapping, false, "the port has no GID");
  }

  ibv_ece ece = {};
  const int error_number = api().query_ece(dci, &ece);
  if (error_number != 0) {
    capabilities_.Set(Feature::kEce, false, Reason("ibv_query_ece", error_number));
  } else if (ece.vendor_id == 0 || ece.options == 0) {
    capabilities_.Set(Feature::kEce, false, "the trial DCI offers no options");
  } else {
    ece_ = ece;
    char options[16];
    std::snprintf(options, sizeof(options), "0x%x", ece.options);
    capabilities_.Set(Feature::kEce, true, std::string("the trial DCI offers options ") + options);
  }
}

// Reports the data order of a trial DCT. Each lane queries its own DCT later.
void Device::ProbeOnDct(ibv_qp* dct) {
  const verbs::DataOrder order = verbs::QueryDataOrder(api(), dct, IBV_WR_RDMA_WRITE);
  capabilities_.Set(Feature::kDataInOrder, order != verbs::DataOrder::kNone,
                    "the trial DCT in RTR promises " + std::string(verbs::Name(order)) +
                        " (no relaxed ordering, no out-of-order placement)");
}

void Device::ProbeReservedQpn() {
  uint32_t qpn = 0;
  int error_number = api().dv_reserved_qpn_alloc(context_.get(), &qpn);
  if (error_number == 0) error_number = api().dv_reserved_qpn_dealloc(context_.get(), qpn);
  capabilities_.Set(Feature::kReservedQpn, error_number == 0,
                    error_number == 0 ? "a trial number was reserved"
                                      : Reason("mlx5dv_reserved_qpn_alloc", error_number) +
                                            ": a dummy QP per connection instead");
}

}  // namespace sluice::device
