# SPDX-License-Identifier: Apache-2.0
"""Libraries of softdc that exist twice: as in the product, and with its test hooks compiled in."""

load("@rules_cc//cc:defs.bzl", "cc_library")

_HOOKS = [
    "SOFTDC_KILL_POINTS=1",
    "SOFTDC_MUTATIONS=1",
]

def softdc_library(name, softdc_deps = [], deps = [], visibility = None, **kwargs):
    """`name`, and the same sources as `name`_instrumented, for tests only.

    The second has kill points (shm/kill_point.h) and mutations (model/mutation.h) compiled in. Inline
    functions differ between the two, so a binary links one kind or the other, never both.

    Args:
      name: of the product's library.
      softdc_deps: libraries made by this macro; the instrumented one depends on their instrumented ones.
      deps: libraries that are the same for both.
      visibility: of both.
      **kwargs: of cc_library.
    """
    cc_library(
        name = name,
        deps = deps + softdc_deps,
        visibility = visibility,
        **kwargs
    )
    cc_library(
        name = name + "_instrumented",
        testonly = True,
        defines = _HOOKS,
        deps = deps + [dep + "_instrumented" for dep in softdc_deps],
        visibility = visibility,
        **kwargs
    )
