# SPDX-License-Identifier: Apache-2.0
"""Methods: what a client knows of a server's methods, by its reflection service or from generated code."""

import dataclasses
import threading

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError, EncodeError, Message

from sluice._errors import Internal, InvalidArgument, NotFound, Unimplemented
from sluice._fields import plain
from sluice._library import CLIENT_STREAMS, SERVER_STREAMS

_REFLECTION = "sluice.reflection.v1"


# What json_format raises for values that do not fit.
_NO_FIT = (json_format.ParseError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


if hasattr(message_factory, "GetMessageClass"):

    def _message_class(descriptor):
        return message_factory.GetMessageClass(descriptor)

else:
    # Two threads would make two classes.
    _making = threading.Lock()

    class _Factory(message_factory.MessageFactory):
        """Classes of messages. It makes none that is there: a second one would replace the one of generated code."""

        def GetPrototype(self, descriptor):
            try:
                known = descriptor._concrete_class
            except (AttributeError, TypeError):
                return super().GetPrototype(descriptor)
            self._classes[descriptor] = known
            return known

    def _message_class(descriptor):
        with _making:
            return _Factory(descriptor.file.pool).GetPrototype(descriptor)


def _reflection_classes():
    """The messages of proto/reflection.proto, in a pool of their own."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="reflection.proto", package=_REFLECTION, syntax="proto3")
    for name, field_name, label, kind in (
        ("ListServicesRequest", None, None, None),
        ("ListServicesResponse", "services", field.LABEL_REPEATED, field.TYPE_STRING),
        ("FilesOfRequest", "service", field.LABEL_OPTIONAL, field.TYPE_STRING),
        ("FilesOfResponse", "files", field.LABEL_REPEATED, field.TYPE_BYTES),
    ):
        message = file.message_type.add(name=name)
        if field_name is not None:
            message.field.add(name=field_name, number=1, label=label, type=kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file) if not hasattr(pool, "AddSerializedFile") else pool.AddSerializedFile(file.SerializeToString())
    return {
        message.name: _message_class(pool.FindMessageTypeByName(f"{_REFLECTION}.{message.name}"))
        for message in file.message_type
    }


_CLASSES = _reflection_classes()


def split(path):
    """("package.Service", "Method") of "package.Service/Method", with or without a slash in front."""
    if not isinstance(path, str):
        raise InvalidArgument(f"{path!r} is not a method: write package.Service/Method")
    service, slash, method = path.removeprefix("/").partition("/")
    if not service or not method or not slash or "/" in method:
        raise InvalidArgument(f'"{path}" is not a method: write package.Service/Method')
    return service, method


@dataclasses.dataclass(frozen=True)
class Method:
    path: bytes
    descriptor: object
    request_class: type
    reply_class: type
    streams: int  # CLIENT_STREAMS, SERVER_STREAMS, their sum, or 0

    def request_bytes(self, request):
        """Bytes of a request, given as a message, a dictionary or None."""
        if isinstance(request, Message):
            given, wanted = request.DESCRIPTOR.full_name, self.request_class.DESCRIPTOR.full_name
            if given != wanted:
                raise InvalidArgument(f"{self.path.decode()} takes a {wanted}, not a {given}")
            message = request
        else:
            message = self.request_class()
            if request is not None and not isinstance(request, dict):
                raise InvalidArgument(
                    f"{self.path.decode()}: a request is a dict or a protobuf message, not a {type(request).__name__}"
                )
            try:
                pool = message.DESCRIPTOR.file.pool
                json_format.ParseDict(plain(request or {}, message.DESCRIPTOR), message, descriptor_pool=pool)
            except _NO_FIT as error:
                raise InvalidArgument(f"not a {message.DESCRIPTOR.full_name}: {error}") from error
        try:
            return message.SerializeToString()
        except EncodeError as error:
            raise InvalidArgument(str(error)) from error

    def reply(self, data):
        message = self.reply_class()
        try:
            message.ParseFromString(data)
        except DecodeError as error:
            raise Internal(f"the reply of {self.path.decode()} is no {message.DESCRIPTOR.full_name}: {error}") from error
        return message


def to_dict(message):
    """A message as a dictionary: names of fields as in the .proto, all fields that are not messages, 64-bit numbers as int, bytes as bytes.

    Messages of google.protobuf that have a JSON form of their own (Timestamp, Struct, Any, ...) have that form.
    """
    if message.DESCRIPTOR.file.package == "google.protobuf":
        pool = message.DESCRIPTOR.file.pool
        return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
    result = {}
    for field in message.DESCRIPTOR.fields:
        is_message = field.type in (field.TYPE_MESSAGE, field.TYPE_GROUP)
        value = getattr(message, field.name)
        if field.label == field.LABEL_REPEATED:
            if is_message and field.message_type.GetOptions().map_entry:
                inner = field.message_type.fields_by_name["value"]
                result[field.name] = {key: _value(inner, one) for key, one in value.items()}
            else:
                result[field.name] = [_value(field, one) for one in value]
        elif is_message or field.containing_oneof is not None:
            if message.HasField(field.name):
                result[field.name] = _value(field, value)
        else:
            result[field.name] = _value(field, value)
    return result


def _value(field, value):
    if field.type in (field.TYPE_MESSAGE, field.TYPE_GROUP):
        return to_dict(value)
    if field.type == field.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return value


class Methods:
    """Methods of one server. Threads: any.

    It keeps no channel: `ask`, an argument, makes a call of a path (bytes) with the bytes of a request, and returns those of the reply.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._pool = descriptor_pool.DescriptorPool()
        self._services = {}
        self._methods = {}

    @staticmethod
    def _reflect(ask, method, request, reply_class):
        try:
            data = ask(f"{_REFLECTION}.Reflection/{method}".encode(), request.SerializeToString())
        except Unimplemented as error:
            raise Unimplemented(
                "the server has no reflection service: register one (docs/python.md), or pass messages of generated code",
                detail=error.detail,
                payloads=error.payloads,
                metadata=error.metadata,
            ) from error
        reply = reply_class()
        reply.ParseFromString(data)
        return reply

    def services(self, ask):
        return list(self._reflect(ask, "ListServices", _CLASSES["ListServicesRequest"](), _CLASSES["ListServicesResponse"]).services)

    def service(self, name, ask):
        """Descriptor of a service, from the server."""
        if not isinstance(name, str):
            raise InvalidArgument(f"{name!r} is not the name of a service: write package.Service")
        with self._lock:
            known = self._services.get(name)
        if known is not None:
            return known
        try:
            request = _CLASSES["FilesOfRequest"](service=name)
        except ValueError as error:  # it is no UTF-8
            raise InvalidArgument(f"{name!r} is not the name of a service: {error}") from error
        files = self._reflect(ask, "FilesOf", request, _CLASSES["FilesOfResponse"]).files
        with self._lock:
            for data in files:
                try:
                    self._pool.AddSerializedFile(data)
                except (TypeError, ValueError, DecodeError) as error:
                    raise Internal(f"the server's description of {name} can't be used: {error}") from error
            try:
                found = self._pool.FindServiceByName(name)
            except KeyError:
                raise Internal(f"the server's description of {name} is without it") from None
            self._services[name] = found
            return found

    def method(self, path, request, ask):
        """Method of a path. `request`: a message of generated code may know the method."""
        service_name, name = split(path)
        key = (path, request.DESCRIPTOR if isinstance(request, Message) else None)
        known = self._methods.get(key)
        if known is not None:
            return known
        service = None
        if isinstance(request, Message):
            try:
                service = request.DESCRIPTOR.file.pool.FindServiceByName(service_name)
            except KeyError:
                service = None
        if service is None:
            service = self.service(service_name, ask)
        descriptor = service.methods_by_name.get(name)
        if descriptor is None:
            known_names = ", ".join(service.methods_by_name)
            raise NotFound(f"{service_name} has no method {name}: its methods are {known_names}")
        method = _method_of(descriptor)
        self._methods[key] = method
        return method


def _method_of(descriptor):
    service = descriptor.containing_service
    # Protobuf 4.21 in pure Python cannot copy the description of a service that was made from a file's bytes.
    file = descriptor_pb2.FileDescriptorProto.FromString(service.file.serialized_pb)
    proto = file.service[service.index].method[descriptor.index]
    return Method(
        path=f"{service.full_name}/{descriptor.name}".encode(),
        descriptor=descriptor,
        request_class=_message_class(descriptor.input_type),
        reply_class=_message_class(descriptor.output_type),
        streams=(CLIENT_STREAMS if proto.client_streaming else 0) | (SERVER_STREAMS if proto.server_streaming else 0),
    )
