// SPDX-License-Identifier: Apache-2.0
//
// Mutated(Mutation::kName): a place where a test build of softdc can be made wrong on purpose, to prove that the conformance suite notices.
//
// In the product it is false at compile time: no load, no branch. In the `*_instrumented` libraries (tests only) the environment variable
// SOFTDC_MUTATION names the active mutation; if it is unset, none is active. An unknown name ends the process, because a test without a
// mutation would prove nothing.
//
// Threads       Any. The variable is read once.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_MUTATION_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_MUTATION_H_

#if SOFTDC_MUTATIONS
#include <cstdio>
#include <cstdlib>
#include <string_view>
#endif

namespace sluice::softdc {

enum class Mutation {
#define SOFTDC_MUTATION(name, facts, what) name,
#include "transport/softdc/model/mutation.inc"
#undef SOFTDC_MUTATION
};

#if SOFTDC_MUTATIONS
inline int ActiveMutation() {
  static const int active = [] {
    const char* const wanted = std::getenv("SOFTDC_MUTATION");
    if (wanted == nullptr || *wanted == '\0') return -1;
    int index = 0;
#define SOFTDC_MUTATION(name, facts, what)             \
  if (std::string_view(wanted) == #name) return index; \
  ++index;
#include "transport/softdc/model/mutation.inc"
#undef SOFTDC_MUTATION
    std::fprintf(stderr, "SOFTDC_MUTATION: there is no '%s'\n", wanted);
    std::abort();
  }();
  return active;
}

inline bool Mutated(Mutation mutation) { return ActiveMutation() == static_cast<int>(mutation); }
#else
constexpr bool Mutated(Mutation) { return false; }
#endif

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_MUTATION_H_
