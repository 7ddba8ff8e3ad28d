# SPDX-License-Identifier: Apache-2.0
"""Errors: code, message, details and payloads, of Sluice and of handlers."""

import copy
import os
import pickle
import subprocess
import sys
from unittest import mock

import sluice
from sluice import _library
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

    def test_errors_are_pickled_and_copied(self):
        error = self.fails(sluice.Aborted, self.say, "refuse")
        for again in (pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error)))), copy.copy(copy.copy(error))):
            self.assertIs(type(again), sluice.Aborted)
            for name in ("message", "code", "detail", "payloads", "metadata"):
                self.assertEqual(getattr(again, name), getattr(error, name))
            self.assertEqual(str(again), str(error))

    def test_times_that_are_none(self):
        for timeout in (float("nan"), "1", [], 1j):
            self.fails(sluice.InvalidArgument, self.say, "x", timeout=timeout)
            self.fails(sluice.InvalidArgument, self.channel.wait_connected, timeout)
            self.fails(sluice.InvalidArgument, self.connect, timeout=timeout)
            self.fails(sluice.InvalidArgument, self.connect, connect_timeout=timeout)
        for timeout in (float("inf"), 10**400):
            self.assertEqual(self.say("x", timeout=timeout).text, "x")
            self.channel.wait_connected(timeout)
        for timeout in (float("-inf"), -(10**400)):
            self.fails(sluice.DeadlineExceeded, self.say, "x", timeout=timeout)

    def test_arguments_of_other_types(self):
        for settings in (
            {"metadata": {"who": None}},
            {"metadata": {"who": 5}},
            {"metadata": {5: "x"}},
            {"metadata": {"wh\0o": "x"}},
            {"metadata": [("who",)]},
            {"metadata": 5},
            {"metadata": {"who": "\ud800"}},
            {"attachment": 5},
            {"attachment": "text"},
            {"attachment": None},
        ):
            with self.subTest(settings=settings):
                self.fails(sluice.InvalidArgument, self.say, "x", **settings)
        for address in (None, 5, b"127.0.0.1:1", self.server.address + "\0x"):
            self.fails(sluice.InvalidArgument, sluice.Channel, address)
        for options in ({"device": "softdc0\0x"}, {"device": None}, {"device": b"softdc0"}, {5: "x"}, {"dev\0ice": "x"}):
            self.fails(sluice.InvalidArgument, sluice.Channel, self.server.address, options=options)

    def test_channel_without_arguments_says_only_that(self):
        ended = subprocess.run(
            [sys.executable, "-c", "import sluice\ntry: sluice.Channel()\nexcept TypeError: print('refused')"],
            capture_output=True,
            text=True,
            timeout=LONG,
        )
        self.assertEqual((ended.stdout, ended.stderr), ("refused\n", ""))

    def test_library_is_searched_from_any_place_of_the_module(self):
        environment = {name: value for name, value in os.environ.items() if name != "SLUICE_LIBRARY"}
        with mock.patch.dict(os.environ, environment, clear=True):
            for place in ("/sluice/_library.py", "/a/sluice/_library.py", "/a/b/c/d/sluice/_library.py"):
                with mock.patch.object(_library, "__file__", place):
                    self.assertEqual(_library._path(), "libsluice_c.so.0")

    def test_metadata_that_is_not_accepted(self):
        error = self.fails(sluice.InvalidArgument, self.say, "x", metadata={"UPPER": "x"})
        self.assertIn("UPPER", error.message)
