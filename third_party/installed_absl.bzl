# SPDX-License-Identifier: Apache-2.0
"""@com_google_absl over libabsl-dev: upstream's packages and targets, all of them views of the installed libraries."""

# Upstream targets of release 20220623 that a user may name. Each depends on one target that offers every
# installed Abseil library to the linker, which keeps only those that are needed.
_TARGETS = {
    "algorithm": ["algorithm", "container"],
    "base": [
        "base",
        "config",
        "core_headers",
        "dynamic_annotations",
        "endian",
        "errno_saver",
        "log_severity",
        "prefetch",
        "raw_logging_internal",
    ],
    "cleanup": ["cleanup"],
    "container": [
        "btree",
        "fixed_array",
        "flat_hash_map",
        "flat_hash_set",
        "inlined_vector",
        "node_hash_map",
        "node_hash_set",
    ],
    "debugging": ["failure_signal_handler", "leak_check", "stacktrace", "symbolize"],
    "flags": ["commandlineflag", "config", "flag", "marshalling", "parse", "reflection", "usage"],
    "functional": ["any_invocable", "bind_front", "function_ref"],
    "hash": ["hash", "hash_testing"],
    "memory": ["memory"],
    "meta": ["type_traits"],
    "numeric": ["bits", "int128"],
    "random": ["bit_gen_ref", "distributions", "random", "seed_sequences"],
    "status": ["status", "statusor"],
    "strings": ["cord", "str_format", "strings"],
    "synchronization": ["synchronization"],
    "time": ["time"],
    "types": ["any", "bad_any_cast", "bad_optional_access", "bad_variant_access", "compare", "optional", "span", "variant"],
    "utility": ["utility"],
}

def _installed_absl_impl(ctx):
    found = ctx.execute(["pkg-config", "--variable=libdir", "absl_base"])
    if found.return_code:
        fail("libabsl-dev or pkg-config is not installed: run ./dev install")
    names = ctx.execute(["find", found.stdout.strip(), "-maxdepth", "1", "-name", "libabsl_*.so"])
    libs = sorted([path.split("/lib")[-1][:-len(".so")] for path in names.stdout.strip().split("\n")])
    linkopts = ["-Wl,--push-state,--as-needed"] + ["-l" + lib for lib in libs] + ["-Wl,--pop-state"]

    ctx.file("BUILD", "cc_library(name = \"installed\", visibility = [\"//absl:__subpackages__\"], linkopts = %r)\n" % linkopts)
    for area, targets in _TARGETS.items():
        ctx.file("absl/%s/BUILD" % area, "package(default_visibility = [\"//visibility:public\"])\n" + "".join([
            "cc_library(name = %r, deps = [\"//:installed\"])\n" % target
            for target in targets
        ]))

installed_absl = repository_rule(
    implementation = _installed_absl_impl,
    configure = True,
    local = True,
)
