// SPDX-License-Identifier: Apache-2.0
#include "middleware/codegen/generator.h"

#include <cctype>
#include <map>
#include <memory>

#include "google/protobuf/io/printer.h"
#include "google/protobuf/io/zero_copy_stream.h"

namespace sluice::codegen {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using google::protobuf::io::Printer;

using Variables = std::map<std::string, std::string>;

std::string Replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

std::string Stem(const FileDescriptor* file) {
  const std::string& name = file->name();
  const std::string suffix = ".proto";
  const bool has = name.size() > suffix.size() &&
                   name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
  return has ? name.substr(0, name.size() - suffix.size()) : name;
}

std::string Guard(const FileDescriptor* file) {
  std::string guard = Stem(file) + "_SLUICE_H_";
  for (char& c : guard) {
    c = std::isalnum(static_cast<unsigned char>(c))
            ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
            : '_';
  }
  return guard;
}

std::string Namespace(const FileDescriptor* file) { return Replaced(file->package(), ".", "::"); }

// protoc names the C++ class of a nested message Outer_Inner.
std::string ClassOf(const Descriptor* message) {
  const std::string& package = message->file()->package();
  std::string name = message->full_name();
  if (!package.empty()) name = name.substr(package.size() + 1);
  const std::string scope = package.empty() ? "::" : "::" + Replaced(package, ".", "::") + "::";
  return scope + Replaced(name, ".", "_");
}

std::string Comment(const google::protobuf::SourceLocation& location, const std::string& indent) {
  std::string text = location.leading_comments;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.empty()) return "";
  return indent + "//" + Replaced(text, "\n", "\n" + indent + "//") + "\n";
}

template <typename D>
std::string CommentOf(const D* descriptor, const std::string& indent) {
  google::protobuf::SourceLocation location;
  return descriptor->GetSourceLocation(&location) ? Comment(location, indent) : "";
}

Variables Of(const ServiceDescriptor* service) {
  return {{"service", service->name()},
          {"full_service", service->full_name()},
          {"comment", CommentOf(service, "")}};
}

Variables Of(const MethodDescriptor* method) {
  return {{"service", method->service()->name()},
          {"method", method->name()},
          {"path", "/" + method->service()->full_name() + "/" + method->name()},
          {"request", ClassOf(method->input_type())},
          {"reply", ClassOf(method->output_type())},
          {"comment", CommentOf(method, "  ")}};
}

// Literal text goes through variables: '$' in a comment must not look like one.
void PrintServiceHeader(const ServiceDescriptor* service, Printer* out) {
  const Variables of_service = Of(service);
  out->Print(of_service,
             "$comment$"
             "class $service$ServiceBase : public ::sluice::Service {\n"
             " public:\n"
             "  const char* name() const override { return \"$full_service$\"; }\n"
             "  void Bind(::sluice::MethodBinder& binder) override;\n");
  for (int i = 0; i < service->method_count(); ++i) {
    out->Print(Of(service->method(i)),
               "\n$comment$"
               "  // Override it: as it is, it answers UNIMPLEMENTED. `reply` comes empty.\n"
               "  virtual ::absl::Status $method$(::sluice::ServerContext& context,\n"
               "      const $request$& request, $reply$* reply);\n");
  }
  out->Print(of_service,
             "};\n\n"
             "// Calls $full_service$ over a channel. Cheap to copy; any thread may use it.\n"
             "class $service$Client {\n"
             " public:\n"
             "  explicit $service$Client(::std::shared_ptr<::sluice::Channel> channel)\n"
             "      : channel_(::std::move(channel)) {}\n");
  for (int i = 0; i < service->method_count(); ++i) {
    out->Print(Of(service->method(i)),
               "\n$comment$"
               "  ::absl::StatusOr<$reply$> $method$(\n"
               "      ::sluice::CallContext& context, const $request$& request) const;\n"
               "  // The same, into a message that may be used again: its memory is kept.\n"
               "  ::absl::Status $method$(::sluice::CallContext& context,\n"
               "      const $request$& request, $reply$* reply) const;\n"
               "  // For Channel::StartCall().\n"
               "  static const ::sluice::Method& $method$Method();\n");
  }
  out->Print(of_service,
             "\n"
             " private:\n"
             "  ::std::shared_ptr<::sluice::Channel> channel_;\n"
             "};\n\n");
}

void PrintServiceSource(const ServiceDescriptor* service, Printer* out) {
  const Variables of_service = Of(service);
  out->Print("namespace {\n\n");
  for (int i = 0; i < service->method_count(); ++i) {
    out->Print(Of(service->method(i)),
               "constexpr ::sluice::Method k$service$_$method$(\"$path$\");\n");
  }
  out->Print("\n}  // namespace\n\n");
  out->Print(of_service, "void $service$ServiceBase::Bind(::sluice::MethodBinder& binder) {\n");
  for (int i = 0; i < service->method_count(); ++i) {
    out->Print(Of(service->method(i)),
               "  binder.Bind<$service$ServiceBase, $request$, $reply$,\n"
               "      &$service$ServiceBase::$method$>(k$service$_$method$, this);\n");
  }
  if (service->method_count() == 0) out->Print("  (void)binder;\n");
  out->Print("}\n\n");
  for (int i = 0; i < service->method_count(); ++i) {
    out->Print(Of(service->method(i)),
               "::absl::Status $service$ServiceBase::$method$(::sluice::ServerContext&,\n"
               "    const $request$&, $reply$*) {\n"
               "  return ::sluice::NotOverridden(k$service$_$method$);\n"
               "}\n\n"
               "::absl::StatusOr<$reply$> $service$Client::$method$(\n"
               "    ::sluice::CallContext& context, const $request$& request) const {\n"
               "  ::absl::StatusOr<$reply$> reply{::absl::in_place};\n"
               "  ::absl::Status status =\n"
               "      channel_->Call(k$service$_$method$, context, request, &*reply);\n"
               "  if (!status.ok()) reply = ::std::move(status);\n"
               "  return reply;\n"
               "}\n\n"
               "::absl::Status $service$Client::$method$(::sluice::CallContext& context,\n"
               "    const $request$& request, $reply$* reply) const {\n"
               "  return channel_->Call(k$service$_$method$, context, request, reply);\n"
               "}\n\n"
               "const ::sluice::Method& $service$Client::$method$Method() {\n"
               "  return k$service$_$method$;\n"
               "}\n\n");
  }
}

void PrintHeader(const FileDescriptor* file, Printer* out) {
  Variables of_file = {{"file", file->name()},
                       {"stem", Stem(file)},
                       {"guard", Guard(file)},
                       {"namespace", Namespace(file)}};
  out->Print(of_file,
             "// Generated by protoc-gen-sluice from $file$. Do not edit.\n"
             "#ifndef $guard$\n"
             "#define $guard$\n\n"
             "#include <memory>\n"
             "#include <utility>\n\n"
             "#include \"absl/status/status.h\"\n"
             "#include \"absl/status/statusor.h\"\n"
             "#include \"$stem$.pb.h\"\n"
             "#include \"middleware/api/call_context.h\"\n"
             "#include \"middleware/api/channel.h\"\n"
             "#include \"middleware/api/service.h\"\n\n");
  if (!file->package().empty()) out->Print(of_file, "namespace $namespace$ {\n\n");
  for (int i = 0; i < file->service_count(); ++i) PrintServiceHeader(file->service(i), out);
  if (!file->package().empty()) out->Print(of_file, "}  // namespace $namespace$\n\n");
  out->Print(of_file, "#endif  // $guard$\n");
}

void PrintSource(const FileDescriptor* file, Printer* out) {
  Variables of_file = {
      {"file", file->name()}, {"stem", Stem(file)}, {"namespace", Namespace(file)}};
  out->Print(of_file,
             "// Generated by protoc-gen-sluice from $file$. Do not edit.\n"
             "#include \"$stem$.sluice.h\"\n\n"
             "#include <utility>\n\n"
             "#include \"absl/utility/utility.h\"\n\n");
  if (!file->package().empty()) out->Print(of_file, "namespace $namespace$ {\n");
  for (int i = 0; i < file->service_count(); ++i) PrintServiceSource(file->service(i), out);
  if (!file->package().empty()) out->Print(of_file, "}  // namespace $namespace$\n");
}

// Empty: all methods can be generated.
std::string Unsupported(const FileDescriptor* file) {
  for (int i = 0; i < file->service_count(); ++i) {
    for (int j = 0; j < file->service(i)->method_count(); ++j) {
      const MethodDescriptor* method = file->service(i)->method(j);
      if (method->client_streaming() || method->server_streaming()) {
        return method->full_name() +
               " streams: Sluice has unary methods only so far; take `stream` out of its "
               "declaration, or move it "
               "to a .proto that protoc-gen-sluice does not see";
      }
    }
  }
  return "";
}

}  // namespace

bool Generator::Generate(const FileDescriptor* file, const std::string& parameter,
                         google::protobuf::compiler::GeneratorContext* context,
                         std::string* error) const {
  if (!parameter.empty()) {
    *error = "unknown parameter \"" + parameter + "\": protoc-gen-sluice has none";
    return false;
  }
  *error = Unsupported(file);
  if (!error->empty()) return false;
  const auto print = [&](const std::string& name, void (*what)(const FileDescriptor*, Printer*)) {
    const std::unique_ptr<google::protobuf::io::ZeroCopyOutputStream> stream(context->Open(name));
    Printer out(stream.get(), '$');
    what(file, &out);
  };
  print(Stem(file) + ".sluice.h", &PrintHeader);
  print(Stem(file) + ".sluice.cc", &PrintSource);
  return true;
}

}  // namespace sluice::codegen
