# SPDX-License-Identifier: Apache-2.0
"""A repository made of a few of our files, wherever Sluice itself lies: a local_repository's path is relative to the
workspace of the project that is built, which need not be Sluice's."""

def _stand_in_impl(ctx):
    for source, place in ctx.attr.files.items():
        ctx.symlink(source, place)
    for place in ctx.attr.packages:
        ctx.file(place + "/BUILD")

stand_in = repository_rule(
    implementation = _stand_in_impl,
    attrs = {
        "files": attr.label_keyed_string_dict(doc = "file: its place in the repository"),
        "packages": attr.string_list(doc = "folders that get an empty BUILD file"),
    },
)
