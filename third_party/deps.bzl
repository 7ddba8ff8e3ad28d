# SPDX-License-Identifier: Apache-2.0
"""sluice_deps: the repositories that Sluice is built from, for the WORKSPACE of a project that embeds it.

    local_repository(name = "sluice", path = "…")   # or http_archive, git_repository
    load("@sluice//third_party:deps.bzl", "sluice_deps")
    sluice_deps()

Everything comes from the distribution's packages; nothing is downloaded. BUILD files use the labels of the upstream
projects: whoever has one of these repositories already (upstream's Abseil, say) defines it before the call, and it stays.
"""

load(":installed_absl.bzl", "installed_absl")
load(":stand_in.bzl", "stand_in")

# Wrapped by <name>.BUILD.
_INSTALLED = {
    "civetweb": "civetweb",
    "com_github_google_benchmark": "benchmark",
    "com_github_grpc_grpc": "grpc",
    "com_google_googletest": "googletest",
    "com_google_protobuf": "protobuf",
    "isa_l": "isa_l",
    "libsodium": "libsodium",
    "prometheus_cpp": "prometheus_cpp",
    "rdma_core": "rdma_core",
}

# What Bazel itself asks for. Debian ships these three as they are.
_PACKAGED = {
    "platforms": "/usr/share/bazel/platforms",
    "rules_java": "/usr/share/bazel/rules/java",
    "rules_proto": "/usr/share/bazel/rules/proto",
}

def sluice_deps():
    """Defines what is not defined yet."""
    known = native.existing_rules()
    for name, path in _PACKAGED.items():
        if name not in known:
            native.local_repository(name = name, path = path)
    for name, wrapper in _INSTALLED.items():
        if name not in known:
            native.new_local_repository(
                name = name,
                build_file = str(Label("//third_party:%s.BUILD" % wrapper)),
                path = "/usr",
            )
    if "com_google_absl" not in known:
        installed_absl(name = "com_google_absl")

    # Bazel 4.2 has rules_cc built in, and the packaged one needs a newer Bazel.
    if "rules_cc" not in known:
        stand_in(
            name = "rules_cc",
            files = {str(Label("//third_party:rules_cc.bzl")): "cc/defs.bzl"},
            packages = ["cc"],
        )

    # `bazel test` asks for it even when no coverage is collected.
    if "remote_coverage_tools" not in known:
        stand_in(
            name = "remote_coverage_tools",
            files = {
                str(Label("//third_party:no_coverage.sh")): "no_coverage.sh",
                str(Label("//third_party:remote_coverage_tools.BUILD")): "BUILD",
            },
        )
