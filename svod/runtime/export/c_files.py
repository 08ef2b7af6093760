"""The files beside an exported object: a C header, an example in C, and what CMake reads."""

from __future__ import annotations

from svod.dtype.types import DType
from svod.runtime.export.contents import Argument, Exported
from svod.runtime.export.module_ir import ERRORS, HEADER_BYTES, MOST_THREADS, offsets_of

_TYPES = {
    "float32": "float", "float64": "double", "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip


def c_type(dtype: DType) -> str:
    """The type of an element in C; formats C has no name for are words of their width."""
    return _TYPES.get(dtype.name, f"uint{8 * dtype.itemsize}_t")


def header(name: str, found: Exported, machine: str) -> str:
    """The header: constants, errors and the three functions."""
    big = name.upper()
    errors = "\n".join(
        [f"    {big}_{word.upper()} = {n},  /* {text} */" for n, (word, text) in _errors()]
    )
    cases = "\n".join([f'    case {n}: return "{text}";' for n, (_, text) in _errors()])
    counts = "\n".join(
        [f"#define {big}_{a.port.name.upper()}_COUNT {a.port.size}" for a in found.arguments]
    )
    bounds = [
        (f"{big}_{v.name.upper()}_{word}", value)
        for v in found.variables
        for word, value in (("LEAST", v.low), ("MOST", v.high))
    ]
    sizes = "\n".join([f"#define {word} {value}" for word, value in bounds])
    weights = HEADER_BYTES + found.weights_bytes
    return f"""/* {name}: a plan of svod as machine code for {machine}. This file is generated. */
#ifndef SVOD_{big}_H
#define SVOD_{big}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {big}_WORKSPACE_BYTES ((size_t){offsets_of(found).size})  /* of one instance */
#define {big}_WEIGHTS_BYTES ((size_t){weights})  /* of {name}.weights */
#define {big}_ALIGNMENT 64  /* of the workspace and of the weights in memory */
#define {big}_MOST_THREADS {MOST_THREADS}

/* Elements of each argument. */
{counts}
{sizes}

enum {{
{errors}
}};

typedef struct {name}_instance {name}_instance;

/* Makes an instance in a block of {big}_WORKSPACE_BYTES bytes: the block is the instance.
   `weights` is the content of {name}.weights, which is only read and may be shared by instances; it
   stays where it is while they live. The thread that calls `run` is one of `threads`; the others
   are started here. Results do not depend on their number. */
int32_t {name}_start({name}_instance *instance, const void *weights, int32_t threads);

/* Runs once. Nothing is allocated. One instance runs once at a time; several may run at once. What
   is written must not overlap anything else that is given.
{_described(found)} */
int32_t {name}_run({name}_instance *instance{_parameters(found)});

/* Ends the threads of an instance that is not running; its block may then be freed. */
void {name}_stop({name}_instance *instance);

/* What a result means. */
static inline const char *{name}_message(int32_t result) {{
    switch (result) {{
{cases}
    default: return "unknown";
    }}
}}

#ifdef __cplusplus
}}
#endif

#endif
"""


def _errors() -> list[tuple[int, tuple[str, str]]]:
    return list(enumerate(ERRORS.items()))


def _parameters(found: Exported) -> str:
    words = []
    for argument in found.arguments:
        const = "" if argument.port.is_output else "const "
        words.append(f",\n    {const}{c_type(argument.port.dtype)} *{argument.port.name}")
    return "".join([*words, *[f",\n    int64_t {v.name}" for v in found.variables]])


def _described(found: Exported) -> str:
    lines = []
    for argument in found.arguments:
        port = argument.port
        kind = "output" if port.is_output else "input"
        room = " with room for its largest sizes" if port.is_symbolic else ""
        pairs = ", as pairs of floats" if port.is_complex else ""
        lines.append(f"   {port.name}: {kind} {port.text()}{pairs}, {port.size} elements{room}.")
    lines += [f"   {v.name}: from {v.low} to {v.high}." for v in found.variables]
    return "\n".join(lines)


def cmake(name: str, has_threads: bool) -> str:
    """A project with the model as a static library, as a shared one, and the example."""
    threads = "find_package(Threads REQUIRED)\n" if has_threads else ""
    link = "Threads::Threads" if has_threads else ""
    return f"""cmake_minimum_required(VERSION 3.13)
project({name} C)
{threads}
# add_subdirectory(this folder) and target_link_libraries(yours PRIVATE {name})
set(object "${{CMAKE_CURRENT_SOURCE_DIR}}/{name}.o")
set_source_files_properties("${{object}}" PROPERTIES EXTERNAL_OBJECT TRUE)
foreach(kind IN ITEMS STATIC SHARED)
  string(TOLOWER "{name}_${{kind}}" library)
  if(kind STREQUAL "STATIC")
    set(library {name})
  endif()
  add_library(${{library}} ${{kind}} "${{object}}")
  set_target_properties(${{library}} PROPERTIES LINKER_LANGUAGE C)
  target_include_directories(${{library}} PUBLIC "${{CMAKE_CURRENT_SOURCE_DIR}}")
  target_link_libraries(${{library}} PUBLIC {link} $<$<NOT:$<PLATFORM_ID:Windows>>:m>)
endforeach()

add_executable({name}_example example.c)
target_link_libraries({name}_example PRIVATE {name})
"""


def example(name: str, found: Exported) -> str:
    """A program that maps the weights, reads inputs from files, runs, and writes the outputs."""
    big = name.upper()
    inputs = [a for a in found.arguments if not a.port.is_output]
    outputs = [a for a in found.arguments if a.port.is_output]
    buffers = "\n".join([f"static {c_type(a.port.dtype)} {_buffer(a)}[{max(a.port.size, 1)}];"
                         for a in found.arguments])  # fmt: skip
    reads = "\n".join(
        [f'    read_into(folder, "{a.port.name}.bin", {_buffer(a)}, {a.port.nbytes});'
         for a in inputs]
    )  # fmt: skip
    writes = "\n".join(
        [f'    write_from(folder, "{a.port.name}.bin", {_buffer(a)}, {a.port.nbytes});'
         for a in outputs]
    )  # fmt: skip
    values = [
        f"size_of(argc, argv, {3 + n}, {big}_{v.name.upper()}_MOST)"
        for n, v in enumerate(found.variables)
    ]
    arguments = ", ".join(["instance", *[_buffer(a) for a in found.arguments], *values])
    size_of = """
static int64_t size_of(int argc, char **argv, int place, int64_t most) {
    return argc > place ? (int64_t)strtoll(argv[place], NULL, 10) : most;
}
"""
    usage = " ".join([f"[{v.name}]" for v in found.variables])
    return f"""/* Runs {name} once: example [folder] [threads] {usage}
   Inputs come from files such as folder/{inputs[0].port.name if inputs else "x"}.bin, else they
   are zero; outputs are written there. */
#include "{name}.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef _WIN32
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

{buffers}
{size_of if found.variables else ""}
static FILE *file_of(const char *folder, const char *name, const char *mode) {{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, mode);
}}

static void read_into(const char *folder, const char *name, void *to, size_t size) {{
    FILE *file = file_of(folder, name, "rb");
    if (!file) return;
    if (fread(to, 1, size, file) != size) fprintf(stderr, "%s is too short\\n", name);
    fclose(file);
}}

static void write_from(const char *folder, const char *name, const void *from, size_t size) {{
    FILE *file = file_of(folder, name, "wb");
    if (!file || fwrite(from, 1, size, file) != size) fprintf(stderr, "cannot write %s\\n", name);
    if (file) fclose(file);
}}

/* The weights: mapped where there is mmap, so that processes share them; else read. */
static const void *weights_of(const char *folder) {{
#ifndef _WIN32
    char path[1024];
    snprintf(path, sizeof path, "%s/{name}.weights", folder);
    int file = open(path, O_RDONLY);
    if (file < 0) return NULL;
    void *found = mmap(NULL, {big}_WEIGHTS_BYTES, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    return found == MAP_FAILED ? NULL : found;
#else
    void *found = _aligned_malloc({big}_WEIGHTS_BYTES, {big}_ALIGNMENT);
    if (found) read_into(folder, "{name}.weights", found, {big}_WEIGHTS_BYTES);
    return found;
#endif
}}

static {name}_instance *workspace(void) {{
    size_t size = ({big}_WORKSPACE_BYTES + {big}_ALIGNMENT - 1) / {big}_ALIGNMENT * {big}_ALIGNMENT;
#ifndef _WIN32
    return ({name}_instance *)aligned_alloc({big}_ALIGNMENT, size);
#else
    return ({name}_instance *)_aligned_malloc(size, {big}_ALIGNMENT);
#endif
}}

int main(int argc, char **argv) {{
    const char *folder = argc > 1 ? argv[1] : ".";
    {name}_instance *instance = workspace();
    int32_t result = {name}_start(instance, weights_of(folder), argc > 2 ? atoi(argv[2]) : 1);
    if (result != {big}_OK) {{
        fprintf(stderr, "{name}_start: %s\\n", {name}_message(result));
        return 1;
    }}
{reads}
    result = {name}_run({arguments});
    {name}_stop(instance);
#ifndef _WIN32
    free(instance);
#else
    _aligned_free(instance);
#endif
    if (result != {big}_OK) {{
        fprintf(stderr, "{name}_run: %s\\n", {name}_message(result));
        return 1;
    }}
{writes}
    return 0;
}}
"""


def _buffer(argument: Argument) -> str:
    return f"{argument.port.name}_data"
