// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/config/settings.h"

#include <cstdio>
#include <cstdlib>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/dynamic_message.h"

namespace sluice::softdc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A google.protobuf.FileDescriptorSet of proto/softdc_config.proto, made by the build.
constexpr unsigned char kDescription[] = {
#include "transport/softdc/config/softdc_config_descriptor.inc"
};

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "softdc: this build's description of its settings has no %s\n", what);
  std::abort();
}

// Never destroyed, as softdc is used until the process ends.
const Message& Prototype() {
  static const Message* const prototype = [] {
    google::protobuf::FileDescriptorSet files;
    if (!files.ParseFromArray(kDescription, sizeof(kDescription))) Die("files");
    auto* pool = new google::protobuf::DescriptorPool;
    for (const auto& file : files.file()) pool->BuildFile(file);
    const auto* config = pool->FindMessageTypeByName("sluice.softdc.Config");
    if (config == nullptr) Die("sluice.softdc.Config");
    return (new google::protobuf::DynamicMessageFactory(pool))->GetPrototype(config);
  }();
  return *prototype;
}

const FieldDescriptor& Field(const Message& message, const char* name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr) Die(name);
  return *field;
}

}  // namespace

Settings::Settings() : message_(Prototype().New()) {}

const Message& Settings::Group(const char* group) const {
  return message_->GetReflection()->GetMessage(*message_, &Field(*message_, group));
}

int64_t Settings::Get(const char* group, const char* name) const {
  const Message& from = Group(group);
  const Reflection& reflection = *from.GetReflection();
  const FieldDescriptor& field = Field(from, name);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(from, &field) ? 1 : 0;
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.GetEnumValue(from, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.GetInt64(from, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.GetUInt32(from, &field);
    default:
      Die(name);
  }
}

bool Settings::Has(const char* group, const char* name) const {
  const Message& from = Group(group);
  return from.GetReflection()->HasField(from, &Field(from, name));
}

void Settings::Set(const char* group, const char* name, int64_t value) {
  Message& to =
      *message_->GetReflection()->MutableMessage(message_.get(), &Field(*message_, group));
  const Reflection& reflection = *to.GetReflection();
  const FieldDescriptor& field = Field(to, name);
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&to, &field, value != 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(&to, &field, static_cast<int>(value));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(&to, &field, value);
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(&to, &field, static_cast<uint32_t>(value));
    default:
      Die(name);
  }
}

}  // namespace sluice::softdc
