# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""verify-target: check the rules that depend on the machine, ``nki.target``, for every instruction.

Partitions an engine begins at, sizes of its access patterns, memories it sees, and what came with a later generation.
What is wrong on every target is the operations' own to say. Transfers, to or from HBM, have none of these limits.
"""

from collections.abc import Iterator
from typing import Any

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.dialects.access import PSUM, Tile
from nki_mlir.dialects.kernel_function import kernel_functions
from nki_mlir.dialects.mlir_ops import is_tile_op, read_op
from nki_mlir.dialects.nisa.gpsimd_call import GpsimdCallOp
from nki_mlir.dialects.op import NisaOp
from nki_mlir.dialects.places import place_of
from nki_mlir.machine import Engine, Machine, machine_named
from nki_mlir.scalar.dtypes import FLOAT8_E4M3FN, FLOAT32
from nki_mlir.transforms.levels import Level
from nki_mlir.transforms.passes import Pass
from nki_mlir.transforms.reach import is_spread, is_transfer, starts_legally


class StartPartition(KernelError):
    code = "NKI-START-PARTITION"
    message = "operand '{operand}' of '{op}' begins at partition {start} and has {count} partitions"
    why = "the {engine} engine begins {count} partitions only at {legal}"
    fix = "lay the tile out from such a partition, or move its rows with nisa.dma_copy first"


class SpreadPartition(KernelError):
    code = "NKI-PARTITION-BROADCAST"
    message = "operand '{operand}' of '{op}' is one partition that {count} lanes read"
    why = "each lane of the {engine} engine reads its own partition"
    fix = "copy the partition to all of them with nisa.dma_copy first"


class TooManyDims(KernelError):
    code = "NKI-PATTERN-DIMS"
    message = "operand '{operand}' of '{op}' steps through {count} free dims"
    why = "an access pattern of {target} has at most {limit}"
    fix = "split the operation, or copy the operand so that fewer steps describe it"


class TooManyElements(KernelError):
    code = "NKI-PATTERN-ELEMENTS"
    message = "operand '{operand}' of '{op}' has {count} elements in each partition"
    why = "an instruction of {target} accesses at most {limit} in {space}"
    fix = "split the operation along a free dim"


class CrossesBank(KernelError):
    code = "NKI-PSUM-BANK"
    message = "the result of '{op}' takes bytes {first} to {last} of its buffer's rows, in more than one PSUM bank"
    why = "a product is accumulated in one bank of {limit} bytes"
    fix = "begin the result at a multiple of {limit} bytes"


class MemoryOfEngine(KernelError):
    code = "NKI-ENGINE-MEMORY"
    message = "operand '{operand}' of '{op}' is in PSUM, which the gpsimd engine of {target} does not see"
    fix = "copy it to SBUF first, or use the vector engine"


class NotOnTarget(KernelError):
    code = "NKI-GENERATION"
    message = "{what} needs generation {needs} of the core, and {target} is generation {has}"
    fix = "{instead}"


class SeveralLibraries(KernelError):
    code = "NKI-GPSIMD-LIBRARIES"
    message = "'{op}' runs a function of {library}, and an instruction before it one of {other}"
    why = "a model has one library of custom operators on the device"
    fix = "build all its operators into one library"


SINCE = {"range_select": 3, "core_barrier": 3, "sendrecv": 3, "activate2": 4, "exponential": 4, "quantize_mx": 4,
         "nc_matmul_mx": 4}
ON_SCALAR = (("multiply", "add"), ("multiply", "bypass"), ("add", "bypass"))


class VerifyTarget(Pass, name="verify-target", reads=Level.NISA):
    """Raises the error of the first instruction that breaks a rule."""

    def run(self, module: Any) -> None:
        with module.context, ir.Location.unknown():
            for kernel in kernel_functions(module):
                machine = machine_named(kernel.target)
                library = ""                # of programs of the GpSimd cores
                for operation in _instructions(kernel.op):
                    try:
                        op = read_op(operation)
                        check(op, machine)
                        if isinstance(op, GpsimdCallOp):
                            if library and op.library != library:
                                raise SeveralLibraries(op=op.name, library=op.library, other=library)
                            library = op.library
                    except NkiMlirError as error:
                        raise error.located(place_of(operation)) from None


def _instructions(function: Any) -> list[Any]:
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if is_tile_op(op) and op.name.startswith("nisa."):
            found.append(op.operation)
        return ir.WalkResult.ADVANCE
    function.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def check(op: Any, machine: Machine) -> None:
    """All rules for one instruction; raises the error of the first that is broken."""
    _generation(op, machine)
    if is_transfer(op):
        return
    engine = op.runs_on
    for field, tile in op.operands():
        if tile.on_chip:
            _partitions(op, field.name, tile, engine, machine)
            _size(op, field.name, tile, machine)
            if tile.space == PSUM and engine is Engine.GPSIMD and machine.generation < 4:
                raise MemoryOfEngine(operand=field.name, op=op.name, target=machine.name)
    if op.name == "nc_matmul":
        _bank(op, op.dst, machine)


def _partitions(op: NisaOp, operand: str, tile: Tile, engine: Engine, machine: Machine) -> None:
    if is_spread(tile):
        raise SpreadPartition(operand=operand, op=op.name, count=tile.partitions, engine=engine.value)
    offsets = op.offsets.get(operand, (0,))
    if not starts_legally(machine, tile, offsets):
        legal = [str(p + o) for p in range(machine.partitions) if machine.legal_start_partition(p, tile.partitions)
                 for o in offsets]
        start = tile.access.partition
        assert start is not None
        low, high = start.interval(op.ranges)
        raise StartPartition(operand=operand, op=op.name, start=low if low == high else f"{low} to {high}",
                             count=tile.partitions, engine=engine.value, legal=" or ".join(legal))


def _size(op: NisaOp, operand: str, tile: Tile, machine: Machine) -> None:
    dims = sum(count > 1 for _, count in tile.access.free_dims)
    if dims > machine.free_dims_max:
        raise TooManyDims(operand=operand, op=op.name, count=dims, limit=machine.free_dims_max, target=machine.name)
    limit = machine.psum_elements_max if tile.space == PSUM else machine.sbuf_elements_max
    if tile.free_elements > limit:
        raise TooManyElements(operand=operand, op=op.name, count=tile.free_elements, limit=limit, space=tile.space,
                              target=machine.name)


def _bank(op: NisaOp, dst: Tile, machine: Machine) -> None:
    """A buffer larger than a bank begins at one, so where a pattern lies in its buffer tells its bank."""
    bank, size = machine.psum_bank_bytes, dst.dtype.itemsize
    if dst.row * size <= bank:
        return
    low, high = (end * size for end in dst.access.reach())
    for start in _starts(op, dst):
        if (start * size + low) // bank != (start * size + high + size - 1) // bank:
            raise CrossesBank(op=op.name, first=start * size + low, last=start * size + high + size - 1, limit=bank)


def _starts(op: NisaOp, tile: Tile) -> Iterator[int]:
    """Free offsets that a tile can have: all of them, or those of each symbol on its own, which are as telling."""
    free = tile.access.free
    base = free.const + sum(c * op.ranges[s][0] for s, c in free.symbols)
    yield base
    for s, c in free.symbols:
        first, last = op.ranges[s]
        yield from (base + c * k for k in range(1, last - first + 1))


def _generation(op: Any, machine: Machine) -> None:
    """What a generation does not have."""
    def need(generation: int, what: str, instead: str) -> None:
        if machine.generation < generation:
            raise NotOnTarget(what=what, needs=generation, target=machine.name, has=machine.generation, instead=instead)
    if op.name in SINCE:
        need(SINCE[op.name], f"'{op.name}'", "use instructions that the target has, or another target")
    match op.name:
        case "nc_matmul":
            if op.dst.dtype is not FLOAT32:
                need(3, f"a result of nc_matmul in {op.dst.dtype}", "let the result be float32 and copy it")
            for tile in (op.stationary, op.moving):
                if tile.dtype is FLOAT8_E4M3FN:
                    need(4, f"nc_matmul of {tile.dtype}", "use float8_e4m3")
        case "activation_reduce" | "activation_accumulate" if op.reduce_op != "add":
            need(3, f"'{op.name}' with reduce_op '{op.reduce_op}'", "reduce with nisa.tensor_reduce")
        case "activation" if op.fn == "reciprocal" and op.bias is not None:
            need(3, "the activation 'reciprocal' with a bias", "add the bias in an instruction of its own")
        case "tensor_scalar" if op.runs_on is Engine.SCALAR:
            need(3, "tensor_scalar on the scalar engine", "use the vector engine")
            if machine.generation < 4 and (op.op0, op.op1) not in ON_SCALAR:
                need(4, f"tensor_scalar of {op.op0} and {op.op1} on the scalar engine", "use the vector engine")
