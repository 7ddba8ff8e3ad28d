# SPDX-License-Identifier: Apache-2.0
"""Channel, Call and Stream."""

import atexit
import ctypes
import threading
import time
import traceback
import weakref
from ctypes import byref, c_void_p

from google.protobuf.message import Message

from sluice import _arguments
from sluice._errors import Code, Error, FailedPrecondition, InvalidArgument, raise_for
from sluice._library import (
    CLIENT_STREAMS,
    DONE,
    FOREVER,
    SERVER_STREAMS,
    TIMEOUT,
    call_options,
    entries,
    lib,
)
from sluice._methods import Methods

# The main thread looks at signals (Ctrl-C) this often while it waits.
_SLICE_NS = 50_000_000
_DEFAULT = object()

_channels = weakref.WeakSet()


@atexit.register
def _close_all():
    for channel in list(_channels):
        channel.close()


def _turn_ns():
    return _SLICE_NS if threading.current_thread() is threading.main_thread() else FOREVER


def _take(message):
    """Bytes of a sluice_message, which is freed."""
    try:
        return ctypes.string_at(lib.message_data(message), lib.message_bytes(message)) if lib.message_bytes(message) else b""
    finally:
        lib.message_free(message)


class _Beside:
    """What came beside a reply."""

    metadata = ()
    attachment = b""

    def _take_reply(self, message):
        """Bytes of the reply."""
        self.metadata = entries(lib.message_metadata_count, lib.message_metadata, message)
        size = ctypes.c_size_t()
        attachment = lib.message_attachment(message, byref(size))
        self.attachment = ctypes.string_at(attachment, size.value) if size.value else b""
        return _take(message)


class Channel:
    """A connection to a server, or to several. Threads: any, several at a time.

    address    "host:port"; several: "a:7471,b:7471"; or "file:/path" of a list.
    timeout    Default timeout of calls in seconds. None: no deadline.
    options    {name: value}: options of sluice_info --config without "channel.", for example
               {"limits.max_message_bytes": 65536, "connect_timeout": "2s"}.
    device, secret_file, connect_timeout   The most used options.
    background True: return at once, and connect in the background.

    A context manager: closes the channel at the end.
    """

    _handle = None

    def __init__(
        self,
        address,
        *,
        timeout=5.0,
        device="auto",
        secret_file=None,
        connect_timeout=5.0,
        background=False,
        options=None,
    ):
        _arguments.nanoseconds("timeout", timeout)
        self.address = address
        self.timeout = timeout
        self._methods = Methods()
        settings = {"device": device, "connect_timeout": f'{_arguments.nanoseconds("connect_timeout", connect_timeout)}ns'}
        if secret_file is not None:
            settings["authentication.secret_file"] = secret_file
        if background:
            settings["connect_in_background"] = True
        settings.update(options or {})
        connect_to = _arguments.text("address", address)
        # The C functions write the handle: an interrupt between two lines of Python loses none.
        self._handle = c_void_p()
        _channels.add(self)
        given = c_void_p(lib.options_new())
        try:
            for name, value in settings.items():
                raise_for(lib.options_set(given, _arguments.text("the name of an option", name), _arguments.option(name, value)))
            raise_for(lib.channel_connect(connect_to, given, byref(self._handle)))
        except BaseException:
            self.close()
            raise
        finally:
            lib.options_free(given)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def __del__(self):
        if lib is not None and self._handle is not None:
            lib.channel_free(self._handle)

    def close(self):
        """Disconnects. Calls in progress, of other threads too, end with Cancelled."""
        lib.channel_close(self._handle)

    @property
    def device(self):
        """The device in use, and why."""
        return lib.channel_device(self._handle).decode()

    def wait_connected(self, timeout=None):
        """Waits until a server is connected. DeadlineExceeded: not within `timeout` seconds."""
        left, turn = _arguments.nanoseconds("timeout", timeout), _turn_ns()
        while left > turn:
            status = lib.channel_wait_connected(self._handle, turn)
            if not status:
                return
            if lib.status_code(status) != Code.DEADLINE_EXCEEDED:
                raise_for(status)
            lib.status_free(status)
            left -= turn if left != FOREVER else 0
        raise_for(lib.channel_wait_connected(self._handle, left))

    def services(self, **settings):
        """Names of the server's services. `settings`: timeout and wait_for_ready, as of call()."""
        return self._methods.services(_Plan(self, **settings).ask)

    def describe(self, service, **settings):
        """Descriptor (google.protobuf) of a service of the server. `settings`: timeout and wait_for_ready, as of call()."""
        return self._methods.service(service, _Plan(self, **settings).ask)

    def request(self, method, fields=None, **settings):
        """A request message of a method, from a dictionary. `settings`: timeout and wait_for_ready, as of call()."""
        known = self._methods.method(method, None, _Plan(self, **settings).ask)
        message = known.request_class()
        message.ParseFromString(known.request_bytes(fields))
        return message

    def call(self, method, request=None, **settings):
        """Calls a method, and returns its reply.

        method     "package.Service/Method".
        request    A dictionary, as JSON has it (bytes may be bytes); a message; or None: an empty message.
        timeout    Seconds. None: no deadline. Default: that of the channel. It includes the first question for the server's description.
        wait_for_ready   True: if not connected, wait for a connection until the deadline.
        idempotent       True: running the method twice does no harm, so it may be retried.
        metadata         {key: text or bytes}, or a list of pairs, of the request.
        attachment       Bytes beside the request.

        The reply is a message: of generated code, if the request is and knows the service; otherwise made by the server's description.
        Errors: Error, by its code.
        """
        return self._start(method, request, _turn_ns(), settings).result()

    def start(self, method, request=None, **settings):
        """Starts a call, and returns it: a Call."""
        return self._start(method, request, 0, settings)

    def stream(self, method, request=None, **settings):
        """Starts a call in which client, server or both send several messages, and returns it: a Stream.

        request    As for call() if the server streams only. Otherwise: messages to send, as an iterable which a thread reads while the
                   caller goes on; or None: the caller uses write() and end_writes().
        """
        plan = _Plan(self, **settings)
        known = self._methods.method(method, request, plan.ask)
        if not known.streams:
            raise InvalidArgument(f"{known.path.decode()} does not stream: use call()")
        return Stream(self, known, request, plan.options())

    def _start(self, method, request, wait_ns, settings):
        plan = _Plan(self, **settings)
        known = self._methods.method(method, request, plan.ask)
        if known.streams:
            raise InvalidArgument(f"{known.path.decode()} streams: use stream()")
        return Call(self, known, known.request_bytes(request), plan.options(), wait_ns)


class _Plan:
    """The arguments of a call beside its request, and the questions to the reflection service before it, within the same timeout."""

    def __init__(self, channel, timeout=_DEFAULT, wait_for_ready=False, idempotent=False, metadata=None, attachment=b""):
        self._channel = channel
        self._left_ns = _arguments.nanoseconds("timeout", channel.timeout if timeout is _DEFAULT else timeout)
        self._wait_for_ready = wait_for_ready
        self._idempotent = idempotent
        self._metadata = _arguments.pairs(metadata)
        self._attachment = _arguments.data("attachment", attachment)

    def options(self):
        return call_options(self._left_ns, self._wait_for_ready, self._idempotent, self._metadata, self._attachment)

    def ask(self, path, request):
        since_ns = time.monotonic_ns()
        options = call_options(self._left_ns, self._wait_for_ready, False, (), b"")
        reply = Call(self._channel, _Question(path), request, options, _turn_ns()).result()
        if self._left_ns != FOREVER:
            self._left_ns = max(0, self._left_ns - (time.monotonic_ns() - since_ns))
        return reply


class _Question:
    """A Method whose replies stay bytes."""

    def __init__(self, path):
        self.path = path

    def reply(self, data):
        return data


class Call(_Beside):
    """A call that was started. Threads: one at a time; cancel() from any.

    After result(): metadata, a list of pairs, and attachment, bytes, of the reply.
    """

    _handle = None

    def __init__(self, channel, method, request, options, wait_ns):
        self._handle = c_void_p()
        self._channel = channel  # lives longer
        self._method = method
        self._reply = None
        self._error = None
        try:
            raise_for(
                lib.call_start(channel._handle, method.path, request, len(request), byref(options), wait_ns, byref(self._handle))
            )
        except BaseException:  # an interrupt; it may have been started
            self.cancel()
            raise

    def __del__(self):
        if lib is not None and self._handle is not None:
            lib.call_free(self._handle)

    def done(self):
        """Whether the call has ended."""
        return bool(lib.call_wait(self._handle, 0))

    def cancel(self):
        """Ends the call with Cancelled, soon."""
        lib.call_cancel(self._handle)

    def result(self):
        """Waits for the end of the call, and returns the reply or raises the error. An interrupted wait cancels the call."""
        if self._reply is None and self._error is None:
            try:
                while not lib.call_wait(self._handle, _turn_ns()):
                    pass
            except BaseException:
                self.cancel()
                raise
            message = c_void_p()
            try:
                raise_for(lib.call_finish(self._handle, byref(message)))
                self._reply = self._method.reply(self._take_reply(message))
            except Exception as error:
                self._error = error.with_traceback(None)
        if self._error is not None:
            try:
                raise self._error
            finally:
                self = None  # the error refers to this frame, and shall not keep the call, which keeps the error
        return self._reply


class Stream(_Beside):
    """A call in which client, server or both send several messages.

    Reading: iterate over it, or read(). Writing: write() and end_writes(), or the iterable given to Channel.stream(). A context manager:
    cancels the call at the end, if it has not ended. Threads: one reads, one writes; cancel() from any.

    After result(): metadata, a list of pairs, of the end of the call.
    """

    _handle = None

    def __init__(self, channel, method, request, options):
        self._handle = c_void_p()
        self._channel = channel  # lives longer
        self._method = method
        self._result = None  # (reply, error), when the call is finished
        self._finishing = threading.Lock()
        self._writer = None
        self._writer_error = None
        client_streams = bool(method.streams & CLIENT_STREAMS)
        data = b"" if client_streams else method.request_bytes(request)
        if client_streams and isinstance(request, (dict, Message, str, bytes)):
            raise InvalidArgument(f"{method.path.decode()} takes a stream of messages: pass a list or an iterator of them, or None")
        try:
            messages = iter(request) if client_streams and request is not None else None
        except TypeError:
            raise InvalidArgument(
                f"{method.path.decode()} takes a stream of messages: pass a list or an iterator of them, or None, not a {type(request).__name__}"
            ) from None
        try:
            raise_for(
                lib.stream_open(
                    channel._handle, method.path, method.streams, data, len(data), byref(options), byref(self._handle)
                )
            )
            if messages is not None:
                self._writer = threading.Thread(target=self._write_all, args=(messages,), daemon=True)
                self._writer.start()
        except BaseException:  # an interrupt; it may have been opened
            self.cancel()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.cancel()

    def __del__(self):
        if lib is not None and self._handle is not None:
            lib.stream_free(self._handle)

    def __iter__(self):
        return self

    def __next__(self):
        message = self.read()
        if message is None:
            raise StopIteration
        return message

    def read(self):
        """Waits for the next message. None: there are no more. Raises the error of the call, if it failed."""
        if not self._method.streams & SERVER_STREAMS:
            raise FailedPrecondition(f"{self._method.path.decode()} has one reply: use result()")
        message = c_void_p()
        while (result := lib.stream_read(self._handle, _turn_ns(), byref(message))) == TIMEOUT:
            pass
        if result == DONE:
            return self._method.reply(_take(message))
        self.result()
        return None

    def write(self, message):
        """Sends a message, given as for Channel.call(). Waits while the server has not read enough of the earlier ones.

        False: the call has ended; result() has the reason. A message that is too large ends the call.
        """
        if not self._method.streams & CLIENT_STREAMS:
            raise FailedPrecondition(f"{self._method.path.decode()} takes one request: pass it to stream()")
        data = self._method.request_bytes(message)
        while (result := lib.stream_write(self._handle, data, len(data), _turn_ns())) == TIMEOUT:
            pass
        return result == DONE

    def end_writes(self):
        """Ends the stream of requests."""
        lib.stream_end_writes(self._handle)

    def result(self):
        """Waits for the end of the call. Returns the reply, if the server does not stream, or None; or raises the error.

        Messages that were not read are dropped. If the server waits for the end of the requests, call end_writes() first. An interrupted
        wait cancels the call.
        """
        try:
            while not lib.stream_wait(self._handle, _turn_ns()):
                pass
        except BaseException:
            self.cancel()
            raise
        with self._finishing:
            if self._result is None:
                self._result = self._finish()
        reply, error = self._result
        if error is not None:
            try:
                raise error
            finally:
                self = error = None  # as in Call.result()
        return reply

    def cancel(self):
        """Ends the call with Cancelled, soon. Does nothing after its end."""
        lib.stream_cancel(self._handle)

    def _finish(self):
        message = c_void_p()
        try:
            raise_for(lib.stream_finish(self._handle, byref(message)))
            data = self._take_reply(message)
            if self._method.streams & SERVER_STREAMS:
                return None, None
            return self._method.reply(data), None
        except Exception as error:
            return None, (self._writer_error or error.with_traceback(None))

    def _write_all(self, messages):
        try:
            for message in messages:
                if not self.write(message):
                    return
            self.end_writes()
        except BaseException as error:  # the iterable's own, or a message that does not fit
            # The frames of the iterable stay in the error; those of write() would keep this object, which keeps the error.
            inner = error.__traceback__.tb_next
            if isinstance(error, Error):
                traceback.clear_frames(inner)
                inner = None
            self._writer_error = error.with_traceback(inner)
            self.cancel()
        finally:
            self = None
