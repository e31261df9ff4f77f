# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code whose tiles do not fit on chip: what leaves SBUF and PSUM, what comes back, and that values stay."""

import random

import numpy as np
import pytest

import nki_mlir
from nki_mlir.dialects.access import PSUM, SBUF
from nki_mlir.dialects.nisa.reduction import ActivationReduceOp
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import INT32
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.allocate_on_chip import MemoryFull
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.codegen.liveness import Liveness, peak
from nki_mlir.targets.neuron.codegen.records import compute
from nki_mlir.targets.neuron.codegen.shared_tiles import overwrites, shared_tiles
from nki_mlir.targets.neuron.codegen.spill_tiles import spill_tiles
from nki_mlir.targets.neuron.profile.vendor_summary import vendor_summary
from nki_mlir.targets.neuron.simulator import simulate
from tests.targets.neuron.code_builder import Builder, run_in_order
from tests.targets.neuron.ordering import Ordering

pytestmark = pytest.mark.filterwarnings("ignore:.*live at once")
ROWS, WIDTH, BANK = 2, 8192, 512            # a tile of WIDTH takes 32 KiB of a partition: six fit


class Crowded:
    """Work on more tiles than fit: loads, constants, sums into old tiles and into parts of them, in any order."""

    def __init__(self, seed: int, tiles: int = 10, steps: int = 40) -> None:
        r = random.Random(seed)
        self.b = b = Builder()
        self.x = b.hbm("x", (ROWS, tiles * WIDTH), "input")
        self.y = b.hbm("y", (ROWS, tiles * WIDTH), "output")
        tile = [b.on_chip(f"t{k}", (ROWS, WIDTH)) for k in range(tiles)]
        for k, t in enumerate(tile):
            if r.randrange(3):
                b.copy(self.all(t), self.columns(self.x, k))
            else:
                b.memset(self.all(t), k)
        self.work(r, b, tile, steps)
        for k, t in enumerate(tile):
            b.copy(self.columns(self.y, k), self.all(t))
        self.input = np.random.default_rng(seed).integers(-9, 10, self.x.shape).astype(np.float32)

    def work(self, r: random.Random, b: Builder, tile: list, steps: int) -> None:
        for _ in range(steps):
            one, other, third = (r.choice(tile) for _ in range(3))
            match r.randrange(5):
                case 0:
                    b.add(self.all(one), self.all(other), self.all(third), r.choice(("maximum", "subtract")))
                case 1:
                    b.add(self.all(one), self.all(one), self.all(other), "minimum")
                case 2:
                    b.add((one, 0, ROWS, 0, 8), (other, 0, ROWS, 8, 8), (third, 0, ROWS, 16, 8), "add")
                case 3:
                    b.memset((one, 0, ROWS, 32, 8), 7)
                case 4:
                    b.copy(self.columns(self.x if r.randrange(2) else self.y, 0), self.all(one))

    @staticmethod
    def all(tile):
        return tile, 0, ROWS, 0, WIDTH

    @staticmethod
    def columns(tensor, k):
        return tensor, 0, ROWS, k * WIDTH, WIDTH

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        updated, output = self.input.copy(), np.zeros(self.y.shape, np.float32)
        run_in_order(self.b.code, {self.x: updated, self.y: output})
        return updated, output


def fits(code, space=SBUF):
    limit = {SBUF: code.machine.sbuf_bytes_per_partition, PSUM: code.machine.psum_bytes_per_partition}[space]
    return peak([life for life in Liveness(code).of.values() if life.buffer.space == space])[0] <= limit


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("recompute", [False, True])
def test_values__stay(seed, recompute):
    one = Crowded(seed)
    expected = one.result()
    assert not fits(one.b.code)
    spill_tiles(one.b.code, recompute=recompute)
    assert fits(one.b.code)
    for array, right in zip(one.result(), expected):
        np.testing.assert_array_equal(array, right)


@pytest.mark.parametrize("options", [Emission(), Emission(reorder=False), Emission.as_written()],
                         ids=["default", "in-order", "as-written"])
def test_streams__compute_the_same_in_any_order(options):
    updated, expected = Crowded(3).result()
    program = emit_code(Crowded(3).b.code, options)
    assert any("SBUF is full: tiles like t" in note for note in program.notes)
    assert not Ordering(program).races()
    for scheduler in range(3):
        x, result = Crowded(3).input, np.zeros_like(expected)
        simulate(program, [x], [result], scheduler)
        np.testing.assert_array_equal(x, updated)
        np.testing.assert_array_equal(result, expected)


def test_without_spilling__it_is_an_error():
    with pytest.raises(MemoryFull, match=r"SBUF is full: 10 tiles that are live at once take 327680 bytes"):
        emit_code(Crowded(3).b.code, Emission(spill=False))


def loads(count, changed=False):
    """``count`` tiles that are loaded, then used one after the other."""
    b = Builder()
    x, y = b.hbm("x", (ROWS, count * WIDTH), "input"), b.hbm("y", (ROWS, count * WIDTH), "output")
    tiles = [b.on_chip(f"t{k}", (ROWS, WIDTH)) for k in range(count)]
    for k, t in enumerate(tiles):
        b.copy((t, 0, ROWS, 0, WIDTH), (x, 0, ROWS, k * WIDTH, WIDTH))
    if changed:
        for k in range(count):
            b.copy((x, 0, ROWS, k * WIDTH, WIDTH), (tiles[-1], 0, ROWS, 0, WIDTH))
    for k, t in enumerate(tiles):
        b.copy((y, 0, ROWS, k * WIDTH, WIDTH), (t, 0, ROWS, 0, WIDTH))
    return b.code


def transfers(code):
    """(loads, stores) of memory for tiles that do not fit."""
    outside = [(step.op.src.handle.name, step.op.dst.handle.name) for step in code.body.nodes]
    return sum(".spilled" in src for src, _ in outside), sum(".spilled" in dst for _, dst in outside)


def test_what_hbm_still_has__is_loaded_again_and_not_stored():
    code = loads(8)
    before = len(code.body.nodes)
    spill_tiles(code)
    assert transfers(code) == (0, 0) and len(code.body.nodes) == before     # nothing read them where they were
    assert any("computed again" in note for note in code.notes)
    changed = loads(8, changed=True)
    spill_tiles(changed)
    assert transfers(changed)[1] > 0


def test_recomputing__can_be_turned_off():
    code = loads(8)
    spill_tiles(code, recompute=False)
    assert transfers(code) == (2, 2)
    assert [note.partition(": ")[2].rpartition(": ")[0] for note in code.notes] == [
        f"tiles like t{k}, of 32768 bytes per partition, are spilled (1 copies to HBM and 1 back" for k in (5, 6)]


def test_what_fits__stays():
    code = loads(6)
    before = list(code.body.nodes)
    spill_tiles(code)
    assert code.body.nodes == before and not code.notes


def test_tiles_with_addresses__stay():
    b = Builder()
    x = b.hbm("x", (ROWS, 8 * WIDTH), "input")
    tiles = [b.on_chip(f"t{k}", (ROWS, WIDTH), address=(0, 0) if k < 1 else None) for k in range(8)]
    for t in tiles + tiles:
        b.copy((t, 0, ROWS, 0, WIDTH), (x, 0, ROWS, 0, WIDTH))
        b.add((t, 0, ROWS, 0, 8), (t, 0, ROWS, 0, 8), (t, 0, ROWS, 8, 8))
    spill_tiles(b.code)
    assert [t.address for t in tiles] == [(0, 0)] + [None] * 7
    assert fits(b.code)


def test_operands_of_one_step_that_do_not_fit__are_an_error():
    b = Builder()
    wide = [b.on_chip(f"t{k}", (ROWS, 20000)) for k in range(3)]
    for t in wide:
        b.memset((t, 0, ROWS, 0, 20000), 1)
    b.add(*((t, 0, ROWS, 0, 20000) for t in wide))
    b.copy((b.hbm("y", (ROWS, 20000), "output"), 0, ROWS, 0, 20000), (wide[0], 0, ROWS, 0, 20000))
    with pytest.raises(MemoryFull, match=r"SBUF is full: 3 tiles that are live at once take 240000 bytes"):
        emit_code(b.code, Emission())


def test_a_loop_of_the_device__spills_in_its_body():
    b = Builder()
    x, y = b.hbm("x", (ROWS, 8 * WIDTH), "input"), b.hbm("y", (ROWS, 8 * WIDTH), "output")
    with b.loop(3):
        tiles = [b.on_chip(f"t{k}", (ROWS, WIDTH)) for k in range(8)]
        for k, t in enumerate(tiles):
            b.copy((t, 0, ROWS, 0, WIDTH), (x, 0, ROWS, k * WIDTH, WIDTH))
            b.add((t, 0, ROWS, 0, 8), (t, 0, ROWS, 0, 8), (t, 0, ROWS, 8, 8))
        for k, t in enumerate(tiles):
            b.copy((y, 0, ROWS, k * WIDTH, WIDTH), (t, 0, ROWS, 0, WIDTH))
    values = np.random.default_rng(0).integers(-9, 10, x.shape).astype(np.float32)
    expected, result = np.zeros(y.shape, np.float32), np.zeros(y.shape, np.float32)
    run_in_order(b.code, {x: values, y: expected})
    program = emit_code(b.code, Emission(unroll_limit=30))
    assert any("stays a register loop" in note for note in program.notes)
    simulate(program, [values], [result], 1)
    np.testing.assert_array_equal(result, expected)


# -- kernels -----------------------------------------------------------------------------------------------------------
@nki.jit
def open_sums(lhs_t, rhs):
    """The contraction is the outermost loop: sums of 12 banks are open at once."""
    blocks = rhs.shape[1] // BANK
    out = nl.ndarray((128, rhs.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((blocks, nl.par_dim(128), BANK), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(lhs_t.shape[0] // 128):
        left, right = (nl.load(x[nl.ds(k * 128, 128), :]) for x in (lhs_t, rhs))
        for j in nl.affine_range(blocks):
            total[j] += nisa.nc_matmul(left, right[:, nl.ds(j * BANK, BANK)])
    for j in nl.affine_range(blocks):
        nl.store(out[:, nl.ds(j * BANK, BANK)], nl.copy(total[j]))
    return out


@pytest.mark.parametrize("options", [Emission(), Emission.in_program_order()], ids=["default", "in-order"])
def test_sums_that_are_still_added_to__leave_psum_and_come_back(options):
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((256, 128), (256, 12 * BANK)))
    spec = open_sums.lower(nki_mlir.spec(a.shape, "float32"), nki_mlir.spec(b.shape, "float32")).specialization
    program, = neuron.streams(spec.captured, spec.grid, options)
    expected = np.asarray(open_sums.on("interpreter")(a, b))
    for scheduler in range(3):
        result = np.zeros(expected.shape, np.float32)
        simulate(program, [a.copy(), b.copy()], [result], scheduler)
        np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(np.asarray(open_sums.on("isa")(a, b)), expected)


@nki.jit
def distances_to_largest(x):
    """Each result needs all tiles, which take more than SBUF in every order."""
    count = x.shape[0] // 128
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((count, nl.par_dim(128), x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    largest = nl.full((nl.par_dim(128), x.shape[1]), -9.0, dtype=x.dtype, buffer=nl.sbuf)
    for k in nl.sequential_range(count):
        loaded = nl.load(x[nl.ds(k * 128, 128), :])
        tiles[k] = nl.multiply(loaded, loaded)
        largest[...] = nl.maximum(largest, tiles[k])
    for k in nl.affine_range(count):
        nl.store(out[nl.ds(k * 128, 128), :], nl.subtract(largest, tiles[k]))
    return out


def test_bytes_that_spill__are_in_the_summary_of_the_profile():
    x = np.random.default_rng(0).standard_normal((8 * 128, 6000)).astype(np.float32)
    expected = np.asarray(distances_to_largest.on("interpreter")(x))
    np.testing.assert_array_equal(np.asarray(distances_to_largest.on("isa")(x)), expected)
    lowered = distances_to_largest.lower(nki_mlir.spec(x.shape, "float32"))
    summary = vendor_summary(lowered.profile().document)
    assert summary["spill_save_bytes"] > 0 and summary["spill_save_bytes"] % (128 * 6000 * 4) == 0
    assert summary["spill_reload_bytes"] >= summary["spill_save_bytes"]


# -- tiles that loops and branches share -------------------------------------------------------------------------------
class CrowdedLoops(Crowded):
    """The same work in loops, in branches of them, and between them: most tiles are shared."""

    def __init__(self, seed: int, tiles: int = 9, parts: int = 7) -> None:
        super().__init__(seed, tiles, parts)

    def work(self, r: random.Random, b: Builder, tile: list, steps: int) -> None:
        def some_work(i=None) -> None:
            for _ in range(r.randint(1, 3)):
                one, other, third = (r.choice(tile) for _ in range(3))
                match r.randrange(4):
                    case 0:
                        b.add(self.all(one), self.all(other), self.all(third), r.choice(("maximum", "subtract")))
                    case 1:
                        b.add((one, 0, ROWS, 0, 8), (other, 0, ROWS, 8, 8), (third, 0, ROWS, 16, 8))
                    case 2:
                        at = 32 if i is None else (32, {i: 8})
                        b.add((one, 0, ROWS, at, 8), (one, 0, ROWS, at, 8), (other, 0, ROWS, 16, 8))
                    case 3:
                        b.memset((one, 0, ROWS, 64, 8), 7)

        for _ in range(steps):
            match r.randrange(4):
                case 0:
                    some_work()
                case 1:
                    with b.loop(r.randint(2, 4)) as i:
                        some_work(i)
                case 2:
                    with b.loop(3) as i:
                        some_work(i)
                        with b.when(compute("eq", compute("mod", i, 2), r.randint(0, 1))) as branch:
                            some_work(i)
                        with b.otherwise(branch):
                            some_work()
                        some_work()
                case 3:                     # as often as a number on chip says
                    counter, one = (b.on_chip(name, (1, 1), dtype=INT32) for name in ("counter", "one"))
                    b.memset((counter, 0, 1, 0, 1), 0)
                    b.memset((one, 0, 1, 0, 1), 1)
                    with b.while_loop("lt", counter, 2):
                        b.add(*[(buffer, 0, 1, 0, 1) for buffer in (counter, counter, one)])
                        some_work()


@pytest.mark.parametrize("seed", range(12))
def test_shared_tiles__leave_between_loops_and_values_stay(seed):
    one = CrowdedLoops(seed)
    expected = one.result()
    assert not fits(one.b.code)
    spill_tiles(one.b.code)
    assert fits(one.b.code)
    assert any("leaves it between loops and branches" in note for note in one.b.code.notes)
    for got, right in zip(one.result(), expected):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [Emission(unroll_limit=4), Emission(unroll_limit=4, reorder=False)],
                         ids=["default", "in-order"])
def test_streams_of_loops__compute_the_same_in_any_order(seed, options):
    """Loops stay loops of the device."""
    updated, expected = CrowdedLoops(seed).result()
    program = emit_code(CrowdedLoops(seed).b.code, options)
    assert any("leaves it between loops and branches" in note for note in program.notes)
    assert any(i.op.mnemonic == "COMPARE_BRANCH" for stream in program.streams.values() for i in stream)
    for scheduler in range(3):
        x, got = CrowdedLoops(seed).input, np.zeros_like(expected)
        simulate(program, [x], [got], scheduler)
        np.testing.assert_array_equal(x, updated)
        np.testing.assert_array_equal(got, expected)


def test_tile_that_is_first_used_in_a_loop__stays():
    """Its first iteration would load what nothing has stored."""
    b = Builder()
    t = b.on_chip("t", (ROWS, WIDTH))
    with b.loop(3):
        b.memset((t, 0, ROWS, 0, 8), 1)
    b.add(CrowdedLoops.all(t), CrowdedLoops.all(t), CrowdedLoops.all(t))
    assert shared_tiles(b.code) == {}


def test_read_only_tile__is_stored_once():
    """Loops load it, and do not store it."""
    b = Builder()
    x, y = b.hbm("x", (ROWS, WIDTH), "input"), b.hbm("y", (ROWS, WIDTH), "output")
    t, other = (b.on_chip(name, (ROWS, WIDTH)) for name in ("t", "other"))
    b.copy(CrowdedLoops.all(t), CrowdedLoops.all(x))
    with b.loop(3):
        b.copy(CrowdedLoops.all(y), CrowdedLoops.all(t))
    with b.loop(2):
        b.add(CrowdedLoops.all(t), CrowdedLoops.all(t), CrowdedLoops.all(t))
    b.copy(CrowdedLoops.all(other), CrowdedLoops.all(t))
    assert [(use.loads, use.stores, use.times) for use in shared_tiles(b.code)[t]] == [
        (False, True, 1), (True, False, 3), (True, True, 2), (True, False, 1)]


def test_operation_that_overwrites_a_tile__writes_all_of_it_and_reads_none():
    b = Builder()
    t, u = b.on_chip("t", (4, 8)), b.on_chip("u", (4, 8))
    full, part = (t, 0, 4, 0, 8), (t, 0, 4, 0, 7)
    b.memset(full, 0)
    b.memset(part, 0)
    b.memset((t, 0, 3, 0, 8), 0)
    b.tensor_copy(full, (u, 0, 4, 0, 8))
    b.tensor_copy((u, 0, 4, 0, 8), full)
    b.add(full, (u, 0, 4, 0, 8), full)
    ops = [step.op for step in b.code.body.nodes]
    assert [overwrites(op, t) for op in ops] == [True, False, False, True, False, False]
    assert [overwrites(op, u) for op in ops] == [False, False, False, False, True, False]


def test_operation_with_several_results__overwrites_each():
    b = Builder()
    t, u, s = b.on_chip("t", (4, 8)), b.on_chip("u", (4, 8)), b.on_chip("s", (4, 1))
    symbols = {}
    tiles = {name: b.tile(symbols, *tile) for name, tile in (
        ("dst", (t, 0, 4, 0, 8)), ("src", (u, 0, 4, 0, 8)), ("reduce_res", (s, 0, 4, 0, 1)))}
    b.step(ActivationReduceOp, symbols, fn="relu", bias=None, scale=None, **tiles)
    op = b.code.body.nodes[0].op
    assert overwrites(op, t) and overwrites(op, s) and not overwrites(op, u)
