# SPDX-License-Identifier: Apache-2.0
"""ChatCase: a test case with a ChatService in a process of its own, and a channel to it."""

import subprocess
import unittest

import sluice

CHAT = "sluice.tests.chat.Chat/"
LONG = 60.0  # a hang


class ChatCase(unittest.TestCase):
    def setUp(self):
        self.server = self.start_server()
        self.channel = self.connect()
        self.addCleanup(self.channel.close)

    def start_server(self):
        process = subprocess.Popen(["tests/middleware/c_api/chat_server"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.stop, process)
        words = process.stdout.readline().split()
        self.assertEqual(words[:2], ["listening", "on"])
        process.address = words[2]
        return process

    def stop(self, process):
        process.kill()
        process.wait()
        process.stdout.close()

    def connect(self, **settings):
        settings.setdefault("timeout", LONG)
        return sluice.Channel(self.server.address, device="softdc0", **settings)

    def say(self, text, **settings):
        return self.channel.call(CHAT + "Say", {"text": text}, **settings)
