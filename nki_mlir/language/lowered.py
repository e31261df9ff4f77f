# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The result of ``kernel.lower(...)``: a kernel for arguments of given shapes, at each of its levels, with its time.

Each attribute computes its value on first use, and memoizes it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from nki_mlir import display
from nki_mlir.alone import alone
from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.arguments import Bound, Described, dtype_name, extents_of, map_leaves, zeros_of
from nki_mlir.language.specialization import Compiled, Specialization
from nki_mlir.scalar.dtypes import DType, dtype_of

if TYPE_CHECKING:
    from nki_mlir.bindings import Module
    from nki_mlir.dialects.isa.program import Program
    from nki_mlir.targets.neuron.timing import Timing

LEVELS = ("nki", "waist", "nisa", "isa")


class UnknownLevel(NkiMlirError, ValueError):
    code = "NKI-LOWERED-LEVEL"
    message = "there is no level {name}"
    fix = "use one of nki (as captured), waist (linalg on tiles), nisa (instructions), isa (streams)"


class UnnamedOption(NkiMlirError, TypeError):
    code = "NKI-LOWERED-OPTION"
    message = "{method}() takes keyword arguments only, got a positional one of type {kind}"
    fix = "{instead}"


class WrongOption(NkiMlirError, TypeError):
    code = "NKI-LOWERED-OPTION"
    message = "{method}() takes True or False as as_written, got a value of type {kind}"
    fix = "write {method}(as_written=True), or leave the option out"


class NoSuchModule(NkiMlirError, IndexError):
    code = "NKI-LOWERED-MODULE"
    message = "there is no module {number} at the {level} level: the kernel has {count}"
    why = "programs of a grid share one module unless their text differs"
    fix = "give a number from 0 to {last}"


class Spec(Described):
    """A tensor of which only shape and dtype are known: an argument of ``kernel.lower``; in a call it stands for zeros.

    Arguments:
        shape: its extents
        dtype: a name, or a dtype of NumPy, PyTorch or the language

    Errors:
        A value that is not a shape or not a dtype raises a TypeError.

    Example:
        x = Spec((128, 64), "bfloat16")
        assert x.shape == (128, 64) and x.zeros().dtype.name == "bfloat16"
    """

    def __init__(self, shape: tuple[int, ...], dtype: object = "float32") -> None:
        self.annotated_shape, self.annotated_dtype = extents_of(shape), dtype_name(dtype)
        self.annotated_shape = self.zeros().shape       # of integers; a bad shape or dtype is an error

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self.annotated_shape

    def __repr__(self) -> str:
        return f"spec({self.annotated_shape}, {self.annotated_dtype!r})"


def is_described(value: object) -> bool:
    """Return whether a value has a shape and a dtype, as arrays of any framework and ``Spec`` do."""
    if isinstance(value, Described):
        return True
    return not isinstance(value, (type, np.generic)) and hasattr(value, "shape") and hasattr(value, "dtype")


def as_array(value: Any) -> np.ndarray:
    """Return an array of the value's shape and dtype; its elements do not matter."""
    if issubclass(type(value), np.ndarray):
        array: np.ndarray = value
        return array
    return value.zeros() if isinstance(value, Described) else zeros_of(value.shape, value.dtype)


def as_spec(value: Any) -> Spec:
    """Return the value's shape and dtype."""
    array = as_array(value)
    return Spec(array.shape, dtype_of(array.dtype).name)


class BindableKernel(Protocol):
    """A kernel, as far as lowering needs it."""

    @property
    def describe(self) -> Callable[[Any], tuple[tuple[int, ...], DType]]: ...
    def bind(self, arguments: tuple[object, ...], keywords: dict[str, object], is_tensor: Callable[[object], bool],
             describe: Callable[[Any], tuple[tuple[int, ...], DType]]) -> Bound: ...
    def specialize(self, bound: Bound) -> Specialization: ...


def lower(kernel: BindableKernel, arguments: tuple[object, ...], keywords: dict[str, object]) -> "Lowered":
    """Capture the kernel for arguments of these shapes, dtypes and constants."""
    positional = map_leaves(arguments, is_described, as_array)
    named = map_leaves(keywords, is_described, as_array)
    bound = kernel.bind(positional, named, lambda value: issubclass(type(value), np.ndarray), kernel.describe)
    display.register()
    described = map_leaves(arguments, is_described, as_spec), map_leaves(keywords, is_described, as_spec)
    return Lowered(kernel.specialize(bound), (kernel, *described))


@dataclass
class KernelCost:
    """The cost of a kernel, as counted while it is timed. ``operations``: multiplications and additions.

    Example:
        cost = nki.jit(double).lower(Spec((128, 64))).cost
        assert (cost.operations, cost.hbm_bytes) == (128 * 64, 2 * 128 * 64 * 4)
        assert cost.instructions == sum(cost.instructions_per_engine.values()) and cost.busy_ns["vector"] > 0
    """

    total_ns: float
    operations: int
    hbm_bytes: int
    instructions: int
    instructions_per_engine: dict[str, int]
    busy_ns: dict[str, float]

    def _repr_html_(self) -> str:
        return display.table(["", "value"], [[name, value] for name, value in vars(self).items()])


class Profile:
    """Where a kernel's time goes: ``document`` as docs/profile.md describes it; ``write(folder)`` writes three files.

    Arguments:
        document: the profile as a JSON object

    Errors:
        None.

    Example:
        profile = nki.jit(double).lower(Spec((128, 64))).profile()
        assert "what would make it faster" in str(profile).lower() or not profile.advice
        assert profile.document["timing"]["kernel"] == "double"
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    @property
    def advice(self) -> list[dict[str, Any]]:
        """Changes that would make the kernel faster: the rule, its source location, the time saved, and a sentence.

        Arguments:
            none

        Result:
            A list of dicts, the largest saving first.

        Errors:
            None.

        Example:
            advice = nki.jit(double).lower(Spec((16, 4096))).profile().advice
            assert all(one["saves_ns"] > 0 and one["rule"] and one["text"] for one in advice)
        """
        entries: list[dict[str, Any]] = self.document["advice"]
        return entries

    @without_internal_frames
    def write(self, folder: str | Path) -> list[Path]:
        """Write the document, a trace and the page to a folder.

        Arguments:
            folder: the folder of the files, which is created if it is missing

        Result:
            The paths of the three files.

        Errors:
            A folder that cannot be written to is an error.

        Example:
            files = nki.jit(double).lower(Spec((128, 64))).profile().write("timed")
            assert [file.name for file in files] == ["profile.json", "trace.json.gz", "profile.html"]
            assert all(file.exists() for file in files)
        """
        from nki_mlir.targets.neuron.profile import write_profile  # start-up: imported on first use
        return write_profile(self.document, folder)

    def __repr__(self) -> str:
        timing, count = self.document["timing"], len(self.advice)
        return f"<profile of {timing['kernel']}: {timing['total_ns'] / 1e3:.4g} us, {count} pieces of advice>"

    def __str__(self) -> str:
        import io  # start-up: imported on first use

        from nki_mlir.targets.neuron.profile.summary import show
        out = io.StringIO()
        show(self.document, out, 100)
        return out.getvalue()

    def _repr_html_(self) -> str:
        from nki_mlir.targets.neuron.profile import page  # start-up: imported on first use
        return display.frame(page(self.document))


@dataclass(repr=False)
class Lowered:
    """A kernel captured for given arguments: at each level, as streams, with its time.

    The levels are ``nki`` (as written), ``waist`` (linalg on tiles), ``nisa`` (one operation an instruction) and
    ``isa`` (streams with addresses and semaphores).

    Example:
        lowered = nki.jit(double).lower(Spec((128, 64), "float32"))
        assert lowered.name == "double"
    """

    specialization: Specialization
    lowered_from: tuple[BindableKernel, tuple[object, ...], dict[str, object]] = field(compare=False)   # with specs
    memo: "dict[str, list[Module]]" = field(default_factory=dict, repr=False)         # by level

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.specialization.name

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the kernel and its arguments' shapes and dtypes; the process that loads it lowers the kernel again."""
        return lower, self.lowered_from

    def __deepcopy__(self, memory: object) -> "Lowered":
        return Lowered(self.specialization, self.lowered_from)          # without the modules, which a caller may change

    @without_internal_frames
    def as_text(self, level: str = "nki") -> str:
        """Return the modules of a level as text; ``isa`` is assembly. ``// -----`` separates the modules of a grid.

        Arguments:
            level: nki (as written), waist (linalg on tiles), nisa (instructions) or isa (streams)

        Result:
            The text.

        Errors:
            An unknown level raises a ValueError.

        Example:
            lowered = nki.jit(double).lower(Spec((128, 64)))
            assert "nki.load" in lowered.as_text() and "linalg.generic" in lowered.as_text("waist")
            assert "nisa.tensor_scalar" in lowered.as_text("nisa") and "TENSOR_SCALAR" in lowered.as_text("isa")
        """
        from nki_mlir.targets import neuron  # start-up: imported on first use
        if isinstance(level, str) and level == "isa":
            return str(neuron.write(self.streams, "asm"))
        return neuron.SEPARATOR.join(f"{module}\n" for module in self._modules(level))

    @without_internal_frames
    def module(self, level: str = "nki", number: int = 0) -> "Module":
        """Return an MLIR module of a level. Each call returns the same module, and nothing else uses it.

        Arguments:
            level: nki, waist, nisa or isa
            number: its index, if the programs of the grid have several modules

        Result:
            A module of the MLIR bindings, which may be changed.

        Errors:
            An unknown level or a number out of range is an error.

        Example:
            module = nki.jit(double).lower(Spec((128, 64))).module("nki")
            assert module.operation.verify()
            names = [operation.name for operation in module.body.operations[0].regions[0].blocks[0]]
            assert "nki.store" in names
        """
        modules = self._modules(level)
        if not isinstance(number, int) or not 0 <= number < len(modules):
            raise NoSuchModule(number=number if isinstance(number, int | str) else f"of type {type(number).__name__}",
                               level=level, count=len(modules), last=len(modules) - 1).here()
        return modules[number]

    @property
    @without_internal_frames
    def streams(self) -> "list[Program]":
        """The instruction streams that are timed: a program for each core that the kernel uses.

        Arguments:
            none

        Result:
            A list of programs.

        Errors:
            A kernel that needs an instruction that the machine lacks, or too much memory, is an error.

        Example:
            program, = nki.jit(double).lower(Spec((128, 64))).streams
            assert {engine.value for engine, stream in program.streams.items() if stream} >= {"vector", "sync"}
        """
        return self.specialization.optimized.streams

    @without_internal_frames
    def time(self, *unnamed: object, as_written: bool = False) -> "Timing":
        """Return the time on the timed machine, and where it is spent, as ``nki-run --time`` does.

        Arguments:
            unnamed: none is taken; options have names
            as_written: compile the kernel as the vendor's compiler evidently does, like ``--as-written``

        Result:
            A ``Timing``: ``total_ns``, ``path``, ``figures()``.

        Errors:
            The errors of ``streams``. An argument without a name raises ``UnnamedOption``.

        Example:
            small, large = (nki.jit(double).lower(Spec((128, n))).time().total_ns for n in (64, 8192))
            assert 0 < small < large
            lowered = nki.jit(double).lower(Spec((128, 64)))
            assert lowered.time(as_written=True).mode == "as-written"
        """
        check_options("time", unnamed, as_written)
        return self._compiled(as_written).timing

    @without_internal_frames
    def profile(self, *unnamed: object, as_written: bool = False) -> Profile:
        """Return the profile. A notebook shows its page, ``write(folder)`` writes it to files.

        Arguments:
            unnamed: none is taken; options have names
            as_written: compile the kernel as the vendor's compiler evidently does, like ``--as-written``

        Result:
            A ``Profile``: ``document``, ``advice``, ``write(folder)``.

        Errors:
            The errors of ``streams``. An argument without a name raises ``UnnamedOption``.

        Example:
            lowered = nki.jit(double).lower(Spec((128, 64)))
            assert lowered.profile().document["timing"]["total_ns"] == lowered.time().total_ns
        """
        check_options("profile", unnamed, as_written)
        return Profile(self._compiled(as_written).profile)

    @property
    @without_internal_frames
    def cost(self) -> KernelCost:
        """Time, arithmetic, bytes to and from HBM, and instructions.

        Arguments:
            none

        Result:
            A ``KernelCost``.

        Errors:
            The errors of ``streams``.

        Example:
            lowered = nki.jit(double).lower(Spec((128, 64), "bfloat16"))
            assert lowered.cost.hbm_bytes == 2 * 128 * 64 * 2 and lowered.cost.total_ns == lowered.time().total_ns
        """
        figures, point = self.profile().document["timing"], self.profile().document["roofline"]["points"][0]
        return KernelCost(figures["total_ns"], point["operations"], figures["hbm_bytes"], figures["instructions"],
                    figures["instructions_per_engine"], figures["busy_ns"])

    def _compiled(self, as_written: bool) -> "Compiled":
        return self.specialization.as_written if as_written else self.specialization.optimized

    def _modules(self, level: str) -> "list[Module]":
        if not isinstance(level, str) or level not in LEVELS:
            raise UnknownLevel(name=f"named {level!r}" if isinstance(level, str) else
                               f"of type {type(level).__name__}").here()
        if level not in self.memo:
            self.memo[level] = self._lowered(level)
        return self.memo[level]

    @alone
    def _lowered(self, level: str) -> "list[Module]":
        """Lower copies of the captured modules to a level."""
        from nki_mlir.bindings import cloned, ir  # start-up: loads MLIR
        from nki_mlir.dialects.isa.module import load_isa, program_text
        from nki_mlir.dialects.mlir_ops import new_context
        from nki_mlir.passes.pass_manager import run_passes
        from nki_mlir.passes.pipelines import passes_to
        if level == "isa":
            context = new_context()
            load_isa(context)
            return [ir.Module.parse(program_text(program), context) for program in self.streams]
        lowered = []
        for module in self.specialization.modules:
            with module.context, ir.Location.unknown():
                copy = cloned(module)
                if level != "nki":
                    run_passes(copy, passes_to("linalg" if level == "waist" else level, copy))
                lowered.append(copy)
        return lowered

    def __repr__(self) -> str:
        return f"<lowered {self.specialization}>"

    def _repr_html_(self) -> str:
        return "".join(display.folded(level, display.mlir(self.as_text(level)), level == "nki") for level in LEVELS)


__all__ = ["KernelCost", "Lowered", "Profile", "Spec"]


def check_options(method: str, unnamed: tuple[object, ...], as_written: object) -> None:
    """Raise ``UnnamedOption`` if a method that takes options by name alone got another argument, and ``WrongOption`` if
    its option is neither true nor false."""
    if not isinstance(as_written, bool | np.bool_):
        raise WrongOption(method=method, kind=type(as_written).__name__).here()
    if unnamed:
        is_path = method == "profile" and isinstance(unnamed[0], str | Path)
        raise UnnamedOption(method=method, kind=type(unnamed[0]).__name__, instead=(
            f"write the profile to a folder with profile().write({str(unnamed[0])!r})" if is_path else
            f"give arrays to kernel.lower(...), and options by name: {method}(as_written=True)")).here()
