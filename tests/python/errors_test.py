# SPDX-License-Identifier: Apache-2.0
"""Errors: code, message, details and payloads, of Sluice and of handlers."""

import sluice
from chat_case import CHAT, LONG, ChatCase


class ErrorsTest(ChatCase):
    def fails(self, kind, call, *arguments, **settings):
        with self.assertRaises(kind) as caught:
            call(*arguments, **settings)
        self.assertEqual(caught.exception.code, kind.code)
        return caught.exception

    def test_error_of_a_handler(self):
        error = self.fails(sluice.NotFound, self.say, "fail")
        self.assertEqual(error.message, "nothing of that name")
        self.assertEqual(str(error), "NOT_FOUND: nothing of that name")
        self.assertEqual(error.detail, sluice.Detail())
        self.assertFalse(error.retry_safe)

    def test_payloads_of_a_handler(self):
        error = self.fails(sluice.FailedPrecondition, self.say, "order")
        self.assertEqual(error.payloads["type.googleapis.com/shop.OutOfStock"], b"\0\xff")
        self.assertEqual(len(error.payloads["type.googleapis.com/shop.Hint"]), 6000)

    def test_metadata_of_an_error(self):
        error = self.fails(sluice.Aborted, self.say, "refuse")
        self.assertEqual(error.metadata, [("reason", b"tired")])

    def test_details_of_sluice(self):
        error = self.fails(sluice.DeadlineExceeded, self.say, "wait", timeout=0.02)
        self.assertEqual(error.detail.peer, self.server.address)
        self.assertEqual(error.detail.operation, "/" + CHAT + "Say")
        self.assertNotEqual(error.detail.cause, "")
        self.assertNotEqual(error.detail.remedy, "")
        self.assertIn("type.googleapis.com/sluice.ErrorDetail", error.payloads)

    def test_timeouts_of_nothing_and_of_the_channel(self):
        self.fails(sluice.DeadlineExceeded, self.say, "hello", timeout=0)
        self.fails(sluice.DeadlineExceeded, self.say, "hello", timeout=-1)
        self.assertEqual(self.say("hello", timeout=None).text, "hello")
        with self.connect(timeout=0.02) as channel:
            # Its questions to the reflection service have this timeout too.
            channel._methods.method = self.channel._methods.method
            self.fails(sluice.DeadlineExceeded, channel.call, CHAT + "Say", {"text": "wait"})

    def test_one_class_catches_all(self):
        with self.assertRaises(sluice.Error):
            self.say("fail")
        kinds = [kind for kind in vars(sluice).values() if isinstance(kind, type) and issubclass(kind, sluice.Error)]
        self.assertEqual(len(kinds), 17)
        self.assertEqual({kind.code for kind in kinds}, set(sluice.Code) - {sluice.Code.OK})

    def test_server_that_is_killed(self):
        call = self.channel.start(CHAT + "Say", {"text": "wait"})
        self.server.kill()
        self.server.wait()
        error = self.fails(sluice.Unavailable, call.result)
        self.assertEqual(error.detail.peer, self.server.address)

    def test_connecting(self):
        self.fails(sluice.InvalidArgument, sluice.Channel, "no address")
        self.fails(sluice.NotFound, sluice.Channel, self.server.address, device="mlx5_99")
        self.fails(sluice.Unavailable, sluice.Channel, "127.0.0.1:1", device="softdc0")
        error = self.fails(sluice.InvalidArgument, sluice.Channel, self.server.address, options={"limits.credits_per_per": 1})
        self.assertIn("limits.credits_per_peer", error.message)
        with self.connect(background=True, options={"connect_timeout": "10ms"}) as channel:
            channel.wait_connected(LONG)
        with sluice.Channel("127.0.0.1:1", device="softdc0", background=True) as channel:
            self.fails(sluice.DeadlineExceeded, channel.wait_connected, 0.2)

    def test_metadata_that_is_not_accepted(self):
        error = self.fails(sluice.InvalidArgument, self.say, "x", metadata={"UPPER": "x"})
        self.assertIn("UPPER", error.message)
