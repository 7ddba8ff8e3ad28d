// SPDX-License-Identifier: Apache-2.0
//
// Echo with active messages of UCX (echo_run.h has the command line). UCX_TLS selects the transport; both processes poll.
#include <ucp/api/ucp.h>

#include <cstring>

#include "echo_run.h"

namespace {

void Check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) peers::Die(what, ucs_status_string(status));
}

// One side: worker, endpoint to the other side, and what has come.
class Side {
 public:
  Side(size_t size_bytes, bool replies, int read_fd, int write_fd)
      : replies_(replies), out_(size_bytes, 'x'), in_(size_bytes, 'y') {
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM;
    ucp_config_t* config;
    Check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    ucp_context_h context;
    Check(ucp_init(&params, config, &context), "ucp_init");
    ucp_config_release(config);
    ucp_worker_params_t worker_params = {};
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
    Check(ucp_worker_create(context, &worker_params, &worker_), "ucp_worker_create");
    ucp_am_handler_param_t handler = {};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = 0;
    handler.cb = &Side::OnMessage;
    handler.arg = this;
    Check(ucp_worker_set_am_recv_handler(worker_, &handler), "ucp_worker_set_am_recv_handler");
    Exchange(read_fd, write_fd);
  }

  void Send() {
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK;
    param.cb.send = [](void* request, ucs_status_t, void*) { ucp_request_free(request); };
    const ucs_status_ptr_t sent =
        ucp_am_send_nbx(endpoint_, 0, nullptr, 0, out_.data(), out_.size(), &param);
    if (UCS_PTR_IS_ERR(sent)) Check(UCS_PTR_STATUS(sent), "ucp_am_send_nbx");
  }

  void Start() { Send(); }
  int Take() {
    const int before = came_;
    ucp_worker_progress(worker_);
    return came_ - before;
  }

 private:
  static ucs_status_t OnMessage(void* arg, const void*, size_t, void* data, size_t length,
                                const ucp_am_recv_param_t* param) {
    auto* self = static_cast<Side*>(arg);
    if (length != self->in_.size()) peers::Die("message", "it has another size");
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      std::memcpy(self->in_.data(), data, length);
      self->Came();
      return UCS_OK;
    }
    ucp_request_param_t receive = {};
    receive.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    receive.user_data = self;
    receive.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* user_data) {
      Check(status, "receive");
      ucp_request_free(request);
      static_cast<Side*>(user_data)->Came();
    };
    const ucs_status_ptr_t begun =
        ucp_am_recv_data_nbx(self->worker_, data, self->in_.data(), length, &receive);
    if (UCS_PTR_IS_ERR(begun)) Check(UCS_PTR_STATUS(begun), "ucp_am_recv_data_nbx");
    if (begun == nullptr) self->Came();
    return UCS_INPROGRESS;
  }

  void Came() {
    ++came_;
    if (replies_) Send();
  }

  void Exchange(int read_fd, int write_fd) {
    ucp_address_t* own;
    size_t length;
    Check(ucp_worker_get_address(worker_, &own, &length), "ucp_worker_get_address");
    if (write(write_fd, &length, sizeof(length)) != sizeof(length) ||
        write(write_fd, own, length) != static_cast<ssize_t>(length)) {
      peers::Die("pipe", "can't write");
    }
    ucp_worker_release_address(worker_, own);
    if (read(read_fd, &length, sizeof(length)) != sizeof(length)) peers::Die("pipe", "can't read");
    std::string other(length, 0);
    for (size_t have = 0; have < length;) {
      const ssize_t got = read(read_fd, other.data() + have, length - have);
      if (got <= 0) peers::Die("pipe", "can't read");
      have += static_cast<size_t>(got);
    }
    ucp_ep_params_t params = {};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(other.data());
    Check(ucp_ep_create(worker_, &params, &endpoint_), "ucp_ep_create");
  }

  const bool replies_;
  std::string out_, in_;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  int came_ = 0;
};

class Ucx {
 public:
  void Prepare() {
    if (pipe(up_) != 0 || pipe(down_) != 0) peers::Die("pipe", "can't create");
  }
  void Serve(size_t size_bytes) {
    Side side(size_bytes, true, up_[0], down_[1]);
    for (;;) side.Take();
  }
  Side* Connect(size_t size_bytes) {
    auto* side = new Side(size_bytes, false, down_[0], up_[1]);
    side->Start();
    while (side->Take() == 0) {
    }
    return side;
  }

 private:
  int up_[2], down_[2];
};

}  // namespace

int main(int argc, char** argv) { return peers::Main<Ucx>(argc, argv); }
