# SPDX-License-Identifier: Apache-2.0
"""Stream: each shape, by iteration and by hand."""

import itertools
import threading
from unittest import mock

import sluice
from sluice import _channel
from sluice._library import lib
from chat_case import CHAT, LONG, ChatCase


class InterruptedWait:
    """The library; Ctrl-C comes in the first wait for the end of a stream."""

    def __init__(self):
        self._interrupted = False

    def __getattr__(self, name):
        return getattr(lib, name)

    def stream_wait(self, handle, timeout_ns):
        if not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt
        return lib.stream_wait(handle, timeout_ns)


class StreamTest(ChatCase):
    def test_servers_messages_are_iterated(self):
        with self.channel.stream(CHAT + "Tail", {"text": "x", "number": 100}) as lines:
            self.assertEqual([line.number for line in lines], list(range(100)))
            self.assertIsNone(lines.read(), "and stays at its end")
        self.assertIsNone(lines.result())

    def test_error_comes_after_what_was_sent_before(self):
        lines = self.channel.stream(CHAT + "Tail", {"text": "fail", "number": 5})
        seen = []
        with self.assertRaises(sluice.DataLoss) as caught:
            for line in lines:
                seen.append(line.number)
        self.assertEqual(seen, [0, 1, 2, 3, 4])
        self.assertEqual(caught.exception.message, "the rest is lost")
        with self.assertRaises(sluice.DataLoss):
            lines.result()

    def test_client_streams_an_iterable(self):
        numbers = self.channel.stream(CHAT + "Sum", ({"number": i} for i in range(1, 101)))
        self.assertEqual(numbers.result().number, 5050)

    def test_client_writes_by_hand(self):
        numbers = self.channel.stream(CHAT + "Sum")
        for i in range(100):
            self.assertTrue(numbers.write({"number": i}))
        numbers.end_writes()
        self.assertEqual(numbers.result().number, 4950)
        self.assertFalse(numbers.write({"number": 1}))

    def test_server_that_has_enough(self):
        numbers = self.channel.stream(CHAT + "Sum", itertools.chain([{"text": "enough"}], itertools.repeat({"number": 1})))
        with self.assertRaises(sluice.OutOfRange):
            numbers.result()

    def test_both_talk_by_hand(self):
        talk = self.channel.stream(CHAT + "Talk")
        for i in range(50):
            talk.write({"number": i})
            self.assertEqual(talk.read().number, i)
        talk.end_writes()
        self.assertIsNone(talk.read())

    def test_both_talk_with_an_iterable(self):
        with self.channel.stream(CHAT + "Talk", [{"number": i} for i in range(500)]) as talk:
            self.assertEqual([line.number for line in talk], list(range(500)))

    def test_leaving_a_stream_cancels_it(self):
        with self.channel.stream(CHAT + "Tail", {"number": -1}) as lines:
            self.assertEqual(next(lines).number, 0)
        with self.assertRaises(sluice.Cancelled):
            lines.result()

    def test_another_thread_cancels(self):
        talk = self.channel.stream(CHAT + "Talk")
        threading.Thread(target=talk.cancel).start()
        with self.assertRaises(sluice.Cancelled):
            next(talk)

    def test_deadline(self):
        with self.assertRaises(sluice.DeadlineExceeded):
            next(self.channel.stream(CHAT + "Talk", timeout=0.02))

    def test_iterable_that_fails(self):
        def messages():
            yield {"number": 1}
            raise RuntimeError("the source is empty")

        with self.assertRaisesRegex(RuntimeError, "the source is empty"):
            self.channel.stream(CHAT + "Sum", messages()).result()
        with self.assertRaisesRegex(sluice.InvalidArgument, "nummer"):
            list(self.channel.stream(CHAT + "Talk", [{"nummer": 1}]))

    def assert_ends(self, stream):
        self.assertEqual(lib.stream_wait(stream._handle, int(LONG * 1e9)), 1, "it has no deadline, and does not end")

    def test_message_that_is_too_large_ends_the_call(self):
        with self.connect(options={"limits.max_large_message_bytes": 0}) as channel:
            large = {"text": "x" * (1 << 20)}
            numbers = channel.stream(CHAT + "Sum", [{"number": 1}, large], timeout=None)
            self.assert_ends(numbers)
            with self.assertRaisesRegex(sluice.ResourceExhausted, "16336"):
                numbers.result()
            talk = channel.stream(CHAT + "Talk", timeout=None)
            self.assertFalse(talk.write(large))
            self.assert_ends(talk)
            with self.assertRaises(sluice.ResourceExhausted):
                talk.read()

    def test_request_that_is_not_iterable(self):
        with self.assertRaisesRegex(sluice.InvalidArgument, "not a int"):
            self.channel.stream(CHAT + "Sum", 5)

    def test_interrupted_result_cancels(self):
        numbers = self.channel.stream(CHAT + "Sum")
        with mock.patch.object(_channel, "lib", InterruptedWait()), self.assertRaises(KeyboardInterrupt):
            numbers.result()
        with self.assertRaises(sluice.Cancelled):
            numbers.result()

    def test_wrong_use_is_an_error(self):
        with self.assertRaises(sluice.InvalidArgument):
            self.channel.stream(CHAT + "Sum", {"number": 1})
        with self.assertRaises(sluice.FailedPrecondition):
            self.channel.stream(CHAT + "Tail").write({})
        with self.assertRaises(sluice.FailedPrecondition):
            self.channel.stream(CHAT + "Sum").read()
