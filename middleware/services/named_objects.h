// SPDX-License-Identifier: Apache-2.0
//
// NamedObjects: the servers, channels and counter sources that a report covers, each under a name that the program gave it.
//
// Ownership     A report. Servers outlive it, or are removed before they are destroyed. Channels are shared.
// Threads       Any. Remove() waits while Read() runs, so a report does not use an object after its removal. No object is destroyed
//               with the lock held: the end of a channel may run callbacks that use the report.
#ifndef SLUICE_MIDDLEWARE_SERVICES_NAMED_OBJECTS_H_
#define SLUICE_MIDDLEWARE_SERVICES_NAMED_OBJECTS_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "middleware/api/channel.h"
#include "middleware/api/options.h"
#include "middleware/api/server.h"
#include "middleware/services/counter_table.h"

namespace sluice {

class NamedObjects {
 public:
  struct Served {
    const Server* server = nullptr;
    // Options that the server was created with; the defaults if the report does not need them.
    ServerOptions options;
  };

  NamedObjects() = default;
  NamedObjects(const NamedObjects&) = delete;
  NamedObjects& operator=(const NamedObjects&) = delete;

  // Adds an object, or replaces the one of the same kind and name.
  void Add(Served served, const std::string& name) { Put(std::move(served), name, &servers_); }
  void Add(std::shared_ptr<Channel> channel, const std::string& name) {
    Put(std::move(channel), name, &channels_);
  }
  void Add(CounterSource source, const std::string& name) {
    Put(std::move(source), name, &sources_);
  }

  // Removes the objects of this name, of all kinds.
  void Remove(const std::string& name) {
    // Destroyed after the lock is released.
    decltype(servers_)::node_type server;
    decltype(channels_)::node_type channel;
    decltype(sources_)::node_type source;
    std::lock_guard lock(mutex_);
    server = servers_.extract(name);
    channel = channels_.extract(name);
    source = sources_.extract(name);
  }

  // Calls read(servers, channels, sources) with the maps from name to object, and returns its result.
  template <typename Function>
  auto Read(Function&& read) const {
    std::lock_guard lock(mutex_);
    return read(servers_, channels_, sources_);
  }

 private:
  template <typename Object>
  void Put(Object object, const std::string& name, std::map<std::string, Object>* objects) {
    std::lock_guard lock(mutex_);
    std::swap((*objects)[name], object);  // the parameter outlives the lock
  }

  mutable std::mutex mutex_;
  std::map<std::string, Served> servers_;                     // mutex_
  std::map<std::string, std::shared_ptr<Channel>> channels_;  // mutex_
  std::map<std::string, CounterSource> sources_;              // mutex_
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_NAMED_OBJECTS_H_
