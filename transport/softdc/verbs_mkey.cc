// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/verbs_mkey.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/softdc/model/mkey.h"
#include "transport/softdc/model/qp.h"

namespace sluice::softdc {

mlx5dv_mkey* DvCreateMkey(mlx5dv_mkey_init_attr* attr) {
  if (attr == nullptr || attr->pd == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  Mkey* mkey = Mkey::Create(attr);
  return mkey == nullptr ? nullptr : &mkey->base;
}

int DvDestroyMkey(mlx5dv_mkey* mkey) {
  if (mkey == nullptr) return EINVAL;
  delete Mkey::From(mkey);
  return 0;
}

int DvMkeyCheckSized(mlx5dv_mkey* mkey, mlx5dv_mkey_err* error, size_t size_bytes) {
  if (mkey == nullptr || error == nullptr) return EINVAL;
  mlx5dv_mkey_err whole{};
  const int result = Mkey::From(mkey)->Check(&whole);
  if (result == 0) std::memcpy(error, &whole, std::min(size_bytes, sizeof(whole)));
  return result;
}

int DvQpCancelPostedSendWrs(mlx5dv_qp_ex* dv, uint64_t wr_id) {
  if (dv == nullptr) return -EINVAL;
  return SendQueue::Of(dv).Cancel(wr_id);
}

}  // namespace sluice::softdc
