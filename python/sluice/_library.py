# SPDX-License-Identifier: Apache-2.0
"""libsluice_c.so.0 by ctypes: one Python function for each function of sluice.h.

The library is that of SLUICE_LIBRARY; or the one in the prefix that this file is installed in; or the one that the dynamic loader finds.
"""

import ctypes
import os
import pathlib
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_void_p

_NAME = "libsluice_c.so.0"

FOREVER = 2**63 - 1
TIMEOUT, END, DONE = -1, 0, 1
CLIENT_STREAMS, SERVER_STREAMS = 1, 2


class Metadata(ctypes.Structure):
    _fields_ = [("key", c_char_p), ("value", c_char_p), ("value_bytes", c_size_t)]


class CallOptions(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("timeout_ns", c_int64),
        ("wait_for_ready", c_int32),
        ("idempotent", c_int32),
        ("metadata", POINTER(Metadata)),
        ("metadata_count", c_size_t),
        ("attachment", c_char_p),
        ("attachment_bytes", c_size_t),
    ]


_STATUS = c_void_p
_HANDLE = c_void_p
_OUT = POINTER(c_void_p)
_ENTRY = [c_void_p, c_size_t, POINTER(c_char_p), POINTER(c_void_p), POINTER(c_size_t)]
_FUNCTIONS = {
    "c_version": (c_uint32, []),
    "call_cancel": (None, [_HANDLE]),
    "call_finish": (_STATUS, [_HANDLE, _OUT]),
    "call_free": (None, [_HANDLE]),
    "call_start": (_STATUS, [_HANDLE, c_char_p, c_char_p, c_size_t, POINTER(CallOptions), c_int64, _OUT]),
    "call_unary": (_STATUS, [_HANDLE, c_char_p, c_char_p, c_size_t, POINTER(CallOptions), _OUT]),
    "call_wait": (c_int32, [_HANDLE, c_int64]),
    "channel_close": (None, [_HANDLE]),
    "channel_connect": (_STATUS, [c_char_p, c_void_p, _OUT]),
    "channel_device": (c_char_p, [_HANDLE]),
    "channel_free": (None, [_HANDLE]),
    "channel_wait_connected": (_STATUS, [_HANDLE, c_int64]),
    "code_name": (c_char_p, [c_int32]),
    "message_attachment": (c_void_p, [_HANDLE, POINTER(c_size_t)]),
    "message_bytes": (c_size_t, [_HANDLE]),
    "message_data": (c_void_p, [_HANDLE]),
    "message_free": (None, [_HANDLE]),
    "message_metadata": (c_int32, _ENTRY),
    "message_metadata_count": (c_size_t, [_HANDLE]),
    "options_free": (None, [c_void_p]),
    "options_new": (c_void_p, []),
    "options_set": (_STATUS, [c_void_p, c_char_p, c_char_p]),
    "status_code": (c_int32, [_STATUS]),
    "status_detail": (c_char_p, [_STATUS, c_int32]),
    "status_free": (None, [_STATUS]),
    "status_message": (c_char_p, [_STATUS]),
    "status_metadata": (c_int32, _ENTRY),
    "status_metadata_count": (c_size_t, [_STATUS]),
    "status_payload": (c_int32, _ENTRY),
    "status_payload_count": (c_size_t, [_STATUS]),
    "status_retry_safe": (c_int32, [_STATUS]),
    "stream_cancel": (None, [_HANDLE]),
    "stream_end_writes": (None, [_HANDLE]),
    "stream_finish": (_STATUS, [_HANDLE, _OUT]),
    "stream_free": (None, [_HANDLE]),
    "stream_open": (
        _STATUS,
        [_HANDLE, c_char_p, c_int32, c_char_p, c_size_t, POINTER(CallOptions), _OUT],
    ),
    "stream_read": (c_int32, [_HANDLE, c_int64, _OUT]),
    "stream_wait": (c_int32, [_HANDLE, c_int64]),
    "stream_write": (c_int32, [_HANDLE, c_char_p, c_size_t, c_int64]),
}


def _path():
    given = os.environ.get("SLUICE_LIBRARY")
    if given:
        return given
    # PREFIX/lib/python3/dist-packages/sluice/_library.py
    folders = pathlib.Path(__file__).resolve().parents
    beside = folders[3] / _NAME if len(folders) > 3 else None
    return str(beside) if beside is not None and beside.exists() else _NAME


class _Library:
    """Attributes are the C functions, without the prefix "sluice_"."""

    def __init__(self):
        path = _path()
        try:
            library = ctypes.CDLL(path)
            # The same library, for functions that only look at a value: they keep the interpreter's lock.
            values = ctypes.PyDLL(path)
        except OSError as error:
            raise ImportError(
                f"{_NAME} is not found: install Sluice, or set SLUICE_LIBRARY to its path ({error})"
            ) from error
        for name, (result, arguments) in _FUNCTIONS.items():
            at_once = name.startswith(("message_", "status_"))
            function = getattr(values if at_once else library, "sluice_" + name)
            function.restype = result
            function.argtypes = arguments
            setattr(self, name, function)


lib = _Library()


def entries(count, at, handle):
    """The entries of a list of the C API, as (text, bytes)."""
    result = []
    key, value, size = c_char_p(), c_void_p(), c_size_t()
    for index in range(count(handle)):
        if at(handle, index, byref(key), byref(value), byref(size)):
            data = ctypes.string_at(value, size.value) if size.value else b""
            result.append((key.value.decode(errors="replace"), data))
    return result


def call_options(timeout_ns, wait_for_ready, idempotent, metadata, attachment):
    """CallOptions. The result refers to `metadata` and `attachment`, and keeps them."""
    options = CallOptions(
        ctypes.sizeof(CallOptions), timeout_ns, bool(wait_for_ready), bool(idempotent), None, 0, attachment, len(attachment)
    )
    if metadata:
        array = (Metadata * len(metadata))()
        for entry, (key, value) in zip(array, metadata):
            entry.key, entry.value, entry.value_bytes = key, value, len(value)
        options.metadata = ctypes.cast(array, POINTER(Metadata))
        options.metadata_count = len(metadata)
        options.kept = array
    return options
