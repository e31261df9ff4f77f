# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki_mlir.check``: what is wrong with a kernel, all of it in one report, of both generations."""

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nki_mlir
from nki_mlir.checking.report import CheckFinding, KernelReport
from nki_mlir.compat import install
from nki_mlir.diagnostics import Location, NkiMlirError

install()

import neuronxcc.nki as beta  # noqa: E402
import neuronxcc.nki.isa as beta_isa  # noqa: E402
import neuronxcc.nki.language as nl  # noqa: E402
import nki  # noqa: E402
import nki.collectives as ncc  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl2  # noqa: E402

ROOT = Path(__file__).parent.parent.parent
x = np.linspace(-1, 5, 128 * 64).reshape(128, 64).astype(np.float32)


@beta.jit
def mistakes(x):
    out = nl.ndarray((128, 64), dtype=nl.float16, buffer=nl.shared_hbm)
    t = nl.load(x)
    unused = nl.multiply(t, 3.0)
    root = nl.sqrt(t)
    narrow = nl.copy(nl.multiply(t, 1e5), dtype=nl.float16)
    tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    tile[:, 0:32] = nl.copy(root[:, 0:32])
    nl.store(out[0:64, :], nl.add(narrow, tile)[0:64, :])
    return out


@nki.jit
def swapped(x):
    out = nl2.ndarray(x.shape, dtype=x.dtype, buffer=nl2.shared_hbm)
    t = nl2.ndarray((128, 64), dtype=x.dtype, buffer=nl2.sbuf)
    nisa.memset(t, 1.0)
    nisa.dma_copy(dst=x, src=t)
    nisa.dma_copy(dst=out, src=t)
    return out


@beta.jit
def racing(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    for _ in nl.affine_range(4):
        nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


@beta.jit
def beyond(x):
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x[0:128, 1:65]))
    return out


def messages(report: KernelReport) -> dict[str, list[str]]:
    """The messages by kind."""
    return {kind: [f.message for f in report.of(kind)] for kind in dict.fromkeys(f.kind for f in report.findings)}


@pytest.mark.parametrize("buffer", [nl.hbm, nl.shared_hbm])
def test_stores_to_a_returned_tensor__are_read_by_the_caller(buffer):
    @beta.jit
    def copied(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer)
        nl.store(out[:, 0:32], nl.load(x[:, 0:32]))
        nl.store(out[:, 32:64], nl.load(x[:, 32:64]))
        return out

    assert nki_mlir.check(copied, x).findings == []


def test_a_result_beside_the_one_that_is_used__is_not_a_dead_store():
    @beta.jit
    def sums(x):
        out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        squares, total = nl.ndarray((128, 64), dtype=x.dtype), nl.ndarray((128, 1), dtype=x.dtype)
        squares[...] = beta_isa.activation_reduce(np.square, nl.load(x), reduce_op=np.add, reduce_res=total)
        nl.store(out, total)
        return out

    assert nki_mlir.check(sums, x).findings == []


def test_one_report__has_all_mistakes():
    before = x.copy()
    report = nki_mlir.check(mistakes, x)
    assert not report.sound and np.array_equal(x, before)
    by_kind = messages(report)
    assert by_kind["not-finite"] == ["nl.sqrt computes the first NaN, at [0, 0], of src = -1"]
    assert by_kind["unwritten-output"] == ["4096 elements of the output out are not written, the first at [64, 0]"]
    assert by_kind["dead-store"] == ["nothing reads what nl.multiply writes to unused"]
    assert by_kind["range"] == ["copy gives -100000 at [0, 0], which float16 cannot hold: it becomes -inf"]
    assert len(by_kind["unwritten-read"]) == 1 and by_kind["unwritten-read"][0].startswith("element [0, 32] of tile")
    root, = report.of("not-finite")
    assert root.location is not None and "root = nl.sqrt(t)" in Path(__file__).read_text().splitlines()[
        root.location.line - 1]


def test_an_argument_that_is_overwritten__is_told_at_the_store():
    by_kind = messages(nki_mlir.check(swapped, x))
    assert by_kind == {"overwritten-input": ["the kernel overwrites its argument x, and does not return it"]}


def test_a_race__is_an_error():
    report = nki_mlir.check(racing, x)
    assert not report.sound and [f.code for f in report.of("race")] == ["err_unexpected_output_dependencies"]


def test_a_run_that_fails__is_a_finding():
    failed, = nki_mlir.check(beyond, x).of("out-of-bounds")
    assert failed.code == "err_tensor_access_out_of_bound"


def test_a_function_that_is_no_kernel__is_an_error():
    with pytest.raises(NkiMlirError) as caught:
        nki_mlir.check(len, x)
    assert str(caught.value).splitlines()[0].endswith("error: len is not a kernel [NKI-CHECK-KERNEL]")
    assert caught.value.advice[1] == (
        "decorate the function with nki.jit, and pass it before its arguments: nki_mlir.check(kernel, x)")
    with pytest.raises(NkiMlirError, match="error: a value of type ndarray is not a kernel"):
        nki_mlir.check(x, beyond)


def test_rounding__is_ranked_by_statement():
    @beta.jit
    def rounded(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        coarse = nl.multiply(nl.load(x), 1.001, dtype=nl.bfloat16)
        nl.store(out, nl.multiply(coarse, 1.001))
        return out
    first, second = nki_mlir.check(rounded, x).precision
    assert first.location.line < second.location.line and first.relative > 1e-3 > 1e-6 > second.relative


@pytest.mark.parametrize("name", ["softmax", "matmul", "transpose2d", "top_k", "current_gather_scatter",
                                  "current_dynamic_add"])
def test_examples__have_no_errors(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    for kernel, arguments, *_ in importlib.import_module(name).cases():
        report = nki_mlir.check(kernel, *arguments)
        assert report.sound, str(report)


def test_a_command__prints_the_report_or_json(tmp_path):
    source = tmp_path / "k.py"
    source.write_text("import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n@nki.jit\ndef f(x):\n"
                      "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
                      "    nl.store(out[0:64, :], nl.load(x[0:64, :]))\n    return out\n")
    for form in ([], ["--json"]):
        ended = subprocess.run([sys.executable, "-m", "nki_mlir.cli.run", "--check", *form, f"{source}:f",
                                "--arg=128x64xf32"], cwd=ROOT, capture_output=True, text=True)
        assert ended.returncode == 1, ended.stderr
        if form:
            document = json.loads(ended.stdout)
            assert document["sound"] is False and document["findings"][0]["kind"] == "unwritten-output"
        else:
            assert ended.stdout == ("k.py:6: error: 4096 elements of the output out are not written, the first at "
                                    "[64, 0]\n  fix: store to all of the output\n")


def test_a_module__is_not_checked():
    ended = subprocess.run([sys.executable, "-m", "nki_mlir.cli.run", "--check", "examples/mlir/tensor_add.mlir"], cwd=ROOT,
                           capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (1, "error: --check does not take a module [NKI-CHECK]\n"
                                                   "  fix: give a kernel, as FILE.py:FUNCTION\n")


@nki.jit
def halvings(start):
    """How often a number is halved until it is 1, with a register that each iteration loads."""
    out = nl2.ndarray((1, 1), nl2.int32, buffer=nl2.shared_hbm)
    value, steps, going = (nl2.ndarray((1, 1), nl2.int32, buffer=nl2.sbuf) for _ in range(3))
    nisa.dma_copy(value, start)
    nisa.memset(steps, 0)
    nisa.tensor_scalar(going, value, nl2.greater, 1)
    register = nisa.register_alloc(0)
    nisa.register_load(register, going)

    def halve(condition):
        nisa.tensor_scalar(value, value, nl2.right_shift, 1)
        nisa.tensor_scalar(steps, steps, nl2.add, 1)
        nisa.tensor_scalar(going, value, nl2.greater, 1)
        nisa.register_load(condition, going)
        return condition
    nl2.while_loop(register, halve)
    nisa.dma_copy(out, steps)
    return out


def test_conditions_of_loops_are_read():
    start = np.array([[20]], np.int32)
    assert halvings.on("eager")(start) == 4
    assert nki_mlir.check(halvings, start).of("dead-store") == []


@nki.jit
def rows_as_matrices(x):
    out = nl2.ndarray((12, 3, 5), nl2.float32, buffer=nl2.shared_hbm)
    tile = nl2.ndarray((12, 15), nl2.float32, buffer=nl2.sbuf)
    nisa.dma_copy(tile, x)
    nisa.dma_copy(out, tile)
    return out


@pytest.mark.parametrize("shape, count", [((180,), 0), ((2, 6, 15), 0), ((12, 1, 15), 0), ((4, 45), 1), ((15, 12), 1)])
def test_copies_that_split_dimensions_pair_rows_that_belong_together(shape, count):
    assert len(nki_mlir.check(rows_as_matrices, np.zeros(shape, np.float32)).of("dma-shape")) == count


@nki.jit
def scattered_by_cores(x, rows, first):
    """Each core writes the rows of its half to those that ``rows`` says, with row 0 before and behind if ``first``."""
    core, half = nl2.program_id(0), x.shape[0] // 2
    out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
    mine = slice(core * half, core * half + half)
    index, tile = nl2.load(rows[mine]), nl2.load(x[mine])
    if first and core == 0:
        nisa.dma_copy(out[0:1], tile[0:1])
    nisa.dma_copy(out.ap([[x.shape[1], half], [1, x.shape[1]]], vector_offset=index, indirect_dim=0), tile)
    if first and core == 1:
        nisa.dma_copy(out[0:1], tile[0:1])
    return out


@pytest.mark.parametrize("rows, first, races", [
    ([3, 1, 5, 0, 2, 4], False, False), ([3, 1, 5, 3, 2, 4], False, True), ([3, 1, 5, 0, 2, 4], True, True)])
def test_rows_of_two_cores_that_data_choose(rows, first, races):
    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    report = nki_mlir.check(scattered_by_cores[2], x, np.array(rows, np.int32)[:, None], first)
    assert any(f.severity == "error" for f in report.of("race")) == races
    errors = [f.message for f in report.of("streams") if f.severity == "error"]
    assert len(errors) == first and not any("DYNAMIC" in message for message in errors)
    assert any("values in tensors decide whether two accesses meet" in f.message for f in report.of("streams") if f.severity == "note")


@nki.jit
def cached_by_cores(cache, new, start):
    """Each core writes a column of its half of the rows, at a place that a number says."""
    core, half = nl2.program_id(0), cache.shape[0] // 2
    at = nisa.register_alloc()
    nisa.register_load(at, start)
    tile = nl2.load(new[core * half:core * half + half])
    nisa.dma_copy(cache.ap([[cache.shape[1], half], [1, 1]], offset=core * half * cache.shape[1], scalar_offset=at,
                           indirect_dim=1), tile)
    return cache


def test_halves_of_two_cores_at_a_place_that_data_choose_are_apart():
    cache = np.zeros((6, 10), np.float32)
    report = nki_mlir.check(cached_by_cores[2], cache, np.ones((6, 1), np.float32), np.array([[4]], np.int32))
    assert report.of("streams") == [] and report.sound


@nki.jit
def summed_over_ranks(x, pairs):
    """The sum over four ranks, after one over two with ``pairs``; nothing reads ``lost``."""
    src = nl2.ndarray(x.shape, x.dtype, buffer=nl2.private_hbm)
    dst = nl2.ndarray(x.shape, x.dtype, buffer=nl2.private_hbm)
    nisa.dma_copy(src, x)
    if pairs:
        ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0, 1], [2, 3]]), nl2.add)
        nisa.dma_copy(src, dst)
    ncc.all_reduce([src], [dst], ncc.ReplicaGroup([[0, 1, 2, 3]]), nl2.add)
    lost = nl2.multiply(nl2.load(x), 2.0)
    out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm)
    nisa.dma_copy(out, dst)
    return out


@pytest.mark.parametrize("pairs", [False, True])
def test_a_kernel_with_collectives_runs_among_all_ranks_that_they_name(pairs):
    x = np.full((4, 8), 3.0, np.float32)
    with np.errstate(all="raise"):
        report = nki_mlir.check(summed_over_ranks, x, pairs)
    assert {(f.kind, f.severity) for f in report.findings} == {("dead-store", "warning")} and report.sound
    with pytest.raises(NkiMlirError, match="between 2 ranks in a kernel that runs on 1 rank" if pairs else "between 4 ranks in"):
        summed_over_ranks.on("eager")(x, pairs)


def test_report__has_errors_first_and_what_has_no_line_before_lines():
    def finding(severity, *at):
        return CheckFinding("failed", severity, "", Location(*at) if at else None)
    late, early, nowhere = finding("error", "k.py", 9, 0), finding("error", "k.py", 3, 4), finding("error")
    note, warned = finding("note"), finding("warning", "a.py", 1, 0)
    report = KernelReport("k", [note, late, warned, early, nowhere])
    assert report.ordered() == [nowhere, early, late, warned, note]
    assert report.json()["findings"][0]["location"] is None


@beta.jit
def functions_of(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.log(nl.load(x)))
    return out


@pytest.mark.parametrize("zeros, negatives, message", [
    ([(3, 7)], [], "computes the first -inf, at [3, 7], of src = 0"),
    ([(3, 7), (5, 0)], [], "computes the first -inf, at [3, 7], of src = 0"),
    ([], [(9, 2)], "computes the first NaN, at [9, 2], of src = -1"),
    ([(0, 1)], [(9, 2)], "computes the first NaN, at [9, 2], of src = -1")])
def test_the_origin_is_the_first_nan_and_without_one_the_first_infinity(zeros, negatives, message):
    values = np.full((16, 8), 2, np.float32)
    for places, value in ((zeros, 0), (negatives, -1)):
        for position in places:
            values[position] = value
    finding, = nki_mlir.check(functions_of, values).of("not-finite")
    assert finding.message.endswith(message)
    assert finding.severity == ("error" if negatives else "warning")


@nki.jit
def causal_mask(x):
    out = nl2.ndarray(x.shape, dtype=x.dtype, buffer=nl2.shared_hbm)
    t, largest = nl2.load(x), nl2.ndarray((x.shape[0], 1), nl2.float32)
    nisa.memset(largest, -math.inf)
    nisa.affine_select(t, [[-1, x.shape[1]]], 1, t, -math.inf, nl2.greater_equal)
    nisa.tensor_scalar(t, t, nl2.maximum, largest)
    nisa.activation(t, nl2.exp, t)
    nl2.store(out, t)
    return out


def test_infinities_that_the_kernel_writes__are_intended():
    report = nki_mlir.check(causal_mask, np.ones((4, 4), np.float32))
    assert report.sound and not report.of("not-finite") and not report.of("range")


def test_the_least_float32_that_a_selection_puts_into_bfloat16__is_intended():
    @nki.jit
    def kernel(x, low, high):
        """The documents of range_select fix the number outside of the range, which is -inf in bfloat16."""
        out = nl2.ndarray(x.shape, dtype=nl2.bfloat16, buffer=nl2.shared_hbm)
        t, chosen = (nl2.ndarray(x.shape, dtype=d, buffer=nl2.sbuf) for d in (x.dtype, nl2.bfloat16))
        bounds = [nl2.ndarray(low.shape, dtype=low.dtype, buffer=nl2.sbuf) for _ in range(2)]
        for tile, tensor in zip((t, *bounds), (x, low, high)):
            nisa.dma_copy(tile, tensor)
        nisa.range_select(chosen, t, nl2.greater_equal, nl2.less, *bounds)
        nisa.dma_copy(out, chosen)
        return out
    column = np.zeros((4, 1), np.float32)
    report = nki_mlir.check(kernel, np.ones((4, 8), np.float32), column, column + 3)
    assert report.sound and not report.of("not-finite") and not report.of("range")


@nki.jit
def sums_of_squares(x):
    """The registers are reset before they accumulate, so nothing has to write them first."""
    out = nl2.ndarray((x.shape[0], 1), dtype=nl2.float32, buffer=nl2.shared_hbm)
    t, squares, total = nl2.load(x), nl2.ndarray(x.shape, nl2.float32), nl2.ndarray((x.shape[0], 4), nl2.float32)
    nisa.activation(squares, nl2.square, t, reduce_op=nl2.add, reduce_res=total[:, 1:2],
                    reduce_cmd=nisa.reduce_cmd.reset_reduce)
    nl2.store(out, total[:, 1:2])
    return out


@nki.jit
def largest_in_range(x, bounds):
    out = nl2.ndarray((x.shape[0], 1), dtype=nl2.float32, buffer=nl2.shared_hbm)
    t, chosen, largest = nl2.load(x), nl2.ndarray(x.shape, nl2.float32), nl2.ndarray((x.shape[0], 1), nl2.float32)
    b, half = nl2.load(bounds), x.shape[1] // 2
    for k, reduce in enumerate((nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce)):
        part = slice(k * half, (k + 1) * half)
        nisa.range_select(chosen[:, part], t[:, part], nl2.greater_equal, nl2.less, b[:, 0:1], b[:, 1:2],
                          reduce_cmd=reduce, reduce_res=largest, range_start=k * half)
    nl2.store(out, largest)
    return out


@beta.jit
def comparisons(x):
    out = nl.ndarray(x.shape, dtype=nl.bool_, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(out, nl.logical_xor(nl.greater(t, 0.0), nl.equal(t, t)))
    return out


@beta.jit
def rounded(x):
    out = nl.ndarray(x.shape, dtype=nl.int8, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(nl.add(nl.load(x), 127.25), dtype=nl.int8))
    return out


@beta.jit
def sum_of_masked_products(x):
    """Each product adds to the elements that its mask selects, whether the statement that adds it is the next one."""
    out = nl.ndarray((x.shape[1], 64), dtype=nl.float32, buffer=nl.shared_hbm)
    t, total = nl.load(x), nl.zeros((x.shape[1], 64), nl.float32, buffer=nl.psum)
    column = nl.arange(64)[None, None, :]
    for _ in nl.affine_range(2):
        total += beta_isa.nc_matmul(t, t, mask=(column < 5))
        part = beta_isa.nc_matmul(t, t, mask=(column >= 61))
        total += part
    nl.store(out, total)
    return out


BOUNDS = np.tile(np.float32([3, 40]), (128, 1))


@pytest.mark.parametrize("kernel, arguments", [
    (sums_of_squares, (x,)), (largest_in_range, (x, BOUNDS)), (comparisons, (x,)), (rounded, (x * 0,)),
    (sum_of_masked_products, (x,)), (comparisons, (np.where(x > 4, np.nan, x),))],
    ids=lambda value: getattr(value, "__name__", ""))
def test_nothing_is_found__in_sound_kernels(kernel, arguments):
    assert nki_mlir.check(kernel, *arguments).findings == []


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa"])
def test_products_under_masks__add_to_what_the_masks_select(on):
    expected = 2 * (x.T.astype(np.float64) @ x)
    expected[:, 5:61] = 0
    assert np.abs(sum_of_masked_products.on(on)(x) - expected).max() < 1e-3 * np.abs(expected).max()


def test_equal_statements__do_not_hide_that_nothing_reads_the_first():
    @beta.jit
    def twice(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        nl.exp(t)
        again = nl.exp(t)
        nl.store(out, again)
        return out
    finding, = nki_mlir.check(twice, x).findings
    assert finding.kind == "dead-store" and finding.message == "nothing reads what nl.exp writes to t2"


def test_masks_as_subscripts_of_destinations__are_no_conditions_of_python():
    @beta.jit
    def masked(x, last):
        out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        p, f = nl.arange(128)[:, None], nl.arange(64)[None, :]
        tile = nl.load(x)
        tile[p < 5] = 9.0
        tile[p, f][last > 3] = 1.0
        nl.store(out, tile)
        return out
    report = nki_mlir.check(masked, x, 4)
    assert report.findings == [], str(report)


@pytest.mark.parametrize("form", ["same", "sums", "own"])
def test_accesses_of_two_cores__are_judged_with_their_values(form):
    """Only the kernel shows that both cores write the same or both add: in the streams nothing orders them. A race that
    the check of programs reports is not reported again for the streams."""
    @nki.jit
    def shared(x):
        out = nl2.ndarray(x.shape, x.dtype, buffer=nl2.shared_hbm, name="out")
        core, tile = nl2.program_id(0), nl2.load(x)
        if form == "sums":
            if core == 0:
                nisa.dma_copy(out, tile)
            nisa.core_barrier(out, (0, 1))
            nisa.dma_compute(out, [out, tile], nl2.add)
        else:
            nisa.dma_copy(out, nl2.multiply(tile, float(core)) if form == "own" else tile)
        return out
    report = nki_mlir.check(shared[2], x)
    unordered = [f.severity for f in report.of("streams") if f.code == "NKI-STREAM-ORDER"]
    assert unordered == (["note"] if form == "sums" else [])
    assert report.sound is (form != "own")
    assert [f.code for f in report.of("race")] == {"same": ["NKI-SAME-WRITES"], "sums": [], "own": ["NKI-RACE-PROGRAMS"]}[form]


@pytest.mark.torch
def test_tensors_of_a_framework__are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(NkiMlirError) as caught:
        nki_mlir.check(mistakes, torch.ones(128, 64))
    assert caught.value.headline == "nki_mlir.check takes NumPy arrays, got a value of type Tensor"
    assert caught.value.at is not None and caught.value.at.file == __file__
