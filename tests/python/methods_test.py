# SPDX-License-Identifier: Apache-2.0
"""Methods: names, requests of all kinds, and messages as dictionaries."""

import os
import pickle
import subprocess
import sys
import types
import unittest

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, timestamp_pb2, wrappers_pb2
from google.protobuf.internal import api_implementation, builder

import sluice
from sluice._library import SERVER_STREAMS
from sluice._methods import Methods, _message_class
from chat_case import CHAT, LONG, ChatCase


def shop(pool=None):
    """A file with a service, as protoc would describe it; the class of its message Order."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="BOOK", number=1)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    order.oneof_decl.add(name="who")
    for number, (name, kind, label, type_name, oneof) in enumerate(
        (
            ("id", field.TYPE_INT64, field.LABEL_OPTIONAL, None, None),
            ("raw", field.TYPE_BYTES, field.LABEL_OPTIONAL, None, None),
            ("kind", field.TYPE_ENUM, field.LABEL_OPTIONAL, ".shop.Kind", None),
            ("parts", field.TYPE_MESSAGE, field.LABEL_REPEATED, ".shop.Order", None),
            ("counts", field.TYPE_MESSAGE, field.LABEL_REPEATED, ".shop.Order.CountsEntry", None),
            ("at", field.TYPE_MESSAGE, field.LABEL_OPTIONAL, ".google.protobuf.Timestamp", None),
            ("name", field.TYPE_STRING, field.LABEL_OPTIONAL, None, 0),
            ("number", field.TYPE_INT32, field.LABEL_OPTIONAL, None, 0),
        ),
        1,
    ):
        made = order.field.add(name=name, number=number, type=kind, label=label)
        if type_name is not None:
            made.type_name = type_name
        if oneof is not None:
            made.oneof_index = oneof
    service = file.service.add(name="Orders")
    service.method.add(name="Get", input_type=".shop.Order", output_type=".shop.Order")
    pool = pool or descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return _message_class(pool.FindMessageTypeByName("shop.Order"))


def no_ask(path, request):
    raise AssertionError(f"{path} was asked: the message knows its service")


class DictionariesTest(unittest.TestCase):
    def setUp(self):
        self.order = shop()

        self.method = Methods().method("shop.Orders/Get", self.order(), no_ask)

    def test_message_of_generated_code_knows_its_method(self):
        self.assertIs(self.method.reply_class.DESCRIPTOR, self.order.DESCRIPTOR)
        self.assertEqual(self.method.path, b"shop.Orders/Get")
        self.assertEqual(self.method.streams, 0)

    def test_dictionary_becomes_a_message_and_comes_back(self):
        fields = {
            "id": 2**62,
            "raw": b"\0\xff",
            "kind": "BOOK",
            "parts": [{"id": 1, "name": "a"}],
            "counts": {"x": 2**40},
            "at": "2026-11-25T00:00:00Z",
            "number": 0,
        }
        order = self.method.reply(self.method.request_bytes(fields))
        self.assertEqual((order.id, order.raw, order.kind), (2**62, b"\0\xff", 1))
        self.assertEqual(order.at.seconds, 1795564800)
        back = sluice.to_dict(order)
        self.assertEqual(back.pop("parts"), [{"id": 1, "raw": b"", "kind": "NONE", "parts": [], "counts": {}, "name": "a"}])
        del fields["parts"]
        self.assertEqual(back, fields)

    def test_names_of_json_stand_for_fields(self):
        module = generated("json_names", inner="inner_part")
        method = Methods().method("json_names.Service/Get", module.Outer(), no_ask)
        self.assertEqual(method.reply(method.request_bytes({"innerPart": {"raw": b"x"}})).inner_part.raw, b"x")

    def test_empty_message_has_its_plain_fields(self):
        self.assertEqual(sluice.to_dict(self.order()), {"id": 0, "raw": b"", "kind": "NONE", "parts": [], "counts": {}})

    def test_value_that_is_no_name_of_an_enum_stays_a_number(self):
        self.assertEqual(sluice.to_dict(self.order(kind=7))["kind"], 7)

    def test_request_that_does_not_fit(self):
        for request, text in (
            ({"idd": 1}, "idd"),
            ({"id": "many"}, "id"),
            ({"kind": "CAR"}, "CAR"),
            ({"name": b"bytes"}, "name is of type bytes"),
            ({"id": b"1"}, "id is of type bytes"),
            ({"counts": {b"x": 1}}, "counts is of type bytes"),
            ({"counts": {"x": bytearray(b"1")}}, "counts is of type bytearray"),
            ({"parts": [{"name": memoryview(b"x")}]}, "name is of type memoryview"),
            ({"parts": [5]}, "Order"),
            ({"parts": {"name": "x"}}, "parts"),
            ("text", "a request is a dict or a protobuf message, not a str"),
            (timestamp_pb2.Timestamp(), "takes a shop.Order, not a google.protobuf.Timestamp"),
        ):
            with self.assertRaises(sluice.InvalidArgument) as caught:
                self.method.request_bytes(request)
            self.assertIn(text, caught.exception.message)

    def test_reply_that_is_no_message(self):
        with self.assertRaises(sluice.Internal):
            self.method.reply(b"\xff\xff")


def generated(name, inner="inner"):
    """Messages Outer and Inner and the service Get of `name`.proto, in the default pool, as a module of protoc --python_out."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=name, syntax="proto3")
    described = file.message_type.add(name="Inner")
    described.field.add(name="id", number=1, type=field.TYPE_INT32, label=field.LABEL_OPTIONAL)
    described.field.add(name="raw", number=2, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    file.message_type.add(name="Outer").field.add(
        name=inner, number=1, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL, type_name=f".{name}.Inner"
    )
    methods = file.service.add(name="Service").method
    methods.add(name="Get", input_type=f".{name}.Outer", output_type=f".{name}.Outer")
    methods.add(name="Tail", input_type=f".{name}.Outer", output_type=f".{name}.Inner", server_streaming=True)
    module = types.ModuleType(f"{name}_pb2")
    sys.modules[module.__name__] = module
    described = descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    builder.BuildMessageAndEnumDescriptors(described, vars(module))
    builder.BuildTopDescriptorsAndMessages(described, module.__name__, vars(module))
    return module


class ClassesTest(unittest.TestCase):
    def test_classes_of_generated_code_stay(self):
        module = generated("classes_stay")
        method = Methods().method("classes_stay.Service/Get", module.Outer(), no_ask)
        self.assertIs(method.request_class, module.Outer)
        self.assertIs(type(method.reply(b"")), module.Outer)
        self.assertIs(type(module.Outer().inner), module.Inner)
        outer = module.Outer(inner=module.Inner(id=7))
        self.assertEqual(pickle.loads(pickle.dumps(outer)), outer)
        self.assertIs(type(pickle.loads(pickle.dumps(outer.inner))), module.Inner)

    def test_method_depends_on_the_message(self):
        def ask(path, request):
            raise sluice.Unavailable("no server")

        module, methods = generated("depends"), Methods()
        known = methods.method("depends.Service/Get", module.Outer(), no_ask)
        self.assertIs(methods.method("depends.Service/Get", module.Outer(), no_ask), known)
        # Without a message of generated code the server is asked.
        for request in (None, {}):
            with self.assertRaises(sluice.Unavailable):
                methods.method("depends.Service/Get", request, ask)

    def test_class_that_only_the_reply_has_a_part_of(self):
        module = generated("part_stays")
        file = descriptor_pb2.FileDescriptorProto(name="whole.proto", package="whole", syntax="proto3", dependency=["part_stays.proto"])
        file.message_type.add(name="Whole").field.add(
            name="inner",
            number=1,
            type=descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
            label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
            type_name=".part_stays.Inner",
        )
        file.service.add(name="Service").method.add(name="Get", input_type=".part_stays.Outer", output_type=".whole.Whole")
        pool = descriptor_pool.Default()
        pool.AddSerializedFile(file.SerializeToString())
        method = Methods().method("whole.Service/Get", module.Outer(), no_ask)
        self.assertIs(type(method.reply(b"").inner), module.Inner)
        self.assertIs(method.reply_class, _message_class(pool.FindMessageTypeByName("whole.Whole")))

    def test_shape_of_a_method(self):
        module = generated("shapes")
        self.assertEqual(Methods().method("shapes.Service/Get", module.Outer(), no_ask).streams, 0)
        tail = Methods().method("shapes.Service/Tail", module.Outer(), no_ask)
        self.assertEqual((tail.streams, tail.reply_class), (SERVER_STREAMS, module.Inner))


class AnyTest(unittest.TestCase):
    """Messages of a pool of the server, within google.protobuf.Any; wrappers; numbers that do not fit."""

    def setUp(self):
        field = descriptor_pb2.FieldDescriptorProto
        file = descriptor_pb2.FileDescriptorProto(
            name="box.proto",
            package="box",
            syntax="proto3",
            dependency=["google/protobuf/any.proto", "google/protobuf/wrappers.proto"],
        )
        thing = file.message_type.add(name="Thing")
        thing.field.add(name="raw", number=1, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
        thing.field.add(name="name", number=2, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
        box = file.message_type.add(name="Box")
        for number, (name, kind) in enumerate((("any", "Any"), ("raw", "BytesValue"), ("name", "StringValue")), 1):
            box.field.add(
                name=name, number=number, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL, type_name=f".google.protobuf.{kind}"
            )
        box.field.add(name="size", number=4, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
        file.service.add(name="Boxes").method.add(name="Get", input_type=".box.Box", output_type=".box.Box")
        pool = descriptor_pool.DescriptorPool()
        for one in (any_pb2, wrappers_pb2):
            pool.AddSerializedFile(one.DESCRIPTOR.serialized_pb)
        pool.AddSerializedFile(file.SerializeToString())
        box_class = _message_class(pool.FindMessageTypeByName("box.Box"))
        self.method = Methods().method("box.Boxes/Get", box_class(), no_ask)

    def sent(self, fields):
        return self.method.reply(self.method.request_bytes(fields))

    def test_any_of_the_servers_types(self):
        box = self.sent({"any": {"@type": "type.googleapis.com/box.Thing", "raw": b"\0\xff", "name": "n"}})
        self.assertEqual(box.any.value, b"\x0a\x02\0\xff\x12\x01n")
        self.assertEqual(
            sluice.to_dict(box)["any"], {"@type": "type.googleapis.com/box.Thing", "raw": "AP8=", "name": "n"}
        )

    def test_wrappers(self):
        box = self.sent({"raw": b"\0\xff", "name": "n"})
        self.assertEqual((box.raw.value, box.name.value), (b"\0\xff", "n"))

    def test_values_that_do_not_fit(self):
        for fields in (
            {"any": {"@type": 5}},
            {"any": {"@type": "type.googleapis.com/box.None"}},
            {"any": {"@type": "type.googleapis.com/box.Thing", "name": b"x"}},
            {"any": 5},
            {"name": b"x"},
            {"size": 10**400},
            {5: 1},
        ):
            with self.subTest(fields=str(fields)[:40]), self.assertRaises(sluice.InvalidArgument):
                self.sent(fields)


class PurePythonTest(unittest.TestCase):
    def test_protobuf_in_pure_python(self):
        if api_implementation.Type() == "python":
            self.skipTest("it is this one")
        environment = dict(os.environ, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
        cases = [f"methods_test.{one}" for one in ("DictionariesTest", "ClassesTest", "AnyTest")]
        ended = subprocess.run(
            [sys.executable, "-m", "unittest", *cases], env=environment, capture_output=True, text=True, timeout=LONG
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)


# A file of the user that has the name of a file of Sluice (docs/python.md, Limits).
SAME_NAME = """
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(name="proto/health.proto", package="mine", syntax="proto3")
file.message_type.add(name="Beat")
pool = descriptor_pool.Default()
pool.AddSerializedFile(file.SerializeToString())
import sluice
print(pool.FindFileByName("proto/health.proto").package, pool.FindMessageTypeByName("mine.Beat").name)
"""


class SameNameTest(unittest.TestCase):
    def test_generated_code_that_was_imported_before_is_its_own(self):
        ended = subprocess.run([sys.executable, "-c", SAME_NAME], capture_output=True, text=True, timeout=LONG)
        self.assertEqual((ended.returncode, ended.stdout), (0, "mine Beat\n"), ended.stderr)


class NamesTest(ChatCase):
    def fails(self, kind, text, method, request=None):
        with self.assertRaises(kind) as caught:
            self.channel.call(method, request)
        self.assertIn(text, caught.exception.message)

    def test_names_that_are_not_there(self):
        self.fails(sluice.InvalidArgument, "write package.Service/Method", "nonsense")
        self.fails(sluice.InvalidArgument, "write package.Service/Method", "a/b/c")
        self.fails(sluice.InvalidArgument, "write package.Service/Method", 5)
        self.fails(sluice.InvalidArgument, "write package.Service/Method", [])
        self.fails(sluice.NotFound, "sluice.tests.chat.Chat", "sluice.Nothing/Do")
        with self.assertRaises(sluice.InvalidArgument):
            self.channel.describe(5)
        self.fails(sluice.NotFound, "Say, Tail, Sum, Talk", CHAT + "Shout")

    def test_stream_is_not_called(self):
        self.fails(sluice.InvalidArgument, "use stream()", CHAT + "Tail")
        with self.assertRaises(sluice.InvalidArgument) as caught:
            self.channel.stream(CHAT + "Say")
        self.assertIn("use call()", caught.exception.message)
