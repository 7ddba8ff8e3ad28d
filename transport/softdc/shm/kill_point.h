// SPDX-License-Identifier: Apache-2.0
//
// SOFTDC_KILL_POINT(kName): a place where a test can kill the process or interfere in another way.
//
// In the product the macro is empty: no load, no branch. With -DSOFTDC_KILL_POINTS=1 (the `*_instrumented`
// library variants, for tests only) it calls the hook that the test has set. A binary must link either the
// plain or the instrumented variants, never both, because the inline functions of this folder differ between
// the two.
//
// The hook is a plain function pointer. Set it before other threads run. It stays set across fork().
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_KILL_POINT_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_KILL_POINT_H_

namespace sluice::softdc::shm {

enum class KillPoint {
#define SOFTDC_KILL_POINT_NAME(name) name,
#include "transport/softdc/shm/kill_points.inc"
#undef SOFTDC_KILL_POINT_NAME
};

// Tests that use only the rings reach the points before this point. The points from here on need whole
// contexts.
inline constexpr KillPoint kFirstContextPoint = KillPoint::kHelloSent;
// The points from here on also need memory windows.
inline constexpr KillPoint kFirstWindowPoint = KillPoint::kWindowBegun;

inline constexpr const char* kKillPointNames[] = {
#define SOFTDC_KILL_POINT_NAME(name) #name,
#include "transport/softdc/shm/kill_points.inc"
#undef SOFTDC_KILL_POINT_NAME
};

inline constexpr int kKillPointCount =
    static_cast<int>(sizeof(kKillPointNames) / sizeof(kKillPointNames[0]));

#if SOFTDC_KILL_POINTS
inline constexpr bool kHasKillPoints = true;

using KillPointHook = void (*)(KillPoint);
inline KillPointHook kill_point_hook = nullptr;

#define SOFTDC_KILL_POINT(name)                                                       \
  do {                                                                                \
    if (::sluice::softdc::shm::kill_point_hook != nullptr)                            \
      ::sluice::softdc::shm::kill_point_hook(::sluice::softdc::shm::KillPoint::name); \
  } while (false)
#else
inline constexpr bool kHasKillPoints = false;

#define SOFTDC_KILL_POINT(name) \
  do {                          \
  } while (false)
#endif

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_KILL_POINT_H_
