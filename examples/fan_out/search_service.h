// SPDX-License-Identifier: Apache-2.0
//
// SearchService: asks all shards at the same time, waits as long as it may, and answers with what it has.
#ifndef SLUICE_EXAMPLES_FAN_OUT_SEARCH_SERVICE_H_
#define SLUICE_EXAMPLES_FAN_OUT_SEARCH_SERVICE_H_

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "examples/fan_out/fan_out.h"
#include "examples/fan_out/search.sluice.h"
#include "middleware/api/channel.h"

namespace sluice::examples::fan_out {

class SearchService final : public SearchCoServiceBase {
 public:
  // `patience`: how long shards are waited for. The caller's deadline counts too, and its cancel.
  SearchService(std::vector<std::shared_ptr<Channel>> shards, absl::Duration patience)
      : patience_(patience) {
    for (auto& shard : shards) {
      names_.push_back(shard->server());
      shards_.emplace_back(std::move(shard));
    }
  }

  Task<absl::Status> Search(ServerContext& server, const Query& query, Results* results) override {
    // One context each: it has the reply's metadata.
    std::vector<CallContext> contexts(shards_.size(), CallContext::FromServer(server, patience_));
    std::vector<Words> replies(shards_.size());
    FanOut calls(shards_.size());
    for (size_t i = 0; i < shards_.size(); ++i) {
      calls.Started(i, shards_[i].StartFind(contexts[i], query, &replies[i], calls.Callback(i)));
    }
    co_await calls.All();
    for (size_t i = 0; i < shards_.size(); ++i) {
      if (calls.status(i).ok()) {
        results->mutable_words()->MergeFrom(replies[i].words());
      } else {
        results->add_missing(
            absl::StrCat(names_[i], " ", absl::StatusCodeToString(calls.status(i).code())));
      }
    }
    std::sort(results->mutable_words()->begin(), results->mutable_words()->end());
    co_return absl::OkStatus();
  }

 private:
  const absl::Duration patience_;
  std::vector<std::string> names_;
  std::vector<ShardClient> shards_;
};

}  // namespace sluice::examples::fan_out

#endif  // SLUICE_EXAMPLES_FAN_OUT_SEARCH_SERVICE_H_
