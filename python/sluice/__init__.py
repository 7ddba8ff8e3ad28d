# SPDX-License-Identifier: Apache-2.0
"""Calls of Sluice servers from Python, by the server's own description of its services.

    import sluice

    with sluice.Channel("127.0.0.1:7471") as channel:
        reply = channel.call("shop.Orders/Get", {"id": 17}, timeout=1.0)
        print(reply.customer)
        with channel.stream("shop.Orders/Watch", {"customer": "Ada"}) as orders:
            for order in orders:
                print(sluice.to_dict(order))

docs/python.md describes the module.
"""

from sluice._channel import Call, Channel, Stream
from sluice._errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    Code,
    DataLoss,
    DeadlineExceeded,
    Detail,
    Error,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    Unknown,
)
from sluice._methods import to_dict

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Call",
    "Cancelled",
    "Channel",
    "Code",
    "DataLoss",
    "DeadlineExceeded",
    "Detail",
    "Error",
    "FailedPrecondition",
    "Internal",
    "InvalidArgument",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "ResourceExhausted",
    "Stream",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unknown",
    "to_dict",
]
