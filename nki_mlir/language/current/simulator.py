# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulation: a kernel's Python runs as it is, and every instruction executes at once with NumPy.

Fresh memory holds NaN (floats) or 4 (integers), so that reads of what was never written show. The two cores of a
launch, and the ranks of a group, are threads that take turns.
"""

import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.meeting import RANKS
from nki_mlir.dialects.nisa.written import OutputNotWritten, idle
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.target_rules import TargetRule
from nki_mlir.frontend.builder import Operands, current
from nki_mlir.frontend.eager import CHECKING, EagerBuilder, verdict_on
from nki_mlir.frontend.index import Symbol
from nki_mlir.frontend.locations import raised_at
from nki_mlir.frontend.races import report
from nki_mlir.frontend.tensor import Buffer, View
from nki_mlir.language.arguments import Bound, map_leaves, with_arrays
from nki_mlir.language.current.errors import invalid, of_core, warn
from nki_mlir.language.current.unrounded import ExactMemory, Step, check_apart, rounds
from nki_mlir.language.eager_run import until_shared
from nki_mlir.language.gradients import records, refuse_gradient
from nki_mlir.language.results import Traced, assemble, structure_of_updates, warn_left_out
from nki_mlir.scalar.dtypes import DType, dtype_of
from nki_mlir.targets.mesh import Mesh, run_programs


def sentinel(dtype: DType) -> float:
    """What fresh memory holds."""
    return float("nan") if dtype.is_float else 4.0


class Core(EagerBuilder):
    """One core of a launch. Tensors in shared HBM are the same memory on all: by name, or by the order they are made
    in."""

    def __init__(self, grid: tuple[int, ...], point: tuple[int, ...], target: str, common: dict[Any, np.ndarray],
                 results: Container[tuple] = ()) -> None:
        super().__init__(grid, point, target=target, fill=sentinel, results=results)
        self.common = common

    def allocated(self, shape: tuple[int, ...], dtype: DType, space: str, shared: bool, partition_dim: int,
                  name: str) -> Buffer:
        key = name or self.taken
        made = super().allocated(shape, dtype, space, False, partition_dim, name)
        if shared:
            made.role = "output"
            self.taken += 1
            held = self.common.setdefault(key, made.handle)
            if held.shape != made.handle.shape or held.dtype != made.handle.dtype:
                invalid(f"Tensor {made.name} has mismatched shape or dtype across program instances")
            made.handle = held
        return made


class UnroundedCore(Core):
    """A core whose writes do not round."""

    def __init__(self, *given: Any, exact: ExactMemory, **named: Any) -> None:
        super().__init__(*given, **named)
        self.exact = exact

    def perform(self, op: Op, operands: Operands, views: Sequence[View], symbols: Sequence[Symbol],
                known: dict[str, Any]) -> None:
        step = known.get("step")
        if step is None:
            step = known["step"] = Step(op, operands)
        arrays = [tile.handle for _, tile in operands]
        self.tracking(op, arrays, known, lambda: self.exact.perform(step, arrays))
        self.note(op, operands, views)


# -- arrays of other frameworks ----------------------------------------------------------------------------------------
def is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or framework(value) is not None


def framework(value: Any) -> str | None:
    for name, kind in (("torch", "Tensor"), ("jax", "Array")):
        found = getattr(sys.modules.get(name), kind, None)
        if found is not None and isinstance(value, found):
            return name
    return None


def to_numpy(value: Any) -> np.ndarray:
    """The array, of the same memory where it can be."""
    match framework(value):
        case "torch":
            torch: Any = sys.modules["torch"]
            held = value.detach().cpu()
            if held.dtype.is_floating_point and held.dtype not in (torch.float16, torch.float32, torch.float64):
                bits = held.view((torch.uint8, torch.int16)[held.dtype.itemsize - 1])
                return bits.numpy().view(dtype_of(str(held.dtype).removeprefix("torch.")).numpy)
            return held.numpy()
        case "jax":
            return np.array(value)
    return value


def from_numpy(array: np.ndarray, name: str | None) -> Any:
    if name != "torch":
        return array
    torch: Any = sys.modules["torch"]
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view((np.uint8, np.int16)[array.itemsize - 1])).view(getattr(torch, array.dtype.name))


# -- running -----------------------------------------------------------------------------------------------------------
def simulate(kernel: Any, arguments: tuple, keywords: dict[str, Any], target: str, updates: bool = True) -> Any:
    """What the kernel returns, with arrays for its tensors; arrays that it was given and wrote are updated in place.

    A kernel that returns nothing gives those with ``updates``, else None.
    """
    grid = kernel.grid
    bound = kernel.bind(*with_arrays(arguments, keywords), is_array, kernel.describe)
    given = bound.tensors                       # in the order of the parameters
    if records([g for g in given if framework(g) == "torch"]):
        refuse_gradient(kernel.__name__)
    arrays = [to_numpy(g) for g in given]
    used = [a if a.flags.c_contiguous and a.flags.writeable else np.array(a, order="C") for a in arrays]

    core: Callable[..., Core] = Core
    if not rounds():
        check_apart(used)
        core = partial(UnroundedCore, exact=ExactMemory())
    traced, values = until_shared(grid, used, lambda results: run_cores(kernel, bound, used, partial(
        core, grid, target=target, results=results), updates))
    for array, mine in zip(arrays, used):
        if array is not mine and array.flags.writeable:
            array[...] = mine
    back = {id(mine): g for g, array, mine in zip(given, arrays, used)
            if array.flags.writeable and framework(g) != "jax"}         # what could be updated in place
    name = next((f for f in map(framework, given) if f is not None), None)
    return assemble(traced, [back[id(v)] if id(v) in back else from_numpy(np.asarray(v), name) for v in values])


def run_cores(kernel: Any, bound: Bound, arrays: Sequence[np.ndarray], core: Callable[..., Core],
              updates: bool) -> tuple[str, list[np.ndarray]]:
    """The structure of the results, and their arrays; those of inputs are the ones of ``arrays``."""
    common: dict[Any, np.ndarray] = {}
    cores = [core(point=point, common=common) for point in np.ndindex(*kernel.grid)]
    programs = run_programs(lambda number: _run(kernel, cores[number], bound, arrays), len(cores))
    if not CHECKING.get():
        check_written(programs[0].buffers, cores, kernel.location)
    report(verdict_on(cores).races)
    structure, buffers = programs[0].structure, programs[0].buffers
    if structure is not None:
        return structure, [b.handle for b in buffers]
    written = {id(b.handle) for p in programs for b in p.buffers}
    values = [a for a in arrays if id(a) in written] if updates else []
    return structure_of_updates(len(values)), values


def check_written(results: Sequence[Buffer], cores: Sequence[Core], at: Location | None) -> None:
    """Some core has written each tensor that is returned; ``at`` is the kernel. A warning where some elements are not.
    """
    written = {id(buffer.handle) for core in cores for buffer in core.written}
    for buffer in results:
        if buffer.role != "output":
            continue
        if id(buffer.handle) not in written:
            loops = [loop for core in cores for loop in core.properties.get("idle_loops", ())]
            reason = f": {idle(loops[0])}" if loops else ""
            raise OutputNotWritten(what=f"the output {buffer.name} is never written{reason}").located(
                buffer.place or at)
        if (missing := buffer.handle.first_unwritten()) is not None:
            left, first = missing
            held = f"{sentinel(buffer.dtype):g} here, 0 where the kernel is compiled"
            warn_left_out(buffer.name, buffer.handle.size, left, first, buffer.place or at, held)


def _run(kernel: Any, core: Core, bound: Bound, arrays: Sequence[np.ndarray]) -> Traced:
    """One core's run."""
    token = current.set(core)
    try:
        parameters = [core.parameter(a, s.dtype, s.name) for a, s in zip(arrays, bound.specs)]
        traced = kernel.trace(core, kernel.func, bound, parameters)
        core.check_memory()
        return traced
    except TargetRule as error:
        raise of_core(error) from error
    except NkiMlirError as error:
        raise error.located(raised_at(error.__traceback__)) from None
    finally:
        current.reset(token)


def simulate_ranks(kernel: Any, arguments: Sequence[tuple], target: str | None = None, executor: str = "eager"
                   ) -> list[Any]:
    """A kernel with collectives, once for each rank: rank r gets ``arguments[r]``. Returns what each returns.

    ``executor`` is eager, interpreter, jit or isa.
    """
    chosen = kernel if target is None else replace(kernel, target=target)
    given = [map_leaves(a, is_array, to_numpy) for a in arguments]
    if executor != "eager":                 # compiled before the ranks run side by side
        for one in given:
            chosen.specialize(chosen.bind(one, {}, is_array, chosen.describe)).program(executor)
    bodies = [partial(chosen.run, one, {}, executor) for one in given]
    return Mesh(bodies, RANKS, parallel=executor == "jit").run()
