# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Building and loading: what goes right, and every way in which it does not."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nki_mlir import customop
from nki_mlir.cache_entries import read_entry, write_entry
from nki_mlir.customop import build
from nki_mlir.customop.abi import ABI
from nki_mlir.customop.build import (
    BadFlags,
    BadName,
    BadSources,
    BadStackSize,
    CompilationFailed,
    MissingSource,
    NoCompiler,
    UnwritableDirectory,
)
from nki_mlir.customop.library import (
    AbiMismatch,
    KernelNotFound,
    KernelSignature,
    NoLibraryBlock,
    NotALibrary,
    RepeatedOperator,
    TooManyOperators,
    UnknownOperator,
    WrongArgument,
    WrongArgumentDtype,
    WrongArity,
)
from nki_mlir.customop.limited_processes import CompilationMemory, CompilationTime, LimitedProcesses
from nki_mlir.input_limits import LimitText
from nki_mlir.language.current import nki

from ..at_once import at_once

ROOT = Path(__file__).parent.parent.parent
KERNEL = """#include <torch/torch.h>
torch::Tensor twice(const torch::Tensor& x) { return torch::mul(x, 2); }
"""
SHAPE = """#include <torch/torch.h>
#include "torchneuron/register.h"
torch::Tensor twice_shape(torch::Tensor x) { return torch::zeros(x.sizes(), torch::kFloat); }
NEURON_LIBRARY(my_ops, m) {
  m.def("twice", &twice_shape, "twice");
}
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def files(tmp_path, monkeypatch, compiler):
    """An empty current directory with kernel.cpp and shape.cpp."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", compiler)
    (tmp_path / "kernel.cpp").write_text(KERNEL)
    (tmp_path / "shape.cpp").write_text(SHAPE)
    return tmp_path


def load(name="twice", **options):
    return customop.load(name, ["kernel.cpp"], ["shape.cpp"], **options)


# -- what is built -----------------------------------------------------------------------------------------------------
def test_load__makes_the_file_in_the_current_directory(files):
    library = load()
    assert library.path == files / "libtwice.so" and library.name == "my_ops"
    assert np.array_equal(library.twice(X), 2 * X)
    assert repr(library) == "<custom operators my_ops (1 core, checked): twice>"
    assert repr(library.twice) == "<custom operator my_ops.twice(Tensor)>"
    assert library.twice.shape(X) == ((2, 3), np.float32)


def test_load__in_a_directory_that_is_made(files):
    load(build_directory=files / "a" / "b")
    assert (files / "a" / "b" / "libtwice.so").is_file()


def test_verbose__shows_the_commands_and_what_is_up_to_date(files, capfd):
    load(verbose=True)
    out = capfd.readouterr().out
    assert f"-c {files / 'kernel.cpp'}" in out and "loaded <custom operators my_ops" in out
    load(verbose=True)
    assert capfd.readouterr().out.startswith("libtwice.so is up to date\n")


@pytest.mark.share(4)
@pytest.mark.parametrize("change", ["kernel", "header", "flags", "cores", "library"])
def test_what_changed__is_built_again(files, change):
    (files / "factor.h").write_text("#define FACTOR 2\n")
    (files / "kernel.cpp").write_text(KERNEL.replace(", 2)", ", FACTOR)").replace("#include", '#include "factor.h"\n#include', 1))
    first = load()
    assert first is load()
    before = (files / "libtwice.so").stat().st_ino
    options = {}
    match change:
        case "kernel":
            (files / "kernel.cpp").write_text(KERNEL.replace(", 2)", ", 3)"))
        case "header":
            (files / "factor.h").write_text("#define FACTOR 3\n")
        case "flags":
            options = {"extra_cflags": ["-DUNUSED"]}
        case "cores":
            options = {"multicore": True}
        case "library":
            (files / "libtwice.so").unlink()             # the file that is loaded stays as it is
            (files / "libtwice.so").write_bytes(b"")
    second = load(**options)
    assert second is not first and (files / "libtwice.so").stat().st_ino != before
    if change in ("kernel", "header"):
        assert np.array_equal(second.twice(X), 3 * X)
        assert np.array_equal(first.twice(X), 2 * X)            # whoever holds the old one keeps it


def test_load_library__in_another_process(files):
    load()
    code = f"from nki_mlir import customop; print(customop.load_library({str(files / 'libtwice.so')!r}).operators)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "{'twice': <custom operator my_ops.twice(Tensor)>}\n"


def test_load_library__twice_is_one_object(files):
    library = load()
    assert customop.load_library("libtwice.so") is library
    assert customop.load_library(files / "libtwice.so") is library


def test_numpy_alone__is_needed(files):
    load()
    code = f"""
import sys
sys.modules["torch"] = sys.modules["jax"] = sys.modules["torch_mlir"] = None
import numpy as np
from nki_mlir import customop
print(customop.load_library({str(files / 'libtwice.so')!r}).twice(np.ones(2, np.float32)).tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[2.0, 2.0]\n"


def test_flags__reach_the_compiler(files):
    (files / "extra").mkdir()
    (files / "extra" / "more.h").write_text("#define BY FACTOR\n")
    (files / "kernel.cpp").write_text('#include "more.h"\n' + KERNEL.replace(", 2)", ", BY)"))
    library = load(extra_cflags=["-DFACTOR=5", "-DSTACK_SIZE=20000"], extra_include_paths=["extra"])
    assert np.array_equal(library.twice(X), 5 * X)


def test_fast_build__by_the_environment(files, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_CUSTOMOP", "fast")
    assert not load().checked


def test_engine__is_compiled_where_there_is_no_cache(files, monkeypatch):
    blocked = files / "file"
    blocked.write_text("")
    monkeypatch.setenv("NKI_MLIR_CACHE_DIR", str(blocked / "cache"))
    assert np.array_equal(load(checked=False).twice(X), 2 * X)


@pytest.fixture
def cache(files, monkeypatch):
    """The folder with the engine's objects, in a cache of the test alone."""
    monkeypatch.setenv("NKI_MLIR_CACHE_DIR", str(files / "cache"))
    return files / "cache" / "gpsimd"


DAMAGE = {"empty": lambda file: file.write_bytes(b""), "cut": lambda file: os.truncate(file, file.stat().st_size // 2),
          "random": lambda file: file.write_bytes(os.urandom(file.stat().st_size)),
          "a bit": lambda file: file.write_bytes(bytes([*file.read_bytes()[:-1], file.read_bytes()[-1] ^ 1])),
          "a directory": lambda file: file.unlink() or file.mkdir(),
          "a link to itself": lambda file: file.unlink() or file.symlink_to(file)}


def test_engine__that_is_damaged_in_the_cache_is_compiled_again(cache, monkeypatch):
    assert np.array_equal(load(checked=False).twice(X), 2 * X)
    entries = sorted(cache.iterdir())
    assert len(entries) == len(build.ENGINE_PARTS) and oct(cache.stat().st_mode)[-3:] == "700"
    objects = {file: read_entry(file, build.MOST_BYTES) for file in entries}
    intact = {file: file.read_bytes() for file in entries}
    compiled: list[Path] = []

    def write(recipe, compiler, part, object_file, entry, processes):
        compiled.append(entry)
        object_file.write_bytes(objects[entry])
        write_entry(entry, objects[entry])
    monkeypatch.setattr(build, "compile_engine", write)         # the compiler takes seconds
    for number, (name, damage) in enumerate(DAMAGE.items()):
        for file in entries:
            damage(file)
        assert np.array_equal(load(f"twice_{number}", checked=False).twice(X), 2 * X), name
        assert sorted(compiled) == entries, name
        assert {file: file.read_bytes() for file in entries} == intact, name
        compiled.clear()
    assert np.array_equal(load("last", checked=False).twice(X), 2 * X) and not compiled


@pytest.mark.parametrize("spoil", [lambda folder: folder.write_text("a file"), lambda folder: folder.mkdir(mode=0o777) or
                                   folder.chmod(0o777)], ids=["a file", "writable by others"])
def test_engine__is_compiled_where_the_cache_is_not_ours(cache, spoil):
    cache.parent.mkdir()
    spoil(cache)
    assert np.array_equal(load(checked=False).twice(X), 2 * X)
    assert cache.is_file() or not list(cache.iterdir())


# -- builds that meet --------------------------------------------------------------------------------------------------
def test_concurrent_builds__of_processes_and_threads(files):
    code = f"""
import json
import os
import numpy as np
from nki_mlir import customop
os.chdir({str(files)!r})
library = customop.load("twice", ["kernel.cpp"], ["shape.cpp"])
assert (library.twice(np.ones(3, np.float32)) == 2).all()
"""
    others = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(2)]
    libraries = at_once(lambda number: load(), range(3))
    assert [p.wait() for p in others] == [0, 0]
    assert len({id(library) for library in libraries}) == 1
    assert sorted(os.listdir(files)) == [".libtwice.inputs", ".libtwice.lock", "kernel.cpp", "libtwice.so", "shape.cpp"]


# -- what a user gives -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["builtin", "", "a/b", "a b"])
def test_bad_name(files, name):
    with pytest.raises(BadName, match=re.escape(f"error: {name!r} cannot be the name of a library")):
        load(name)


def test_bad_sources(files):
    with pytest.raises(MissingSource, match=f"there is no source file other.cpp.*\n.*{files}"):
        customop.load("twice", ["other.cpp"], ["shape.cpp"])
    with pytest.raises(BadSources, match=r"compute_srcs is 'kernel.cpp'"):
        customop.load("twice", "kernel.cpp", ["shape.cpp"])
    with pytest.raises(BadSources, match=r"shape_srcs is \[\]"):
        customop.load("twice", ["kernel.cpp"], [])


@pytest.mark.parametrize("option, flags", [("extra_cflags", "-O2"), ("extra_include_paths", ".")])
def test_flags__that_are_no_list(files, option, flags):
    with pytest.raises(BadFlags, match=rf"{option} is '{flags}'.*\n  fix: give a list: {option}=\['{flags}'\]"):
        load(**{option: flags})


def test_sizes__of_type_size_t(files):
    """The guide's examples write them in braces, which is a narrowing."""
    text = KERNEL.replace("return", "const size_t n = x.numel();\n  torch::zeros({n}, torch::kFloat);\n  return")
    (files / "kernel.cpp").write_text(text)
    assert np.array_equal(load().twice(X), 2 * X)


@pytest.mark.parametrize("size", ["400001", "0", "much"])
def test_bad_stack_size(files, size):
    with pytest.raises(BadStackSize, match=f"STACK_SIZE cannot be {size}"):
        load(extra_cflags=[f"-DSTACK_SIZE={size}"])


# -- the compiler ------------------------------------------------------------------------------------------------------
def test_compiler__that_is_missing(files, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NoCompiler, match="no-such-compiler is not found"):
        load()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(files))
    with pytest.raises(NoCompiler, match=r"g\+\+ or c\+\+ or clang\+\+ is not found"):
        load()


def test_compiler__named_with_options(files, monkeypatch, compiler):
    monkeypatch.setenv("CXX", f"{compiler} -DFACTOR=4")
    (files / "kernel.cpp").write_text(KERNEL.replace(", 2)", ", FACTOR)"))
    assert np.array_equal(load().twice(X), 4 * X)


@pytest.mark.share(4)
@pytest.mark.parametrize("text, line, message", [
    (KERNEL.replace("torch::mul(x, 2)", "nothing(x)"), 2, "‘nothing’ was not declared|use of undeclared identifier 'nothing'"),
    (KERNEL.replace("<torch", "<torches"), 1, "torches/torch.h: No such file|'torches/torch.h' file not found"),
    (KERNEL.replace("torch::mul(x, 2)", "x.accessor<double, 2>(), x"), 2, "the element types are float"),
    (KERNEL.replace("torch::mul(x, 2)", "x.tcm_accessor().tcm_to_tensor<float>(nullptr, 0, 0), x"), 2,
     "the tensor is const: its TCM accessor only reads"),
    (KERNEL.replace("return torch::mul(x, 2)", "x.data_ptr<float>(); return x"), 2, "no member named [‘']data_ptr[’']"),
    (KERNEL + "torch::Tensor helper(torch::Tensor);\ntorch::Tensor other(torch::Tensor x) {\n  return helper(x);\n}\n", 5,
     r"undefined reference to `helper\(torch::Tensor\)'")], ids=["name", "header", "dtype", "const", "member", "link"])
@pytest.mark.parametrize("checked", [True, False])
def test_compilation__that_fails_shows_the_message_at_the_users_line(files, text, line, message, checked):
    (files / "kernel.cpp").write_text(text)
    with pytest.raises(CompilationFailed) as raised:
        load(checked=checked)
    error = raised.value
    assert (error.at.file, error.at.line) == ("kernel.cpp", line)
    assert re.search(message, str(error)) and str(files) not in str(error)
    assert not (files / "libtwice.so").exists()


def test_directory__whose_name_compilers_quote(files, monkeypatch):
    folder = files / "my #1 $ folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("kernel.cpp", "shape.cpp"):
        (folder / name).write_text((files / name).read_text())
    assert np.array_equal(load().twice(X), 2 * X)
    changed = (folder / "libtwice.so").stat().st_mtime_ns
    assert load() and (folder / "libtwice.so").stat().st_mtime_ns == changed
    (folder / "kernel.cpp").write_text(KERNEL.replace("torch::mul(x, 2)", "nothing(x)"))
    with pytest.raises(CompilationFailed) as raised:
        load()
    assert (raised.value.at.file, raised.value.at.line) == ("kernel.cpp", 2) and "folder" not in str(raised.value)


def test_registration__with_a_parameter_that_operators_do_not_have(files):
    (files / "shape.cpp").write_text(SHAPE.replace("torch::Tensor x)", "torch::Tensor x, float by)"))
    with pytest.raises(CompilationFailed, match="the parameters of an operator are const torch::Tensor&") as raised:
        load()
    assert (raised.value.at.file, raised.value.at.line) == ("shape.cpp", 5)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", "{}", '{"settings": 1}', '{"settings": %s, "library": %s, "files": []}',
                                  '{"settings": %s, "library": %s, "files": {"a": 1}}', '{"settings": %s, "library": 3}'])
def test_damaged_file_of_inputs__lets_the_library_be_built_again(tmp_path, text):
    this = build.Recipe("twice", (), tmp_path, multicore=False, checked=False, flags=())
    compiler = build.Compiler(("g++",), "g++ 12")
    this.library.write_bytes(b"library")
    values = json.dumps(build.settings(this, compiler)), json.dumps(build.identity(this.library))
    this.inputs.write_text(text % values[:text.count("%s")])
    assert not build.up_to_date(this, compiler)
    this.inputs.write_text('{"settings": %s, "library": %s, "files": {}}' % values)
    assert build.up_to_date(this, compiler)


def test_failed_build__leaves_the_library_that_was_there(files):
    library = load()
    (files / "kernel.cpp").write_text("nonsense")
    with pytest.raises(CompilationFailed, match=r"^kernel.cpp:1:1: error: .*does not compile\n.*nonsense"):
        load()
    assert customop.load_library("libtwice.so") is library


@pytest.mark.parametrize("directory", ["kernel.cpp", "kernel.cpp/below", "/proc/none"])
def test_directory__that_cannot_be_written(files, directory):
    with pytest.raises(UnwritableDirectory, match=f"cannot be written to {directory}: "):
        load(build_directory=directory)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_directory__without_permission(files):
    (files / "locked").mkdir(mode=0o500)
    with pytest.raises(UnwritableDirectory, match="Permission denied"):
        load(build_directory="locked")


# -- sources without an end --------------------------------------------------------------------------------------------
def test_limits__of_memory_and_files(files, monkeypatch):
    (files / "kernel.cpp").write_text(KERNEL + '#include "/dev/zero"\n')
    monkeypatch.setenv("NKI_MLIR_COMPILER_BYTES", str(1 << 28))
    with pytest.raises(CompilationMemory) as raised:
        load()
    error = raised.value
    assert str(error).startswith("kernel.cpp:1:1: error: kernel.cpp does not compile: the compiler needs more than "
                                 "268,435,456 bytes of memory, or for a file that it writes [NKI-CUSTOMOP-MEMORY]")
    assert "the compiler says: " in error.advice[0] and "set NKI_MLIR_COMPILER_BYTES to a larger number" in error.advice[1]
    (files / "kernel.cpp").write_text(KERNEL + "char large[1 << 28] = {1};\n")         # the file of an object
    with pytest.raises(CompilationMemory, match="268,435,456 bytes"):
        load()
    monkeypatch.setenv("NKI_MLIR_COMPILER_BYTES", str(1 << 40))
    (files / "kernel.cpp").write_text(KERNEL)
    assert np.array_equal(load().twice(X), 2 * X)


def test_limit__of_time_ends_all_processes_of_the_compiler(files, monkeypatch):
    os.mkfifo(files / "pipe.h")
    (files / "kernel.cpp").write_text(KERNEL + '#include "pipe.h"\n')
    monkeypatch.setenv("NKI_MLIR_COMPILER_SECONDS", "1")
    processes = LimitedProcesses()
    with pytest.raises(CompilationTime) as raised:
        build.find_compiler().run(["-c", "kernel.cpp", "-I", str(build.INCLUDE)], "kernel.cpp does not compile", processes)
    assert str(raised.value).startswith(
        "error: kernel.cpp does not compile: the compiler took more than 1 second [NKI-CUSTOMOP-TIME]")
    assert raised.value.advice[1].endswith("or set NKI_MLIR_COMPILER_SECONDS to a larger number of seconds")
    assert processes.running == []
    with pytest.raises(OSError, match="No such device or address"):     # as soon as no process waits to read the pipe
        for _ in range(200):
            os.close(os.open(files / "pipe.h", os.O_WRONLY | os.O_NONBLOCK))
            time.sleep(0.05)


def test_limits__of_this_process_stay(files):
    """A limit that the process has is lower than the default, and no process may raise it."""
    code = ("import resource; from nki_mlir.customop.limited_processes import LimitedProcesses\n"
            "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
            "print(LimitedProcesses().run(['sh', '-c', 'ulimit -v >&2; exit 3'], 'it fails'))")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == f"Ended(returncode=3, output='{(1 << 30) // 1024}\\n')\n", done.stderr


@pytest.mark.parametrize("text", ["0", "many", "-3", "1e9"])
def test_limits__that_are_malformed(files, monkeypatch, text):
    monkeypatch.setenv("NKI_MLIR_COMPILER_SECONDS", text)
    with pytest.raises(LimitText, match=f"NKI_MLIR_COMPILER_SECONDS is {text}, which must be a positive number of seconds"):
        load()


# -- registrations -----------------------------------------------------------------------------------------------------
def test_kernel__that_is_not_there(files):
    (files / "shape.cpp").write_text(SHAPE.replace('"twice");', '"twise");'))
    with pytest.raises(KernelNotFound, match="names kernel 'twise'") as raised:
        load()
    assert "functions that take tensors: twice, twice_shape" in str(raised.value)


def test_kernel__that_is_static(files):
    (files / "kernel.cpp").write_text(KERNEL.replace("torch::Tensor twice", "static torch::Tensor twice"))
    with pytest.raises(KernelNotFound, match="neither static nor in a namespace"):
        load()


@pytest.mark.parametrize("parameters", ["const torch::Tensor& x, double", "float x", ""])
def test_kernel__with_other_parameters(files, parameters):
    (files / "kernel.cpp").write_text(KERNEL.replace("const torch::Tensor& x", parameters).replace(
        "torch::mul(x, 2)", "torch::zeros({1}, torch::kFloat)"))
    with pytest.raises(KernelSignature, match=r"the shape function has the parameters \(torch::Tensor\), the kernel is twice\("):
        load()


@pytest.mark.parametrize("declared", ["torch::Tensor x", "torch::Tensor& x", "const at::Tensor& x"])
def test_kernel__takes_a_tensor_in_any_form(files, declared):
    (files / "kernel.cpp").write_text(KERNEL.replace("const torch::Tensor& x", declared))
    assert np.array_equal(load().twice(X), 2 * X)


def test_kernel__overloaded(files):
    (files / "kernel.cpp").write_text(KERNEL + "torch::Tensor twice(double x) { return torch::Tensor(); }\n")
    assert np.array_equal(load().twice(X), 2 * X)


def test_kernel__with_c_linkage(files):
    (files / "kernel.cpp").write_text(KERNEL.replace("\ntorch::Tensor", '\nextern "C" torch::Tensor'))
    assert np.array_equal(load().twice(X), 2 * X)


def test_registration__blocks_and_counts(files):
    line = '  m.def("twice", &twice_shape, "twice");\n'
    (files / "shape.cpp").write_text(SHAPE.replace(line, "".join(line.replace('"twice",', f'"op{k}",') for k in range(10))))
    assert len(load().operators) == 10
    (files / "shape.cpp").write_text(SHAPE.replace(line, "".join(line.replace('"twice",', f'"op{k}",') for k in range(11))))
    with pytest.raises(TooManyOperators, match="defines 11 operators"):
        load()
    (files / "shape.cpp").write_text(SHAPE.replace(line, 2 * line))
    with pytest.raises(RepeatedOperator, match="defines operator twice twice"):
        load()
    (files / "shape.cpp").write_text(SHAPE + "NEURON_LIBRARY(more, m) {}\n")
    with pytest.raises(NoLibraryBlock, match="the sources have 2 NEURON_LIBRARY blocks"):
        load()
    (files / "shape.cpp").write_text(SHAPE.partition("NEURON_LIBRARY")[0])
    with pytest.raises(NoLibraryBlock, match="the sources have no NEURON_LIBRARY blocks"):
        load()


# -- files that are not a library -----------------------------------------------------------------------------------------
def test_load_library__of_what_is_none(files):
    with pytest.raises(NotALibrary, match=r"none\.so is not a library of custom operators: No such file"):
        customop.load_library("none.so")
    (files / "text.so").write_text("text")
    with pytest.raises(NotALibrary, match=r"text\.so is not a library of custom operators"):
        customop.load_library("text.so")
    (files / "other.c").write_text("int other;")
    subprocess.run(["g++", "-shared", "-o", "other.so", "other.c"], check=True)
    with pytest.raises(NotALibrary, match="it has no operators"):
        customop.load_library("other.so")


def test_load_library__of_another_version(files):
    (files / "old.cpp").write_text('extern "C" long gpsimd_abi() { return 77; }')
    subprocess.run(["g++", "-shared", "-fPIC", "-o", "old.so", "old.cpp"], check=True)
    with pytest.raises(AbiMismatch, match=f"old.so was built for version 77 of the emulated engine; this is version {ABI}"):
        customop.load_library("old.so")


def test_version__is_the_headers():
    from nki_mlir.customop.build import INCLUDE
    assert f"#define GPSIMD_ABI {ABI} " in (INCLUDE / "gpsimd" / "abi.h").read_text()


# -- calls -------------------------------------------------------------------------------------------------------------
def test_calls__that_are_wrong_run_nothing(files):
    (files / "kernel.cpp").write_text(KERNEL.replace("x)", "x, double d, int64_t i)"))
    (files / "shape.cpp").write_text(SHAPE.replace("x)", "x, double d, int64_t i)", 1))
    twice = load().twice
    assert twice.signature == "my_ops.twice(Tensor, float, int)"
    with pytest.raises(WrongArity, match="called with 2 arguments; it takes 3"):
        twice(X, 1)
    with pytest.raises(WrongArgumentDtype, match=r"argument 0 .* float64 .*\n  fix: convert it: custom operators take bfloat16, "):
        twice(X.astype(np.float64), 1, 1)
    with pytest.raises(WrongArgumentDtype, match="int64"):
        twice(np.arange(3), 1, 1)
    with pytest.raises(WrongArgument, match=r"argument 0 .* is 3 .*\n.*pass an array"):
        twice(3, 1, 1)
    with pytest.raises(WrongArgument, match=r"argument 1 .* is 'a' .*\n.*pass a number"):
        twice(X, "a", 1)
    for number in (1.5, float("nan"), float("inf")):
        with pytest.raises(WrongArgument, match=rf"argument 2 .* is {number} .*\n.*pass an integer"):
            twice(X, 1, number)
    for number in (2**53 + 1, 2**63, -2**70):
        with pytest.raises(WrongArgument, match=rf"argument 2 .* is {number} .*\n.*pass an integer of at most 53 bits"):
            twice(X, 1, number)
    with pytest.raises(WrongArgument, match=r"argument 0 .* is masked_array\( data=.*\n.*pass array.filled\(value\): an operator "
                                            "would not see the mask"):
        twice(np.ma.masked_array(X, X > 2), 1, 1)
    with pytest.raises(UnknownOperator, match="library my_ops has no operator thrice; it has twice"):
        customop.load_library("libtwice.so").thrice  # noqa: B018
    assert not hasattr(customop.load_library("libtwice.so"), "thrice")


@pytest.mark.parametrize("on", ["eager", "jit"])
def test_numbers_in_kernels__are_those_of_other_calls(files, on):
    (files / "kernel.cpp").write_text(KERNEL.replace("x)", "x, double d, int64_t i)").replace("(x, 2)", "(x, torch::Scalar(d * i))"))
    (files / "shape.cpp").write_text(SHAPE.replace("x)", "x, double d, int64_t i)", 1))
    scale = load().twice

    def scaled(x, d, i):
        return scale(x, d, i)
    for d, i in ((0.5, 4), (True, np.int64(3))):
        assert np.array_equal(nki.jit(scaled).on(on)(X, d, i), X * d * i)
    for index, d, i, expected in ((1, "2", 3, "a number"), (2, 2, "3", "a number"), (2, 2, None, "a number"),
                                  (2, 2, 1.5, "an integer"),
                                  (2, 2, 2**53 + 1, "an integer of at most 53 bits")):
        with pytest.raises(WrongArgument, match=rf"argument {index} of my_ops.*\n(.*\n)*  fix: pass {expected}"):
            nki.jit(scaled).on(on)(X, d, i)


def test_load__follows_a_link_to_a_library(files):
    (files / "libtwice.so").symlink_to("made.so")
    library = load()
    assert np.array_equal(library.twice(X), 2 * X)
    assert (files / "libtwice.so").is_symlink() and (files / "made.so").is_file()
    old = os.umask(0)
    os.umask(old)
    assert (files / "made.so").stat().st_mode & 0o777 == 0o777 & ~old
