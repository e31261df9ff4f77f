# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulation: a kernel's Python runs as it is, and every instruction executes at once with NumPy.

Fresh memory holds NaN (floats) or 4 (integers), so that reads of what was never written show. The two cores of a
launch, and the ranks of a group, are threads that take turns.
"""

import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_mlir.dialects.meeting import RANKS
from nki_mlir.dialects.op import Op
from nki_mlir.frontend.eager import EagerBuilder
from nki_mlir.frontend.tensor import Buffer
from nki_mlir.language.arguments import map_leaves, records, refuse_gradient, tensor_classes, with_arrays
from nki_mlir.language.current.errors import invalid
from nki_mlir.language.current.unrounded import ExactMemory, UnroundedStep, check_apart, rounds
from nki_mlir.language.eager_run import report_races, results
from nki_mlir.language.results import assemble
from nki_mlir.scalar.dtypes import DType, dtype_of
from nki_mlir.targets.interpreter.execute import Runner
from nki_mlir.targets.mesh import Mesh

if TYPE_CHECKING:
    from nki_mlir.language.current.kernel import Kernel


def sentinel(dtype: DType) -> float:
    """What fresh memory holds."""
    return float("nan") if dtype.is_float else 4.0


class EagerCore(EagerBuilder):
    """One core of a launch. Tensors in shared HBM are the same memory on all by name, where they have one."""

    def shared_key(self, name: str) -> Hashable:
        return name or super().shared_key(name)

    def allocated(self, shape: tuple[int, ...], dtype: DType, space: str, shared: bool, partition_dim: int,
                  name: str) -> Buffer:
        made = super().allocated(shape, dtype, space, shared, partition_dim, name)
        if (made.handle.shape, made.handle.dtype) != (made.physical_shape, dtype.numpy):
            invalid(f"Tensor {made.name} has mismatched shape or dtype across program instances")
        return made

    def end(self) -> None:
        self.check_memory()

    def note_for_capture(self, used: Iterable[Buffer]) -> None:
        """Loops of this generation do not stay rolled."""


class UnroundedCore(EagerCore):
    """A core whose writes do not round."""

    def __init__(self, *given: Any, exact: ExactMemory, **named: Any) -> None:
        super().__init__(*given, **named)
        self.exact = exact

    def compiled(self, op: Op) -> Runner:
        return partial(self.exact.perform, UnroundedStep(op))


# -- arrays of other frameworks ----------------------------------------------------------------------------------------
def is_array(value: object) -> bool:
    return isinstance(value, np.ndarray) or framework(value) is not None


def framework(value: object) -> str | None:
    return next((name for name, kind in tensor_classes() if isinstance(value, kind)), None)


def to_numpy(value: Any) -> np.ndarray:
    """The array, of the same memory where it can be."""
    array: np.ndarray
    match framework(value):
        case "torch":
            torch = sys.modules["torch"]
            held = value.detach().cpu()
            if held.dtype.is_floating_point and held.dtype not in (torch.float16, torch.float32, torch.float64):
                bits = held.view((torch.uint8, torch.int16)[held.dtype.itemsize - 1])
                array = bits.numpy().view(dtype_of(str(held.dtype).removeprefix("torch.")).numpy)
            else:
                array = held.numpy()
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
    """What the kernel returns, with arrays for its tensors; arrays that it was given and wrote are updated in place.

    A kernel that returns nothing gives those with ``updates``, else None.
    """
    bound = kernel.bind(*with_arrays(arguments, keywords), is_array, kernel.describe)
    given = bound.tensors                       # in the order of the parameters
    if records([g for g in given if framework(g) == "torch"]):
        refuse_gradient(kernel.__name__)
    arrays = [to_numpy(g) for g in given]
    used = [a if a.flags.c_contiguous and a.flags.writeable else np.array(a, order="C") for a in arrays]

    core: Callable[..., EagerCore] = EagerCore
    if not rounds():
        check_apart(used)
        core = partial(UnroundedCore, exact=ExactMemory())
    structure, values = results(kernel, bound, used, partial(core, target=target, fill=sentinel), report_races)
    for array, mine in zip(arrays, used):
        if array is not mine and array.flags.writeable:
            array[...] = mine
    back = {id(mine): g for g, array, mine in zip(given, arrays, used)
            if array.flags.writeable and framework(g) != "jax"}         # what could be updated in place
    name = next((f for f in map(framework, given) if f is not None), None)
    if structure is None and not updates:
        return None
    return assemble(structure, [back[id(v)] if id(v) in back else from_numpy(np.asarray(v), name) for v in values])


def simulate_ranks(kernel: "Kernel", arguments: Sequence[tuple[object, ...]], target: str | None = None,
                   executor: str = "eager") -> list[object]:
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
