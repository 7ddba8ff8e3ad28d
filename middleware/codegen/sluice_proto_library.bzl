# SPDX-License-Identifier: Apache-2.0
"""sluice_proto_library: the C++ library of the services in a .proto file.

    proto_library(name = "echo_proto", srcs = ["echo.proto"])
    cc_proto_library(name = "echo_cc_proto", deps = [":echo_proto"])
    sluice_proto_library(name = "echo_sluice", proto = ":echo_proto", cc_proto = ":echo_cc_proto")

    #include "examples/echo/echo.sluice.h"   # EchoServiceBase, EchoClient

One header and one source per .proto among the direct sources of `proto`, beside the .proto.
"""

load("@rules_cc//cc:defs.bzl", "cc_library")

def _generate_impl(ctx):
    info = ctx.attr.proto[ProtoInfo]
    headers = []
    sources = []
    for source in info.direct_sources:
        stem = source.basename[:-len(".proto")]
        headers.append(ctx.actions.declare_file(stem + ".sluice.h", sibling = source))
        sources.append(ctx.actions.declare_file(stem + ".sluice.cc", sibling = source))

    args = ctx.actions.args()
    args.add("--plugin=protoc-gen-sluice=" + ctx.executable._plugin.path)
    args.add("--sluice_out=" + "/".join([ctx.bin_dir.path] + ([ctx.label.workspace_root] if ctx.label.workspace_root else [])))
    args.add_all(info.transitive_proto_path, format_each = "-I%s")
    args.add_all(info.direct_sources)
    ctx.actions.run(
        executable = ctx.executable._protoc,
        tools = [ctx.executable._plugin],
        arguments = [args],
        inputs = info.transitive_sources,
        outputs = headers + sources,
        mnemonic = "SluiceGenerate",
        progress_message = "Generating services of %s" % ctx.label,
    )
    return [
        DefaultInfo(files = depset(headers + sources)),
        OutputGroupInfo(headers = depset(headers), sources = depset(sources)),
    ]

_generate = rule(
    implementation = _generate_impl,
    attrs = {
        "proto": attr.label(mandatory = True, providers = [ProtoInfo]),
        "_plugin": attr.label(
            default = "//middleware/codegen:protoc-gen-sluice",
            executable = True,
            cfg = "host",
        ),
        "_protoc": attr.label(
            default = "@com_google_protobuf//:protoc",
            executable = True,
            cfg = "host",
        ),
    },
)

def sluice_proto_library(name, proto, cc_proto, **kwargs):
    """Generates services and compiles them.

    Args:
      name: of the cc_library.
      proto: a proto_library.
      cc_proto: the cc_proto_library of `proto`.
      **kwargs: visibility, testonly, tags: as for cc_library.
    """
    generated = name + "_generated"
    _generate(
        name = generated,
        proto = proto,
        testonly = kwargs.get("testonly", False),
        visibility = ["//visibility:private"],
    )
    native.filegroup(
        name = name + "_headers",
        srcs = [generated],
        output_group = "headers",
        testonly = kwargs.get("testonly", False),
        visibility = ["//visibility:private"],
    )
    native.filegroup(
        name = name + "_sources",
        srcs = [generated],
        output_group = "sources",
        testonly = kwargs.get("testonly", False),
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = [name + "_sources"],
        hdrs = [name + "_headers"],
        deps = [
            cc_proto,
            str(Label("//middleware/api:core")),  # in Sluice, whoever calls this
            "@com_google_absl//absl/status",
            "@com_google_absl//absl/status:statusor",
            "@com_google_absl//absl/utility",
        ],
        **kwargs
    )
