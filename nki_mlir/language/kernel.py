# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels: decorated functions that are captured once per specialization and run on an executor.

``kernel(*arguments)`` runs a grid of no dimensions, ``kernel[g0, g1](*arguments)`` one program per point. NumPy arrays
give NumPy results. The adapter in ``nki_mlir.frameworks`` runs calls with tensors of a framework. A kernel that another
kernel calls is inlined.
"""

import functools
import importlib
import operator
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar, TypeGuard, TypeVar

import numpy as np

from nki_mlir.alone import alone
from nki_mlir.capture.builder import Builder, current
from nki_mlir.capture.errors import NestedGrid
from nki_mlir.capture.loop_state import Identity
from nki_mlir.capture.races.verdicts import checked, report
from nki_mlir.capture.source_text import remember
from nki_mlir.capture.tensor import Buffer
from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.capture.wrapping import definition_location, is_python_function, name_of, underlying, wrap
from nki_mlir.diagnostics import LEVEL, device_rules, value_text
from nki_mlir.dialects.nisa.indirect import IndirectOutOfBounds
from nki_mlir.environment import EXECUTOR, TARGET, raw_values
from nki_mlir.language import call_cache
from nki_mlir.language.argument_memory import ArgumentMemory
from nki_mlir.language.arguments import (
    BadArgument,
    Bound,
    ElementType,
    MaskedArgument,
    TensorSpec,
    bind,
    explained,
    signature_of,
    values_of,
    with_arrays,
)
from nki_mlir.language.closure_state import ClosureState
from nki_mlir.language.compiled_files import leave_for_profilers
from nki_mlir.language.framework_tensors import framework_of, is_traced
from nki_mlir.language.kernel_attributes import Derived, LostKernel, takes_attributes
from nki_mlir.language.launch_grid import extents_and_cores
from nki_mlir.language.other_threads import OtherThreads
from nki_mlir.language.read_files import FilesRead
from nki_mlir.language.read_tensors import TensorsRead
from nki_mlir.language.results import as_result, assemble, check_written, report_missing, results_of, traced
from nki_mlir.language.specialization import Result, Specialization, check_executor
from nki_mlir.language.tensor import Tensor
from nki_mlir.machine import DEFAULT_TARGET
from nki_mlir.scalar.dtypes import DType, dtype_of

if TYPE_CHECKING:
    from nki_mlir.capture.eager import EagerBuilder
    from nki_mlir.capture.mlir_builder import MlirBuilder
    from nki_mlir.language.lowered import Lowered
    from nki_mlir.language.results import Traced

K = TypeVar("K", bound="Kernel")

PUBLIC = ("func", "grid", "lower", "mode", "on", "options", "target")       # the public attributes of a kernel
DECORATE = "decorate a function with nki.jit"
TRACKS = ("interpreter", "isa")          # executors that track writes, and find races that depend on data


def is_masked(array: object) -> "TypeGuard[np.ma.MaskedArray]":
    """Return whether an object is a masked array. NumPy imports these late: plain arrays do not need the import."""
    return isinstance(array, np.ndarray) and type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray)


def describe_array(array: np.ndarray) -> tuple[tuple[int, ...], DType]:
    if is_masked(array):
        raise MaskedArgument().here()
    try:
        return tuple(array.shape), dtype_of(array.dtype)
    except TypeError as error:
        subject = f"an array of dtype {array.dtype} is passed to a kernel"
        raise ElementType.of(subject, array.dtype, error).here() from None


@takes_attributes
@dataclass(eq=False, frozen=True, repr=False)
class Kernel(Derived):
    """A decorated function, with its names. ``kernel[grid]`` and ``kernel.on(...)`` give copies that share the cache.

    ``by_reference``: outputs are parameters that the kernel writes; if None, the function's result decides.
    """

    func: Callable[..., object]
    grid: tuple[int, ...] = ()
    has_grid: bool = False
    mode: str = "auto"
    target: str | None = None
    executor: str | None = None
    by_reference: bool | None = None
    options: dict[str, Any] = field(default_factory=dict, compare=False)
    specializations: call_cache.CallCache = field(default_factory=call_cache.CallCache, repr=False, compare=False)
    cores: tuple[int, ...] = ()                 # the core of each program, if the grid names several cores

    rolls: ClassVar[bool] = True                # whether loops of the kernel's Python may become loops of the program
    must_write: ClassVar[bool] = True           # whether a kernel without outputs is an error

    describe = staticmethod(describe_array)     # shape and dtype of an array argument
    reported = staticmethod(lambda error: error)            # converts an error of the core to the generation's

    def __post_init__(self) -> None:
        names: dict[str, Any] = {name: getattr(self.func, name) for name in functools.WRAPPER_ASSIGNMENTS
                                 if hasattr(self.func, name)}
        remember(underlying(self.func))
        vars(self).update(names, __name__=name_of(self.func), __wrapped__=self.func, fixed=self._fixed(),
                          identity=identity_of(self.func), launches={}, among={})

    def _fixed(self) -> tuple[object, ...]:
        """Return the part of a call's key that is fixed by the kernel object, which is immutable."""
        return self.grid, self.cores, self.target, self.mode, self.by_reference

    def with_changes(self: K, **changes: object) -> K:
        """Return a copy with changed fields, and with the attributes that the user has set on the kernel."""
        copy = object.__new__(type(self))
        state = vars(self) | changes | {"launches": {}, "among": {}}
        object.__setattr__(copy, "__dict__", state)
        state["fixed"] = copy._fixed()
        if "func" in changes:
            state["identity"] = identity_of(copy.func)
        return copy

    def uncached(self: K, **changes: object) -> K:
        """Return a copy with changed fields and an empty call cache, since captures depend on these fields."""
        return self.with_changes(**changes, specializations=call_cache.CallCache())

    def __get__(self, instance: object, owner: type) -> "Kernel":
        """Return a bound method if the first parameter is ``self`` or ``cls``; a class does not bind any other
        kernel."""
        first_parameter = next(iter(signature_of(self.func).parameters), None)
        if instance is None or first_parameter not in ("self", "cls"):
            return self
        return self.with_changes(func=MethodType(self.func, instance))

    @without_internal_frames
    def __getitem__(self: K, grid: object) -> K:
        """Return the kernel with a launch grid. For a grid of integers the kernel memoizes it, since each call
        ``kernel[grid](...)`` needs it, until the kernel or a copy with a grid gets another attribute."""
        if not (type(grid) is int or (type(grid) is tuple and {*map(type, grid)} == {int})) or is_traced():
            return self.launched(grid)
        kernel: K | None = self.launches.get(self.launch_key(grid))
        return self.memoized(self.launch_key(grid), self.launched(grid)) if kernel is None else kernel

    def launch_key(self, grid: object) -> object:
        """Return the key by which the kernel memoizes itself with a grid."""
        return grid

    def launched(self: K, grid: object) -> K:
        """Return a copy with a launch grid."""
        extents, cores = extents_and_cores(grid)
        return self.with_changes(grid=extents, cores=cores, has_grid=True)

    @without_internal_frames
    def on(self: K, executor: str) -> K:
        """Return the kernel with a fixed executor: eager, interpreter, jit, isa, or one of a plugin."""
        check_executor(executor)
        return self.with_changes(executor=executor)

    @without_internal_frames
    def __call__(self, *arguments: object, **keywords: object) -> Any:
        return self.inline(arguments, keywords) if capturing() else self.called(arguments, keywords)

    def called(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> Any:
        """Run the kernel on arrays of NumPy or of a framework, outside of other kernels."""
        call, function = None, self.func
        if not keywords and type(function) is FunctionType and not is_traced():     # Dynamo cannot read such keys
            executor, target, level = raw_values(EXECUTOR.key, TARGET.key, LEVEL.key)
            key = call_cache.key_of_arrays([function, self.fixed, target, level], function, arguments)
            call = None if key is None else self.specializations.find(key)
        if call is None:
            arguments, keywords = with_arrays(arguments, keywords)
            adapter = framework_of(arguments, keywords)
            if adapter is not None:
                return adapter.call(self, arguments, keywords)
        try:
            if call is not None:
                run: call_cache.ArrayRun | None = call.runs.get(self.executor or executor or "_XLAC" in sys.modules)
                if run is not None:
                    arrays: Sequence[np.ndarray] = arguments            # type: ignore[assignment]
                    if len(arguments) > run.inputs:
                        arrays = [a for a in arguments if type(a) is np.ndarray]
                    if not run.updated or run.fits(arrays):
                        return run(arrays)
            return self.run(arguments, keywords, self.executor or default_executor())
        except IndirectOutOfBounds as error:
            raise plain(error) from error

    @without_internal_frames
    def lower(self, *arguments: object, **keywords: object) -> "Lowered":
        """Lower the kernel for arguments of these shapes: to text and modules of each level, streams, time, cost.

        Arguments may be arrays of any framework, ``jax.ShapeDtypeStruct``, tensors without values or
        ``nki_mlir.spec(shape, dtype)``; anything else is a constant, as in a call.
        """
        from nki_mlir.language.lowered import lower  # start-up: imported on first use
        return lower(self, arguments, keywords)

    # -- copies and pickles --------------------------------------------------------------------------------------------
    def __deepcopy__(self, memory: object) -> "Kernel":
        return self                             # it is immutable

    # -- attributes and text -------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        code = getattr(underlying(self.func), "__code__", None)
        grid = f"[{', '.join(map(str, self.grid))}]" if self.has_grid else ""
        source = "" if code is None else f" of {Path(code.co_filename).name}:{code.co_firstlineno}"
        return f"<kernel {self.__name__}{grid}{source}{f', on {self.executor}' if self.executor else ''}>"

    def __dir__(self) -> list[str]:
        """Return the names for users, and those that Python looks for."""
        return sorted({*PUBLIC, *(name for name in object.__dir__(self) if name.startswith("__"))})

    def _repr_html_(self) -> str:
        from nki_mlir import display  # start-up: needed in a notebook
        rows = [[name, getattr(self, name)] for name in ("grid", "mode", "target", "executor")]
        return display.table([repr(self), ""], [[name, value] for name, value in rows if value])

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the kernel as Python pickles functions, by name; a process that loads it captures it again."""
        module, name = self.func.__module__, getattr(self.func, "__qualname__", self.__name__)
        changed = {f: getattr(self, f) for f in
                   ("grid", "has_grid", "cores", "mode", "target", "executor", "by_reference", "options")}
        arguments = type(self), module, name, changed
        try:
            named = kernel_named(*arguments)
        except (ImportError, AttributeError):
            named = None
        if named is None or named.func is not self.func:
            raise pickle.PicklingError(f"kernel {name} cannot be pickled: {module} has no such name for it. "
                                       "fix: define the kernel at the top of a module")
        return kernel_named, arguments

    # -- specializing --------------------------------------------------------------------------------------------------
    @property
    def platform(self) -> str:
        return self.target or TARGET.text() or self.options.get("platform_target") or DEFAULT_TARGET

    def bind(self, arguments: tuple[object, ...], keywords: dict[str, object], is_tensor: Callable[[object], bool],
             describe: Callable[[Any], tuple[tuple[int, ...], DType]]) -> Bound:
        return bind(self.func, arguments, keywords, is_tensor, describe)

    def settings(self) -> tuple[object, ...]:
        """Return the part of a call's key that does not depend on its arguments."""
        function: object = self.func
        if type(function) is not FunctionType:
            function = Identity(underlying(self.func) or type(self.func))
        return function, self.fixed, TARGET.raw(), LEVEL.raw()

    def executor_settings(self) -> object:
        """Return the settings that determine the executor of a call."""
        return self.executor or EXECUTOR.raw() or "_XLAC" in sys.modules

    def specialize(self, bound: Bound) -> Specialization:
        """Return the capture for these arguments, memoized."""
        return self.cached_call(bound).capture

    def cached_call(self, bound: Bound) -> call_cache.CachedCall:
        """Return the cached call for these arguments, capturing the kernel if there is none; report its races."""
        device_rules()                          # an unknown level is an error
        key = call_cache.key_of_bound(self.settings(), bound)
        simple = bound.plain is not None and type(self.func) is FunctionType
        call = self.specializations.find(key) if simple else None
        if call is not None:
            self.specializations.use(key, call)
        else:
            closure = ClosureState(self.func, bound.constants)
            call = self.specializations.find_equal(key, closure) or self._captured_call(key, bound)
        if races := call.capture.captured.verdict.races:
            report(races)
        return call

    @alone
    def _captured_call(self, key: tuple[object, ...], bound: Bound) -> call_cache.CachedCall:
        """Return the cached call, or capture the kernel if no other thread has done so meanwhile."""
        closure, threads = ClosureState(self.func, bound.constants), OtherThreads()
        call = self.specializations.find_equal(key, closure)
        if call is None:
            closure.warn_of_unseen(self.__name__, self.location)
            with FilesRead() as files, TensorsRead() as tensors:
                call = call_cache.CachedCall(closure, self._capture(bound))
            leave_for_profilers(call.capture)
            unchanged = closure.note_tensors(tensors.states) and closure.note_files(files.states)
            if closure.note_changes(threads.ran()) and unchanged:
                call.seen = ClosureState(self.func, bound.constants)
                self.specializations.add(key, call)
        return call

    def _capture(self, bound: Bound) -> Specialization:
        from nki_mlir.capture.attempts import capture  # start-up: loads MLIR
        programs: list[Traced] = []
        updated: set[int] = set()

        def body(builder: "MlirBuilder", wrapped: Callable[..., object]) -> tuple[list[Buffer], str | None]:
            parameters = [builder.parameter(s.shape, s.dtype, s.name) for s in bound.specs]
            programs.append(self.trace(builder, wrapped, bound, parameters))
            updated.update(k for k, parameter in enumerate(parameters) if parameter in programs[-1].updated)
            return programs[-1].buffers, programs[-1].structure
        captured = capture(self.func, body, self.grid, target=self.platform,
                           unroll_limit=self.options.get("unroll_limit", 50_000), rolls=self.rolls)
        check_written(programs, self.location, self.must_write)
        variants = list(captured.variants.values())
        described = variants[0].signature
        shared = [TensorSpec(a.name, a.shape, a.dtype) for a in described.shared]       # type: ignore[arg-type]
        outputs, structure = results_of(variants, self.location)
        results = []
        for output in outputs:
            argument = described.arguments[output.argument]
            position = {"shared": argument.index} if argument.kind == "shared" else {"input": argument.index}
            results.append(Result(output.name, output.shape, output.dtype, **position, at=output.at or self.location))
        return Specialization(self.__name__, self.grid, self.platform, bound.specs, shared, results, structure,
                              captured, self.cores, static=self.static, updated=tuple(sorted(updated)))

    @property
    def static(self) -> bool:
        """Return whether the compiler writes all descriptors of transfers, so that no engine generates any."""
        return "--disable-dge" in str(self.options.get("additional_compile_opt") or "").split()

    def trace(self, builder: Builder, function: Callable[..., object], bound: Bound, parameters: list[Buffer]
              ) -> "Traced":
        """Run the function's Python on a builder, which is current."""
        mutable = self.declared_mutable(bound)
        builder.properties.update(mutable=mutable, kernel=self, immutable_inputs=self.by_reference is False)
        builder.independent_programs = self.rolls
        positional, keywords = bound.with_tensors([Tensor.full(p) for p in parameters])
        try:
            returned = function(*positional, **keywords)
        except Exception as error:
            if (explanation := explained(error, bound.values)) is error:
                raise
            raise explanation from None
        immutable = self.by_reference is not True and self.mode != "trace"
        return traced(builder, returned, parameters, mutable, immutable, self.location)

    def declared_mutable(self, bound: Bound) -> set[str]:
        """Return the paths of the tensors of parameters that are annotated as mutable."""
        annotations = getattr(underlying(self.func), "__annotations__", {})
        roots = [n for n, a in annotations.items() if "mutable" in getattr(a, "__name__", str(a)) and n in bound.values]
        return {path for n in roots for path in bound.paths(n)}

    @property
    def location(self) -> Any:
        """The location of its ``def``, below the decorators."""
        return definition_location(self.func)

    # -- running on arrays ---------------------------------------------------------------------------------------------
    def run(self, arguments: tuple[object, ...], keywords: dict[str, object], on: str) -> Any:
        """Run on NumPy arrays and return NumPy arrays. Parameters that the kernel writes are updated in place."""
        bound = self.bind(arguments, keywords, is_array, self.describe)
        memory = ArgumentMemory(bound.tensors, [s.name for s in bound.specs])
        inputs = memory.arrays
        if on == "eager":
            from nki_mlir.language.eager_run import run_eager  # start-up: imported on first use
            return run_eager(self, bound, memory)
        call = self.cached_call(bound)
        spec = call.capture
        changed = {*spec.updated, *(r.input for r in spec.results if r.input is not None)}
        memory.check(changed)
        if on in TRACKS and spec.captured.verdict.undecided and checked():
            from nki_mlir.language.eager_run import check_run  # start-up: imported on first use
            check_run(self, bound, inputs)
        shared = spec.new_shared()
        if on not in TRACKS:
            spec.program(on)(inputs, shared)
            if spec.left_out:
                spec.report_left_out()
            if on == "jit" and spec.repeats and (settings := self.executor_settings()) not in call.runs:
                call.runs[settings] = call_cache.ArrayRun(spec, self.mode)
        else:
            from nki_mlir.targets.interpreter.unwritten_hbm import tracked  # start-up: imported on first use
            outputs = [tracked(a, s.name) for a, s in zip(shared, spec.shared)]
            spec.program(on)(inputs, outputs)
            report_missing([(outputs[r.shared], r.name, r.at) for r in spec.results if r.shared is not None])
        memory.write_back(changed)
        return assemble(spec.structure, [
            shared[r.shared] if r.shared is not None else as_result(bound.tensors[r.input], self.mode)  # type: ignore
            for r in spec.results])

    def eager_program(self) -> Callable[..., "EagerBuilder"]:
        """Return the builder class of an eager run, which takes a program's index in the grid."""
        from nki_mlir.capture.eager import EagerBuilder  # start-up: imported on first use
        return functools.partial(EagerBuilder, target=self.platform)

    @property
    def python(self) -> Callable[..., object]:
        """The function as builders run it."""
        if not self.rolls:
            return self.func
        from nki_mlir.capture import tracing  # start-up: imported on first use
        return wrap(self.func, True, tracing)

    # -- inside another kernel -----------------------------------------------------------------------------------------
    def inline(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> object:
        """Run the kernel as part of the calling kernel, on the caller's builder and in its grid."""
        builder = current.get()
        assert builder is not None
        if self.has_grid and prod(self.grid) != 1:
            raise NestedGrid(name=self.__name__).here()
        values_of(self.func, arguments, keywords)           # an error for arguments that the signature does not take
        builder.inlined += 1
        try:
            return self.python(*arguments, **keywords)
        finally:
            builder.inlined -= 1


def identity_of(function: Callable[..., object]) -> str:
    """Return a text that no other function has while this function lives, for frameworks that compare strings instead
    of functions."""
    if isinstance(function, MethodType):
        return f"{id(function.__func__)} of {id(function.__self__)}"
    return str(id(function))


@without_internal_frames
def kernel_named(kind: type[Kernel], module: str, name: str, changed: dict[str, Any]) -> Kernel:
    """Return the kernel of the function that a module has under a name."""
    try:
        value = operator.attrgetter(name)(importlib.import_module(module))
    except (AttributeError, ImportError) as error:
        raise LostKernel(module=module, name=name, text=error).here() from None
    return replace(value if isinstance(value, Kernel) else kind(value), **changed)


def capturing() -> bool:
    """Return whether a kernel's Python is running: a kernel called from it becomes part of it."""
    return current.get() is not None


# torch.compile, which traces calls of kernels, cannot read a ContextVar; it takes this function's answer as a constant.
capturing._dynamo_marked_constant = True        # type: ignore[attr-defined]


def is_array(value: object) -> bool:
    return issubclass(type(value), np.ndarray)          # not its __class__, which an object may define


def default_executor() -> str:
    """Return ``NKI_MLIR_EXECUTOR``, by default the JIT; the interpreter if ``torch_xla`` is loaded, since its LLVM
    breaks the JIT's."""
    chosen = EXECUTOR.text() or ("interpreter" if "_XLAC" in sys.modules else "jit")
    check_executor(chosen)
    return chosen


class NoFunction(BadArgument):
    message = "{subject} is not a function{written}"
    fix = "{instead}"

    @classmethod
    def of(cls, value: object, shown: str) -> "NoFunction":
        """Return the error for a value that is passed as a kernel, and what to pass instead."""
        if isinstance(value, type):
            return cls(subject=f"class {value.__name__}", written="", instead="decorate a method of the class")
        if callable(value) and hasattr(value, "__name__"):
            return cls(subject=value.__name__, written=" that is written in Python", instead=DECORATE)
        return cls(subject=shown, written="", instead="pass the kernel itself, not its result or its arguments"
                   if hasattr(value, "shape") else DECORATE)


def unwrap(kernel: object) -> Kernel:
    """Return the kernel inside any decorators; a plain function becomes one."""
    if isinstance(kernel, Kernel):
        return kernel
    if is_python_function(kernel):
        return Kernel(kernel)
    shown = f"an array of shape {kernel.shape}" if hasattr(kernel, "shape") else value_text(kernel, repr)
    raise NoFunction.of(kernel, shown).here()


# -- run-time indices out of bounds ------------------------------------------------------------------------------------
# The documents require exactly ``IndexError``, with NumPy's text.
@contextmanager
def plain_index_errors() -> Iterator[None]:
    """Raise a plain ``IndexError`` in place of an error for a run-time index, which becomes its cause."""
    try:
        yield
    except IndirectOutOfBounds as error:
        raise plain(error) from error


def plain(error: IndirectOutOfBounds) -> IndexError:
    plain_error = IndexError(error.headline)
    plain_error.at, plain_error.code = error.at, error.code           # type: ignore[attr-defined]
    return plain_error
