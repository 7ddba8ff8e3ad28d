// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/process_engine.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "transport/softdc/cm/shm_fabric.h"
#include "transport/softdc/loop/loop.h"

namespace sluice::softdc::cm {
namespace {

struct Settings {
  DeviceHooks hooks;
  Dials::Cm dials;
};

std::mutex g_mutex;
Settings* g_settings = nullptr;
Engine* g_engine = nullptr;  // never destroyed, like the loop
std::atomic<Engine*> g_used_engine{nullptr};

void BeforeFork() { g_mutex.lock(); }
void AfterForkInParent() { g_mutex.unlock(); }
void AfterForkInChild() {
  g_engine = nullptr;
  g_mutex.unlock();
}

}  // namespace

void SetDeviceHooks(DeviceHooks hooks, const Dials::Cm& dials) {
  std::lock_guard<std::mutex> lock(g_mutex);
  delete g_settings;
  g_settings = new Settings{std::move(hooks), dials};
}

Engine* ProcessEngine() {
  if (Engine* engine = g_used_engine.load()) return engine;
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_engine == nullptr) {
    Loop& loop = Loop::Get();
    static const int registered [[maybe_unused]] =
        pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild);
    const Settings settings = g_settings != nullptr ? *g_settings : Settings{};
    auto* engine = new Engine(settings.hooks, new LoopTimers(&loop), settings.dials);
    engine->SetFabric(std::make_unique<ShmFabric>(&loop, engine));
    g_engine = engine;
  }
  return g_engine;
}

void UseEngine(Engine* engine) { g_used_engine.store(engine); }

}  // namespace sluice::softdc::cm
