# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every finding of the checked build: its class, text, line and cores."""

import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from nki_mlir import customop
from nki_mlir.customop import faults
from nki_mlir.customop.build import HERE
from nki_mlir.customop.findings import Fault, FoundError, KernelWarning, cores_text
from tests.customop.conftest import SOURCES, marked

NAMES = re.findall(r"\w+", re.search(r"all\[\].*?= \{(.*?)\};", (SOURCES / "faults.cpp").read_text(), re.S)[1])


@pytest.fixture(scope="module")
def one(build):
    return build("faults")


@pytest.fixture(scope="module")
def many(build):
    return build("faults", multicore=True)


def file_and_line(error):
    return Path(error.at.file).name, error.at.line


def misuse(library, x, name):
    return library.misuse(x, NAMES.index(name))


USER_TEXTS = {faults.CheckFailed, faults.Thrown}        # the operator's code says what is wrong
DIVIDED = "an integer is divided by zero, or the lowest one by -1"
RAISED = [
    ("transfer_range", "transfer-range", "a transfer of 8 elements from element 508 on leaves the tensor, which has 512"),
    ("tcm_range", "tcm-range", "a transfer would write 32 bytes at byte 16 of a TCM block of 32 bytes"),
    ("tcm_freed", "tcm-freed", "a transfer would write 32 bytes of a TCM block that has been freed"),
    ("tcm_foreign", "tcm-foreign", "a transfer uses an address that tcm_malloc did not return"),
    ("tcm_null", "tcm-null", "a transfer uses a null pointer for tightly coupled memory"),
    ("tcm_type", "tcm-type", "a transfer moves elements of 2 bytes, and the elements of the tensor have 4 bytes"),
    ("access_range", "access-range", "the kernel writes 4 bytes at byte 32 of a TCM block of 32 bytes"),
    ("access_before", "access-range (before)", "the kernel reads 4 bytes at byte -4 of a TCM block of 32 bytes"),
    ("access_copy", "access-range (memcpy)", "the kernel reads 512 bytes at byte 0 of a TCM block of 32 bytes"),
    ("access_freed", "access-freed", "the kernel writes 4 bytes of a TCM block that has been freed"),
    ("access_foreign", "access-foreign", "the kernel writes 4 bytes of tightly coupled memory that is not allocated"),
    ("access_null", "access-null", "the kernel writes 4 bytes through a null pointer"),
    ("free_twice", "free-twice", "a TCM block of 32 bytes is freed again"),
    ("free_foreign", "free-foreign", "tcm_free gets an address that tcm_malloc did not return"),
    ("index", "index", "index 16 is outside of axis 1, which has size 16"),
    ("accessor_type", "accessor-type", "an accessor of int32 elements is opened on a tensor of float32"),
    ("accessor_rank", "accessor-rank", "an accessor of 3 dimensions is opened on a tensor that has 2"),
    ("stream_end", "stream-end", "a stream reads more than the 512 elements of its tensor"),
    ("stream_end_write", "stream-end (write)", "a stream writes more than the 512 elements of its tensor"),
    ("stream_closed", "stream-closed", "the kernel reads through a stream that is closed"),
    ("coherence", "coherence", "a write stream is opened while 1 element accessors, 0 read and 0 write streams are open"),
    ("result", "result", "the results of the kernel and of its shape function differ: int32[32] and float32[32, 16]"),
    ("writes_input", "writes-input", "the kernel writes a tensor that is an argument"),
    ("writes_input_element", "writes-input (element)", "the kernel writes a tensor that is an argument"),
    ("writes_input_transfer", "writes-input (transfer)", "the kernel writes a tensor that is an argument"),
    ("writes_input_stream", "writes-input (stream)", "the kernel writes a tensor that is an argument"),
    ("writes_input_out", "writes-input (out)", "the kernel writes a tensor that is an argument"),
    ("transfer_overflow", "transfer-range (overflow)", "a transfer of 4,611,686,018,427,387,904 elements from element "
     "4,611,686,018,427,387,904 on leaves the tensor, which has 512"),
    ("negative_power", "negative-power", "a tensor of integers is raised to the power -1"),
    ("no_return", "no-return", "a function ends without returning its result"),
    ("long_dim", "long-dim", "a dimension of a tensor of 5 dimensions is 65,536; it must be at most 65,535"),
    ("negative_size", "negative-size", "a dimension of a tensor is -1; it must be 0 or more"),
    ("size_range", "size-range", "the code reads dimension 2 of a tensor with 2 dimensions"),
    ("sizes_range", "size-range (sizes)", "the code reads dimension 2 of a tensor with 2 dimensions"),
    ("no_dtype", "no-dtype", "a tensor is created without a dtype"),
    ("operand_shapes", "operand-shapes", "the operands of an elementwise function, or its result, have different shapes"),
    ("result_type", "result-type", "a function that computes float32 writes a result of int32"),
    ("bitwise_type", "bitwise-type", "a bitwise function reads a tensor of float32"),
    ("alpha", "alpha", "alpha is not an integer, and the tensors are integers"),
    ("undefined", "undefined-tensor", "an undefined torch::Tensor is used"),
    ("check", "check", "wanted 3 dimensions, not 2"),
    ("divided", "divide", DIVIDED), ("remainder", "divide (remainder)", DIVIDED), ("lowest", "divide (lowest)", DIVIDED),
]


@pytest.mark.parametrize("name, mark, text", RAISED, ids=[r[0] for r in RAISED])
def test_fault__names_line_and_values(one, x, name, mark, text):
    before = x.copy()
    with pytest.raises(Fault) as raised:
        misuse(one, x, name)
    error = raised.value
    assert type(error) is FoundError.classes[mark.partition(" (")[0]]
    assert error.headline.partition(" (")[0] == text
    assert file_and_line(error) == ("faults.cpp", marked("faults.cpp", mark))
    assert ("\n  fix: " in str(error)) == (type(error) not in USER_TEXTS)
    assert np.array_equal(x, before), "arguments keep their values"


def test_each_finding__says_how_to_fix_it():
    assert {kind for kind in FoundError.classes.values() if not kind.fix} == USER_TEXTS


def test_fault__says_where_the_block_comes_from(one, x):
    allocated = marked("faults.cpp", "tcm-range") - 1
    text = (SOURCES / "faults.cpp").read_text().split("\n")
    helper = next(k + 1 for k, line in enumerate(text) if line.startswith("static float* block"))
    with pytest.raises(faults.TransferBeyondBlock, match=f"allocated in .*faults.cpp:{helper};"):
        misuse(one, x, "tcm_range")
    assert "block(8)" in text[allocated - 1]
    freed = marked("faults.cpp", "access-freed") - 1
    with pytest.raises(faults.AccessAfterFree, match=f"freed in .*faults.cpp:{freed}"):
        misuse(one, x, "access_freed")


@pytest.mark.parametrize("name, text", [
    ("dims", "a tensor has 9 dimensions; it can have at most 8"), ("check_alone", "expected x.dim() == 3")])
def test_fault__without_an_exact_line(one, x, name, text):
    with pytest.raises(Fault) as raised:
        misuse(one, x, name)
    assert raised.value.headline == text


@pytest.mark.parametrize("name", ["coherence_quiet", "streams_together"])
def test_coherent_and_quiet_use__is_no_finding(one, x, name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not misuse(one, x, name).any()


WARNED = [
    ("leak", "leak", "this allocation of 100 bytes of tightly coupled memory is never freed"),
    ("coherence_verbose", "coherence-verbose",
     "an element accessor is opened while 0 element accessors, 1 read and 0 write streams are open"),
    ("unwritten", "unwritten", "32 of the 512 elements of the output are never written, first element 15"),
    ("unwritten_dst", "unwritten (dst)", "256 of the 512 elements of the output are never written, first element 256"),
]


@pytest.mark.parametrize("name, mark, text", WARNED, ids=[w[0] for w in WARNED])
def test_warning__is_pythons_at_the_line_of_the_source(one, x, name, mark, text):
    with pytest.warns(KernelWarning) as caught:
        misuse(one, x, name)
    assert [w.category for w in caught] == [FoundError.classes[mark.partition(" (")[0]]]
    assert str(caught[0].message).startswith(text)
    assert (Path(caught[0].filename).name, caught[0].lineno) == ("faults.cpp", marked("faults.cpp", mark))


def test_warning__made_an_error_has_its_place(one, x):
    with warnings.catch_warnings():
        warnings.simplefilter("error", KernelWarning)
        with pytest.raises(faults.Leaked, match=rf"faults.cpp:{marked('faults.cpp', 'leak')}:\d+: warning: this allocation of 100 bytes"):
            misuse(one, x, "leak")


def test_exceptions_of_the_kernel__end_at_the_call(one, x):
    with pytest.raises(faults.Thrown, match="no such thing") as raised:
        one.throws(x)
    assert file_and_line(raised.value) == ("faults.cpp", marked("faults.cpp", "exception"))
    with pytest.raises(faults.Thrown, match=r"an object that is not a std::exception"):
        one.throws_a_number(x)


# -- several cores -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("which, mark, text", [
    (0, "no-dst", "a multicore kernel returns without having called get_dst_tensor() (8 times, all 8 cores)"),
    (1, "multicore-accessor", "an element accessor is opened in multicore mode (8 times, all 8 cores)"),
    (2, "multicore-accessor (stream)", "a read stream is opened in multicore mode (8 times, all 8 cores)")])
def test_multicore_faults(many, x, which, mark, text):
    with pytest.raises(Fault) as raised:
        many.cores(x, which)
    assert type(raised.value) is FoundError.classes[mark.partition(" (")[0]]
    assert raised.value.headline == text
    assert file_and_line(raised.value) == ("faults.cpp", marked("faults.cpp", mark))


@pytest.mark.parametrize("threads", [True, False])
def test_cores_that_write_one_place__are_named(many, x, threads):
    with customop.engine(threads=threads), pytest.warns(KernelWarning) as caught:
        many.cores(x, 3)
    overlap, missing = (w.message for w in caught)
    assert overlap.headline == "more than one core writes 224 elements of the output (all 8 cores)"
    line = marked("faults.cpp", "overlap")
    assert file_and_line(overlap) == ("faults.cpp", line)
    assert re.search(rf"cores 0 \(in .*faults.cpp:{line}\) and 1 both write element 32;", str(overlap))
    assert missing.headline == "224 of the 512 elements of the output are never written, first element 288"
    assert file_and_line(missing) == ("faults.cpp", marked("faults.cpp", "unwritten (cores)"))


def test_core_that_writes_nothing__leaves_a_gap(many, x):
    with pytest.warns(faults.Unwritten, match="64 of the 512 elements of the output are never written, first element 192"):
        result = many.cores(x, 4)
    assert np.array_equal(result.reshape(8, 64)[[0, 1, 2, 4, 5, 6, 7]], x.reshape(8, 64)[[0, 1, 2, 4, 5, 6, 7]])


def test_leak_of_one_core__names_it(many, x):
    with pytest.warns(faults.Leaked, match=r"64 bytes .* never freed \(core 2\)") as caught:
        result = many.cores(x, 5)
    assert caught[0].lineno == marked("faults.cpp", "leak (core 2)") and np.array_equal(result, x)


def test_function_that_writes_the_output_on_all_cores__overlaps(many, x):
    with pytest.warns(faults.Overlapping, match="more than one core writes 512 elements of the output") as caught:
        many.cores(x, 7)
    assert caught[0].lineno == marked("faults.cpp", "overlap (fill)")


def test_cores__without_fault_have_no_finding(many, x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(many.cores(x, 8), x)


# -- shape functions ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("which, mark, text", [
    (0, "shape-data", "a shape function uses the elements of a tensor"),
    (1, "tcm-in-shape", "tightly coupled memory is used outside of a kernel"),
    (2, "dst-in-shape", "get_dst_tensor() is called outside of a kernel"),
    (3, "check", "three rows, please"),
    (4, "shape-data (exp)", "a shape function uses the elements of a tensor")])
def test_shape_function__fails_before_anything_runs(one, x, which, mark, text):
    with pytest.raises(Fault) as raised:
        one.bad_shape(x, which)
    assert type(raised.value) is FoundError.classes[mark.partition(" (")[0]]
    assert raised.value.headline == text
    assert file_and_line(raised.value) == ("faults_shape.cpp", marked("faults_shape.cpp", mark))


# -- the fast build ----------------------------------------------------------------------------------------------------
def test_fast_build__keeps_what_costs_nothing(build, x):
    fast = build("faults", checked=False)
    assert not fast.checked
    before = x.copy()
    texts = {name: text for name, _, text in RAISED}
    for name in ("accessor_type", "accessor_rank", "stream_end", "coherence", "result", "operand_shapes", "check",
                 "writes_input", "writes_input_transfer", "writes_input_stream", "writes_input_out", "no_return"):
        with pytest.raises(Fault, match=re.escape(texts[name])):
            misuse(fast, x, name)
    assert np.array_equal(x, before)
    with warnings.catch_warnings():
        warnings.simplefilter("error", KernelWarning)
        misuse(fast, x, "leak")
        assert np.array_equal(build("faults", multicore=True, checked=False).cores(x, 8), x)


@pytest.mark.parametrize("checked", [True, False])
def test_division_by_zero__ends_one_core_and_no_process(build, x, checked):
    library = build("faults", checked=checked)
    for name in ("divided", "remainder", "lowest"):
        with pytest.raises(faults.DivisionByZero, match=DIVIDED) as raised:
            misuse(library, x, name)
        assert file_and_line(raised.value)[0] == "faults.cpp"
    many = build("faults", multicore=True, checked=checked)
    for _ in range(3):
        with pytest.raises(faults.DivisionByZero, match=r"\(core 0\)") as raised:
            many.cores(x, 9)
        assert file_and_line(raised.value) == ("faults.cpp", marked("faults.cpp", "divide (core 0)"))
    assert np.array_equal(many.cores(x, 8), x)


def test_division_outside_of_kernels__is_not_ours(build, x):
    """The handler that was installed before ours gets the signal: here Python's faulthandler, which ends the process."""
    library = build("faults")
    code = f"""
import faulthandler, signal
import numpy as np
from nki_mlir import customop
faulthandler.enable()
for path in {[str(library.path), str(build("faults", checked=False).path)]}:
    library = customop.load_library(path)
    try:
        library.misuse(np.zeros((32, 16), np.float32), {NAMES.index("divided")})
    except customop.Fault as fault:
        print(type(fault).__name__, flush=True)
signal.raise_signal(signal.SIGFPE)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE.parent.parent, capture_output=True, text=True,
                          check=False)
    assert done.stdout.split() == ["DivisionByZero"] * 2
    assert done.returncode == -signal.SIGFPE and "Fatal Python error: Floating" in done.stderr


# -- texts -------------------------------------------------------------------------------------------------------------
def test_text_of_a_fault__is_complete(one, x):
    with pytest.raises(faults.TransferOutOfBounds) as raised:
        misuse(one, x, "transfer_range")
    lines = str(raised.value).split("\n")
    assert re.fullmatch(r".*faults.cpp:\d+:3: error: a transfer of 8 elements from element 508 on leaves the tensor, which "
                        r"has 512 \[NKI-GPSIMD-TRANSFER\]", lines[0])
    assert lines[1].endswith("x.tcm_accessor().tensor_to_tcm<float>(b, x.numel() - 4, 8);  // transfer-range")
    assert lines[3:] == ["  why: offsets count elements of the flat tensor, not bytes; the emulation skipped "
                         "the transfer",
                         "  fix: for row r of n elements the offset is r * n"]


def test_every_kind_that_the_engine_reports__has_a_class():
    sources = [*(HERE / "engine").glob("*.cpp"), *(HERE / "include").rglob("*.h")]
    text = "\n".join(f.read_text() for f in sources)
    names = set(re.findall(r'(?:report|stop|found|finding)\(\s*(?:\w+ \? )?"([\w-]+)"', text))
    names |= set(re.findall(r'\? "([\w-]+)" : "[\w-]+"', text)) | set(re.findall(r'\? "[\w-]+" : "([\w-]+)"', text))
    assert names == set(FoundError.classes)


@pytest.mark.parametrize("cores, text", [({0}, "core 0"), ({0, 1}, "cores 0 and 1"), ({0, 1, 2, 3}, "cores 0 to 3"),
                                         ({0, 2, 4, 5, 6}, "cores 0, 2 and 4 to 6"), (set(range(8)), "all 8 cores")])
def test_cores_text(cores, text):
    assert cores_text(sum(1 << k for k in cores), 8) == text
    assert cores_text(1, 1) == ""
