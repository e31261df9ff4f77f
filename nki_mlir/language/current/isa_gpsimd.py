# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions for affine patterns, searches, shuffles and gathers on chip, and random numbers."""

from collections.abc import Iterable, Sequence
from math import prod

from nki_mlir.capture.builder import active
from nki_mlir.capture.index import Index
from nki_mlir.capture.strides import Dim
from nki_mlir.capture.tensor import View
from nki_mlir.dialects.nisa import elementwise, movement, random, search
from nki_mlir.dialects.target_rules import DtypeOfOperand
from nki_mlir.dialects.verifier import ShapeMismatch, WrongMemory
from nki_mlir.language import creation, functions
from nki_mlir.language import instructions as core
from nki_mlir.language import operations as ops
from nki_mlir.language.creation import emit
from nki_mlir.language.current import assignment
from nki_mlir.language.current import enums as e
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.errors import core_rule, integer, pairs, require, warn
from nki_mlir.language.current.instruction import alu, instruction
from nki_mlir.language.current.memory import VirtualRegister
from nki_mlir.language.current.pairing import aligned
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT8, UINT32


# -- affine patterns ---------------------------------------------------------------------------------------------------
def pattern_dims(op: str, pattern: Sequence[Sequence[int]], view: View) -> list[Dim]:
    dims = [Dim(0, step, count) for step, count in pairs(pattern, op)]
    require(len(dims) <= 4, f"{op} pattern must have 1 to 4 [step, count] pairs",
            fix="give 1 to 4 pairs; merge dimensions that are contiguous")
    require(prod(d.count for d in dims) == prod(view.shape[1:]),
            f"{op} pattern {list(pattern)} has {prod(d.count for d in dims)} elements, dst {prod(view.shape[1:])} per "
            "partition", fix="choose counts whose product is the number of elements in a partition of dst")
    return dims


def affine(op: str, pattern: Sequence[Sequence[int]], channel_multiplier: int, offset: int, *views: View
           ) -> tuple[Index, list[View]] | None:
    """Return the index offset + p * channel_multiplier + pattern over the views' common shape, and those views.

    Return None if the pattern and the views have no common shape.
    """
    # The pattern is one more view in the pairing, of a buffer that is never read.
    values = View(views[0].buffer, Index(), Index(), (views[0].dims[0], *pattern_dims(op, pattern, views[0])),
                  views[0].dtype)
    operands = aligned([*views, values])
    if operands is None:
        return None
    *aligned_views, steps = operands
    axes = (integer(channel_multiplier, f"{op} channel_multiplier"), *(d.free for d in steps.dims[1:]))
    return Index(offset, {}, axes, aligned_views[0].shape), aligned_views


@instruction
def iota(dst: NkiTensor, pattern: list[list[int]], offset: int | VirtualRegister, channel_multiplier: int) -> None:
    """Set dst[p, i...] = offset + p * channel_multiplier + the sum of step * i."""
    low.in_sbuf("iota", dst=dst)
    with low.writing(dst, "iota") as out:
        shift = offset if isinstance(offset, VirtualRegister) else None
        start = 0 if shift is not None else integer(offset, "iota offset")
        result = affine("iota", pattern, channel_multiplier, start, low.core_view(out))
        if result is not None and shift is None:
            emit(movement.IotaOp, {"dst": result[1][0]}, expression=result[0])
            return
        static = low.allocate((out.shape[0], prod(out.shape[1:])), INT32)
        result = affine("iota", pattern, channel_multiplier, start, low.core_view(static))
        assert result is not None
        emit(movement.IotaOp, {"dst": result[1][0]}, expression=result[0])
        if shift is not None:
            view = low.core_view(static)
            ops.binary("add", view, shift.state.like(dims=tuple(Dim(0, 0, n) for n in view.shape)), destination=view)
        low.copy_on_chip(out, static, "iota")


@instruction
def affine_select(dst: object, pattern: Sequence[Sequence[int]], channel_multiplier: int, on_true_tile: object,
                  on_false_value: float, cmp_op: object, offset: int | VirtualRegister) -> None:
    """Set dst = on_true_tile where ``cmp_op`` holds for the pattern's value and 0, else on_false_value."""
    op = "affine_select"
    low.in_sbuf(op, dst=dst, on_true_tile=on_true_tile)
    comparison = alu(cmp_op, f"{op} cmp_op")
    require(ALU[comparison].group == "comparison", f"{op} cmp_op {comparison} is not a comparison",
            fix="use nl.equal, nl.not_equal, nl.greater, nl.greater_equal, nl.less or nl.less_equal",
            code="NKI-OPERATOR")
    with low.operands(op, dst, on_true_tile=on_true_tile) as (target, source):
        static = not isinstance(offset, VirtualRegister) and comparison != "not_equal"
        affine_form = None if not static else affine(
            op, pattern, channel_multiplier, integer(offset, f"{op} offset"), target, source)
        if affine_form is None:
            select_by_tile(target, source, pattern, channel_multiplier, offset, float(on_false_value), comparison)
            return
        form, (target, source) = affine_form
        predicate = {"equal": form, "greater_equal": form, "greater": form - 1, "less_equal": -form,
                     "less": -form - 1}[comparison]
        emit(elementwise.AffineSelectOp, {"dst": target, "src": source}, predicate=predicate,
                 equal=comparison == "equal", value=float(on_false_value))


def select_by_tile(target: View, source: View, pattern: object, multiplier: int, offset: object, value: float,
                   comparison: str) -> None:
    """Emit a selection with the predicate in a tile, for predicates that ``AffineSelectOp`` cannot express."""
    positions = low.allocate(target.shape, INT32)
    iota(positions, pattern, offset, multiplier)
    view = low.core_view(positions)
    flag = low.core_view(low.allocate(target.shape, UINT8))
    emit(elementwise.TensorScalarOp, {"dst": flag, "src": view}, op0=comparison)
    filled = low.core_view(low.allocate((target.shape[0], *(1 for _ in target.shape[1:])), target.dtype))
    creation.memset(filled, value)
    emit(movement.TensorCopyOp, {"dst": target, "src": source})
    emit(elementwise.TensorCopyPredicatedOp, {"dst": target, "src": filled, "predicate": flag}, reverse_pred=True)


# -- searches ----------------------------------------------------------------------------------------------------------
def backwards(row: View) -> View:
    """Return a view of the 8 elements of each partition in reverse order."""
    step = row.dims[1].free
    return row.like(free=row.free + 7 * step, dims=(row.dims[0], Dim(0, -step, 8)))


@instruction
def nc_match_replace8(dst: object, data: object, vals: object, imm: float, dst_idx: object) -> None:
    """Set dst = data with the first occurrence of each of 8 values replaced by ``imm``, the last value first."""
    op = "nc_match_replace8"
    with low.writing(dst, op, flat=True) as out:
        low.paired(op, dst=out, data=data)
        target, source, values = low.flat_view(out), low.flat_tile(op, "data", data), low.flat_tile(op, "vals", vals)
        expected = (source.shape[0], 8)
        core_rule(values.shape == expected, ShapeMismatch, fix=f"create it with shape {expected}",
                  what=f"operand 'vals' of '{op}' has shape {list(values.shape)}, which must be {list(expected)}")
        # The instruction matches the last value first, the operation the first: the views are reversed.
        views = {"dst": target, "data": source, "vals": backwards(values)}
        if dst_idx is None:
            emit(search.MatchReplace8Op, views, imm=float(imm))
            return
        with low.writing(dst_idx, op, "dst_idx", flat=True) as positions:
            emit(search.MatchReplace8Op, {**views, "dst_idx": backwards(low.flat_view(positions))}, imm=float(imm))


# -- shuffles and gathers ----------------------------------------------------------------------------------------------
@instruction
def nc_stream_shuffle(dst: object, src: object, shuffle_mask: Sequence[int]) -> None:
    """Set dst[i] = src[shuffle_mask[i]] in each group of 32 partitions. 255 in the mask leaves dst[i] unchanged."""
    op = "nc_stream_shuffle"
    source = low.flat_tile(op, "src", src)
    require(isinstance(shuffle_mask, Iterable), f"{op} shuffle_mask: expecting 'sequence', got {shuffle_mask!r}",
            fix="give a list of 32 integers")
    mask = tuple(integer(m, f"{op} shuffle_mask") for m in shuffle_mask)
    with low.writing(dst, op, reads=True, flat=True) as out:
        emit(movement.StreamShuffleOp, {"dst": low.flat_view(out), "src": source}, shuffle=mask)


@instruction
def local_gather(dst: object, src_buffer: object, index: object, num_elem_per_idx: int, num_valid_indices: int) -> None:
    """Set dst[p] = elements of src_buffer[p] at offsets that 16 partitions share."""
    op = "local_gather"
    source, indices = low.flat_tile(op, "src_buffer", src_buffer), low.flat_tile(op, "index", index)
    capacity = movement.GROUP * indices.shape[1]
    count = capacity if num_valid_indices is None else integer(num_valid_indices, f"{op} num_valid_indices")
    require(1 <= count <= capacity, f"{op} num_valid_indices is {count}, and index has {capacity} for 16 partitions",
            fix=f"use 1 to {capacity}")
    gathered = count * num_elem_per_idx
    in_part = low.is_tensor(dst, op, "dst").size > source.shape[0] * gathered
    with low.writing(dst, op, reads=in_part, flat=True) as out:
        flat = low.flat_view(out)
        core_rule(flat.shape[1] >= gathered, ShapeMismatch, fix=f"create it with shape {(source.shape[0], gathered)}",
                  what=f"{op} dst has {flat.shape[1]} elements per partition, which must be {count} x "
                       f"{num_elem_per_idx}")
        if in_part and num_elem_per_idx > 1:
            warn(f"{op} writes {count} x {num_elem_per_idx} of the {flat.shape[1]} elements of each partition of dst; "
                 "devices of release 0.6 treat num_elem_per_idx as 1 there; pass only the part of dst that is written")
        full = target = flat.like(dims=(flat.dims[0], flat.dims[1]._replace(count=gathered)))
        if count != capacity:
            full = low.core_view(low.allocate((source.shape[0], capacity * num_elem_per_idx), out.dtype))
        emit(movement.LocalGatherOp, {"dst": full, "src": source, "index": indices}, elements=num_elem_per_idx,
                 valid=-1 if num_valid_indices is None else count)
        if full is not target:
            part = full.like(dims=(full.dims[0], full.dims[1]._replace(count=target.shape[1])))
            emit(movement.TensorCopyOp, {"dst": target, "src": part})


@instruction
def sequence_bounds(dst: NkiTensor, segment_ids: object) -> None:
    """Set dst [1, 2, n] to the start and the end (exclusive) of the run of equal ids of each element."""
    op = "sequence_bounds"
    low.in_sbuf(op, dst=dst, segment_ids=segment_ids)
    source = low.flat_tile(op, "segment_ids", segment_ids)
    with low.writing(dst, op, flat=True) as out:
        emit(search.SequenceBoundsOp, {"dst": low.core_view(out.reshape(dst.shape)), "segment_ids": source})


@instruction
def topk(val_dst: object, idx_dst: object, src: NkiTensor, n: int) -> None:
    """Find the largest values of each list, which spans 16 partitions, in ascending order, and their indices."""
    op = "topk"
    with (low.writing(val_dst, op, "val_dst", reads=True, flat=True) as values,
          low.writing(idx_dst, op, "idx_dst", reads=True, flat=True) as at):
        emit(search.TopkOp, {"values": low.flat_view(values), "indices": low.flat_view(at),
                            "src": low.flat_tile(op, "src", src)}, n=n)


# -- random numbers ----------------------------------------------------------------------------------------------------
def generator(engine: str) -> View:
    """Return the state of an engine's random generator."""
    if engine == "gpsimd":
        return creation.tensor_of(active().state("gpsimd_random_state", (1, 2), UINT32))
    return functions.generator_state()


@instruction
def rng(dst: NkiTensor, engine: e.engine) -> None:
    """Set dst = random bits, in an integer dtype."""
    chosen = e.engine_name(engine, "rng", "vector", "gpsimd")
    with low.writing(dst, "rng", flat=True) as out:
        emit(random.RandomBitsOp, {"dst": low.flat_view(out), "state": generator(chosen)}, engine=chosen)


@instruction
def rand2(dst: NkiTensor, min: float | NkiTensor, max: float | NkiTensor) -> None:
    """Set dst to uniform random numbers from min to max, which are numbers or [P, 1] tiles."""
    numbers = not isinstance(min, NkiTensor) and not isinstance(max, NkiTensor)
    if numbers:
        require(min < max, f"rand2 takes min < max, got {min} and {max}", fix="give the smaller bound as min")
    with low.operands("rand2", dst) as (target,):
        if numbers and (min, max) == (0, 1) and target.dtype is FLOAT32:
            emit(random.RandOp, {"dst": target, "state": functions.generator_state()})
            return
        uniform = low.core_view(low.allocate(target.shape, FLOAT32))
        emit(random.RandOp, {"dst": uniform, "state": functions.generator_state()})
        low_end, high_end = low.scalar("rand2", "min", min, target), low.scalar("rand2", "max", max, target)
        if isinstance(low_end, View) or isinstance(high_end, View):
            width: View | float = ops.binary("subtract", high_end, low_end, dtype=FLOAT32)
        else:
            width = float(high_end) - float(low_end)
        (tile0, imm0), (tile1, imm1) = core.operand(width), core.operand(low_end)
        emit(elementwise.TensorScalarOp, {"dst": target, "src": uniform, "operand0": tile0, "operand1": tile1},
             op0="multiply", imm0=imm0, op1="add", imm1=imm1)


@instruction
def set_rng_seed(src_seeds: NkiTensor) -> None:
    """Seed the Vector engine's generator with a [1, 1] tile."""
    src_seeds = low.any_tensor(src_seeds, "set_rng_seed", "src_seeds")
    core_rule(src_seeds.itemsize == 4, DtypeOfOperand, op="set_rng_seed", operand="src_seeds", found=src_seeds.dtype,
              expected="a type of 32 bits")
    functions.random_seed(low.tile("set_rng_seed", "src_seeds", src_seeds))


def _state_words(op: str, label: str, tensor: NkiTensor, engine: str) -> View:
    """Return a view of the seed and the count: the first two words of a tile with the state of a generator."""
    words = 24 if engine == "vector" else 6
    view = low.flat_tile(op, label, tensor)
    core_rule(view.buffer.space == "sbuf" or (engine == "vector" and op == "rand_get_state"), WrongMemory, op=op,
              operand=label, expected="sbuf", found=view.buffer.space)
    core_rule(view.dtype is UINT32, DtypeOfOperand, op=op, operand=label, found=view.dtype, expected=UINT32)
    core_rule(view.shape[1] == words, ShapeMismatch, fix=f"create it with shape (P, {words})",
              what=f"{op} {label} has {view.shape[1]} words per partition, which must be {words}")
    return view.like(dims=(view.dims[0], view.dims[1]._replace(count=2)))


@instruction
def rand_set_state(src_seeds: NkiTensor, engine: e.engine) -> None:
    """Set the generator's state to one that ``rand_get_state`` wrote, or seed it from a tile of words."""
    chosen = e.engine_name(engine, "rand_set_state", "gpsimd", "vector")
    words = _state_words("rand_set_state", "src_seeds", src_seeds, chosen)
    emit(movement.TensorCopyOp, {"dst": generator(chosen), "src": words.like(dims=(Dim(1, 0, 1), words.dims[1]))})


@instruction
def rand_get_state(dst: NkiTensor, engine: e.engine) -> None:
    """Set dst = the state of the engine's random generator."""
    chosen = e.engine_name(engine, "rand_get_state", "gpsimd", "vector")
    with low.writing(dst, "rand_get_state", flat=True) as out:
        words = _state_words("rand_get_state", "dst", out, chosen)
        assignment.fill(out, 0.0)
        first_partition = words.like(dims=(Dim(1, 0, 1), words.dims[1]))      # one generator serves all partitions
        emit(movement.TensorCopyOp, {"dst": first_partition, "src": generator(chosen)})
