# SPDX-License-Identifier: Apache-2.0
"""Error and its kinds: one class for each code, so that `except sluice.Unavailable` works."""

import dataclasses
import enum

from sluice._library import entries, lib


class Code(enum.IntEnum):
    """Codes of statuses; those of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


@dataclasses.dataclass(frozen=True)
class Detail:
    """Details of an error of Sluice itself (docs/errors.md). All empty: it is an error of the server's handler."""

    layer: str = ""
    operation: str = ""
    peer: str = ""
    cause: str = ""
    remedy: str = ""
    # The call provably did not run at the server: a retry cannot run it twice.
    retry_safe: bool = False


class Error(Exception):
    """A call, or another operation, has failed.

    code      Code.
    message   Text.
    detail    Detail: layer, peer, cause, remedy, retry_safe.
    payloads  {type URL: bytes}: payloads of the status, for example of the server's handler.
    metadata  [(key, bytes)]: metadata that the server sent with the error.
    """

    code = Code.UNKNOWN

    def __init__(self, message, code=None, detail=Detail(), payloads=None, metadata=()):
        if code is not None:
            self.code = code
        super().__init__(f"{self.code.name}: {message}")
        self.message = message
        self.detail = detail
        self.payloads = dict(payloads or {})
        self.metadata = list(metadata)

    def __reduce__(self):
        # pickle and copy: with the arguments as they were given.
        return type(self), (self.message, self.code, self.detail, self.payloads, self.metadata)

    @property
    def retry_safe(self):
        return self.detail.retry_safe


def _kind(code):
    name = "".join(part.capitalize() for part in code.name.split("_"))
    return type(name, (Error,), {"code": code, "__module__": "sluice", "__doc__": f"Error with the code {code.name}."})


_KINDS = {code: _kind(code) for code in Code if code != Code.OK}

Aborted = _KINDS[Code.ABORTED]
AlreadyExists = _KINDS[Code.ALREADY_EXISTS]
Cancelled = _KINDS[Code.CANCELLED]
DataLoss = _KINDS[Code.DATA_LOSS]
DeadlineExceeded = _KINDS[Code.DEADLINE_EXCEEDED]
FailedPrecondition = _KINDS[Code.FAILED_PRECONDITION]
Internal = _KINDS[Code.INTERNAL]
InvalidArgument = _KINDS[Code.INVALID_ARGUMENT]
NotFound = _KINDS[Code.NOT_FOUND]
OutOfRange = _KINDS[Code.OUT_OF_RANGE]
PermissionDenied = _KINDS[Code.PERMISSION_DENIED]
ResourceExhausted = _KINDS[Code.RESOURCE_EXHAUSTED]
Unauthenticated = _KINDS[Code.UNAUTHENTICATED]
Unavailable = _KINDS[Code.UNAVAILABLE]
Unimplemented = _KINDS[Code.UNIMPLEMENTED]
Unknown = _KINDS[Code.UNKNOWN]


def _text(data):
    return data.decode(errors="replace")


def raise_for(status):
    """Raises the error of a sluice_status, which it frees. None, the null pointer, is success."""
    if status:
        raise _error_of(status)  # not of a local name: the frame and the error would refer to one another


def _error_of(status):
    try:
        number = lib.status_code(status)
        code = Code(number) if number in Code._value2member_map_ else Code.UNKNOWN
        detail = Detail(
            *(_text(lib.status_detail(status, which)) for which in range(5)),
            retry_safe=bool(lib.status_retry_safe(status)),
        )
        return _KINDS[code](
            _text(lib.status_message(status)),
            code,
            detail,
            entries(lib.status_payload_count, lib.status_payload, status),
            entries(lib.status_metadata_count, lib.status_metadata, status),
        )
    finally:
        lib.status_free(status)
