// SPDX-License-Identifier: Apache-2.0
#include "middleware/codegen/names.h"

#include <map>
#include <set>
#include <utility>

namespace sluice::codegen {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

// The declarations of one C++ scope, and the owner of each: the definition in a .proto file that it is generated for.
class Scope {
 public:
  // Adds a declaration. Returns the first owner of the name: `owner` if the name is new.
  std::string Add(const std::string& name, const std::string& owner) {
    return owners_.emplace(name, owner).first->second;
  }

 private:
  std::map<std::string, std::string> owners_;
};

std::string Fault(const std::string& name, const std::string& first, const std::string& second) {
  return "C++ name " + name + " would be generated for " + first + " and for " + second +
         ": rename one of the two";
}

// A constant of a nested enum is Outer_Enum_VALUE; that of a top-level one is VALUE.
void AddEnum(const EnumDescriptor* type, const std::string& outer, Scope* scope) {
  const std::string owner = "enum " + type->full_name();
  scope->Add(outer + type->name(), owner);
  for (int i = 0; i < type->value_count(); ++i) {
    const std::string& value = type->value(i)->name();
    scope->Add(outer.empty() ? value : outer + type->name() + "_" + value, owner);
  }
}

// A nested message is Outer_Inner.
void AddMessage(const Descriptor* type, const std::string& outer, Scope* scope) {
  scope->Add(outer + type->name(), "message " + type->full_name());
  const std::string inner = outer + type->name() + "_";
  for (int i = 0; i < type->nested_type_count(); ++i) {
    AddMessage(type->nested_type(i), inner, scope);
  }
  for (int i = 0; i < type->enum_type_count(); ++i) AddEnum(type->enum_type(i), inner, scope);
}

// Adds the names of a service in the namespace of its package. Returns an error text, or an empty string.
std::string AddService(const ServiceDescriptor* service, Scope* scope) {
  const std::string owner = "service " + service->full_name();
  for (const char* suffix : {"ServiceBase", "CoServiceBase", "Client"}) {
    const std::string name = service->name() + suffix;
    const std::string before = scope->Add(name, owner);
    if (before != owner) return Fault(name, before, owner);
  }
  return "";
}

// Adds the functions that a client class has for a method, with the types of their parameters. Returns an error text, or an empty
// string if no names clash.
std::string AddClientMethod(const MethodDescriptor* method, Scope* scope) {
  const std::string request = ", const " + method->input_type()->full_name() + "&";
  const std::string reply = ", " + method->output_type()->full_name() + "*";
  std::set<std::string> functions;
  if (method->client_streaming() || method->server_streaming()) {
    functions.insert(method->name() + "(context" + (method->client_streaming() ? "" : request) +
                     (method->server_streaming() ? "" : reply) + ")");
  } else {
    functions = {method->name() + "(context" + request + ")",
                 method->name() + "(context" + request + reply + ")",
                 "Start" + method->name() + "(context" + request + reply + ", done)",
                 "Co" + method->name() + "(context" + request + ")"};
  }
  functions.insert(method->name() + "Method()");
  const std::string owner = "method " + method->full_name();
  const std::string client = method->service()->name() + "Client::";
  for (const std::string& function : functions) {
    const std::string before = scope->Add(function, owner);
    if (before != owner) return Fault(client + function, before, owner);
  }
  return "";
}

// Checks the names of members of the generated classes. Returns an error text, or an empty string.
std::string ClashOfMembers(const ServiceDescriptor* service) {
  // No method can have the name of its class, or of a variable in it.
  const std::set<std::string> taken = {service->name() + "Client", service->name() + "ServiceBase",
                                       service->name() + "CoServiceBase", "channel_"};
  Scope client;
  for (int i = 0; i < service->method_count(); ++i) {
    const MethodDescriptor* method = service->method(i);
    for (const std::string& name : {method->name(), "Start" + method->name(), "Co" + method->name(),
                                    method->name() + "Method"}) {
      if (taken.contains(name)) {
        return Fault(name, "service " + service->full_name(), "method " + method->full_name());
      }
    }
    if (std::string fault = AddClientMethod(method, &client); !fault.empty()) return fault;
  }
  return "";
}

void AddImports(const FileDescriptor* file, std::set<const FileDescriptor*>* imports) {
  for (int i = 0; i < file->dependency_count(); ++i) {
    if (imports->insert(file->dependency(i)).second) AddImports(file->dependency(i), imports);
  }
}

}  // namespace

std::string ClashOfNames(const FileDescriptor* file) {
  std::set<const FileDescriptor*> files;
  AddImports(file, &files);
  Scope scope;
  files.insert(file);
  for (const FileDescriptor* one : files) {
    if (one->package() != file->package()) continue;
    for (int i = 0; i < one->message_type_count(); ++i) {
      AddMessage(one->message_type(i), "", &scope);
    }
    for (int i = 0; i < one->enum_type_count(); ++i) AddEnum(one->enum_type(i), "", &scope);
    // Ignore clashes between two imported files: they are reported when those files are compiled.
    for (int i = 0; i < one->service_count() && one != file; ++i) {
      (void)AddService(one->service(i), &scope);
    }
  }
  for (int i = 0; i < file->service_count(); ++i) {
    std::string fault = AddService(file->service(i), &scope);
    if (fault.empty()) fault = ClashOfMembers(file->service(i));
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace sluice::codegen
