# SPDX-License-Identifier: Apache-2.0
"""Channel and Call: calls by name, several at a time, closing, interrupts."""

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from unittest import mock

import sluice
from sluice import _channel
from sluice._errors import raise_for
from sluice._library import lib
from chat_case import CHAT, LONG, ChatCase


class InterruptedLibrary:
    """The library; Ctrl-C comes right after the function `begin`."""

    def __init__(self, begin, ends):
        self.handle = None
        self.ended = []
        self._begin = begin
        self._ends = ends

    def __getattr__(self, name):
        function = getattr(lib, name)
        if name == self._begin:
            return lambda *arguments: self._interrupt(function, *arguments)
        if name in self._ends:
            return lambda handle: self._end(name, function, handle)
        return function

    def _interrupt(self, function, *arguments):
        raise_for(function(*arguments))
        self.handle = arguments[-1]._obj.value
        raise KeyboardInterrupt

    def _end(self, name, function, handle):
        self.ended.append((name, handle.value))
        function(handle)


class ChannelTest(ChatCase):
    def test_call_takes_a_dictionary_and_returns_a_message(self):
        reply = self.channel.call(CHAT + "Say", {"text": "hello"})
        self.assertEqual(reply.text, "hello")
        self.assertEqual(reply.DESCRIPTOR.full_name, "sluice.tests.chat.Line")

    def test_call_without_a_request_sends_an_empty_message(self):
        self.assertEqual(self.channel.call("/" + CHAT + "Say").text, "")

    def test_call_takes_a_message(self):
        request = self.channel.request(CHAT + "Say", {"text": "of the server's description"})
        self.assertEqual(self.channel.call(CHAT + "Say", request), request)

    def test_services_and_their_descriptions(self):
        self.assertIn("sluice.tests.chat.Chat", self.channel.services())
        chat = self.channel.describe("sluice.tests.chat.Chat")
        self.assertEqual(list(chat.methods_by_name), ["Say", "Tail", "Sum", "Talk"])
        self.assertIn("softdc0", self.channel.device)

    def test_metadata_goes_both_ways(self):
        call = self.channel.start(CHAT + "Say", metadata={"who": b"A\0da"})
        self.assertEqual(call.result().text, "A\0da")
        self.assertEqual(call.metadata, [("seen", b"A\0da")])
        self.assertEqual(self.say("", metadata=[("who", "text")]).text, "text")
        self.assertEqual(self.say("", metadata={"who": bytearray(b"bytes")}).text, "bytes")

    def test_attachments_go_both_ways(self):
        for size in (1, 1000, 1 << 20):
            call = self.channel.start(CHAT + "Say", attachment=b"a" * size)
            call.result()
            self.assertEqual(call.attachment, b"a" * size)
        for kind in (bytearray, memoryview):
            call = self.channel.start(CHAT + "Say", attachment=kind(b"abc"))
            call.result()
            self.assertEqual(call.attachment, b"abc")

    def test_large_messages_pass(self):
        text = "x" * (3 << 20)
        self.assertEqual(self.say(text).text, text)

    def test_several_calls_in_flight(self):
        calls = [self.channel.start(CHAT + "Say", {"text": str(i)}) for i in range(50)]
        self.assertEqual([call.result().text for call in calls], [str(i) for i in range(50)])
        self.assertTrue(all(call.done() for call in calls))
        self.assertEqual(calls[7].result().text, "7", "the result stays")

    def test_threads_call_at_once(self):
        seen = []

        def call(thread):
            for i in range(50):
                text = f"{thread}:{i}"
                seen.append(self.say(text).text == text)

        threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        call("main")
        for thread in threads:
            thread.join()
        self.assertEqual(seen, [True] * 250)

    def test_cancel_ends_a_call(self):
        call = self.channel.start(CHAT + "Say", {"text": "wait"})
        self.assertFalse(call.done())
        threading.Thread(target=call.cancel).start()
        with self.assertRaises(sluice.Cancelled):
            call.result()
        with self.assertRaises(sluice.Cancelled):
            call.result()

    def test_close_ends_calls_of_other_threads(self):
        call = self.channel.start(CHAT + "Say", {"text": "wait"})
        ended = []

        def wait():
            try:
                call.result()
            except sluice.Cancelled as error:
                ended.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        self.channel.close()
        thread.join()
        self.assertEqual(len(ended), 1)
        with self.assertRaises(sluice.FailedPrecondition) as caught:
            self.say("hello")
        self.assertIn("the channel is closed", caught.exception.message)
        self.channel.close()

    def test_context_manager_closes(self):
        with self.connect() as channel:
            self.assertEqual(channel.call(CHAT + "Say", {"text": "x"}).text, "x")
        with self.assertRaises(sluice.FailedPrecondition):
            channel.call(CHAT + "Say")

    def test_objects_are_collected(self):
        channel = self.connect()
        call = channel.start(CHAT + "Say", {"text": "wait"})
        stream = channel.stream(CHAT + "Talk")
        gone = [weakref.ref(one) for one in (channel, call, stream)]
        del channel, call, stream
        gc.collect()
        self.assertEqual([one() for one in gone], [None] * 3)
        self.assertEqual(self.say("hello").text, "hello")

    def test_dropped_channel_disconnects_at_once(self):
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        channel = self.connect()
        channel.call(CHAT + "Say", {"text": "x"})
        call = channel.start(CHAT + "Say", {"text": "fail"})
        numbers = channel.stream(CHAT + "Sum", [{"nummer": 1}])
        for one in (call, numbers):
            try:
                one.result()
            except sluice.Error:
                pass
        numbers._writer.join()
        gone = [weakref.ref(each) for each in (channel, call, numbers)]
        del channel, call, numbers, one
        self.assertEqual([each() for each in gone], [None] * 3)

    def test_question_for_the_description_has_the_arguments_of_the_call(self):
        with sluice.Channel("127.0.0.1:1", device="softdc0", background=True, timeout=None) as channel:
            with self.assertRaises(sluice.DeadlineExceeded):
                channel.call(CHAT + "Say", timeout=0.1, wait_for_ready=True)
            with self.assertRaises(sluice.DeadlineExceeded):
                channel.stream(CHAT + "Talk", timeout=0.1, wait_for_ready=True)
            with self.assertRaises(sluice.DeadlineExceeded):
                channel.services(timeout=0.1, wait_for_ready=True)
            self.interrupted(lambda: channel.call(CHAT + "Say", wait_for_ready=True))

    def interrupted(self, wait):
        ready = threading.Event()

        def interrupt():
            ready.wait()
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with self.assertRaises(KeyboardInterrupt):
            ready.set()
            wait()
        thread.join()

    def test_interrupt_while_an_object_is_made_ends_and_frees_it(self):
        self.say("x")  # the description is known
        for begin, end, free, make in (
            ("call_start", "call_cancel", "call_free", lambda: self.channel.start(CHAT + "Say", {"text": "wait"})),
            ("stream_open", "stream_cancel", "stream_free", lambda: self.channel.stream(CHAT + "Talk")),
            ("channel_connect", "channel_close", "channel_free", self.connect),
        ):
            with self.subTest(begin=begin):
                library = InterruptedLibrary(begin, (end, free))
                with mock.patch.object(_channel, "lib", library):
                    try:
                        make()
                    except KeyboardInterrupt:
                        pass
                    else:
                        self.fail("not interrupted")
                    gc.collect()
                self.assertEqual(library.ended, [(end, library.handle), (free, library.handle)])

    def test_interrupt_ends_a_wait_of_the_main_thread(self):
        call = self.channel.start(CHAT + "Say", {"text": "wait"}, timeout=None)
        stream = self.channel.stream(CHAT + "Talk", timeout=None)
        for wait in (call.result, stream.read, stream.result):
            self.interrupted(wait)
        self.assertEqual(self.say("goes on").text, "goes on")

    def test_process_ends_with_calls_in_flight(self):
        script = (
            "import sluice, sys\n"
            "channel = sluice.Channel(sys.argv[1], device='softdc0', timeout=None)\n"
            f"call = channel.start('{CHAT}Say', {{'text': 'wait'}})\n"
            f"stream = channel.stream('{CHAT}Talk', iter(lambda: {{'text': 'more'}}, None))\n"
            "print(next(stream).text)\n"
        )
        ended = subprocess.run(
            [sys.executable, "-c", script, self.server.address], capture_output=True, text=True, timeout=LONG
        )
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "more\n", ""))

    def test_forked_child_is_refused(self):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                self.say("hello")
            except sluice.FailedPrecondition as error:
                os.write(write, error.message.encode())
            finally:
                os._exit(0)
        os.close(write)
        os.waitpid(child, 0)
        with os.fdopen(read) as said:
            self.assertIn("belongs to another process", said.read())
        self.assertEqual(self.say("hello").text, "hello")

    def test_options_by_name(self):
        with self.connect(options={"limits.credits_per_peer": 8}, background=True, connect_timeout=30) as channel:
            channel.wait_connected(LONG)
            self.assertEqual(channel.call(CHAT + "Say", {"text": "x"}).text, "x")

    def test_example_script_runs(self):
        ended = subprocess.run(
            [sys.executable, "examples/python/look.py", self.server.address, "--device=softdc0"],
            capture_output=True,
            text=True,
            timeout=LONG,
        )
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("sluice.tests.chat.Chat\n  Say(sluice.tests.chat.Line)", ended.stdout)
        self.assertIn("server: SERVING", ended.stdout)
