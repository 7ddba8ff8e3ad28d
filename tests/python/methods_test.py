# SPDX-License-Identifier: Apache-2.0
"""Methods: names, requests of all kinds, and messages as dictionaries."""

import unittest

from google.protobuf import descriptor_pb2, descriptor_pool, timestamp_pb2

import sluice
from sluice._methods import Methods, _message_class
from chat_case import CHAT, ChatCase


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

    def test_empty_message_has_its_plain_fields(self):
        self.assertEqual(sluice.to_dict(self.order()), {"id": 0, "raw": b"", "kind": "NONE", "parts": [], "counts": {}})

    def test_value_that_is_no_name_of_an_enum_stays_a_number(self):
        self.assertEqual(sluice.to_dict(self.order(kind=7))["kind"], 7)

    def test_request_that_does_not_fit(self):
        for request, text in (
            ({"idd": 1}, "idd"),
            ({"id": "many"}, "id"),
            ({"kind": "CAR"}, "CAR"),
            ("text", "a request is a dict or a protobuf message, not a str"),
            (timestamp_pb2.Timestamp(), "takes a shop.Order, not a google.protobuf.Timestamp"),
        ):
            with self.assertRaises(sluice.InvalidArgument) as caught:
                self.method.request_bytes(request)
            self.assertIn(text, caught.exception.message)

    def test_reply_that_is_no_message(self):
        with self.assertRaises(sluice.Internal):
            self.method.reply(b"\xff\xff")


class NamesTest(ChatCase):
    def fails(self, kind, text, method, request=None):
        with self.assertRaises(kind) as caught:
            self.channel.call(method, request)
        self.assertIn(text, caught.exception.message)

    def test_names_that_are_not_there(self):
        self.fails(sluice.InvalidArgument, "write package.Service/Method", "nonsense")
        self.fails(sluice.InvalidArgument, "write package.Service/Method", "a/b/c")
        self.fails(sluice.NotFound, "sluice.tests.chat.Chat", "sluice.Nothing/Do")
        self.fails(sluice.NotFound, "Say, Tail, Sum, Talk", CHAT + "Shout")

    def test_stream_is_not_called(self):
        self.fails(sluice.InvalidArgument, "use stream()", CHAT + "Tail")
        with self.assertRaises(sluice.InvalidArgument) as caught:
            self.channel.stream(CHAT + "Say")
        self.assertIn("use call()", caught.exception.message)
