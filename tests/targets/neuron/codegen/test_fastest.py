# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order in which candidates are timed: those that are likely the fastest first, so that others need no program."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.cli.arguments import parse_arguments
from nki_mlir.cli.source import load_kernel
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen import candidate_programs, dependences, fastest
from nki_mlir.targets.neuron.codegen.candidate_programs import FULL
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_cores
from nki_mlir.targets.neuron.codegen.fastest import TimedCandidates
from nki_mlir.targets.neuron.codegen.search_options import Candidate

KERNELS = Path(__file__).parents[4] / "bench" / "calibration"
SCAN = ("rows.py:mamba_channels_outside", ("512x1024xf32", "512x1024xf32", "512x16xf32", "16x1024xf32", "16x1024xf32"))
ATTENTION = ("fused.py:attention", ("64x2560xbf16",) * 3)
NORM = ("rows.py:layernorm", ("1024x8192xf32", "8192xf32", "8192xf32"))
PRODUCT = ("matmul.py:tiled", ("2048x2048xbf16",) * 2)


def timed(monkeypatch: pytest.MonkeyPatch, source: str, arguments: tuple[str, ...]) -> list[tuple[Candidate, float]]:
    """Compile a kernel, and return the candidates whose programs were timed, with their times, the best one last."""
    kernel = load_kernel(str(KERNELS / source), "trn2", ())
    positional, keywords = parse_arguments(list(arguments), values=False)
    return timed_of(monkeypatch, kernel.specialize(kernel.bind(tuple(positional), keywords, is_array, describe_array)))


def timed_of(monkeypatch: pytest.MonkeyPatch, captured: Any, options: Emission = Emission()) -> list[tuple[Candidate, float]]:
    """The same of a captured kernel."""
    noted: list[tuple[Candidate, float]] = []
    note = TimedCandidates.time_and_record

    def noting(self: TimedCandidates, candidate: Candidate, *program: object) -> float:
        noted.append((candidate, note(self, candidate, *program)))          # type: ignore[arg-type]
        return noted[-1][1]
    monkeypatch.setattr(TimedCandidates, "time_and_record", noting)
    emit_cores(neuron.lowered(captured.captured), captured.grid, options)
    monkeypatch.setattr(TimedCandidates, "time_and_record", note)
    return [*noted, min(noted, key=lambda entry: entry[1])]


@pytest.mark.share(3)
@pytest.mark.parametrize("source, arguments, variant", [
    (*SCAN, (False, 100, False, False)),                    # tiles that stay in SBUF leave no room for results
    (*NORM, (True, 100, True, False)),                      # an iteration fills more than half of SBUF
    (*ATTENTION, (True, fastest.FREE_BANKS, False, True))])     # products wait for banks, copies limit the time
def test_a_variant_that_is_likely_faster__is_timed_alone(monkeypatch: pytest.MonkeyPatch, source: str,
                                                         arguments: tuple[str, ...],
                                                         variant: tuple[bool, int, bool, bool]) -> None:
    candidates = timed(monkeypatch, source, arguments)
    assert {(candidate.loads, candidate.results, candidate.overwrite, candidate.merge)
            for candidate, _ in candidates} == {variant}
    monkeypatch.setattr(TimedCandidates, "before", lambda *_: [])
    others = timed(monkeypatch, source, arguments)
    if variant[2] or variant[3]:                # no other way to find it
        assert others[-1][1] > candidates[-1][1] * 1.1
    else:
        assert others[-1] == candidates[-1] and len(others) > len(candidates)


def test_fewer_results_in_psum__are_tried_although_the_first_order_with_all_is_slow(monkeypatch: pytest.MonkeyPatch
                                                                                    ) -> None:
    """Loops that are 5% slower than the best program would exclude that order."""
    best, least = timed(monkeypatch, *ATTENTION)[-1][1], TimedCandidates.least_time
    monkeypatch.setattr(TimedCandidates, "least_time", lambda self: min(least(self), best * 1.05))
    assert timed(monkeypatch, *ATTENTION)[-1][1] == best


def test_loops_that_load_data_again__are_timed_behind_longer_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither they nor pipelined loops, which load no less, can be faster."""
    for name, value in (("STRAIGHT", {1: 1000}), ("BODY", 100), ("BODIES", (100, 400)), ("PIPELINED", 50)):
        for module in (fastest, candidate_programs):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
    candidates = timed(monkeypatch, *PRODUCT)
    assert candidates[0][0].body == candidates[-1][0].body == 400
    monkeypatch.setattr(TimedCandidates, "least_time_again", lambda *_: 0.0)
    others = timed(monkeypatch, *PRODUCT)
    assert others[0][0].body == 100 and others[-1] == candidates[-1] and len(others) > len(candidates)


@nki.jit
def tiles_of_unlike_sizes(a_t, b):
    """Multiply blocks of four tiles of 512 bytes of a partition by tiles of 2,048 bytes, all loaded before their
    products."""
    (k, m), n = a_t.shape, b.shape[1]
    out = nl.ndarray((m, n), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(m // 512):
        lefts = nl.ndarray((4, k // 128, nl.par_dim(128), 128), dtype=a_t.dtype, buffer=nl.sbuf)
        for r in nl.affine_range(4):
            for s in nl.affine_range(k // 128):
                lefts[r, s] = nl.load(a_t[nl.ds(s * 128, 128), nl.ds((i * 4 + r) * 128, 128)])
        for j in nl.affine_range(n // 512):
            rights = nl.ndarray((k // 128, nl.par_dim(128), 512), dtype=b.dtype, buffer=nl.sbuf)
            for s in nl.affine_range(k // 128):
                rights[s] = nl.load(b[nl.ds(s * 128, 128), nl.ds(j * 512, 512)])
            for r in nl.affine_range(4):
                total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
                for s in nl.affine_range(k // 128):
                    total += nisa.nc_matmul(lefts[r, s], rights[s])
                nl.store(out[nl.ds((i * 4 + r) * 128, 128), nl.ds(j * 512, 512)], nl.copy(total))
    return out


def test_an_order_without_addresses__does_not_end_the_search() -> None:
    """Loads that fill SBUF leave gaps that are too small for large tiles; an order with fewer loads has room."""
    captured = tiles_of_unlike_sizes.specialize(tiles_of_unlike_sizes.bind(
        tuple(np.zeros(shape, np.float32) for shape in ((2048, 2048), (2048, 4096))), {}, is_array, describe_array))
    program, = neuron.streams(captured.captured, captured.grid, neuron.emission(as_written=True, static=True))
    timing = neuron.timed([program], as_written=True)
    assert FULL not in program.notes
    assert timing.total_ns < 1.02 * max(timing.slowest.busy_ns.values())


@nki.jit
def rows_of_products(a_t, b, z):
    """Square rows of products; all of b and three tiles of rows do not fit in SBUF at once."""
    (k, m), n = a_t.shape, b.shape[1]
    out = nl.ndarray((m, n), dtype=z.dtype, buffer=nl.shared_hbm)
    rights = [nl.load(b[nl.ds(s * 128, 128), :]) for s in range(k // 128)]
    for i in nl.affine_range(m // 128):
        lefts = [nl.load(a_t[nl.ds(s * 128, 128), nl.ds(i * 128, 128)]) for s in range(k // 128)]
        added = nl.load(z[nl.ds(i * 128, 128), :])
        rows = nl.ndarray((128, n), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(n // 512):
            total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
            for s in range(k // 128):
                total += nisa.nc_matmul(lefts[s], rights[s][:, nl.ds(j * 512, 512)])
            rows[:, nl.ds(j * 512, 512)] = nisa.tensor_tensor(total, added[:, nl.ds(j * 512, 512)], np.add)
        scaled = nisa.tensor_tensor(rows, rows, np.multiply)
        nl.store(out[nl.ds(i * 128, 128), :], nisa.tensor_tensor(scaled, rows, np.add))
    return out


@pytest.mark.parametrize("as_written", [False, True])
def test_tiles_that_spill_repeatedly__may_fill_more_of_memory(as_written: bool) -> None:
    """With 60% of SBUF, each product loads its operand again: 19 times as long as half of the columns."""
    times = [total_ns(rows_of_products, ((512, 512), (512, n), (512, n)), as_written) for n in (4096, 8192)]
    assert 2 * times[0] < times[1] < 3.5 * times[0]


@nki.jit
def attention_over_blocks(q, k, v):
    """Attention with running maxima; products of q and k need half of the rows of the tensor engine."""
    d, s = q.shape
    out = nl.ndarray((s, d), dtype=q.dtype, buffer=nl.shared_hbm)
    keys = nl.load(k)
    values = [nl.load(v[nl.ds(t * 128, 128), :]) for t in range(s // 128)]
    for i in nl.affine_range(s // 128):
        queries = nl.load(q[:, nl.ds(i * 128, 128)])
        top = nl.full((128, 1), -1e30, nl.float32)
        total, result = nl.zeros((128, 1), nl.float32, buffer=nl.sbuf), nl.zeros((128, d), nl.float32, buffer=nl.sbuf)
        for c in range(s // 512):
            scores = nisa.nc_matmul(queries, keys[:, nl.ds(c * 512, 512)])
            highest = nisa.tensor_tensor(top, nisa.tensor_reduce(np.max, scores, axis=1), np.maximum)
            bias = nisa.tensor_scalar(highest, np.multiply, -1.0)
            factor = nisa.activation(nl.exp, top, bias=bias)
            sums = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
            weights = nisa.activation_reduce(nl.exp, scores, bias=bias, reduce_op=np.add, reduce_res=sums)
            total = nisa.scalar_tensor_tensor(data=total, op0=np.multiply, operand0=factor, op1=np.add, operand1=sums)
            part = nl.zeros((128, d), nl.float32, buffer=nl.psum)
            for t in range(4):
                part += nisa.nc_matmul(nl.copy(nisa.nc_transpose(weights[:, nl.ds(t * 128, 128)])), values[c * 4 + t])
            result = nisa.scalar_tensor_tensor(data=result, op0=np.multiply, operand0=factor, op1=np.add, operand1=part)
            top = highest
        nl.store(out[nl.ds(i * 128, 128), :], nisa.tensor_scalar(result, np.multiply, nisa.reciprocal(total)))
    return out


@nki.jit
def attention_that_loads_again(q, k, v):
    """Attention whose tiles of rows load the values again, which fit in SBUF."""
    d, s = q.shape
    out = nl.ndarray((s, d), dtype=q.dtype, buffer=nl.shared_hbm)
    keys = nl.load(k)
    for i in nl.static_range(s // 128):
        queries, scores = nl.load(q[:, i * 128:i * 128 + 128]), nl.ndarray((128, s), nl.float32, buffer=nl.sbuf)
        for c in range(0, s, 512):
            scores[:, c:c + 512] = nl.copy(nisa.nc_matmul(queries, keys[:, c:c + 512]))
        sums = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
        weights = nisa.activation_reduce(nl.exp, scores, bias=nisa.tensor_reduce(np.max, scores, axis=1, negate=True),
                                         reduce_op=np.add, reduce_res=sums, dtype=q.dtype)
        result = nl.zeros((128, d), nl.float32, buffer=nl.psum)
        for t in range(0, s, 128):
            result += nisa.nc_matmul(nl.copy(nisa.nc_transpose(weights[:, t:t + 128])), nl.load(v[t:t + 128]))
        nl.store(out[i * 128:i * 128 + 128], nisa.tensor_scalar(result, np.multiply, nisa.reciprocal(sums)))
    return out


def test_all_loads_of_the_kernel__are_not_timed_before_fewer_if_their_first_order_takes_longer(
        monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = ((128, 1024), (128, 1024), (1024, 128))
    arrays = tuple(np.empty(shape, ml_dtypes.bfloat16) for shape in shapes)
    captured = attention_that_loads_again.specialize(
        attention_that_loads_again.bind(arrays, {}, is_array, describe_array))
    assert all(candidate.loads for candidate, _ in timed_of(monkeypatch, captured))


@pytest.mark.parametrize("s", [1024, 1536])
def test_orders_that_miss_full_speed__do_not_end_the_search(s: int) -> None:
    """The orders with the best estimates start too few products in a row, so the tensor engine stays at half speed."""
    optimized, written = (total_ns(attention_over_blocks, ((64, s), (64, s), (s, 64)), mode) for mode in (False, True))
    assert optimized < written


def total_ns(kernel: Any, shapes: tuple[tuple[int, ...], ...], as_written: bool) -> float:
    captured = kernel.specialize(kernel.bind(tuple(np.zeros(shape, np.float32) for shape in shapes), {}, is_array,
                                             describe_array))
    programs = neuron.streams(captured.captured, captured.grid, neuron.emission(as_written=as_written))
    timing = neuron.timed(programs, as_written=as_written)
    return timing.total_ns - timing.launch_ns


@nki.jit
def taps(x, weights):
    """Four shifted loads, whose scaled values are added: transfers take nearly all of the time."""
    out = nl.ndarray((512, 4096), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        factors = nl.load(weights[nl.ds(i * 128, 128), :])
        for j in nl.affine_range(2):
            parts = [nl.load(x[nl.ds(i * 128, 128), nl.ds(j * 2048 + k, 2048)]) for k in range(4)]
            total = nl.multiply(parts[0], factors[:, 0:1])
            for k in range(1, 4):
                total = nl.add(total, nl.multiply(parts[k], factors[:, k:k + 1]))
            nl.store(out[nl.ds(i * 128, 128), nl.ds(j * 2048, 2048)], total)
    return out


def test_an_order_that_misses_its_estimate__does_not_end_the_search() -> None:
    """The first order is estimated within 2% of the bound and takes longer; another one takes less."""
    captured = taps.specialize(taps.bind((np.zeros((512, 4099), np.float32), np.zeros((512, 4), np.float32)), {},
                                         is_array, describe_array))

    def ns(options: Emission) -> float:
        return neuron.timed(neuron.streams(captured.captured, captured.grid, options)).total_ns
    one_issuer = ns(Emission(issuers=False))
    assert ns(Emission()) <= one_issuer
    assert ns(Emission.as_written()) <= one_issuer * 1.01


@nki.jit
def chains(a, count):
    """Add constants to one tile or to two: instructions that form no loop, in one chain or in two."""
    out = nl.ndarray((count, *a.shape), dtype=a.dtype, buffer=nl.shared_hbm)
    tiles = [nl.load(a) for _ in range(count)]
    for i in range(240 // count):
        for k in range(count):
            tiles[k] = nl.add(tiles[k], float(i % 7 + i * i % 11 + k))
    for k in range(count):
        nl.store(out[k], tiles[k])
    return out


def test_code_whose_chain_takes_as_long_as_program_order__is_timed_in_this_order_alone(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_programs, "FEW", 100)                 # instructions of shorter code
    tile = np.zeros((128, 64), np.float32)
    for count, serial in (1, True), (2, False):
        captured = chains.specialize(chains.bind((tile, count), {}, is_array, describe_array))
        *noted, (_, ns) = timed_of(monkeypatch, captured)
        assert (len(noted) == 1) is serial
        *noted, (_, least) = timed_of(monkeypatch, captured, Emission(serial=False))
        assert len(noted) > 1 and ns == least


@nki.jit
def mixed(a, count):
    """Apply pseudo-random operations to tiles: merged instructions wait for each other's operands."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tiles = [nl.load(a[k]) for k in range(a.shape[0])]
    state = 12345
    for _ in range(count):
        state = (state * 1103515245 + 12345) % 2147483648
        number = state // 65536
        x, y = number % a.shape[0], number // 8 % a.shape[0]
        if number // 64 % 3 == 0:
            tiles[x] = nl.add(tiles[x], tiles[y])
        elif number // 64 % 3 == 1:
            tiles[x] = nl.exp(tiles[y])
        else:
            tiles[x] = nl.maximum(tiles[x], tiles[y])
    for k in range(a.shape[0]):
        nl.store(out[k], tiles[k])
    return out


def test_merged_code_whose_first_order_takes_much_longer__has_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = np.zeros((32, 128, 128), np.float32)
    captured = mixed.specialize(mixed.bind((tiles, 220), {}, is_array, describe_array))
    *noted, (best, ns) = timed_of(monkeypatch, captured)
    assert any(candidate.merge for candidate, _ in noted) and not best.merge
    monkeypatch.setattr(fastest, "HOPELESS", 1.02)
    *noted, (_, least) = timed_of(monkeypatch, captured)
    assert not any(candidate.merge for candidate, _ in noted) and ns == least


def test_code_whose_chains_take_longer_than_its_engines__is_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastest, "HOPELESS", 100)
    tiles = np.zeros((8, 128, 128), np.float32)
    captured = mixed.specialize(mixed.bind((tiles, 120), {}, is_array, describe_array))
    *noted, (_, ns) = timed_of(monkeypatch, captured)
    assert not any(candidate.merge for candidate, _ in noted)
    monkeypatch.setattr(fastest.Prepared, "is_straight", False)
    *noted, (best, least) = timed_of(monkeypatch, captured)
    assert any(candidate.merge for candidate, _ in noted) and not best.merge and ns == least


def test_dependences_of_a_run__are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[int, ...]] = []
    edges = dependences.RunDependences.edges
    monkeypatch.setattr(dependences.RunDependences, "edges", lambda self, ops: (
        runs.append(tuple(map(id, ops))), edges(self, ops))[1])
    captured = mixed.specialize(mixed.bind((np.zeros((32, 128, 128), np.float32), 200), {}, is_array, describe_array))
    timed_of(monkeypatch, captured)
    assert len(runs) == len(set(runs)) > 1


def test_variant_of_a_merged_candidate__is_no_merged_variant_of_another():
    search = TimedCandidates.__new__(TimedCandidates)
    plain = Candidate(12000, 1000)
    timed = plain._replace(merge=True, loads=False)
    search.variants, search.unmerged, search.timed = {timed: plain._replace(merge=True)}, {}, []
    search.least_time = lambda: 100.0
    search.untransposed = {}
    assert not search.variant_is_faster(timed._replace(merge=False))
    search.unmerged[timed] = 100.0
    assert search.variant_is_faster(timed._replace(merge=False)) and not search.variant_is_faster(timed)


def test_plain_candidate__changes_nothing_but_loops():
    """Each field that is not set leaves one optimization out."""
    fields = {name: value for name, value in Candidate(7, 8)._asdict().items() if value}
    assert fields == {"limit": 7, "body": 8, "results": 100}
