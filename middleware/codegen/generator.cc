// SPDX-License-Identifier: Apache-2.0
#include "middleware/codegen/generator.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "google/protobuf/compiler/cpp/names.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/io/printer.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "middleware/codegen/names.h"

namespace sluice::codegen {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
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
  std::string comment;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // A trailing backslash, also with blanks behind it, would join the next line to the comment.
    const size_t last = line.find_last_not_of(" \t\r\v\f");
    if (last != std::string::npos && line[last] == '\\') line += " //";
    comment += indent + "//" + line + "\n";
  }
  return comment;
}

template <typename D>
std::string CommentOf(const D* descriptor, const std::string& indent) {
  google::protobuf::SourceLocation location;
  return descriptor->GetSourceLocation(&location) ? Comment(location, indent) : "";
}

bool Streams(const MethodDescriptor* method) {
  return method->client_streaming() || method->server_streaming();
}

// Returns the class template of a plain field (middleware/call/plain_message.h). Empty: the field is not plain.
std::string PlainClassOf(const FieldDescriptor* field) {
  if (field->is_repeated() || field->has_presence() || field->number() > 15 ||
      field->options().has_ctype() || field->options().deprecated()) {
    return "";
  }
  switch (field->type()) {
    case FieldDescriptor::TYPE_BYTES:
      return "BytesField";
    case FieldDescriptor::TYPE_STRING:
      return "TextField";
    case FieldDescriptor::TYPE_INT32:
    case FieldDescriptor::TYPE_INT64:
    case FieldDescriptor::TYPE_UINT32:
    case FieldDescriptor::TYPE_UINT64:
    case FieldDescriptor::TYPE_BOOL:
    case FieldDescriptor::TYPE_ENUM:
      return "VarintField";
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED32:
    case FieldDescriptor::TYPE_SFIXED64:
    case FieldDescriptor::TYPE_FLOAT:
    case FieldDescriptor::TYPE_DOUBLE:
      return "FixedField";
    default:
      return "";
  }
}

// Returns the fields in the order of their numbers, as protobuf writes them.
std::vector<const FieldDescriptor*> FieldsOf(const Descriptor* message) {
  std::vector<const FieldDescriptor*> fields;
  for (int i = 0; i < message->field_count(); ++i) fields.push_back(message->field(i));
  std::sort(fields.begin(), fields.end(),
            [](const auto* a, const auto* b) { return a->number() < b->number(); });
  return fields;
}

// Accessors have the name of their field, with a prefix. If a message has fields "name" and "clear_name", clear_name() is overloaded,
// and a pointer to it is ambiguous.
bool HasOverloadedAccessors(const Descriptor* message) {
  std::set<std::string> names;
  for (int i = 0; i < message->field_count(); ++i)
    names.insert(message->field(i)->lowercase_name());
  for (const std::string& name : names) {
    for (const char* prefix : {"clear_", "set_", "mutable_", "release_", "set_allocated_"}) {
      if (names.count(prefix + name) != 0) return true;
    }
  }
  return false;
}

// Only proto3: its enums are open.
bool IsPlain(const Descriptor* message) {
  if (message->file()->syntax() != FileDescriptor::SYNTAX_PROTO3) return false;
  if (HasOverloadedAccessors(message)) return false;
  for (int i = 0; i < message->field_count(); ++i) {
    if (PlainClassOf(message->field(i)).empty()) return false;
  }
  return true;
}

bool HasPlainMessage(const MethodDescriptor* method) {
  return !Streams(method) && (IsPlain(method->input_type()) || IsPlain(method->output_type()));
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
          {"typed", HasPlainMessage(method) ? "typed::" : ""},
          {"comment", CommentOf(method, "  ")}};
}

// Returns the parameters of a handler after "(::sluice::ServerContext&", without their names.
std::string HandlerParameters(const MethodDescriptor* method) {
  const std::string request = ClassOf(method->input_type());
  const std::string reply = ClassOf(method->output_type());
  return (method->client_streaming() ? ", ::sluice::ServerReader<" + request + ">"
                                     : ", const " + request + "&") +
         (method->server_streaming() ? ", ::sluice::ServerWriter<" + reply + ">"
                                     : ", " + reply + "*");
}

const char* StreamsOf(const MethodDescriptor* method) {
  if (method->client_streaming()) return method->server_streaming() ? "Both" : "Client";
  return method->server_streaming() ? "Server" : "Nobody";
}

// Returns true for "option idempotency_level = IDEMPOTENT;" and for NO_SIDE_EFFECTS, which implies it.
bool IsIdempotent(const MethodDescriptor* method) {
  return method->options().idempotency_level() !=
         google::protobuf::MethodOptions::IDEMPOTENCY_UNKNOWN;
}

// Passes literal text as variables, because '$' in a comment must not be read as a variable.
void PrintServerMethod(const MethodDescriptor* method, bool task, Printer* out) {
  Variables of_method = Of(method);
  of_method["result"] = task ? "::sluice::Task<::absl::Status>" : "::absl::Status";
  of_method["request_parameter"] =
      method->client_streaming() ? "::sluice::ServerReader<" + of_method["request"] + "> reader"
                                 : "const " + of_method["request"] + "& request";
  of_method["reply_parameter"] = method->server_streaming()
                                     ? "::sluice::ServerWriter<" + of_method["reply"] + "> writer"
                                     : of_method["reply"] + "* reply";
  out->Print(of_method,
             "\n$comment$"
             "  // Override this method. The default returns UNIMPLEMENTED.\n"
             "  virtual $result$ $method$(::sluice::ServerContext& context,\n"
             "      $request_parameter$, $reply_parameter$);\n");
}

// `co`: all methods are coroutines, not only those that stream.
void PrintServerClass(const ServiceDescriptor* service, bool co, Printer* out) {
  Variables of_service = Of(service);
  of_service["co"] = co ? "Co" : "";
  if (co)
    of_service["comment"] = "// " + service->name() + " with coroutines (middleware/api/task.h).\n";
  out->Print(of_service,
             "$comment$"
             "class $service$$co$ServiceBase : public ::sluice::Service {\n"
             " public:\n"
             "  const char* name() const override { return \"$full_service$\"; }\n"
             "  void Bind(::sluice::MethodBinder& binder) override;\n");
  for (int i = 0; i < service->method_count(); ++i) {
    PrintServerMethod(service->method(i), co || Streams(service->method(i)), out);
  }
  out->Print("};\n\n");
}

void PrintUnaryClientMethod(const MethodDescriptor* method, Printer* out) {
  out->Print(
      Of(method),
      "\n$comment$"
      "  ::absl::StatusOr<$reply$> $method$(\n"
      "      ::sluice::CallContext& context, const $request$& request) const;\n"
      "  // The same with a reply of the caller, whose memory is reused.\n"
      "  ::absl::Status $method$(::sluice::CallContext& context,\n"
      "      const $request$& request, $reply$* reply) const;\n"
      "  // The same without blocking. `done` runs once, on the thread that drives the\n"
      "  // channel. All arguments must stay valid until then. If the status is not OK,\n"
      "  // the call was not started, and `done` does not run. OK does not mean that it was\n"
      "  // started: `done` may get that error.\n"
      "  ::absl::Status Start$method$(::sluice::CallContext& context,\n"
      "      const $request$& request, $reply$* reply, ::sluice::CallCallback done) const;\n"
      "  // The same for co_await; gives an absl::StatusOr<$reply$>.\n"
      "  ::sluice::CallAwaiter<$reply$> Co$method$(\n"
      "      ::sluice::CallContext& context, const $request$& request) const;\n"
      "  // For Channel::StartCall().\n"
      "  static const ::sluice::Method& $method$Method();\n");
}

// Returns the class of the client's side of a stream.
std::string StreamClass(const MethodDescriptor* method) {
  const std::string request = ClassOf(method->input_type());
  const std::string reply = ClassOf(method->output_type());
  if (!method->client_streaming()) return "::sluice::ClientReader<" + reply + ">";
  if (!method->server_streaming()) return "::sluice::ClientWriter<" + request + ">";
  return "::sluice::ClientReaderWriter<" + request + ", " + reply + ">";
}

Variables OfStream(const MethodDescriptor* method) {
  Variables variables = Of(method);
  variables["stream"] = StreamClass(method);
  if (!method->client_streaming()) {
    variables["parameter"] = ", const " + variables["request"] + "& request";
    variables["argument"] = ", request";
  } else if (!method->server_streaming()) {
    variables["parameter"] = ", " + variables["reply"] + "* reply";
    variables["argument"] = ", reply";
  } else {
    variables["parameter"] = variables["argument"] = "";
  }
  return variables;
}

void PrintServiceHeader(const ServiceDescriptor* service, Printer* out) {
  const Variables of_service = Of(service);
  PrintServerClass(service, /*co=*/false, out);
  PrintServerClass(service, /*co=*/true, out);
  out->Print(of_service,
             "// Client of $full_service$ over a channel. Cheap to copy. Any thread may use it.\n"
             "// Keep it, or another reference to the channel, until its calls have ended.\n"
             "class $service$Client {\n"
             " public:\n"
             "  explicit $service$Client(::std::shared_ptr<::sluice::Channel> channel)\n"
             "      : channel_(::std::move(channel)) {}\n");
  for (int i = 0; i < service->method_count(); ++i) {
    const MethodDescriptor* method = service->method(i);
    if (!Streams(method)) {
      PrintUnaryClientMethod(method, out);
      continue;
    }
    out->Print(OfStream(method),
               "\n$comment$"
               "  // Starts the call without blocking. Finish() returns its errors. All arguments\n"
               "  // outlive the stream.\n"
               "  $stream$ $method$(\n"
               "      ::sluice::CallContext& context$parameter$) const;\n"
               "  static const ::sluice::Method& $method$Method();\n");
  }
  out->Print(of_service,
             "\n"
             " private:\n"
             "  ::std::shared_ptr<::sluice::Channel> channel_;\n"
             "};\n\n");
}

void PrintBind(const ServiceDescriptor* service, bool co, Printer* out) {
  Variables of_service = Of(service);
  of_service["co"] = co ? "Co" : "";
  out->Print(of_service, "void $service$$co$ServiceBase::Bind(::sluice::MethodBinder& binder) {\n");
  for (int i = 0; i < service->method_count(); ++i) {
    Variables of_method = Of(service->method(i));
    of_method["co"] = of_service["co"];
    of_method["bind"] = co || Streams(service->method(i)) ? "BindTask" : "Bind";
    out->Print(of_method,
               "  binder.$bind$<$service$$co$ServiceBase, $request$, $reply$,\n"
               "      &$service$$co$ServiceBase::$method$>(methods_of_$service$::$typed$k$method$, "
               "this);\n");
  }
  if (service->method_count() == 0) out->Print("  (void)binder;\n");
  out->Print("}\n\n");
}

void PrintDefault(const MethodDescriptor* method, bool co, Printer* out) {
  Variables of_method = Of(method);
  const bool task = co || Streams(method);
  of_method["co"] = co ? "Co" : "";
  of_method["result"] = task ? "::sluice::Task<::absl::Status>" : "::absl::Status";
  of_method["not_overridden"] = task ? "NotOverriddenTask" : "NotOverridden";
  of_method["parameters"] = HandlerParameters(method);
  out->Print(of_method,
             "$result$ $service$$co$ServiceBase::$method$(::sluice::ServerContext&\n"
             "    $parameters$) {\n"
             "  return ::sluice::$not_overridden$(methods_of_$service$::$typed$k$method$);\n"
             "}\n\n");
}

void PrintClientMethod(const MethodDescriptor* method, Printer* out) {
  if (Streams(method)) {
    out->Print(OfStream(method),
               "$stream$ $service$Client::$method$(\n"
               "    ::sluice::CallContext& context$parameter$) const {\n"
               "  return $stream$(channel_.get(), methods_of_$service$::$typed$k$method$, "
               "context$argument$);\n"
               "}\n\n");
  } else {
    out->Print(
        Of(method),
        "::absl::StatusOr<$reply$> $service$Client::$method$(\n"
        "    ::sluice::CallContext& context, const $request$& request) const {\n"
        "  ::absl::StatusOr<$reply$> reply{::absl::in_place};\n"
        "  ::absl::Status status =\n"
        "      channel_->Call(methods_of_$service$::$typed$k$method$, context, request, &*reply);\n"
        "  if (!status.ok()) reply = ::std::move(status);\n"
        "  return reply;\n"
        "}\n\n"
        "::absl::Status $service$Client::$method$(::sluice::CallContext& context,\n"
        "    const $request$& request, $reply$* reply) const {\n"
        "  return channel_->Call(methods_of_$service$::$typed$k$method$, context, request, "
        "reply);\n"
        "}\n\n"
        "::absl::Status $service$Client::Start$method$(::sluice::CallContext& context,\n"
        "    const $request$& request, $reply$* reply, ::sluice::CallCallback done) const {\n"
        "  return ::sluice::StartCall(channel_.get(), methods_of_$service$::$typed$k$method$,\n"
        "      context, request, reply, ::std::move(done));\n"
        "}\n\n"
        "::sluice::CallAwaiter<$reply$> $service$Client::Co$method$(\n"
        "    ::sluice::CallContext& context, const $request$& request) const {\n"
        "  return ::sluice::CallAwaiter<$reply$>(channel_.get(), "
        "methods_of_$service$::$typed$k$method$,\n"
        "      context, request);\n"
        "}\n\n");
  }
  out->Print(Of(method),
             "const ::sluice::Method& $service$Client::$method$Method() {\n"
             "  return methods_of_$service$::k$method$;\n"
             "}\n\n");
}

// Returns the message types of a service that have their own codec. The index in the list is part of the codec's name.
std::vector<const Descriptor*> PlainMessagesOf(const ServiceDescriptor* service) {
  std::vector<const Descriptor*> found;
  for (int i = 0; i < service->method_count(); ++i) {
    const MethodDescriptor* method = service->method(i);
    if (Streams(method)) continue;
    for (const Descriptor* message : {method->input_type(), method->output_type()}) {
      if (IsPlain(message) && std::find(found.begin(), found.end(), message) == found.end()) {
        found.push_back(message);
      }
    }
  }
  return found;
}

void PrintCodec(const Descriptor* message, size_t place, Printer* out) {
  const Variables of_message = {{"message", ClassOf(message)}, {"place", std::to_string(place)}};
  out->Print(of_message, "using Codec$place$ = ::sluice::call::PlainMessage<$message$");
  for (const FieldDescriptor* field : FieldsOf(message)) {
    Variables of_field = of_message;
    of_field["class"] = PlainClassOf(field);
    of_field["number"] = std::to_string(field->number());
    of_field["name"] = google::protobuf::compiler::cpp::FieldName(field);
    const bool number = of_field["class"] == "VarintField" || of_field["class"] == "FixedField";
    out->Print(of_field, ",\n    ::sluice::call::$class$<$number$, &$message$::$name$,\n        ");
    out->Print(of_field, number ? "&$message$::set_$name$>"
                                : "&$message$::mutable_$name$, &$message$::clear_$name$>");
  }
  out->Print(">;\n");
}

std::string CodecOf(const Descriptor* message, const std::vector<const Descriptor*>& plain) {
  const auto found = std::find(plain.begin(), plain.end(), message);
  return found == plain.end() ? "::sluice::call::kAnyMessage"
                              : "Codec" + std::to_string(found - plain.begin() + 1) + "::kCodec";
}

// Prints the methods that this file calls and binds, with codecs for the types of their messages.
void PrintTypedMethods(const ServiceDescriptor* service, Printer* out) {
  const std::vector<const Descriptor*> plain = PlainMessagesOf(service);
  if (plain.empty()) return;
  out->Print("\n// For calls with messages of these types only.\nnamespace typed {\n\n");
  for (size_t i = 0; i < plain.size(); ++i) PrintCodec(plain[i], i + 1, out);
  out->Print("\n");
  for (int i = 0; i < service->method_count(); ++i) {
    const MethodDescriptor* method = service->method(i);
    if (!HasPlainMessage(method)) continue;
    Variables of_method = Of(method);
    of_method["idempotent"] = IsIdempotent(method) ? "true" : "false";
    of_method["request_codec"] = CodecOf(method->input_type(), plain);
    of_method["reply_codec"] = CodecOf(method->output_type(), plain);
    out->Print(of_method,
               "constexpr ::sluice::Method k$method$(\"$path$\",\n"
               "    ::sluice::Streams::kNobody, /*idempotent=*/$idempotent$,\n"
               "    &$request_codec$, &$reply_codec$);\n");
  }
  out->Print("\n}  // namespace typed\n");
}

void PrintServiceSource(const ServiceDescriptor* service, Printer* out) {
  // The constants are in a namespace of the service: method C of service A_B and method B_C of service A are different.
  out->Print(Of(service), "namespace {\n\nnamespace methods_of_$service$ {\n\n");
  for (int i = 0; i < service->method_count(); ++i) {
    Variables of_method = Of(service->method(i));
    of_method["streams"] = StreamsOf(service->method(i));
    const bool idempotent = IsIdempotent(service->method(i));
    of_method["idempotent"] = idempotent ? ", /*idempotent=*/true" : "";
    out->Print(of_method, idempotent || Streams(service->method(i))
                              ? "constexpr ::sluice::Method k$method$(\"$path$\",\n"
                                "    ::sluice::Streams::k$streams$$idempotent$);\n"
                              : "constexpr ::sluice::Method k$method$(\"$path$\");\n");
  }
  PrintTypedMethods(service, out);
  out->Print(Of(service), "\n}  // namespace methods_of_$service$\n\n}  // namespace\n\n");
  for (const bool co : {false, true}) {
    PrintBind(service, co, out);
    for (int i = 0; i < service->method_count(); ++i) PrintDefault(service->method(i), co, out);
  }
  for (int i = 0; i < service->method_count(); ++i) PrintClientMethod(service->method(i), out);
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
             "#include \"middleware/api/client_call.h\"\n"
             "#include \"middleware/api/service.h\"\n"
             "#include \"middleware/api/stream.h\"\n"
             "#include \"middleware/api/task.h\"\n\n");
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

}  // namespace

bool Generator::Generate(const FileDescriptor* file, const std::string& parameter,
                         google::protobuf::compiler::GeneratorContext* context,
                         std::string* error) const {
  if (!parameter.empty()) {
    *error = "unknown parameter \"" + parameter + "\": protoc-gen-sluice has none";
    return false;
  }
  *error = ClashOfNames(file);
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
