# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulation: runs a kernel's Python and executes every instruction with NumPy when it is issued.

Fresh memory is filled with NaN (floats) or 4 (integers), so that reads of unwritten elements show in the results. The
two cores of a launch, and the ranks of a group, are threads that take turns.

With ``NKI_PRECISE_FP=0`` writes do not round. The arrays of the memory keep their dtypes and rounded values. Next to
each the simulator keeps float32 values, which instructions access instead of the array wherever they access it as a
low-precision type. After each instruction the elements that it wrote are rounded into the array, and float32 values of
other dtypes on the same bytes are recomputed from the array.
"""

import os
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_mlir.capture.eager import EagerBuilder
from nki_mlir.capture.errors import OutOfScope
from nki_mlir.capture.tensor import Buffer
from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.dialects.access import Tile
from nki_mlir.dialects.launch_members import RANKS
from nki_mlir.dialects.op import Op, changed
from nki_mlir.language import framework_tensors
from nki_mlir.language.argument_memory import ArgumentMemory
from nki_mlir.language.arguments import Bound, leaves_of, map_leaves, with_arrays
from nki_mlir.language.current.errors import invalid, of_core, require
from nki_mlir.language.eager_run import report_races, results
from nki_mlir.language.results import assemble
from nki_mlir.scalar import dtypes
from nki_mlir.scalar.dtypes import FLOAT32, TFLOAT32, DType, convert, dtype_of
from nki_mlir.targets.interpreter.execute import Arrays, Pattern, Runner, Values, compile_op, flat_view
from nki_mlir.targets.mesh import Mesh

if TYPE_CHECKING:
    from nki_mlir.language.kernel import Kernel

VARIABLE = "NKI_PRECISE_FP"
LOW = (dtypes.BFLOAT16, dtypes.FLOAT16, dtypes.FLOAT8_E4M3, dtypes.FLOAT8_E4M3FN, dtypes.FLOAT8_E5M2)


def sentinel(dtype: DType) -> float:
    """Return the value that fresh memory is filled with."""
    return float("nan") if dtype.is_float else 4.0


class EagerCore(EagerBuilder):
    """The builder of one core of a launch."""

    def end(self) -> None:
        self.check_memory()

    def note_for_capture(self, buffer: Buffer) -> None:
        """Raise the error of a tensor that an iteration of a device loop created, and that the kernel uses after it.
        All other loops of this generation's kernels unroll."""
        if buffer.iteration is not None and buffer.iteration.has_ended:
            raise of_core(OutOfScope(name=buffer.name))


# -- writes that do not round: values ----------------------------------------------------------------------------------
def rounds() -> bool:
    """Return whether simulated writes round, which ``NKI_PRECISE_FP=0`` switches off."""
    value = os.environ.get(VARIABLE) or "1"
    require(value in ("0", "1"), f"{VARIABLE} cannot be {value!r}",
            why="1 (the default): simulated writes round to the type of their tensor; 0: they keep float32 values",
            fix=f"set {VARIABLE} to 0 or 1, or unset it")
    return value == "1"


# A widened NaN keeps its original bits in its lowest 16, so that integers that are moved as floats are preserved.
QUIET, ORIGIN = 0x7FC00000, 0xFFFF


def widened(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Convert low-precision elements to float32. A NaN keeps its bits, so that ``rounded`` restores it."""
    values = convert(array, FLOAT32, dtype)
    nan = np.isnan(values)
    if nan.any():
        values.view(np.uint32)[nan] = QUIET | array[nan].view(f"u{dtype.itemsize}").astype(np.uint32)
    return values


def rounded(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Round float32 values to low-precision elements. Values from ``widened`` convert back exactly."""
    result = np.ascontiguousarray(convert(values, dtype, FLOAT32))
    nan = np.isnan(values)
    if nan.any():
        unsigned = f"u{dtype.itemsize}"
        origin = np.ascontiguousarray(values[nan]).view(np.uint32) & ORIGIN
        bits = origin.astype(unsigned)
        valid = np.isnan(bits.view(dtype.numpy).astype(np.float32)) & (bits == origin)
        result.view(unsigned)[nan] = np.where(valid, bits, result[nan].view(unsigned))
    return result


# -- writes that do not round: memory ----------------------------------------------------------------------------------
class UnroundedStep:
    """An operation compiled to run on the float32 values of its low-precision tiles, and the tiles that it writes."""

    def __init__(self, op: Op) -> None:
        operands = op.operands()
        self.run = compile_op(changed(op, exact_tile))
        self.low = [tile.dtype if tile.dtype in LOW else None for _, tile in operands]
        self.targets = [(k, tile.dtype, Pattern(tile), Pattern(exact_tile(tile)))
                        for k, (field, tile) in enumerate(operands) if field.writes]


def exact_tile(tile: Tile) -> Tile:
    """Return a low-precision tile as a tile of the float32 values of its memory. A tfloat32 tile becomes float32 in
    place, and any other tile is returned unchanged."""
    if tile.dtype not in (*LOW, TFLOAT32):
        return tile
    shape = (tile.base_shape[0], tile.row) if tile.on_chip else (tile.row,)
    return Tile(tile.handle, tile.space, shape, FLOAT32, replace(tile.access, dtype=FLOAT32), tile.label)


class ExactMemory:
    """The unrounded float32 values of the memory of a launch."""

    def __init__(self) -> None:
        self.copies: dict[int, dict[DType, np.ndarray]] = {}          # by address: all elements, read as a dtype
        self.ends: dict[int, weakref.ref[np.ndarray]] = {}

    def exact_copies(self, memory: np.ndarray) -> dict[DType, np.ndarray]:
        """Return the unrounded values of an array, by the dtype as which a step reads it. They are freed with the
        array."""
        at = address(memory)
        if at not in self.copies:
            self.copies[at] = {}
            self.ends[at] = weakref.ref(memory, partial(self.copies.pop, at))
        return self.copies[at]

    def values(self, memory: np.ndarray, dtype: DType) -> np.ndarray:
        copies = self.exact_copies(memory)
        if dtype not in copies:
            copies[dtype] = widened(flat_view(memory, dtype.numpy), dtype)
        return copies[dtype]

    def perform(self, step: UnroundedStep, arrays: Arrays, values: Values = ()) -> None:
        step.run([a if low is None else self.values(a, low) for a, low in zip(arrays, step.low)], values)
        for k, dtype, pattern, exact in step.targets:
            memory, copies = arrays[k], self.exact_copies(arrays[k])
            target = pattern.at(memory, values)
            if dtype in LOW:
                target[...] = rounded(exact.at(copies[dtype], values), dtype)
            for other_dtype in copies:
                if other_dtype is not dtype:
                    anew = touched(target, memory, other_dtype.itemsize)
                    copies[other_dtype][anew] = widened(flat_view(memory, other_dtype.numpy)[anew], other_dtype)


def address(array: np.ndarray) -> int:
    start: int = array.__array_interface__["data"][0]
    return start


def touched(view: np.ndarray, memory: np.ndarray, size: int) -> np.ndarray:
    """Return a mask of the memory's elements of ``size`` bytes that ``view`` overlaps."""
    mask: np.ndarray = np.zeros(memory.nbytes, np.bool_)
    np.ndarray((*view.shape, view.itemsize), np.bool_, mask, address(view) - address(memory),
               (*view.strides, 1))[...] = True
    any_byte: np.ndarray = mask.reshape(-1, size).max(1)
    return any_byte


def check_apart(arrays: Sequence[np.ndarray]) -> None:
    """Raise an error if two arguments overlap in part: float32 values are kept for each array separately."""
    for a, b in combinations(arrays, 2):
        same = address(a) == address(b) and a.nbytes == b.nbytes
        if not same and np.may_share_memory(a, b):
            invalid(f"two arguments, {list(a.shape)} {a.dtype} and {list(b.shape)} {b.dtype}, share a part of their "
                    f"memory", why=f"with {VARIABLE}=0 the simulator keeps separate float32 values of each",
                    fix="pass copies")


class UnroundedCore(EagerCore):
    """A core whose writes do not round."""

    def __init__(self, *positional: Any, exact: ExactMemory, **named: Any) -> None:
        super().__init__(*positional, **named)
        self.exact = exact

    def compiled(self, op: Op) -> Runner:
        return partial(self.exact.perform, UnroundedStep(op))


# -- arrays of other frameworks ----------------------------------------------------------------------------------------
def is_array(value: object) -> bool:
    return isinstance(value, np.ndarray) or framework(value) is not None


def framework(value: object) -> str | None:
    return next((name for name, kind in framework_tensors.tensor_classes() if isinstance(value, kind)), None)


def to_numpy(value: Any) -> np.ndarray:
    """Return a tensor of any framework as a NumPy array, which shares its memory if possible. Raise ``FreedTensor`` for
    a tensor of PyTorch that lacks memory."""
    array: np.ndarray
    match framework(value):
        case "torch":
            torch = sys.modules["torch"]
            tensor = value.detach().cpu()
            if tensor.dtype.is_floating_point and tensor.dtype not in (torch.float16, torch.float32, torch.float64):
                bits = tensor.view((torch.uint8, torch.int16)[tensor.dtype.itemsize - 1])
                array = bits.numpy().view(dtype_of(str(tensor.dtype).removeprefix("torch.")).numpy)
            else:
                array = tensor.numpy()
            framework_tensors.refuse_freed([tensor], "a kernel")
        case "jax":
            array = np.array(value)
        case _:
            array = value
    return array


def from_numpy(array: np.ndarray, name: str | None) -> Any:
    if name != "torch":
        return array
    torch = sys.modules["torch"]
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view((np.uint8, np.int16)[array.itemsize - 1])).view(getattr(torch, array.dtype.name))


# -- running -----------------------------------------------------------------------------------------------------------
def simulate(kernel: "Kernel", arguments: tuple[object, ...], keywords: dict[str, object], target: str,
             updates: bool = True) -> object:
    """Run a kernel, update the arrays that it writes in place, and return its results as arrays.

    For a kernel that returns nothing the result is the updated arrays if ``updates``, else None. A kernel that has been
    simulated with these shapes may run as native code (``native_simulation``).
    """
    tensors = [leaf for _, leaf in leaves_of((arguments, keywords), lambda v: framework(v) == "torch")]
    if framework_tensors.records(tensors):              # before ``bind`` reads memory, which tracked tensors lack
        framework_tensors.refuse_gradient(kernel.__name__)
    if tensors and framework_tensors.has_tangent(tensors):
        raise framework_tensors.NoDerivative(name=kernel.__name__, **framework_tensors.FORWARD).here()
    arguments, keywords = with_arrays(arguments, keywords)
    bound = kernel.bind(arguments, keywords, is_array, kernel.describe)
    if not rounds():
        return simulate_bound(kernel, bound, target, updates)
    from nki_mlir.language.current import native_simulation  # start-up: loads MLIR
    return native_simulation.run(kernel, bound, lambda: simulate_bound(kernel, bound, target, updates),
                                 lambda native_kernel, apart: natively(native_kernel, arguments, keywords, updates,
                                                                       apart))


def natively(kernel: "Kernel", arguments: tuple[object, ...], keywords: dict[str, object], updates: bool, apart: bool
             ) -> object:
    """Run a kernel as native code. With ``apart`` it runs on copies of the arrays."""
    if apart:
        arguments, keywords = map_leaves((arguments, keywords), is_array, lambda array: array.copy())
    result: object = kernel.run(arguments, keywords, "jit")
    if updates:
        return result
    spec = kernel.specialize(kernel.bind(arguments, keywords, is_array, kernel.describe))
    return None if next(iter(spec.captured.variants.values())).structure is None else result


def simulate_bound(kernel: "Kernel", bound: Bound, target: str, updates: bool) -> object:
    """Simulate a bound call operation by operation, and return its results."""
    tensors = bound.tensors                       # in the order of the parameters
    arrays = [to_numpy(g) for g in tensors]
    memory = ArgumentMemory(arrays, [s.name for s in bound.specs], lambda a: a.flags.c_contiguous and a.flags.writeable,
                            [k for k, g in enumerate(tensors) if framework(g) == "torch"])
    working = memory.arrays

    core: Callable[..., EagerCore] = EagerCore
    if not rounds():
        check_apart(working)
        core = partial(UnroundedCore, exact=ExactMemory())
    structure, values, written = results(kernel, bound, working, partial(core, target=target, fill=sentinel),
                                         report_races)
    unreturned = {id(a) for a in written} - {id(v) for v in values}
    memory.check([k for k, (copy, g) in enumerate(zip(working, tensors)) if id(copy) in unreturned
                  and framework(g) is None])                        # arrays of JAX are always read-only, and stay
    memory.write_back()
    array_of = {id(copy): g for g, array, copy in zip(tensors, arrays, working)
                if array.flags.writeable and framework(g) != "jax"}         # arrays that can be updated in place
    name = next((f for f in map(framework, tensors) if f is not None), None)
    if structure is None and not updates:
        return None
    return assemble(structure, [array_of[id(v)] if id(v) in array_of else from_numpy(np.asarray(v), name)
                                for v in values])


@without_internal_frames
def simulate_ranks(kernel: "Kernel", arguments: Sequence[tuple[object, ...]], target: str | None = None,
                   executor: str = "eager") -> list[object]:
    """Run a kernel with collectives once per rank, rank r on ``arguments[r]``, and return the results by rank.

    ``executor`` is eager, interpreter, jit or isa.
    """
    chosen = kernel if target is None else replace(kernel, target=target)
    arrays = [map_leaves(a, is_array, to_numpy) for a in arguments]
    if executor != "eager":                 # compile before the ranks run concurrently
        for rank_arguments in arrays:
            chosen.specialize(chosen.bind(rank_arguments, {}, is_array, chosen.describe)).program(executor)
    bodies = [partial(chosen.run, rank_arguments, {}, executor) for rank_arguments in arrays]
    return Mesh(bodies, RANKS, parallel=executor == "jit").run()
