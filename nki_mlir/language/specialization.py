# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A captured kernel for given shapes, constants and a grid: its modules, its results, its programs."""

import hashlib
import reprlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nki_mlir import extensions, result_memory
from nki_mlir.alone import ALONE, exclusive_property
from nki_mlir.capture.errors import NoRoomForTensor
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.arguments import TensorSpec
from nki_mlir.language.results import warn_left_out
from nki_mlir.language.traced_errors import traced_as_constant
from nki_mlir.scalar.dtypes import DType
from nki_mlir.scalar.sums import in_device_order

if TYPE_CHECKING:
    from nki_mlir.capture.attempts import Captured
    from nki_mlir.dialects.isa.program import Program
    from nki_mlir.targets.neuron.timing import Timing

Run = Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], None]       # on inputs and shared buffers
WORTH_A_PROOF = 1 << 18         # elements: below this, zeroing a result takes less time than the proof


class Compiled:
    """The instruction streams of a specialization in one mode of the compiler, their time, and their profile."""

    def __init__(self, specialization: "Specialization", as_written: bool) -> None:
        self.specialization, self.is_as_written = specialization, as_written

    @exclusive_property
    def streams(self) -> "list[Program]":
        """Return the instruction streams that are timed."""
        from nki_mlir.targets import neuron  # start-up: loads MLIR
        kernel = self.specialization
        options = neuron.emission(self.is_as_written, static=kernel.static)
        return neuron.streams(kernel.captured, kernel.grid, options, kernel.cores)

    @exclusive_property
    def timing(self) -> "Timing":
        """Return the time of the streams."""
        from nki_mlir.targets import neuron  # start-up: loads MLIR
        return neuron.timed(self.streams, self.is_as_written)

    @exclusive_property
    def profile(self) -> dict[str, Any]:
        """Return the profile of the streams, in the JSON form."""
        from nki_mlir.targets import neuron  # start-up: loads MLIR
        from nki_mlir.targets.neuron.profile import profile_of  # start-up: imported on first use
        return profile_of(self.streams, neuron.mode(self.is_as_written))


class Result(NamedTuple):
    """One output of a kernel: a shared buffer that it allocates, or an input that it updates (at index ``input``)."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    shared: int | None = None
    input: int | None = None
    at: Any = None              # where the kernel allocates it


@dataclass(repr=False)
class Specialization:
    """A kernel captured for given shapes, constants, grid and target.

    ``inputs`` are the tensor arguments in signature order, ``shared`` the buffers all programs write, ``results`` the
    kernel's results, in the form ``structure``. ``key`` is a hash of the contents.
    """

    name: str
    grid: tuple[int, ...]
    target: str
    inputs: list[TensorSpec]
    shared: list[TensorSpec]
    results: list[Result]
    structure: str
    captured: "Captured"
    cores: tuple[int, ...] = ()         # the core of each program, if the launch names several cores
    static: bool = False                # the compiler's option --disable-dge is set: it writes all descriptors
    updated: tuple[int, ...] = ()       # the inputs that it writes, also those that it does not return
    programs: dict[str, Any] = field(default_factory=dict, repr=False)      # executor name -> compiled program

    def __repr__(self) -> str:
        return f"<capture of {self}>"

    def __str__(self) -> str:
        """Return the kernel's name, its tensors and its target."""
        inputs = ", ".join(f"{s.name} {s.dtype}{list(s.shape)}" for s in self.inputs)
        outputs = ", ".join(f"{r.dtype}{list(r.shape)}" for r in self.results)
        grid = f"[{', '.join(map(str, self.grid))}]" if self.grid else ""
        return f"{self.name}{grid} for {self.target}: {inputs or 'nothing'} -> {outputs or 'nothing'}"

    @property
    def modules(self) -> list[Any]:
        """The distinct modules, in the order of the grid points that need them."""
        return list({id(v.module): v.module for v in self.captured.variants.values()}.values())

    @property
    def program_modules(self) -> list[Any]:
        """The module of all programs, or the module of each program in the order of the grid's points."""
        if len(distinct := self.modules) == 1:
            return distinct
        return [self.captured.variant_for(point).module for point in np.ndindex(self.grid)]

    @exclusive_property
    def key(self) -> str:
        """Return a hash of the modules' text, which determines everything, and of the programs that each serves."""
        digest = hashlib.sha256()
        for fixed, variant in self.captured.variants.items():
            digest.update(repr(fixed).encode() + str(variant.module).encode())
        return digest.hexdigest()

    @exclusive_property
    def optimized(self) -> "Compiled":
        """Return the kernel as this compiler optimizes it."""
        return Compiled(self, as_written=False)

    @exclusive_property
    def as_written(self) -> "Compiled":
        """Return the kernel as the vendor's compiler evidently compiles it."""
        return Compiled(self, as_written=True)

    @exclusive_property
    def effects(self) -> list[Any]:
        """The effects of the programs on each shared buffer; empty for small programs."""
        if sum(prod(s.shape) for s in self.shared) < WORTH_A_PROOF:
            return []
        from nki_mlir.graph.custom_call import effects_of  # start-up: loads MLIR
        effects = effects_of(self.modules)
        return [effects["shared", n] for n in range(len(self.shared))]

    @exclusive_property
    def makers(self) -> list[Callable[[], np.ndarray]]:
        """Return the allocator of each shared buffer. It fills the buffer with zeros, unless the buffer is large and
        the kernel surely writes all of it."""
        covered = [e.covered and not e.reads for e in self.effects] or [False] * len(self.shared)
        return self.allocators({n for n, all_written in enumerate(covered) if all_written})

    @property
    def makers_of_repeated_calls(self) -> list[Callable[[], np.ndarray]]:
        """Return the allocators for calls after the first one.

        The first call has shown which elements the kernel does not write. So these allocators fill no small buffers
        either if the kernel writes them completely.
        """
        complete = {n for n, missing in self.missing.items() if missing is None}
        if self.effects or not complete or len(self.modules) > 1:
            return self.makers
        from nki_mlir.targets.interpreter.unwritten_outputs import read_outputs  # start-up: loads MLIR
        return self.allocators(complete - read_outputs(self.modules[0]))

    def allocators(self, written: Collection[int]) -> list[Callable[[], np.ndarray]]:
        """Return the allocator of each shared buffer: all but those in ``written`` begin as zeros."""
        return [result_memory.allocator(s.shape, s.dtype.numpy) if n in written else
                partial(np.zeros, s.shape, s.dtype.numpy) for n, s in enumerate(self.shared)]

    def new_shared(self) -> list[np.ndarray]:
        """Allocate memory for each shared buffer."""
        arrays: list[np.ndarray] = []
        for tensor, make in zip(self.shared, self.makers):
            try:
                arrays.append(make())
            except (MemoryError, OverflowError, ValueError):      # ValueError: the size overflows in NumPy
                at = next((r.at for r in self.results if r.shared == len(arrays)), None)
                size = prod(tensor.shape) * tensor.dtype.itemsize
                error = NoRoomForTensor(shape=list(tensor.shape), dtype=tensor.dtype, bytes=size)
                raise (error if at is None else error.located(at)) from None
        return arrays

    @exclusive_property
    def missing(self) -> dict[int, Any]:
        """Return the elements of shared buffers that no program writes, by the number of the buffer. An entry is None
        if there are none; a buffer without an entry is undecided."""
        from nki_mlir.targets.interpreter.unwritten_outputs import left_out  # start-up: loads MLIR
        return left_out(self.modules, [n for n, e in enumerate(self.effects) if e.covered])

    @exclusive_property
    def left_out(self) -> list[tuple[Result, Any]]:
        """Return the results that are not completely written, with the missing elements."""
        return [(r, missing) for r in self.results
                if r.shared is not None and (missing := self.missing.get(r.shared)) is not None]

    @property
    def repeats(self) -> bool:
        """Return whether a call only computes results: it has no warnings to repeat, and leaves no elements out."""
        return self.structure in ("one", "tuple") and not self.left_out and not self.captured.verdict.races

    def report_left_out(self) -> None:
        """Warn of elements of the results that no program writes, as far as that is known before a run."""
        for result, missing in self.left_out:
            warn_left_out(result.name, prod(result.shape), missing.elements, missing.first, result.at)

    def program(self, on: str) -> Run:
        """Return ``run(inputs, shared)`` for all programs of the grid on that executor; compiled once."""
        if on not in self.programs:
            with ALONE:
                if on not in self.programs:
                    self.programs[on] = executor(on)(self.captured, self.grid)
        program: Run = self.programs[on]
        return program


def executor(on: str) -> "Callable[[Captured, tuple[int, ...]], Run]":
    """Return the loader of an executor: ``load(captured, grid)`` returns ``run(inputs, shared)``.

    Arguments:
        on: jit, interpreter, isa, or the name of a plugin's executor

    Errors:
        An unknown name is an error that lists the executors.
    """
    if on == "jit" and in_device_order():           # native code adds in lanes
        on = "interpreter"
    match on:
        case "interpreter":
            from nki_mlir.targets.interpreter import load  # start-up: imported on first use
        case "jit":
            from nki_mlir.targets.cpu import load  # start-up: imported on first use
        case "isa":
            from nki_mlir.targets.neuron import load  # start-up: imported on first use
        case _:
            check_executor(on)
            return plugin_executor(extensions.of("executors")[on])
    return load


def plugin_executor(extension: extensions.Extension) -> "Callable[[Captured, tuple[int, ...]], Run]":
    """Return the loader of a plugin's executor."""
    load = extensions.load(extension)

    def checked(captured: "Captured", grid: tuple[int, ...]) -> Run:
        run: Run = load(captured, grid) if callable(load) else load
        if not callable(run):
            raise extensions.BrokenPlugin(
                what=f"executor '{extension.name}'", origin=extension.origin,
                text="it must be a function load(captured, grid) that returns a function run(inputs, shared), got "
                     f"{reprlib.repr(run)}")
        return run
    return checked


@traced_as_constant                 # torch.compile traces kernel.on(executor)
def check_executor(on: str) -> None:
    """Raise ``UnknownExecutor`` for a name that neither the toolchain nor a plugin has."""
    if not isinstance(on, str):
        raise UnknownExecutor(name=f"of type {type(on).__name__}", more="").here()
    if on not in extensions.EXECUTORS and on not in (plugin_executors := extensions.of("executors")):
        raise UnknownExecutor(name=f"named '{on}'", more="".join(f", {name}" for name in plugin_executors)).here()



class UnknownExecutor(NkiMlirError, ValueError):
    code = "NKI-EXECUTOR"
    message = "there is no executor {name}"
    fix = "use one of eager, interpreter, jit, isa{more}"
