// SPDX-License-Identifier: Apache-2.0
//
// FrameMemory: base class of coroutine promises. Allocates the frames of coroutines, and reuses them.
//
//   struct promise_type : sluice::internal::FrameMemory { … };
//
// A thread keeps the memory of frames that it destroys, and reuses it for frames of the same size
// class. A thread keeps at most kKept frames of each size class, 136 KiB in all. Frames of more than
// kClasses * kUnit bytes are not kept. The end of the thread frees the memory. With
// AddressSanitizer no frame is kept.
//
// Threads       Any. A frame may be destroyed on another thread than the thread that created it.
#ifndef SLUICE_MIDDLEWARE_API_FRAME_MEMORY_H_
#define SLUICE_MIDDLEWARE_API_FRAME_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <new>

// No frame is kept with AddressSanitizer, so that it detects the use of destroyed frames. GCC and Clang report AddressSanitizer in
// different ways.
#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_KEEPS_FRAMES 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_KEEPS_FRAMES 0
#endif
#endif
#ifndef SLUICE_KEEPS_FRAMES
#define SLUICE_KEEPS_FRAMES 1
#endif

namespace sluice::internal {

class FrameMemory {
 public:
  static constexpr size_t kUnit = 64;     // size classes in bytes
  static constexpr size_t kClasses = 16;  // so a kept frame has at most 1024 bytes
  static constexpr uint32_t kKept = 16;   // frames of each class and thread

  static void* operator new(size_t bytes) {
#if SLUICE_KEEPS_FRAMES
    const size_t at = (bytes - 1) / kUnit;
    if (at < kClasses) [[likely]] {
      Class& kept = kept_[at];
      if (Frame* const frame = kept.first; frame != nullptr) [[likely]] {
        kept.first = frame->next;
        --kept.frames;
        return frame;
      }
      bytes = (at + 1) * kUnit;
    }
#endif
    return ::operator new(bytes);
  }
  static void operator delete(void* frame, size_t bytes) noexcept {
#if SLUICE_KEEPS_FRAMES
    const size_t at = (bytes - 1) / kUnit;
    if (at < kClasses) [[likely]] {
      Class& kept = kept_[at];
      if (kept.frames < limit_) [[likely]] {
        kept.first = new (frame) Frame{kept.first};
        ++kept.frames;
        return;
      }
      if (limit_ == 0) return Begin(frame, bytes);
    }
#endif
    (void)bytes;
    ::operator delete(frame);
  }

 private:
  struct Frame {
    Frame* next;
  };
  struct Class {
    Frame* first;
    uint32_t frames;
  };
  struct AtThreadEnd {
    ~AtThreadEnd() {
      limit_ = 0;
      ended_ = true;
      for (Class& kept : kept_) {
        while (kept.first != nullptr) {
          Frame* const frame = kept.first;
          kept.first = frame->next;
          ::operator delete(frame);
        }
        kept.frames = 0;
      }
    }
  };

  // Handles the first frame that a thread destroys, and frames that it destroys during its end.
  [[gnu::cold, gnu::noinline]] static void Begin(void* frame, size_t bytes) noexcept {
    if (ended_) return ::operator delete(frame);
    static thread_local AtThreadEnd at_thread_end;
    (void)&at_thread_end;
    limit_ = kKept;
    operator delete(frame, bytes);
  }

  // No dynamic initialisation and no destructor, so that an access is one instruction.
  static inline constinit thread_local Class kept_[kClasses] = {};
  static inline constinit thread_local uint32_t limit_ = 0;
  static inline constinit thread_local bool ended_ = false;
};

}  // namespace sluice::internal

#undef SLUICE_KEEPS_FRAMES

#endif  // SLUICE_MIDDLEWARE_API_FRAME_MEMORY_H_
