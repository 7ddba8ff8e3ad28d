// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/client_chain.h"

namespace sluice {

struct ClientChain::Seen {
  Seen(const ClientChain* the_chain, const call::CallSpec& spec, const std::string& server)
      : chain(the_chain),
        call(*spec.method, server, spec.metadata),
        begin_ns(chain->clock_->NowNs()),
        done(spec.done),
        argument(spec.argument) {}

  const ClientChain* const chain;
  ClientCall call;
  const int64_t begin_ns;
  const call::Done done;  // callback of the caller
  void* const argument;
};

absl::Status ClientChain::Begin(Seen* seen, call::CallSpec* spec) {
  for (size_t i = 0; i < interceptors_.size(); ++i) {
    absl::Status status;
    try {
      status = interceptors_[i]->OnCall(seen->call);
    } catch (...) {
      status = Thrown(seen->call);
    }
    if (status.ok()) continue;
    End(*seen, i, status);
    return status;
  }
  spec->metadata = seen->call.metadata().wire();
  return absl::OkStatus();
}

void ClientChain::End(const Seen& seen, size_t count, const absl::Status& status) const {
  const absl::Duration took = absl::Nanoseconds(clock_->NowNs() - seen.begin_ns);
  while (count-- > 0) {
    try {
      interceptors_[count]->OnEnd(seen.call, status, took);
    } catch (...) {
      (void)Thrown(seen.call);
    }
  }
}

void ClientChain::OnDone(void* argument, const absl::Status& status) {
  const std::unique_ptr<Seen> seen(static_cast<Seen*>(argument));
  seen->chain->End(*seen, seen->chain->interceptors_.size(), status);
  seen->done(seen->argument, status);
}

absl::Status ClientChain::Start(call::CallSpec spec, const std::string& server,
                                absl::FunctionRef<absl::Status(const call::CallSpec&)> start) {
  auto seen = std::make_unique<Seen>(this, spec, server);
  if (absl::Status status = Begin(seen.get(), &spec); !status.ok()) return status;
  spec.done = &OnDone;
  spec.argument = seen.get();
  absl::Status status = start(spec);
  if (status.ok()) {
    seen.release();  // OnDone() owns it now
  } else {
    End(*seen, interceptors_.size(), status);
  }
  return status;
}

absl::Status ClientChain::Run(call::CallSpec spec, const std::string& server,
                              absl::FunctionRef<absl::Status(const call::CallSpec&)> run) {
  Seen seen(this, spec, server);
  if (absl::Status status = Begin(&seen, &spec); !status.ok()) return status;
  absl::Status status = run(spec);
  End(seen, interceptors_.size(), status);
  return status;
}

}  // namespace sluice
