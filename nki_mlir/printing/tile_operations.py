# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints operations of the tile language: as instructions, or as functions of ``nki.language`` where there are none.
"""

from collections.abc import Callable
from typing import Any, TypeGuard

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import PSUM, SBUF, Linear, Tile, in_shape, same_elements
from nki_mlir.dialects.nisa.dynamic_access import ColumnsAddressed
from nki_mlir.dialects.nisa.elementwise import AffineSelectOp, ReciprocalOp, TensorScalarOp, TensorTensorOp
from nki_mlir.dialects.nisa.indirect import DataAddressed
from nki_mlir.dialects.nisa.matmul import MatmulTransposeOp
from nki_mlir.dialects.nisa.microscaling import PACKED, NcMatmulMxOp, QuantizeMxOp
from nki_mlir.dialects.nisa.movement import DmaCopyOp, TensorCopyOp
from nki_mlir.dialects.nisa.random import RandomBitsOp, RandomSeedOp, RandOp
from nki_mlir.dialects.nisa.search import MatchReplace8Op, TopkOp
from nki_mlir.dialects.nki import movement
from nki_mlir.dialects.nki.elementwise import BinaryOp, BinaryScalarOp, SelectOp, UnaryOp
from nki_mlir.dialects.nki.matmul import MatmulOp
from nki_mlir.dialects.nki.reduction import ReduceOp
from nki_mlir.dialects.op import Op, changed
from nki_mlir.dialects.scalar_body import Elementwise
from nki_mlir.dialects.target_rules import starts_legally
from nki_mlir.dialects.verification import verify
from nki_mlir.language.current.functions import EVERYWHERE
from nki_mlir.language.current.instruction import ACTIVATION_FUNCTIONS
from nki_mlir.machine import Machine
from nki_mlir.machine.engine import DOCUMENTED
from nki_mlir.printing import collectives, transfers
from nki_mlir.printing.addresses import write_run_time_copy
from nki_mlir.printing.block_facts import keeps_elements
from nki_mlir.printing.errors import Unprintable
from nki_mlir.printing.implicit_sums import accumulate_text
from nki_mlir.printing.kernel_text import KernelText
from nki_mlir.printing.masked import call, copy_rows, on_legal_tiles, repeated_as, without_repeats
from nki_mlir.printing.statements import number_text, operator_text, with_repeats, write_instruction
from nki_mlir.printing.tile_text import column, dtype_text, shape_text
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32
from nki_mlir.targets.neuron.codegen.forward_transfers import is_backwards
from nki_mlir.waist.overlap import may_overlap

RANDOM_RANGES = 4               # the first generation of machines with nisa.rand2
STATE_WORDS = {"vector": 24, "gpsimd": 6}      # words of a generator's state in each partition


def write_statement(text: KernelText, op: Op) -> None:
    """Write the lines of an operation. The operation has no mask: its tiles are the boxes that a mask selects.
    """
    if _moves_state(text, op) or _loads_registers(text, op) or keeps_elements(op):
        return
    if isinstance(op, DataAddressed) and not isinstance(op, ColumnsAddressed):
        if not op.table.on_chip:
            write_run_time_copy(text, op)
            return
        with on_legal_tiles(text, op) as legal_op:     # an engine copies between tiles
            assert isinstance(legal_op, DataAddressed)
            write_run_time_copy(text, legal_op)
        return
    if isinstance(op, ColumnsAddressed) and op.group == Machine.gpsimd_group:
        _copy_columns(text, op, op.piece)
        return
    if isinstance(op, movement.Copying) and (before := text.copied.pop(op.src.handle, None)) is not None:
        before = changed(before, None, symbols=op.symbols, ranges=op.ranges)
        if isinstance(before, RandOp):
            _rand(text, changed(before, None, dst=op.dst))
        else:
            _copy_columns(text, before, op.dst)
        return
    if _overlaps_sources(op):
        result = text.temporary(op.dst.shape, op.dst.dtype, SBUF)
        write_statement(text, changed(op, lambda tile: tile, dst=result))
        write_statement(text, movement.CopyOp(dst=op.dst, src=result, symbols=op.symbols, ranges=op.ranges))
        return
    op = with_repeats(op)
    if isinstance(op, movement.CopyOp | TensorCopyOp | DmaCopyOp) and is_row(op.src) and (
            op.src.dtype is op.dst.dtype and op.dst.on_chip):
        target = transfers.in_base_shape(op.dst)
        if (row := in_shape(op.src, target.shape)) is not None:
            op = changed(op, None, dst=target, src=row)
        transfers.write_function(text, op, row_text(text, op, op.src))
        return
    if isinstance(op, movement.CopyOp | TensorCopyOp) and _moves_rows(text, op):
        copy_rows(text, op)
        return
    op = _with_repeated_rows(text, op)
    write = TILE_OPERATIONS.get(op.full_name(), write_instruction)
    if write is transfers.write_move or op.queued:
        write(text, op)
    else:
        with on_legal_tiles(text, op) as legal_op:
            write(text, legal_op)


def _overlaps_sources(op: Op) -> TypeGuard[Elementwise]:
    """Return whether an operation of the tile language writes elements that it reads for others. The operation reads
    all elements before it writes one; the result of an instruction is undefined then."""
    if not isinstance(op, Elementwise) or not op.full_name().startswith("nki.") or len(op.targets()) != 1:
        return False
    axes, target = op.iteration().axes, op.dst
    return target.on_chip and any(
        may_overlap(target, source, op.ranges) and not (same_elements(source, target) and axes[name] == axes["dst"])
        for name, source in op.sources())


def _moves_rows(text: KernelText, op: movement.Copying) -> bool:
    """Return whether a copy within SBUF begins at a partition where no engine can start, so that a transfer, which may
    convert, has to do it."""
    tiles = (op.dst, op.src)
    return all(tile.space == SBUF for tile in tiles) and not all(starts_legally(text.machine, tile) for tile in tiles
                                                                 ) and (op.dst.dtype is op.src.dtype
                                                                        or not any(map(is_backwards, tiles)))


def _copy_columns(text: KernelText, op: ColumnsAddressed, tile: Tile) -> None:
    """Write a copy of columns that groups of partitions pick, to ``tile`` or from there."""
    columns = f"{text.tile(op, op.table, exact=True)}.indirect({text.tile(op, op.index)}, {op.piece.free_elements})"
    piece = text.tile(op, tile, exact=True)
    target, source = (piece, columns) if op.piece_field == "dst" else (columns, piece)
    text.write(f"nisa.tensor_copy(dst={target}, src={source})")


def is_row(tile: Tile) -> bool:
    """Return whether all partitions read one partition of the buffer, which no engine can do."""
    return tile.on_chip and tile.access.dims[0][0] == 0 and tile.shape[0] > 1


def row_text(text: KernelText, op: Op, tile: Tile) -> str:
    """Return the text that repeats the row of a tile in a new tile."""
    row = tile.patterned(dims=((1, 1), *tile.access.dims[1:]))
    return f"nl.broadcast_to({text.tile(op, row, exact=True)}, {shape_text(tile.shape)})"


def _with_repeated_rows(text: KernelText, op: Op) -> Op:
    """Return the operation on tiles with the same number of partitions that it reads."""
    rows = {id(tile): tile for field, tile in op.operands() if field.reads and not field.writes and is_row(tile)}

    def spread(tile: Tile) -> Tile:
        if id(tile) not in rows:
            return tile
        unrepeated = without_repeats(tile)
        return repeated_as(text.repeated_row(unrepeated, row_text(text, op, unrepeated)), tile)
    return changed(op, spread) if rows else op


def _loads_registers(text: KernelText, op: Op) -> bool:
    """Return whether an operation writes the registers from which the next instruction starts its sum."""
    if not isinstance(op, movement.Filling | movement.CopyOp | TensorCopyOp) or op.dst.handle not in text.registers:
        return False
    register = op.dst.handle
    if isinstance(op, movement.Filling):
        text.fill(register, number_text(op.value) if op.value else "")
    else:
        text.fill(register, text.tile(op, column(op.src)))
        text.begins[register] = op.src.handle
    return True


def _copy(text: KernelText, op: movement.Copying) -> None:
    call(text, op, "tensor_copy", op.dst, op.src)


def _transpose(text: KernelText, op: movement.TransposeOp) -> None:
    """Write a transpose. The Vector engine does it in any memory if it transposes the tile at once, else the Tensor
    engine does, to PSUM."""
    small = max(op.src.shape) <= text.machine.transpose_vector_max
    engine, space = ("vector", SBUF) if small else ("tensor", PSUM)
    source = op.src if small and not is_backwards(op.src) else transfers.in_sbuf(text, op, op.src)
    target = op.dst
    if op.dst.dtype is not op.src.dtype or not (small or op.dst.space == PSUM) or is_backwards(op.dst):
        target = text.temporary(op.src.shape[::-1], op.src.dtype, space, name="transposed")
    text.write(f"nisa.nc_transpose(dst={text.tile(op, target)}, data={text.tile(op, source)}, "
               f"engine=nisa.engine.{engine})")
    if target is not op.dst:
        call(text, op, "tensor_copy", op.dst, target)


def _memset(text: KernelText, op: movement.MemsetOp) -> None:
    value = op.value
    is_integral = op.dst.dtype.is_integer and abs(value) < float("inf") and value == value
    text.write(f"nisa.memset(dst={text.tile(op, op.dst)}, "
               f"value={round(value) if is_integral else number_text(value)})")


def affine_arguments(text: KernelText, op: Elementwise, expression: Linear) -> str:
    """Return the arguments of an instruction that counts along the axes of its destination.

    The pattern joins an axis with the next one if the count continues from one to the other, and omits axes of one
    element. In beta it has all axes, because index vectors have the axes of the destination.
    """
    steps, form = dict(expression.axes), text.indices.form(expression, op.symbols)
    pattern: list[list[int]] = []
    for axis, count in enumerate(op.dst.shape[1:], 1):
        step = steps.get(axis, 0)
        if not text.beta and pattern and pattern[-1][0] == step * count:
            pattern[-1] = [step, pattern[-1][1] * count]
        elif count > 1 or text.beta:
            pattern.append([step, count])
    return f"pattern={pattern or [[0, 1]]}, offset={form}, channel_multiplier={steps.get(0, 0)}"


def _iota(text: KernelText, op: movement.Counting) -> None:
    arguments = affine_arguments(text, op, op.expression)
    if op.dst.space == SBUF:
        text.write(f"nisa.iota(dst={text.tile(op, op.dst, exact=text.beta)}, {arguments})")
        return
    staged = text.temporary(op.dst.shape, op.dst.dtype, SBUF)
    text.write(f"nisa.iota(dst={text.tile(op, staged)}, {arguments})")
    call(text, op, "tensor_copy", op.dst, staged)


def _is_column(tile: Tile, integers: bool) -> bool:
    """Return whether a partition reads one value for all elements, of a dtype that a scalar operand may have."""
    return tile.on_chip and (tile.dtype is FLOAT32 or (integers and tile.dtype.is_integer)) and all(
        step == 0 or n == 1 for step, n in tile.access.dims[1:])


def _with_column(op: BinaryOp, integers: bool) -> TensorScalarOp | None:
    """Return the instruction whose scalar operand is a column, the right one as the lowering chooses it; None if there
    is none. ``integers``: a column may have integers."""
    columns = [_is_column(tile, integers) for tile in (op.lhs, op.rhs)]
    is_wide = any(tile.free_elements > 1 for tile in (op.lhs, op.rhs))
    if not any(columns) or (all(columns) and is_wide):
        return None
    is_reversed = not columns[1]
    source, operand = (op.rhs, op.lhs) if is_reversed else (op.lhs, op.rhs)
    instruction = TensorScalarOp(dst=op.dst, src=source, operand0=column(operand), op0=op.op, reverse0=is_reversed,
                                 symbols=op.symbols, ranges=op.ranges)
    if ALU[op.op].floats and op.compute is FLOAT32 and operand.dtype is FLOAT32:
        return instruction
    return instruction if op.op in DOCUMENTED and instruction.compute is op.compute and _is_valid(instruction) else None


def _instruction(op: BinaryOp | BinaryScalarOp | UnaryOp) -> TensorTensorOp | TensorScalarOp | None:
    """Return the instruction that computes an operation in the same dtype, or None if there is none, or if the
    documents have only a function."""
    if not isinstance(op, UnaryOp) and op.op not in DOCUMENTED:
        return None
    instruction: TensorTensorOp | TensorScalarOp
    symbols, ranges = op.symbols, op.ranges
    match op:
        case BinaryOp():
            instruction = TensorTensorOp(dst=op.dst, lhs=op.lhs, rhs=op.rhs, op=op.op, symbols=symbols, ranges=ranges)
        case BinaryScalarOp():
            instruction = TensorScalarOp(dst=op.dst, src=op.src, op0=op.op, imm0=op.scalar, reverse0=op.reverse,
                                         symbols=symbols, ranges=ranges)
        case UnaryOp():
            if op.fn not in ALU:
                return None
            instruction = TensorScalarOp(dst=op.dst, src=op.src, op0=op.fn, symbols=symbols, ranges=ranges)
    if instruction.compute is not op.compute or not all(tile.on_chip for _, tile in instruction.operands()):
        return None
    return instruction if _is_valid(instruction) else None


def _is_valid(instruction: Op) -> bool:
    try:
        verify(instruction)
    except NkiMlirError:
        return False
    return True


def _binary(text: KernelText, op: BinaryOp) -> None:
    if op.lhs.space == op.rhs.space == PSUM:            # an instruction reads one operand in PSUM
        op = changed(op, lambda tile: tile, rhs=transfers.in_sbuf(text, op, op.rhs))
    if (with_column := _with_column(op, integers=not text.beta)) is not None:
        reverse = ", reverse0=True" if with_column.reverse0 else ""
        read, operand = text.tile(op, with_column.src), with_column.operand0
        assert operand is not None
        text.write(f"nisa.tensor_scalar(dst={text.tile(op, op.dst)}, data={read}, op0={operator_text(op.op)}, "
                   f"operand0={text.tile(op, operand)}{reverse})")
        return
    if (instruction := _instruction(op)) is not None:
        write_instruction(text, instruction)
        return
    left, right = text.tile(op, op.lhs, exact=True), text.tile(op, op.rhs, exact=True)
    transfers.write_function(text, op, f"{operator_text(op.op)}({left}, {right}, dtype={dtype_text(op.dst.dtype)})")


def _binary_scalar(text: KernelText, op: BinaryScalarOp) -> None:
    if (instruction := _instruction(op)) is not None:
        write_instruction(text, instruction)
        return
    number = str(int(op.scalar)) if float(op.scalar).is_integer() else number_text(op.scalar)
    sides = [text.tile(op, op.src, exact=True), number]
    left, right = sides[::-1] if op.reverse else sides
    transfers.write_function(text, op, f"{operator_text(op.op)}({left}, {right}, dtype={dtype_text(op.dst.dtype)})")


def _unary(text: KernelText, op: UnaryOp) -> None:
    if op.fn == "reciprocal" and all(tile.on_chip for _, tile in op.operands()):        # the exact one
        write_instruction(text, ReciprocalOp(dst=op.dst, src=op.src, symbols=op.symbols, ranges=op.ranges))
        return
    if op.fn in ACTIVATION_FUNCTIONS and op.fn != "prelu":
        source = text.tile(op, op.src)
        text.write(f"nisa.activation(dst={text.tile(op, op.dst)}, op={operator_text(op.fn)}, data={source})")
        return
    if (instruction := _instruction(op)) is not None:
        write_instruction(text, instruction)
        return
    source = text.tile(op, op.src, exact=True)
    function = "sin" if op.fn == EVERYWHERE["sin"] and not text.beta else op.fn
    transfers.write_function(text, op, f"{operator_text(function)}({source}, dtype={dtype_text(op.dst.dtype)})")


def _select(text: KernelText, op: SelectOp) -> None:
    operands = ", ".join(text.tile(op, tile, exact=True) for tile in (op.condition, op.on_true, op.on_false))
    transfers.write_function(text, op, f"nl.where({operands}, dtype={dtype_text(op.dst.dtype)})")


def _matmul(text: KernelText, op: MatmulOp) -> None:
    stationary, moving = text.tile(op, op.stationary), text.tile(op, op.moving)
    text.write(f"nisa.nc_matmul(dst={text.tile(op, op.dst)}, stationary={stationary}, moving={moving}"
               f"{accumulate_text(op)})")


def _reduce(text: KernelText, op: ReduceOp) -> None:
    """Write a reduction. Its patterns have their dims in an order in which the reduced axes come last."""
    kept_axes = [axis for axis in range(len(op.src.shape)) if axis not in op.axes]

    def ordered(tile: Tile) -> Tile:
        return tile.patterned(dims=tuple(tile.access.dims[axis] for axis in (*kept_axes, *op.axes)))
    op = changed(op, ordered, axes=tuple(range(len(kept_axes), len(op.src.shape))))
    source = text.tile(op, op.src, exact=True)
    axes = op.axes[0] if len(op.axes) == 1 else list(op.axes)
    target = text.tile(op, op.dst, paired=False)            # keeps the reduced axes or not
    text.write(f"nisa.tensor_reduce(dst={target}, op={operator_text(op.op)}, data={source}, "
               f"axis={axes})")


def _device_print(text: KernelText, op: movement.DevicePrintOp) -> None:
    text.write(f"nl.device_print({op.prefix!r}, {text.tile(op, op.src, exact=True)})")


def _affine_select(text: KernelText, op: AffineSelectOp) -> None:
    """Write the selection. The current generation's instruction runs on GpSimd, which does not read PSUM."""
    comparison = "equal" if op.equal else "greater_equal"
    read = op.src if text.beta or op.src.space != PSUM else transfers.in_sbuf(text, op, op.src)
    target, source = (text.tile(op, tile, exact=text.beta) for tile in (op.dst, read))
    text.write(f"nisa.affine_select(dst={target}, {affine_arguments(text, op, op.predicate)}, on_true_tile={source}, "
               f"on_false_value={number_text(op.value)}, cmp_op=nl.{comparison})")


def _match_replace(text: KernelText, op: MatchReplace8Op) -> None:
    """Write the replacement. The class uses the values from the first to the last, the function from the last to the
    first."""
    if text.beta:
        write_instruction(text, op)
        return
    reverse = {id(tile) for tile in (op.vals, op.dst_idx)}
    write_instruction(text, changed(op, lambda tile: _backwards(tile) if id(tile) in reverse else tile))


def _backwards(row: Tile) -> Tile:
    """Return 8 elements of each partition, the last first."""
    rows, (step, count) = row.access.dims
    return row.patterned(dims=(rows, (-step, count)), free=row.access.free.plus(Linear(step * (count - 1))))


def _matmul_transpose(text: KernelText, op: MatmulTransposeOp) -> None:
    stationary, moving = text.tile(op, op.stationary), text.tile(op, op.moving)
    text.write(f"nisa.nc_matmul(dst={text.tile(op, op.dst)}, stationary={stationary}, moving={moving}, "
               "is_transpose=True)")


def _random_bits(text: KernelText, op: RandomBitsOp) -> None:
    text.use_register(op.state.handle, anew=False)
    text.write(f"nisa.rng(dst={text.tile(op, op.dst, exact=True)}, engine=nisa.engine.{generator(text, op.state)})")


def generator(text: KernelText, state: Tile) -> str:
    """Return the engine whose generator has this state."""
    return text.generators.get(state.handle, "vector")


def _moves_state(text: KernelText, op: Op) -> bool:
    """Write the call that reads or writes the state of a generator, and return whether the operation does so.

    A state is 2 words of a tile; the instructions take all words that an engine has.
    """
    if not isinstance(op, TensorCopyOp):
        return False
    for tile, state in ((op.dst, op.src), (op.src, op.dst)):
        if (engine := text.generators.get(tile.handle)) is not None:
            words = STATE_WORDS[engine]
            (_, rows), (step, _) = state.access.dims[0], state.access.dims[-1]
            state_tile = state.patterned(dims=((1, text.cleared.pop(state.handle, rows)), (1, words)))
            if len(state.shape) != 2 or step != 1 or state.access.free.const + words > state.row:
                raise Unprintable(what="a part of a generator's state", fix="move all of its words")
            text.use_register(tile.handle, anew=tile is op.dst)
            name = "rand_get_state(dst" if tile is op.src else "rand_set_state(src_seeds"
            text.write(f"nisa.{name}={text.tile(op, state_tile)}, engine=nisa.engine.{engine})")
            return True
    return False


def _topk(text: KernelText, op: TopkOp) -> None:
    text.write(f"nisa.topk(val_dst={text.tile(op, op.values, exact=True)}, "
               f"idx_dst={text.tile(op, op.indices, exact=True)}, src={text.tile(op, op.src, exact=True)}, n={op.n})")


def _rand(text: KernelText, op: RandOp) -> None:
    text.use_register(op.state.handle, anew=False)
    named = text.placement is not None or text.defines(op.dst) is None      # nl.rand would return another tile
    if named and not text.beta and text.machine.generation >= RANDOM_RANGES and op.dst.dtype is FLOAT32:
        text.write(f"nisa.rand2(dst={text.tile(op, op.dst)}, min=0.0, max=1.0)")
        return
    transfers.write_function(text, op, f"nl.rand({shape_text(op.dst.shape)}, dtype={dtype_text(op.dst.dtype)})")


def _random_seed(text: KernelText, op: RandomSeedOp) -> None:
    text.use_register(op.state.handle, anew=True)
    text.write(f"nl.random_seed({text.tile(op, op.seed, exact=True)})")


def _packed(text: KernelText, op: Op, tile: Tile, element: str) -> str:
    """Return the text of a tile of integers that hold four elements each."""
    return f"{text.tile(op, tile, exact=True)}.view(nl.{element}_x{PACKED})"


def _quantize_mx(text: KernelText, op: QuantizeMxOp) -> None:
    text.write(f"nisa.quantize_mx(dst={_packed(text, op, op.dst, op.element)}, src={text.tile(op, op.src)}, "
               f"dst_scale={text.tile(op, op.dst_scale, exact=True)})")


def _matmul_mx(text: KernelText, op: NcMatmulMxOp) -> None:
    stationary = _packed(text, op, op.stationary, op.stationary_element)
    moving = _packed(text, op, op.moving, op.moving_element)
    scales = [text.tile(op, tile, exact=True) for tile in (op.stationary_scale, op.moving_scale)]
    text.write(f"nisa.nc_matmul_mx(dst={text.tile(op, op.dst)}, stationary={stationary}, moving={moving}, "
               f"stationary_scale={scales[0]}, moving_scale={scales[1]}{accumulate_text(op)})")


TILE_OPERATIONS: dict[str, Callable[[KernelText, Any], None]] = {
    "nki.load": transfers.write_move, "nki.store": transfers.write_move, "nisa.dma_copy": transfers.write_dma_copy,
    "nki.copy": _copy, "nki.transpose": _transpose, "nki.memset": _memset,
    "nki.iota": _iota, "nisa.iota": _iota, "nki.binary": _binary, "nki.binary_scalar": _binary_scalar,
    "nki.unary": _unary, "nki.select": _select, "nki.matmul": _matmul, "nki.reduce": _reduce,
    "nki.device_print": _device_print, "nisa.affine_select": _affine_select,
    "nisa.nc_match_replace8": _match_replace, "nisa.topk": _topk, "nisa.rng": _random_bits,
    "nisa.nc_matmul_transpose": _matmul_transpose, "nisa.random_seed": _random_seed,
    "nisa.rand": _rand, "nisa.dma_compute": transfers.write_dma_compute, "nisa.quantize_mx": _quantize_mx,
    "nisa.nc_matmul_mx": _matmul_mx, "nisa.dma_transpose": transfers.write_dma_transpose, **collectives.WRITERS}
