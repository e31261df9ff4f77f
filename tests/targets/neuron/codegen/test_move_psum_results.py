# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels whose matrix products do not fit in PSUM: results go to SBUF, as far as they may."""

import numpy as np
import pytest

import nki_mlir
from nki_mlir.diagnostics import Location
from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.dialects.nisa.movement import TensorCopyOp
from nki_mlir.dialects.nisa.reduction import ActivationReduceOp
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.codegen.allocate_on_chip import MemoryFull
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.liveness import Liveness, peak
from nki_mlir.targets.neuron.codegen.move_psum_results import move_psum_results
from nki_mlir.targets.neuron.codegen.schedule_instructions import Schedules
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order

pytestmark = pytest.mark.filterwarnings("ignore:.*live at once")
BANK = 512


def products(count, fixed=False, accumulate=False):
    """Products of a bank each, and copies of all of them when all are done."""
    b = Builder()
    x, y = b.hbm("x", (128, BANK), "input"), b.hbm("y", (128 * count, BANK), "output")
    t, left = b.on_chip("t", (128, BANK)), b.on_chip("left", (128, 128))
    b.copy((t, 0, 128, 0, BANK), (x, 0, 128, 0, BANK))
    b.copy((left, 0, 128, 0, 128), (x, 0, 128, 0, 128))
    sums = [b.on_chip(f"p{k}", (128, BANK), PSUM, address=(0, 2048 * k) if fixed else None) for k in range(count)]
    for p in sums:
        b.matmul((p, 0, 128, 0, BANK), (left, 0, 128, 0, 128), (t, 0, 128, 0, BANK))
    for k, p in enumerate(sums):
        if accumulate:
            b.matmul((p, 0, 128, 0, BANK), (left, 0, 128, 0, 128), (t, 0, 128, 0, BANK), accumulate=True)
        out = b.on_chip(f"o{k}", (128, BANK))
        b.add((out, 0, 128, 0, BANK), (p, 0, 128, 0, BANK), (t, 0, 128, 0, BANK))
        b.copy((y, 128 * k, 128, 0, BANK), (out, 0, 128, 0, BANK))
    return b.code, x, y


def test_two_results_of_one_instruction__are_both_copied():
    b = Builder()
    x, y = b.hbm("x", (128, 1), "input"), b.hbm("y", (128, 1), "output")
    t, out = b.on_chip("t", (128, 1)), b.on_chip("out", (128, 1))
    results = [b.on_chip(name, (128, 1), PSUM) for name in ("square", "total")]
    for buffer in results:
        buffer.location = Location("kernel.py", 7, 0)
    square, total = (b.tile({}, buffer, 0, 128, 0, 1) for buffer in results)
    b.copy((t, 0, 128, 0, 1), (x, 0, 128, 0, 1))
    b.step(ActivationReduceOp, dst=square, src=b.tile({}, t, 0, 128, 0, 1), fn="square", bias=None, scale=None,
           reduce_res=total)
    b.add((out, 0, 128, 0, 1), (t, 0, 128, 0, 1), (results[0], 0, 128, 0, 1))
    b.add((out, 0, 128, 0, 1), (out, 0, 128, 0, 1), (results[1], 0, 128, 0, 1), op="subtract")
    assert move_psum_results(b.code, 0)
    arrays = {x: np.arange(128, dtype=np.float32).reshape(128, 1), y: np.zeros((128, 1), np.float32)}
    b.copy((y, 0, 128, 0, 1), (out, 0, 128, 0, 1))
    run_in_order(b.code, arrays)
    np.testing.assert_array_equal(arrays[y], arrays[x])


def psum_peak(code):
    return peak([life for life in Liveness(code).of.values() if life.buffer.space == PSUM])[0]


@pytest.mark.parametrize("count, most", [(8, 8 * 2048), (9, 8 * 2048), (12, 8 * 2048)])
def test_results__are_moved_until_the_rest_fits(count, most):
    code, x, y = products(count)
    before = psum_peak(code)
    move_psum_results(code)
    assert before == count * 2048 and psum_peak(code) <= most
    assert (psum_peak(code) == before) == (count <= 8)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_results__of_a_schedule_are_those_at_the_peak_of_psum(count):
    code, _, _ = products(count)
    assert Schedules(code).most_results == psum_peak(code) == count * 2048


@pytest.mark.parametrize("options", [Emission(), Emission.as_written(), Emission(reorder=False), Emission.for_values()],
                         ids=["default", "as-written", "values", "in-order"])
def test_values__are_those_of_products_that_stay(options):
    code, x, y = products(10)
    values = np.random.default_rng(0).integers(-3, 4, (128, BANK)).astype(np.float32)
    expected, result = np.zeros(y.shape, np.float32), np.zeros(y.shape, np.float32)
    run_in_order(code, {x: values, y: expected})
    simulate(emit_code(products(10)[0], options), [values.copy()], [result], 1)
    np.testing.assert_array_equal(result, expected)


def row_of_banks(banks, fills=False, reads_early=False):
    """A tile of some banks, each with two products, which one instruction reads when all are done."""
    b = Builder()
    x, y = b.hbm("x", (128, BANK), "input"), b.hbm("y", (128, BANK * banks), "output")
    t, left, ones = b.on_chip("t", (128, BANK)), b.on_chip("left", (128, 128)), b.on_chip("ones", (128, BANK * banks))
    b.copy((t, 0, 128, 0, BANK), (x, 0, 128, 0, BANK))
    b.copy((left, 0, 128, 0, 128), (x, 0, 128, 0, 128))
    b.memset((ones, 0, 128, 0, BANK * banks), 1)
    row, out = b.on_chip("row", (128, BANK * banks), PSUM), b.on_chip("out", (128, BANK * banks))
    if fills:
        b.memset((row, 0, 128, 0, BANK * banks), 1)
    for j in range(banks):
        for accumulate in (fills, True):
            b.matmul((row, 0, 128, BANK * j, BANK), (left, 0, 128, 0, 128), (t, 0, 128, 0, BANK), accumulate=accumulate)
        if reads_early and not j:
            b.add((out, 0, 128, 0, BANK), (row, 0, 128, 0, BANK), (t, 0, 128, 0, BANK))
    b.add((out, 0, 128, 0, BANK * banks), (row, 0, 128, 0, BANK * banks), (ones, 0, 128, 0, BANK * banks))
    b.copy((y, 0, 128, 0, BANK * banks), (out, 0, 128, 0, BANK * banks))
    return b.code, x, y


@pytest.mark.parametrize("how, most, count", [({}, 2048, 8), ({"fills": True}, 16384, 8), ({"reads_early": True}, 16384, 1)],
                         ids=["products", "fills", "reads-early"])
def test_results_of_several_banks__move_bank_by_bank(how, most, count):
    values = np.random.default_rng(0).integers(-3, 4, (128, BANK)).astype(np.float32)
    code, x, y = row_of_banks(8, **how)
    expected, result, moved_result = (np.zeros(y.shape, np.float32) for _ in range(3))
    run_in_order(code, {x: values, y: expected})
    assert move_psum_results(code, 50)
    copies = [node for node in code.body.nodes if isinstance(node.op, TensorCopyOp)]
    assert (psum_peak(code), len(copies)) == (most, count)
    run_in_order(code, {x: values, y: moved_result})
    np.testing.assert_array_equal(moved_result, expected)
    program = emit_code(row_of_banks(8, **how)[0], Emission())
    assert check_streams([program]).violations == []
    simulate(program, [values.copy()], [result], 1)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("how", [{"accumulate": True}, {"fixed": True}], ids=str)
def test_what_is_added_to_later_or_has_an_address__stays(how):
    count = 9 if "accumulate" in how else 8
    code, *_ = products(count, **how)
    move_psum_results(code)
    assert psum_peak(code) == count * 2048


def test_sums_that_are_all_open_at_once__are_an_error_that_names_them():
    with pytest.raises(MemoryFull, match=r"(?s)PSUM is full: 9 tiles .* take 18432 bytes .*p0 2048, p1 2048, p2 2048"):
        emit_code(products(9, accumulate=True)[0], Emission(reorder=False, spill=False))


def test_sums_that_program_order_keeps_open__fit_one_after_the_other():
    code, x, y = products(9, accumulate=True)
    values = np.random.default_rng(0).integers(-3, 4, (128, BANK)).astype(np.float32)
    expected, result = np.zeros(y.shape, np.float32), np.zeros(y.shape, np.float32)
    run_in_order(code, {x: values, y: expected})
    simulate(emit_code(products(9, accumulate=True)[0], Emission()), [values.copy()], [result], 1)
    np.testing.assert_array_equal(result, expected)


@nki.jit
def rows_of_scores(a, b):
    """Products for whole rows, whose maxima are taken before they are read again."""
    columns = b.shape[1]
    out = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    rows = nl.ndarray((columns // BANK, nl.par_dim(128), BANK), nl.float32, buffer=nl.psum)
    tops = nl.ndarray((128, columns // BANK), nl.float32, buffer=nl.sbuf)
    for j in nl.affine_range(columns // BANK):
        rows[j] = nisa.nc_matmul(left, right[:, nl.ds(j * BANK, BANK)])
        tops[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.max, rows[j], axis=1, keepdims=True)
    top = nisa.tensor_reduce(np.max, tops, axis=1, keepdims=True)
    for j in nl.affine_range(columns // BANK):
        nl.store(out[:, nl.ds(j * BANK, BANK)], nisa.tensor_scalar(rows[j], np.subtract, top))
    return out


@pytest.mark.parametrize("as_written", [False, True])
def test_kernel_with_scores_beyond_psum__runs_and_is_timed(as_written):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((128, 128), (128, 12 * BANK)))
    scores = a.T @ b
    np.testing.assert_array_equal(rows_of_scores.on("isa")(a, b), scores - scores.max(1, keepdims=True))
    spec = rows_of_scores.lower(nki_mlir.spec(a.shape, "float32"), nki_mlir.spec(b.shape, "float32")).specialization
    program, = neuron.streams(spec.captured, spec.grid, neuron.emission(as_written))
    result = np.zeros(scores.shape, np.float32)
    simulate(program, [a.copy(), b.copy()], [result])
    np.testing.assert_array_equal(result, scores - scores.max(1, keepdims=True))
    copies = [i for stream in program.streams.values() for i in stream if i.op.mnemonic == "COPY"]
    assert len(copies) == 12


@nki.jit
def scores_of_several_rows(a, b):
    """Scores that fill PSUM for each block of rows."""
    columns = b.shape[1]
    out = nl.ndarray((a.shape[1], columns), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    for i in nl.affine_range(a.shape[1] // 128):
        rows = nl.ndarray((columns // BANK, nl.par_dim(128), BANK), nl.float32, buffer=nl.psum)
        tops = nl.ndarray((128, columns // BANK), nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(columns // BANK):
            rows[j] = nisa.nc_matmul(left[:, nl.ds(i * 128, 128)], right[:, nl.ds(j * BANK, BANK)])
            tops[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.max, rows[j], axis=1, keepdims=True)
        top = nisa.tensor_reduce(np.max, tops, axis=1, keepdims=True)
        shifted = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(columns // BANK):
            shifted[:, nl.ds(j * BANK, BANK)] = nisa.tensor_scalar(rows[j], np.subtract, top)
        nl.store(out[nl.ds(i * 128, 128), :], shifted)
    return out


def test_products_of_the_next_rows__start_in_banks_that_results_have_left():
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((128, 4 * 128), (128, 8 * BANK)))
    spec = scores_of_several_rows.lower(nki_mlir.spec(a.shape, "float32"), nki_mlir.spec(b.shape, "float32")
                                        ).specialization
    scores = a.T @ b
    copies, ns = {}, {}
    for evict in (False, True):
        program, = neuron.streams(spec.captured, spec.grid, Emission(evict=evict, split_columns=False))
        result = np.zeros(scores.shape, np.float32)
        simulate(program, [a.copy(), b.copy()], [result])
        np.testing.assert_array_equal(result, scores - scores.max(1, keepdims=True))
        copies[evict] = sum(i.op.mnemonic == "COPY" for stream in program.streams.values() for i in stream)
        ns[evict] = neuron.timed([program]).total_ns
    assert copies[False] == 0 < copies[True]
    assert ns[True] < ns[False]


def test_moved_result__keeps_name_line_and_readers():
    code, x, y = products(9)
    for buffer in code.body.buffers:
        buffer.location = Location("kernel.py", len(buffer.name), 2)
    psum = {buffer.name: buffer for buffer in code.body.buffers if buffer.space == PSUM}
    move_psum_results(code)
    copies = [step.op for step in code.body.nodes if step.op.name == "tensor_copy"]
    assert copies and all(op.src.space == PSUM and op.dst.space == SBUF for op in copies)
    for op in copies:
        buffer = psum[op.src.handle.name]
        assert op.dst.handle.name == buffer.name and op.dst.handle.location == buffer.location
        readers = [step.op for step in code.body.nodes if any(tile.handle is op.dst.handle for _, tile in step.op.sources())]
        assert [reader.name for reader in readers] == ["tensor_tensor"]
        assert not any(tile.handle is buffer for step in code.body.nodes for _, tile in step.op.sources()
                       if step.op is not op)


@pytest.mark.parametrize("parts", [[(0, 256)], [(0, 128), (256, 64)], [(0, 256), (256, 256)]], ids=str)
def test_parts_of_tiles_that_no_product_writes__are_not_copied(parts):
    """An instruction may not read bytes that nothing has written."""
    b = Builder()
    x, y = b.hbm("x", (128, BANK), "input"), b.hbm("y", (128 * 9, BANK), "output")
    t = b.on_chip("t", (128, BANK))
    b.copy((t, 0, 128, 0, BANK), (x, 0, 128, 0, BANK))
    sums = [b.on_chip(f"p{k}", (128, BANK), PSUM) for k in range(9)]
    for p in sums:
        for start, count in parts:
            b.matmul((p, 0, 128, start, count), (t, 0, 128, 0, 128), (t, 0, 128, start, count))
    for k, p in enumerate(sums):
        out = b.on_chip(f"o{k}", (128, BANK))
        for start, count in parts:
            b.add((out, 0, 128, start, count), (p, 0, 128, start, count), (t, 0, 128, start, count))
            b.copy((y, 128 * k, 128, start, count), (out, 0, 128, start, count))
    array = np.random.default_rng(3).standard_normal((128, BANK)).astype(np.float32)
    expected = {x: array, y: np.zeros((128 * 9, BANK), np.float32)}
    run_in_order(b.code, expected)
    assert move_psum_results(b.code)
    copies = [step.op.src for step in b.code.body.nodes if isinstance(step.op, TensorCopyOp)]
    elements = sum(count for _, count in parts)
    assert copies and sum(tile.free_elements for tile in copies) % elements == 0
    assert all(tile.free_elements == BANK for tile in copies) == (elements == BANK)
    arrays = {x: array, y: np.zeros((128 * 9, BANK), np.float32)}
    run_in_order(b.code, arrays)
    np.testing.assert_array_equal(arrays[y], expected[y])
    program = emit_code(b.code, Emission(reorder=False))
    assert check_streams([program]).verdict == "proved"
