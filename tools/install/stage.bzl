# SPDX-License-Identifier: Apache-2.0
"""Collects what an installation consists of, as a folder in the shape of a prefix.

Two rules, because the shared library stands between them: `merged_archive` makes one archive of everything that the
given libraries need from this repository, and `stage` lays out headers, libraries, programs and files.
"""

def _ours(label):
    return label.workspace_name == ""

def _archives(targets):
    return depset([
        library.pic_static_library or library.static_library
        for target in targets
        for input in target[CcInfo].linking_context.linker_inputs.to_list()
        if _ours(input.owner)
        for library in input.libraries
        if library.pic_static_library or library.static_library
    ]).to_list()

def _merged_archive_impl(ctx):
    elsewhere = _archives(ctx.attr.without)
    archives = [archive for archive in _archives(ctx.attr.deps) if archive not in elsewhere]
    output = ctx.actions.declare_file(ctx.label.name + ".a")
    commands = ctx.actions.declare_file(ctx.label.name + ".mri")
    ctx.actions.write(commands, "\n".join(
        ["create " + output.path] + ["addlib " + archive.path for archive in archives] + ["save", "end"],
    ) + "\n")

    # Debug information is nine tenths of the objects, and names files that an installation has not.
    ctx.actions.run_shell(
        inputs = archives + [commands],
        outputs = [output],
        command = "ar -M < %s && strip --strip-debug --enable-deterministic-archives %s && ranlib -D %s" %
                  (commands.path, output.path, output.path),
        mnemonic = "MergeArchives",
    )
    return [DefaultInfo(files = depset([output]))]

merged_archive = rule(
    implementation = _merged_archive_impl,
    attrs = {
        "deps": attr.label_list(mandatory = True, providers = [CcInfo]),
        "without": attr.label_list(doc = "libraries that another archive has", providers = [CcInfo]),
    },
)

def _stage_impl(ctx):
    tree = ctx.actions.declare_directory(ctx.label.name)
    lines = []  # kind, file, place below the prefix
    inputs = []

    for target in ctx.attr.headers_of:
        context = target[CcInfo].compilation_context
        for header in context.headers.to_list():
            if _ours(header.owner):
                inputs.append(header)
                lines.append("header\t%s\t%s" % (header.path, header.short_path))
    for target, folder in ctx.attr.files.items():
        for file in target.files.to_list():
            inputs.append(file)
            lines.append("file\t%s\t%s/%s" % (file.path, folder, file.basename))
    for target, folder in ctx.attr.binaries.items():
        for file in target.files.to_list():
            inputs.append(file)
            lines.append("binary\t%s\t%s/%s" % (file.path, folder, file.basename))

    manifest = ctx.actions.declare_file(ctx.label.name + ".manifest")
    ctx.actions.write(manifest, "\n".join(lines) + "\n")
    ctx.actions.run(
        executable = ctx.executable._lay_out,
        arguments = [manifest.path, ctx.file.public_headers.path, tree.path],
        inputs = depset(inputs + [manifest, ctx.file.public_headers]),
        outputs = [tree],
        mnemonic = "Stage",
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([tree]), runfiles = ctx.runfiles([tree]))]

stage = rule(
    implementation = _stage_impl,
    attrs = {
        "headers_of": attr.label_list(
            doc = "libraries that have the public headers and those that these include",
            providers = [CcInfo],
        ),
        "public_headers": attr.label(
            allow_single_file = True,
            doc = "list of the installed headers (headers.txt); the public ones are copied, and those that they include",
            mandatory = True,
        ),
        "files": attr.label_keyed_string_dict(allow_files = True, doc = "file: folder below the prefix"),
        "binaries": attr.label_keyed_string_dict(doc = "program or shared library: folder; stripped of debug information"),
        "_lay_out": attr.label(default = ":lay_out", executable = True, cfg = "host"),
    },
)
