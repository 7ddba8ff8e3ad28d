// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/sender.h"

#include <cerrno>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "transport/base/error.h"

namespace sluice::hardware {

absl::StatusOr<std::unique_ptr<Sender>> Sender::Create(const Nic& nic,
                                                       const SenderOptions& options) {
  auto sender = std::unique_ptr<Sender>(new Sender(nic));
  sender->path_ = nic.Path();
  sender->path_.timeout = options.timeout;
  sender->path_.retry_count = options.retry_count;
  if (options.mtu_bytes != 0) sender->path_.mtu = MtuOf(options.mtu_bytes);
  auto memory = Memory::Create(nic);
  if (!memory.ok()) return memory.status();
  sender->memory_ = *std::move(memory);
  auto cq = verbs::CreateCq(*nic.api, nic.context.get(), 2 * options.send_depth, nullptr);
  if (!cq.ok()) return cq.status();
  sender->cq_ = *std::move(cq);
  auto dci = verbs::CreateDci(*nic.api, nic.context.get(), nic.pd.get(), sender->cq_.get(),
                              {.send_depth = options.send_depth,
                               .streams = options.streams,
                               .log_concurrent = options.log_concurrent,
                               .log_errored = options.log_errored});
  if (!dci.ok()) return dci.status();
  sender->dci_ = *std::move(dci);
  const absl::Status status = verbs::ActivateDci(*nic.api, sender->dci_.get(), sender->path_);
  if (!status.ok()) return status;
  return sender;
}

Sender::~Sender() {
  ahs_.clear();
  dci_.qp.reset();
  cq_.reset();
}

absl::StatusOr<ibv_ah*> Sender::AhTo(const TargetAddress& to) {
  const std::string key =
      absl::StrCat(to.lid, " ", std::string(reinterpret_cast<const char*>(to.gid.raw), 16));
  verbs::Ah& ah = ahs_[key];
  if (!ah) {
    ibv_ah_attr attr{};
    attr.port_num = nic_.port_number;
    attr.dlid = nic_.infiniband() ? to.lid : 0;
    attr.is_global = 1;
    attr.grh.dgid = to.gid;
    attr.grh.sgid_index = path_.sgid_index;
    attr.grh.hop_limit = 64;
    errno = 0;
    ah = verbs::Ah(nic_.api, nic_.api->create_ah(nic_.pd.get(), &attr));
    if (!ah) {
      return base::ErrnoError(errno != 0 ? errno : EINVAL, "an address handle to the target",
                              {.layer = "hardware",
                               .operation = "ibv_create_ah",
                               .cause = "no route to the target's GID",
                               .remedy = "see that the hosts reach each other (ping)"});
    }
  }
  return ah.get();
}

int Sender::Post(const TargetAddress& to, const Request& request) {
  const auto ah = AhTo(to);
  if (!ah.ok()) return EHOSTUNREACH;
  ibv_qp_ex* const ex = dci_.ex;
  ibv_wr_start(ex);
  ex->wr_id = request.id;
  ex->wr_flags = request.flags;
  const uint32_t rkey = request.bad_key ? kNoKey : to.rkey;
  if (request.opcode == IBV_WR_SEND) {
    ibv_wr_send(ex);
  } else if (request.opcode == IBV_WR_RDMA_WRITE) {
    ibv_wr_rdma_write(ex, rkey, to.memory);
  } else {
    ibv_wr_rdma_read(ex, rkey, to.memory);
  }
  ibv_wr_set_sge(ex, memory_->mr()->lkey, memory_->address(), request.bytes);
  mlx5dv_wr_set_dc_addr_stream(dci_.dv, *ah, to.dctn, to.dc_key, request.stream);
  return ibv_wr_complete(ex);
}

std::optional<ibv_wc> Sender::Await(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (true) {
    ibv_wc wc{};
    if (ibv_poll_cq(cq_.get(), 1, &wc) == 1) return wc;
    if (absl::Now() >= end) return std::nullopt;
    std::this_thread::yield();
  }
}

absl::StatusOr<ibv_wc> Sender::Do(const TargetAddress& to, const Request& request) {
  if (const int error = Post(to, request); error != 0) {
    return base::ErrnoError(error, "posting a request",
                            {.layer = "hardware", .operation = "ibv_wr_complete"});
  }
  const std::optional<ibv_wc> wc = Await();
  if (wc.has_value()) return *wc;
  return base::Error(absl::StatusCode::kDeadlineExceeded, "no completion came in 10 s",
                     {.layer = "hardware", .operation = "ibv_poll_cq"});
}

absl::StatusOr<ibv_qp_state> Sender::State() const {
  return verbs::QueryState(*nic_.api, dci_.get());
}

absl::Status Sender::ToError() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  const int error = nic_.api->modify_qp(dci_.get(), &attr, IBV_QP_STATE);
  if (error == 0) return absl::OkStatus();
  return base::ErrnoError(error, "moving a DCI to ERR",
                          {.layer = "hardware", .operation = "ibv_modify_qp"});
}

absl::Status Sender::Recover() {
  const absl::Status status = verbs::ResetDci(*nic_.api, dci_.get());
  return status.ok() ? verbs::ActivateDci(*nic_.api, dci_.get(), path_) : status;
}

}  // namespace sluice::hardware
