# SPDX-License-Identifier: Apache-2.0
"""cc_tests: many test files in one program, one test target for each file.

Most of the time that a test file takes to compile goes into headers. So files are compiled in batches: a generated source
includes several of them. Each file keeps its names in a namespace of its own (`namespace queue_test {`), so files of a batch do
not meet. All batches are linked into one program, and the target of a file runs that program in a process of its own with the
tests of this file only (tests/support/file_tests_main.cc).
"""

load("@rules_cc//cc:defs.bzl", "cc_binary", "cc_library")

# More files in a batch: less time for everything, more time after a change of one file.
_BATCH = 8

def _file_test_impl(ctx):
    program = ctx.attr.program[DefaultInfo]
    executable = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = executable, target_file = ctx.executable.program, is_executable = True)
    runfiles = ctx.runfiles(files = ctx.files.data).merge(program.default_runfiles)
    for data in ctx.attr.data:
        runfiles = runfiles.merge(data[DefaultInfo].default_runfiles)
    return [
        DefaultInfo(executable = executable, runfiles = runfiles),
        testing.TestEnvironment(ctx.attr.env),
    ]

# The program under another name: from the name it knows which file's tests to run.
_file_test = rule(
    implementation = _file_test_impl,
    test = True,
    attrs = {
        "program": attr.label(executable = True, cfg = "target", mandatory = True),
        "data": attr.label_list(allow_files = True),
        "env": attr.string_dict(),
    },
)

def cc_tests(name, tests, deps, hdrs = [], data = [], env = {}, size = "small", tags = []):
    """Compiles the files of `tests` together and defines a test target for each.

    Args:
      name: of the program with all of the tests. It runs them all when it is started under this name.
      tests: names of the test targets; X is in the file X.cc.
      deps: what the files need. googletest and its main function need not be named.
      hdrs: headers of this package that the files include and no target of `deps` has.
      data, env, size, tags: of each test target.
    """
    cc_library(
        name = name + "_sources",
        testonly = True,
        textual_hdrs = [test + ".cc" for test in tests] + hdrs,
    )
    batches = [tests[i:i + _BATCH] for i in range(0, len(tests), _BATCH)]
    for number, batch in enumerate(batches):
        lines = ["#include \"%s/%s.cc\"" % (native.package_name(), test) for test in batch]
        native.genrule(
            name = "%s_batch_%d" % (name, number),
            testonly = True,
            outs = ["%s_batch_%d.cc" % (name, number)],
            cmd = "printf '%%s\\n' %s >$@" % " ".join(["'%s'" % line for line in lines]),
        )
    cc_binary(
        name = name,
        testonly = True,
        srcs = ["%s_batch_%d.cc" % (name, number) for number in range(len(batches))],
        deps = deps + [
            ":" + name + "_sources",
            "//tests/support:file_tests_main",
            "@com_google_googletest//:gtest",
        ],
    )
    for test in tests:
        _file_test(
            name = test,
            size = size,
            data = data,
            env = env,
            program = name,
            tags = tags,
        )
