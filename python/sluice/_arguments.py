# SPDX-License-Identifier: Apache-2.0
"""Arguments of Python as the C API takes them. A value that does not fit raises InvalidArgument: nothing is converted silently."""

import os

from sluice._errors import InvalidArgument
from sluice._library import FOREVER


def nanoseconds(name, seconds):
    """None and infinity: FOREVER. Negative: 0."""
    if seconds is None:
        return FOREVER
    try:
        scaled = seconds * 1e9
        if scaled >= FOREVER:
            return FOREVER
        return round(scaled) if scaled > 0 else _zero(scaled)
    except OverflowError:  # an int that is no float
        return FOREVER if seconds > 0 else 0
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} is {seconds!r}: pass seconds as a number, or None") from None


def _zero(number):
    if number != number:
        raise ValueError("not a number")
    return 0


def text(name, value):
    """Bytes of a text that C reads up to its first zero."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r}: pass a str")
    if "\0" in value:
        raise InvalidArgument(f"{name} is {value!r}: remove the zero character")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name} is {value!r}: {error}") from error


def data(name, value):
    """bytes of an object of bytes."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise InvalidArgument(f"{name} is of {type(value).__name__}: pass bytes")
    return bytes(value)


def option(name, value):
    """Text of the value of an option."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, (int, float)):
        return str(value).encode()
    return text(f"option {name}", os.fspath(value) if isinstance(value, os.PathLike) else value)


def pairs(metadata):
    """[(key, value)] in bytes, of a dictionary or of pairs."""
    try:
        items = [(key, value) for key, value in (metadata.items() if hasattr(metadata, "items") else metadata or ())]
    except (TypeError, ValueError):
        raise InvalidArgument(f"metadata is {metadata!r}: pass a dictionary, or a list of pairs") from None
    return [(text("a key of metadata", key), _metadata_value(key, value)) for key, value in items]


def _metadata_value(key, value):
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"metadata {key} is {value!r}: {error}") from error
    return data(f"metadata {key}", value)
