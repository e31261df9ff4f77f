# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions in loops, under conditions and limits: NumPy's values, and copies before loops that allow it."""

from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.bindings import Operation, enclosing, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM, PSUM, SBUF, Constraint, Linear, Tile, full_tile
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import read_op, shared_context
from nki_mlir.dialects.nisa.elementwise import TensorCopyPredicatedOp, TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nisa.matmul import NcMatmulOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp, MemsetOp, TensorCopyOp
from nki_mlir.dialects.nisa.reduction import TensorReduceOp
from nki_mlir.machine import Engine, machine_named
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, INT32, UINT8, DType
from nki_mlir.selection.emitter import Emitter, named
from nki_mlir.targets.interpreter.module import compile_function

P, F = 128, 40
OUTER, INNER = 3, 4
TRN2 = machine_named("trn2")
LOOPS = f"""%c0 = arith.constant 0 : index
%c1 = arith.constant 1 : index
%outer = arith.constant {OUTER} : index
%inner = arith.constant {INNER} : index
scf.for %i = %c0 to %outer step %c1 {{ scf.for %j = %c0 to %inner step %c1 {{ }} }}"""


class Kernel:
    """A kernel on two matrices of P x F with a result of this shape, and an emitter before its end."""

    def __init__(self, body: str = "", machine: object = TRN2) -> None:
        kind = f'memref<{P}x{F}xf32, "hbm">'
        self.module = ir.Module.parse(
            f'module attributes {{nki.target = "trn2"}} {{ func.func @k(%a: {kind}, %b: {kind}, %r: {kind} '
            f'{{nki.shared = 0 : i64}}) attributes {{nki.results = [2]}} {{ {body} return }} }}')
        self.block = self.module.body.operations[0].regions[0].blocks[0]
        self.arguments = [full_tile(argument, (P, F), FLOAT32, HBM) for argument in self.block.arguments]
        self.emitter = Emitter(machine)
        *loops, self.end = [op for op in self.block.operations if not op.operation.name.startswith("arith.")]
        if loops:
            self.outer, = loops
            self.outer_body = self.outer.regions[0].blocks[0]
            self.inner, self.outer_end = self.outer_body.operations
            self.inner_body = self.inner.regions[0].blocks[0]
            self.inner_end, = self.inner_body.operations
            self.symbols = self.outer_body.arguments[0], self.inner_body.arguments[0]
        self.at(self.outer if loops else self.end)

    def at(self, operation: object, symbols: bool = False) -> None:
        ranges = ((0, OUTER - 1), (0, INNER - 1)) if symbols else ()
        self.emitter.at(operation.operation, self.symbols if symbols else (), ranges, {})

    def filled(self, argument: int, space: str, dtype: DType = FLOAT32) -> Tile:
        tile = self.emitter.buffer((P, F), dtype, space)
        self.emitter.copy(tile, self.arguments[argument])
        return tile

    def run(self, *arrays: np.ndarray) -> np.ndarray:
        result = np.zeros((P, F), np.float32)
        self.module.operation.verify()
        run_passes(self.module, [pass_named("verify-target")])
        compile_function(the_kernel(self.module))((), [*arrays], [result])
        return result


def matrices(seed: int) -> list[np.ndarray]:
    return [*np.random.default_rng(seed).integers(-8, 8, (2, P, F)).astype(np.float32)]


def depth(operation: Operation) -> int:
    return sum(op.name == "scf.for" for op in enclosing(operation))


@pytest.fixture(autouse=True)
def context():
    with shared_context(), ir.Location.unknown():
        yield


# -- loops -------------------------------------------------------------------------------------------------------------
DEPTH = {"nowhere": 0, "outer": 1, "allocated in outer": 1, "inner": 2}


@pytest.mark.parametrize("moving", [False, True])
@pytest.mark.parametrize("changed", DEPTH)
def test_copies_of_operands_in_loops(changed, moving):
    """GpSimd reads a copy of a buffer in PSUM, made before the loops that change neither the buffer nor the
    tile."""
    kernel = Kernel(LOOPS)
    emitter = kernel.emitter
    if changed != "allocated in outer":
        source = kernel.filled(0, PSUM)
    factor, sums = kernel.filled(1, SBUF), emitter.buffer((P, F), FLOAT32)
    emitter.emit(MemsetOp, dst=sums, value=0.0)
    if changed == "allocated in outer":
        kernel.at(kernel.inner)
        source = kernel.filled(0, PSUM)
    if changed in ("outer", "inner"):
        kernel.at(kernel.inner_end if changed == "inner" else kernel.outer_end)
        emitter.emit(MemsetOp, dst=source.patterned(dims=((1, P), (1, F // 2))), value=7.0)
    first, *_ = kernel.inner_body.operations
    width = F // INNER
    read = source.patterned(free=Linear(2, ((1, width),) if moving else ()), dims=((1, P), (1, width - 2)))
    target = sums.patterned(free=Linear(0, ((1, width),)), dims=((1, P), (1, width - 2)))
    written: list[Operation] = []
    for number in range(2):                                 # the second instruction reads the copy of the first
        kernel.at(first, symbols=True)
        other = factor.patterned(free=Linear(number), dims=((1, P), (1, width - 2)))
        emitter.emit(TensorTensorOp, Engine.GPSIMD, dst=target, lhs=read, rhs=other, op="add")
        emitter.emit(TensorTensorOp, Engine.GPSIMD, dst=target, lhs=target, rhs=read, op="subtract")
        emitter.emit(TensorTensorOp, Engine.GPSIMD, dst=target, lhs=target, rhs=read, op="add")
        written += emitter.emitted
    kernel.at(kernel.end)
    emitter.copy(kernel.arguments[2], sums)
    copies = [depth(op) for op in written if op.name == "nisa.tensor_copy"]
    expected_depth = 2 if moving else DEPTH[changed]
    assert copies == [expected_depth] * (2 if expected_depth == 2 else 1)
    assert all(depth(op) == 2 for op in written if op.name == "nisa.tensor_tensor")
    a, b = matrices(1)
    expected, current = np.zeros((P, F), np.float32), a.copy()
    for _ in range(OUTER):
        if changed == "allocated in outer":
            current = a.copy()
        for j in range(INNER):
            start = 2 + (j * width if moving else 0)
            expected[:, j * width:j * width + width - 2] = current[:, start:start + width - 2] + b[:, 1:width - 1]
            if changed == "inner":
                current[:, :F // 2] = 7
        if changed == "outer":
            current[:, :F // 2] = 7
    np.testing.assert_array_equal(kernel.run(a, b), expected)


def test_operations_have_the_attributes_and_the_location_of_their_operation():
    kernel = Kernel(LOOPS)
    source, target = kernel.filled(0, PSUM), kernel.filled(1, SBUF)
    at = ir.Location.name("here")
    first = ir.Operation.create("memref.alloc", results=[ir.Type.parse("memref<1xf32>")], loc=at, attributes={
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}, ip=ir.InsertionPoint(kernel.inner_end))
    kernel.emitter.at(first, kernel.symbols, ((0, OUTER - 1), (0, INNER - 1)), {"nki.mark": ir.UnitAttr.get()})
    tile = target.patterned(free=Linear(0, ((0, 3), (1, 2))), dims=((1, P), (1, 4)))
    with kernel.emitter.where({1: 2}):
        kernel.emitter.emit(TensorTensorOp, Engine.GPSIMD, dst=tile, lhs=tile, op="add",
                            rhs=source.patterned(dims=((1, P), (1, 4))))
    assert len(kernel.emitter.emitted) == 5                 # a constant, a comparison, a buffer, a copy, a sum
    for op in kernel.emitter.emitted:
        assert op.location == at
        if op.name.startswith("nisa."):
            assert "nki.mark" in op.attributes
        assert [owner.location for owner in enclosing(op) if owner.name == "scf.if"] in ([], [at])
    choice, = (op for op in kernel.inner_body.operations if op.operation.name == "scf.if")
    assert all(op.location == at for op in choice.regions[0].blocks[0].operations)
    total = read_op(kernel.emitter.emitted[-1])
    assert total.symbols == kernel.symbols and total.ranges == ((0, OUTER - 1), (0, INNER - 1))


def test_operations_under_conditions():
    """Operations within ``where`` run only for its values, and operations outside of it read no copies made in it."""
    kernel = Kernel(LOOPS)
    emitter, source, sums = kernel.emitter, kernel.filled(0, PSUM), kernel.filled(1, SBUF)
    kernel.at(kernel.inner_end, symbols=True)
    width = F // INNER
    dims = (1, P), (1, width)
    read = source.patterned(free=Linear(0, ((1, width),)), dims=dims)
    target = sums.patterned(free=Linear(0, ((1, width),)), dims=dims)

    def add() -> None:
        emitter.emit(TensorTensorOp, Engine.GPSIMD, dst=target, lhs=target, rhs=read, op="add")
    with emitter.where({0: 2, 1: 1}):
        add()
    with emitter.where({1: 3}):
        add()
    with emitter.where({}):
        add()
    add()
    kernel.at(kernel.end)
    emitter.copy(kernel.arguments[2], sums)
    a, b = matrices(2)
    expected = b.copy()
    for i in range(OUTER):
        for j in range(INNER):
            times = 2 + ((i, j) == (2, 1)) + (j == 3)
            expected[:, j * width:(j + 1) * width] += times * a[:, j * width:(j + 1) * width]
    np.testing.assert_array_equal(kernel.run(a, b), expected)


# -- limits ------------------------------------------------------------------------------------------------------------
def test_limits_move_with_the_pieces_of_an_instruction():
    """Limits count from the start of each piece; other extents have no limits."""
    machine = replace(TRN2, sbuf_elements_max=10, free_dims_max=1)
    kernel = Kernel(machine=machine)
    a, b = kernel.filled(0, SBUF), kernel.filled(1, SBUF)
    limit = Constraint(Linear(50, axes=((1, -10), (2, -1))))
    dims = (1, P), (16, 2), (1, 12)
    kernel.emitter.bound((P, 2, 12), (limit,))
    a, b = (tile.patterned(dims=dims) for tile in (a, b))
    kernel.emitter.emitted.clear()
    kernel.emitter.emit(TensorTensorOp, dst=a, lhs=a, rhs=b, op="add")
    pieces = [read_op(op) for op in kernel.emitter.emitted]
    starts = [piece.dst.access.free.const for piece in pieces]
    assert sorted(starts) == [0, 10, 16, 26]
    for piece, start in zip(pieces, starts):
        (moved,) = piece.limits
        assert moved.form == Linear(50 - 10 * (start // 16) - start % 16, axes=limit.form.axes)
    kernel.emitter.emitted.clear()
    kernel.emitter.emit(TensorTensorOp, dst=a.patterned(dims=((1, P), (1, 5))), op="add",
                        lhs=b.patterned(dims=((1, P), (1, 5))), rhs=b.patterned(dims=((1, P), (1, 5))))
    assert [read_op(op).limits for op in kernel.emitter.emitted] == [()]
    kernel.emitter.bound((), ())
    kernel.emitter.emitted.clear()
    kernel.emitter.emit(TensorTensorOp, dst=a, lhs=a, rhs=b, op="add")
    assert {read_op(op).limits for op in kernel.emitter.emitted} == {()}


# -- sizes -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("extents, dims_max, most, sizes", [
    ((4,), 1, 4, [(4,)]), ((5,), 1, 4, [(4,), (1,)]), ((1, 5), 1, 4, [(1, 4), (1, 1)]), ((5, 1), 1, 4, [(4, 1), (1, 1)]),
    ((2, 3), 2, 6, [(2, 3)]), ((2, 3), 2, 4, [(1, 3)] * 2), ((2, 3), 2, 2, [(1, 2), (1, 1)] * 2),
    ((2, 3), 1, 6, [(1, 3)] * 2), ((2, 2, 3), 2, 12, [(1, 2, 3)] * 2), ((2, 1, 3), 2, 12, [(2, 1, 3)]),
    ((2, 2, 3), 1, 3, [(1, 1, 3)] * 4), ((3, 2), 2, 4, [(2, 2), (1, 2)]), ((2, 2, 2), 2, 3, [(1, 1, 2)] * 4),
    ((3, 3, 2), 3, 1, [(1, 1, 1)] * 18)])
def test_sizes_of_pieces(extents, dims_max, most, sizes):
    """Outer axes are cut first, and an instruction takes as much as fits."""
    kernel = Kernel(machine=replace(TRN2, sbuf_elements_max=most, free_dims_max=dims_max))
    tiles = [kernel.emitter.buffer((P, *extents), FLOAT32) for _ in range(3)]
    kernel.emitter.emitted.clear()
    kernel.emitter.emit(TensorTensorOp, **dict(zip(("dst", "lhs", "rhs"), tiles)), op="add")
    pieces = [read_op(op) for op in kernel.emitter.emitted]
    assert [piece.dst.shape[1:] for piece in pieces] == sizes
    covered = [int(n) for piece in pieces for n in elements(piece.dst)]
    assert sorted(covered) == [*range(int(np.prod(extents)))]


def elements(tile: Tile) -> np.ndarray:
    """Return the free offsets of a tile's elements."""
    grid = np.indices(tile.shape[1:]).reshape(len(tile.shape) - 1, -1)
    return tile.access.free.const + np.array([step for step, _ in tile.access.dims[1:]]) @ grid


@pytest.mark.parametrize("axes, dims_max, most, sizes", [
    ((2,), 3, 100, [(2, 2, 5)]), ((2,), 3, 10, [(1, 2, 5)] * 2), ((2,), 3, 5, [(1, 1, 5)] * 4),
    ((2,), 2, 100, [(1, 2, 5)] * 2), ((2,), 1, 100, [(1, 1, 5)] * 4), ((1, 2), 2, 100, [(1, 2, 5)] * 2)])
def test_sizes_of_pieces_of_reductions(axes, dims_max, most, sizes):
    """The axes of a reduction stay all_dims."""
    kernel = Kernel(machine=replace(TRN2, sbuf_elements_max=most, free_dims_max=dims_max))
    emitter = kernel.emitter
    src = emitter.buffer((P, 2, 2, 5), FLOAT32)
    dst = emitter.buffer((P, *(1 if a in axes else n for a, n in enumerate((2, 2, 5)))), FLOAT32)
    emitter.emitted.clear()
    emitter.emit(TensorReduceOp, dst=dst, src=src, op="add", axes=tuple(a + 1 for a in axes))
    assert [read_op(op).src.shape[1:] for op in emitter.emitted] == sizes


def test_reductions_over_too_many_dims_are_refused():
    kernel = Kernel(machine=replace(TRN2, free_dims_max=1))
    src, dst = (kernel.emitter.buffer((P, 2, *shape), FLOAT32) for shape in ((3, 5), (1, 1)))
    with pytest.raises(Unsupported, match=r"over 3 free dims \(1 parallel\)"):
        kernel.emitter.emit(TensorReduceOp, dst=dst, src=src, op="add", axes=(2, 3))


def test_tiles_in_hbm_and_psum_have_other_limits():
    """Transfers are not cut by elements in HBM; an operand in PSUM takes as many elements as a PSUM pattern."""
    kernel = Kernel(machine=replace(TRN2, sbuf_elements_max=12, psum_elements_max=4))
    emitter = kernel.emitter
    one, another = (emitter.buffer((P, 20), FLOAT32, HBM) for _ in range(2))
    in_sbuf, other, in_psum = (emitter.buffer((P, 12), FLOAT32, space) for space in (SBUF, SBUF, PSUM))
    row = emitter.buffer((P, 1), FLOAT32, PSUM)
    outside = kernel.arguments[0]
    for tiles, counts in (((in_sbuf, other), [12]), ((in_psum, in_sbuf), [4] * 3), ((in_sbuf, in_psum), [4] * 3),
                          ((in_sbuf, row.patterned(dims=((1, P), (0, 12)))), [4] * 3),
                          ((in_sbuf, outside.patterned(dims=((F, P), (1, 12)))), [12]),
                          ((one, another), [20])):
        emitter.emitted.clear()
        emitter.copy(*tiles)
        assert [read_op(op).dst.shape[1] for op in emitter.emitted] == counts, tiles
    emitter.emitted.clear()
    emitter.emit(TensorScalarOp, dst=in_sbuf, src=other, operand0=row, op0="add")
    assert [read_op(op).dst.shape[1] for op in emitter.emitted] == [12]     # one element of the row serves all pieces


# -- memories ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("narrow", ["dst", "src", "neither"])
@pytest.mark.parametrize("to", [SBUF, PSUM, HBM])
@pytest.mark.parametrize("start", [SBUF, PSUM, HBM])
def test_copies_between_memories(start, to, narrow):
    """A copy repeats and converts; an element that repeats in PSUM or goes there crosses HBM's border once."""
    kernel = Kernel()
    emitter = kernel.emitter
    dtypes = {"dst": (BFLOAT16, FLOAT32), "src": (FLOAT32, BFLOAT16), "neither": (FLOAT32, FLOAT32)}[narrow]
    dst, src = (emitter.buffer((P, 2, 5, 2), dtype, space) for dtype, space in zip(dtypes, (to, start)))
    filled, emptied = (emitter.buffer((P, 2, 5, 2), dtype, HBM) for dtype in dtypes[::-1])
    all_dims = (F, P), (10, 2), (2, 5), (1, 2)
    emitter.copy(filled, kernel.arguments[0].patterned(dims=all_dims))
    emitter.copy(src, filled)
    emitter.emitted.clear()
    row = 20 if start == HBM else 1
    emitter.copy(dst, src.patterned(dims=((row, P), (0, 2), (3, 5), (0, 2))))
    operations = [*emitter.emitted]
    emitter.copy(emptied, dst)
    emitter.copy(kernel.arguments[2].patterned(dims=all_dims), emptied)
    a, b = matrices(3)
    expected = np.zeros((P, F), np.float32)
    expected[:, :20] = np.tile(np.repeat(a[:, :15:3], 2, 1), 2)
    np.testing.assert_array_equal(kernel.run(a, b), expected)
    copies = [read_op(op) for op in operations if op.name.startswith("nisa.")]
    kinds = [type(op) for op in copies]
    if {start, to} == {HBM, PSUM}:
        assert sorted(kind.__name__ for kind in kinds) == ["DmaCopyOp", "TensorCopyOp"]
        middle = copies[0].dst
        assert middle.dtype is (dst if to == HBM else src).dtype        # the engine converts, not the transfer
        assert middle.base_shape == (P, 1, 5, 1) and copies[0].src.shape == (P, 1, 5, 1)
    else:
        assert kinds == [DmaCopyOp if HBM in (start, to) else TensorCopyOp]


@pytest.mark.parametrize("dst_start, src_start, engine, names", [
    (0, 0, None, []), (32, 0, None, ["tensor_copy"]), (5, 0, None, ["dma_copy"]), (0, 5, None, ["dma_copy"]),
    (5, 37, None, ["dma_copy"]), (5, 5, None, []), (0, 0, Engine.SCALAR, ["tensor_copy"]),
    (5, 0, Engine.SCALAR, ["tensor_copy", "dma_copy"]), (0, 5, Engine.SCALAR, ["dma_copy", "tensor_copy"])])
def test_copies_within_sbuf(dst_start, src_start, engine, names):
    """An engine copies between partitions where it can begin, a transfer between others; a tile is not copied to
    itself, except by an engine that is named."""
    kernel = Kernel()
    buffer = kernel.filled(0, SBUF)
    dst, src = (buffer.patterned(partition=Linear(start), dims=((1, 8), (1, F))) for start in (dst_start, src_start))
    kernel.emitter.emitted.clear()
    kernel.emitter.copy(dst, src, engine)
    operations = [read_op(op) for op in kernel.emitter.emitted if op.name.startswith("nisa.")]
    assert [op.name for op in operations] == names
    assert all(op.runs_on is engine for op in operations if engine and isinstance(op, TensorCopyOp))
    kernel.emitter.copy(kernel.arguments[2], buffer)
    a, b = matrices(4)
    expected = a.copy()
    expected[dst_start:dst_start + 8] = a[src_start:src_start + 8]
    np.testing.assert_array_equal(kernel.run(a, b), expected)


def test_copies_of_other_bytes_of_a_buffer():
    """Tiles of equal patterns in two buffers are not the same elements."""
    kernel = Kernel()
    a, b = kernel.filled(0, SBUF), kernel.filled(1, SBUF)
    kernel.emitter.copy(a, b)
    kernel.emitter.copy(kernel.arguments[2], a)
    arrays = matrices(5)
    np.testing.assert_array_equal(kernel.run(*arrays), arrays[1])


@pytest.mark.parametrize("memory", ["sbuf", "psum", "spread"])
@pytest.mark.parametrize("start", [0, 5])
def test_destinations_that_keep_elements(memory, start):
    """An instruction that writes a part of its destination changes a copy which has the other elements."""
    kernel = Kernel()
    emitter = kernel.emitter
    src, result = kernel.filled(0, SBUF), kernel.filled(1, PSUM if memory == "psum" else SBUF)
    chosen = emitter.buffer((P, F), UINT8)
    emitter.emit(MemsetOp, dst=chosen, value=0.0)
    emitter.emit(MemsetOp, dst=chosen.patterned(dims=((1, P), (2, F // 2))), value=1.0)
    dims = ((1, 8), (1, F))
    predicate = chosen.patterned(dims=dims)
    kernel.emitter.emitted.clear()
    source = src.patterned(partition=Linear(9), dims=((0, 8), (1, F))) if memory == "spread" else src.patterned(dims=dims)
    emitter.emit(TensorCopyPredicatedOp, dst=result.patterned(partition=Linear(start), dims=dims), src=source,
                 predicate=predicate)
    names = [read_op(op).name for op in emitter.emitted if op.name.startswith("nisa.")]
    if memory != "spread":
        assert names == {("sbuf", 0): ["tensor_copy_predicated"], ("psum", 0): ["tensor_copy_predicated"],
                         ("sbuf", 5): ["dma_copy", "tensor_copy_predicated", "dma_copy"]}.get((memory, start), names)
    emitter.copy(kernel.arguments[2], result)
    a, b = matrices(6)
    expected = b.copy()
    expected[start:start + 8, ::2] = (np.broadcast_to(a[9], (8, F)) if memory == "spread" else a[:8])[:, ::2]
    np.testing.assert_array_equal(kernel.run(a, b), expected)


def test_products_are_written_to_psum():
    """The tensor engine writes PSUM and reads SBUF; its product is copied to where it belongs."""
    kernel = Kernel()
    emitter = kernel.emitter
    a, b = kernel.filled(0, PSUM), kernel.filled(1, SBUF)
    result = emitter.buffer((P, F), FLOAT32)
    emitter.emit(MemsetOp, dst=result, value=0.0)
    emitter.emitted.clear()
    emitter.emit(NcMatmulOp, dst=result.patterned(partition=Linear(7), dims=((1, F), (1, F))), stationary=a, moving=b)
    operations = [read_op(op) for op in emitter.emitted if op.name.startswith("nisa.")]
    product, = (op for op in operations if isinstance(op, NcMatmulOp))
    assert product.stationary.space == SBUF and product.moving is not None and product.dst.space == PSUM
    emitter.copy(kernel.arguments[2], result)
    arrays = matrices(7)
    expected = np.zeros((P, F), np.float32)
    expected[7:7 + F] = arrays[0].T @ arrays[1]
    np.testing.assert_array_equal(kernel.run(*arrays), expected)


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("start, lead", [(0, 0), (32, 0), (5, 0), (0, 32), (0, 5)])
def test_partitions_of_operands_in_psum(start, lead, step):
    """GpSimd reads rows of PSUM from any partition, or one row for all of its own, also at a start that a loop moves by ``lead``."""
    kernel = Kernel(LOOPS)
    emitter, source, sums = kernel.emitter, kernel.filled(0, PSUM), kernel.filled(1, SBUF)
    kernel.at(kernel.inner_end, symbols=True)
    rows = 16
    symbols = ((0, lead),) if lead else ()
    read = source.patterned(partition=Linear(start, symbols), dims=((step, rows), (1, F)))
    target = sums.patterned(dims=((1, rows), (1, F)))
    emitter.emit(TensorTensorOp, Engine.GPSIMD, dst=target, lhs=target, rhs=read, op="add")
    *copies, total = (read_op(op) for op in emitter.emitted if op.name == "nisa.tensor_copy" or op.name.endswith("tensor"))
    assert total.rhs.shape == (rows, F)
    legal = start % 32 == 0 and lead % 32 == 0
    assert copies[0].src.partitions == ((rows if step else 1) if legal
                                        else start + lead * (OUTER - 1) + step * (rows - 1) + 1)
    kernel.at(kernel.end)
    emitter.copy(kernel.arguments[2], sums)
    a, b = matrices(8)
    expected = b.copy()
    for i in range(OUTER):
        expected[:rows] += INNER * a[start + i * lead + step * np.arange(rows)]
    np.testing.assert_array_equal(kernel.run(a, b), expected)


@pytest.mark.parametrize("lhs, rhs, copies", [(SBUF, SBUF, 0), (PSUM, SBUF, 0), (SBUF, PSUM, 0), (PSUM, PSUM, 1)])
def test_engines_read_one_operand_in_psum(lhs, rhs, copies):
    kernel = Kernel()
    tiles = [kernel.emitter.buffer((P, F), FLOAT32, space) for space in (SBUF, lhs, rhs)]
    kernel.emitter.emitted.clear()
    kernel.emitter.emit(TensorTensorOp, Engine.VECTOR, dst=tiles[0], lhs=tiles[1], rhs=tiles[2], op="add")
    operations = [read_op(op) for op in kernel.emitter.emitted if op.name.startswith("nisa.")]
    assert [op.name for op in operations] == ["tensor_copy"] * copies + ["tensor_tensor"]


# -- engines -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cls, engine, emitted", [
    (TensorTensorOp, None, "unknown"), (TensorTensorOp, Engine.VECTOR, "unknown"),
    (TensorTensorOp, Engine.GPSIMD, "gpsimd"), (TensorCopyOp, None, "unknown"), (TensorCopyOp, Engine.SCALAR, "scalar"),
    (TensorCopyOp, Engine.GPSIMD, "gpsimd"), (DmaCopyOp, None, "unknown"), (DmaCopyOp, Engine.GPSIMD, "gpsimd"),
    (TensorCopyPredicatedOp, None, "vector"), (TensorReduceOp, Engine.VECTOR, "unknown")])
def test_engines_that_later_passes_choose(cls, engine, emitted):
    """An instruction has no engine if its class offers several and the first of them shall run it."""
    kernel = Kernel()
    tiles = [kernel.emitter.buffer((P, F), FLOAT32) for _ in range(3)]
    fields = {TensorTensorOp: {"op": "add"}, TensorReduceOp: {"op": "add", "axes": (1,)}}.get(cls, {})
    if cls is TensorCopyPredicatedOp:
        tiles[2] = kernel.emitter.buffer((P, F), UINT8)
    if cls is TensorReduceOp:
        tiles[0] = kernel.emitter.buffer((P, 1), FLOAT32)
    kernel.emitter.emitted.clear()
    kernel.emitter.emit(cls, engine, **fields, **{field.name: tile for field, tile in zip(cls.tiles, tiles)})
    operation, = kernel.emitter.emitted
    assert read_op(operation).engine == emitted


def test_operands_that_move_do_not_change_the_engine():
    """GpSimd adds integers in SBUF exactly, the vector engine through float32, also if a copy of one is in SBUF."""
    kernel = Kernel()
    dst, lhs, rhs = (kernel.emitter.buffer((P, F), INT32, space) for space in (SBUF, PSUM, SBUF))
    rows = (1, 8), (1, F)
    for moved, engine in ((lhs, Engine.VECTOR), (rhs, Engine.GPSIMD)):
        kernel.emitter.emitted.clear()
        kernel.emitter.emit(TensorTensorOp, dst=dst.patterned(dims=rows), rhs=rhs.patterned(dims=rows), op="add",
                            lhs=moved.patterned(partition=Linear(5), dims=rows))
        *_, copied, total = (read_op(op) for op in kernel.emitter.emitted if op.name.startswith("nisa."))
        assert total.lhs.space == SBUF and total.runs_on is engine


def test_the_kind_of_an_instruction_follows_its_engine():
    kernel = Kernel()
    dst, src = (kernel.emitter.buffer((P, F), FLOAT32) for _ in range(2))
    op = TensorCopyOp(dst=dst, src=src)
    kind = op.kind()
    named(op, Engine.GPSIMD)
    assert op.kind() is not kind


def test_results_in_psum():
    """GpSimd's result goes to PSUM in one copy, unless an engine cannot begin at its first partition: then all
    partitions up to its last are read, changed by a transfer and written back."""
    kernel = Kernel()
    emitter, lhs, result = kernel.emitter, kernel.filled(0, SBUF), kernel.filled(1, PSUM)
    names = []
    for start in (32, 5):
        emitter.emitted.clear()
        dims = (1, 8), (1, F)
        emitter.emit(TensorTensorOp, Engine.GPSIMD, dst=result.patterned(partition=Linear(start), dims=dims), op="add",
                     lhs=lhs.patterned(dims=dims), rhs=lhs.patterned(dims=dims))
        names.append([read_op(op).name for op in emitter.emitted if op.name.startswith("nisa.")])
    assert names == [["tensor_tensor", "tensor_copy"], ["tensor_tensor", "tensor_copy", "dma_copy", "tensor_copy"]]
    emitter.copy(kernel.arguments[2], result)
    a, b = matrices(9)
    expected = b.copy()
    expected[32:40] = expected[5:13] = 2 * a[:8]
    np.testing.assert_array_equal(kernel.run(a, b), expected)
