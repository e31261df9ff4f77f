# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels of the current generation: one program per core, plain Python control flow, outputs by ``return``."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from inspect import Parameter
from math import prod
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from nki_mlir.capture.builder import Builder, active
from nki_mlir.capture.errors import NestedGrid
from nki_mlir.capture.races.touches import ValueNumbers
from nki_mlir.capture.tensor import Buffer, View
from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.capture.wrapping import is_python_function
from nki_mlir.diagnostics import Location, NkiMlirError
from nki_mlir.dialects.target_rules import TargetRule
from nki_mlir.environment import TARGET, EnvironmentVariable
from nki_mlir.files import write_file
from nki_mlir.language.arguments import (
    Bound,
    explained,
    leaves_of,
    map_leaves,
    signature_of,
    values_of,
    with_arrays,
)
from nki_mlir.language.current import dynamic_loops, functions, memory, older_memory, simulator  # noqa: F401  define methods
from nki_mlir.language.current.assignment import assign
from nki_mlir.language.current.calls import reported, shown
from nki_mlir.language.current.errors import NkiTypeError, core_rule, integer, of_core, older, require, warn
from nki_mlir.language.current.instruction import NkiInstruction
from nki_mlir.language.current.lowering import allocate, carrier, core_view
from nki_mlir.language.current.memory import Storage
from nki_mlir.language.current.older_memory import bare_names
from nki_mlir.language.current.refused_python import warn_of_refused
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.framework_tensors import framework_of
from nki_mlir.language.functions import program_ndim as dimensions_of_grid
from nki_mlir.language.kernel import K, NoFunction, describe_array, is_array, is_masked, plain_index_errors
from nki_mlir.language.kernel import Kernel as CoreKernel
from nki_mlir.language.kernel_attributes import takes_attributes
from nki_mlir.language.launch_grid import check_depth, cores_of, refuse_function
from nki_mlir.language.launching import MODES, Decorators, takes_kernel
from nki_mlir.language.results import BadResult, Traced, is_complete, traced
from nki_mlir.language.specialization import Specialization
from nki_mlir.language.traced_errors import traced_as_constant
from nki_mlir.machine import machine_named
from nki_mlir.scalar.dtypes import DType

SIMULATOR = EnvironmentVariable("NKI_SIMULATOR")
ARTIFACTS = EnvironmentVariable("NKI_ARTIFACTS_DIR")           # the folder to which calls write compiled kernels

C = TypeVar("C", bound="Kernel")


@traced_as_constant                 # torch.compile traces kernel[cores]
def launch_cores(platform: str) -> int:
    """Return the most cores on which a machine launches a kernel."""
    return machine_named(platform).launch_cores


@takes_attributes
@dataclass(eq=False, frozen=True, repr=False)
class Kernel(CoreKernel):
    """A decorated function, which runs when it is called with arrays. ``lnc`` is the number of cores, None for a grid
    of several axes.

    Example:
        kernel = nki.jit(double)
        assert isinstance(kernel, nki.Kernel) and kernel.__name__ == "double" and kernel.lnc == 1
        assert np.array_equal(kernel[1](np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
    """

    lnc: int | None = None

    rolls: ClassVar[bool] = False
    must_write: ClassVar[bool] = False

    def __post_init__(self) -> None:
        state = vars(self)                      # the class is frozen
        if isinstance(self.func, CoreKernel):
            state["func"] = self.func.func
        super().__post_init__()
        if self.lnc is None:
            state["lnc"] = cores_in(self.grid)
        elif (self.lnc,) != (self.grid or (1,)):
            launched = self[self.lnc]
            state.update(grid=launched.grid, cores=launched.cores, has_grid=True)
            state["fixed"] = self._fixed()

    def launch_key(self, grid: object) -> object:
        """Return the grid and the machine, which limits the number of cores."""
        return grid, self.platform

    def launched(self: K, cores: object) -> K:
        """Return a copy with a launch grid: a number of cores, or several axes as in the beta generation."""
        grid = extents_of(cores)
        limit = launch_cores(self.platform)
        if len(grid) == 1:
            require(1 <= grid[0] <= limit, f"a kernel is launched on 1 to {limit} cores, got {grid[0]}",
                    fix=f"launch it as kernel[1] to kernel[{limit}], and loop over more blocks inside",
                    code="NKI-ARGUMENT")
        require(all(n >= 1 for n in grid), f"an extent of the launch grid {list(grid)} is less than 1",
                fix="give each axis an extent of 1 or more", code="NKI-ARGUMENT")
        named = tuple(range(grid[0])) if len(grid) == 1 and grid[0] > 1 else cores_of(cores)
        return self.with_changes(grid=grid, cores=named, has_grid=True, lnc=cores_in(grid))

    def enable_address_rotation(self: K) -> K:
        """Return a copy with the option set. It has no effect: the compiler allocates tiles itself."""
        return self.with_changes(options=self.options | {"address_rotation": True})

    def disable_address_rotation(self: K) -> K:
        """Return a copy with the option cleared. It has no effect: the compiler allocates tiles itself."""
        return self.with_changes(options=self.options | {"address_rotation": False})

    def enable_core_barrier_checker(self: K) -> K:
        """Return a copy with the option set. It has no effect: core barriers are always checked."""
        return self.with_changes(options=self.options | {"core_barrier_checker": True})

    def disable_core_barrier_checker(self: K) -> K:
        """Return a copy with the option cleared. It has no effect: core barriers are always checked."""
        return self.with_changes(options=self.options | {"core_barrier_checker": False})

    @without_internal_frames
    def with_schedule(self: K, edges: Sequence[tuple[str, object]]) -> K:
        """Return the kernel with additional dependences between instructions.

        Arguments:
            edges: names of instructions, (name, dependency) or (name, [dependencies]): the first runs after the others

        Result:
            A kernel.

        Errors:
            An edge that is not a pair of names, or a name that no instruction has.

        Example:
            @nki.jit
            def double(x):
                out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                a, b = nl.load(x), nl.load(x)
                nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=2.0, name="first")
                nisa.tensor_scalar(dst=b, data=b, op0=nl.multiply, operand0=2.0, name="second")
                nl.store(out, a)
                return out
            ordered = double.with_schedule([("first", "second")])
            assert np.array_equal(ordered(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
        """
        require(isinstance(edges, (tuple, list)), f"the edges of a schedule are {shown(edges)}",
                fix="write with_schedule([(name, dependency)])", code="NKI-ARGUMENT")
        schedule_pairs = []
        for edge in edges:
            require(isinstance(edge, (tuple, list)) and len(edge) == 2, "Schedule edge must be a pair",
                    fix="write (name, dependency)")
            name, after = edge
            names = list(after) if isinstance(after, (tuple, list)) else [after]
            require(all(isinstance(n, str) for n in (name, *names)), "Schedule edge name must be a string",
                    fix="give the names that instructions have by name=")
            schedule_pairs += [(name, n) for n in names]
        return self.uncached(options=self.options | {"schedule": tuple(schedule_pairs)})

    def called(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> Any:
        if SIMULATOR.text() == "1":
            leaves = leaves_of((arguments, keywords), simulator.is_array)
            if all(simulator.framework(leaf) != "jax" for _, leaf in leaves):
                with plain_index_errors():
                    return simulator.simulate(self, arguments, keywords, self.platform)
        if ARTIFACTS.raw():
            self.leave_compiled(ARTIFACTS.text(), arguments, keywords)
        return super().called(arguments, keywords)

    def leave_compiled(self, folder: str, arguments: tuple[object, ...], keywords: dict[str, object]) -> None:
        """Compile the kernel to ``kernel.neff`` in ``folder``, unless an argument is a tensor of a framework."""
        arguments, keywords = with_arrays(arguments, keywords)
        if framework_of(arguments, keywords) is None:
            from nki_mlir.targets.neuron.format.artifacts import pack_kernel  # start-up: loads MLIR
            Path(folder).mkdir(parents=True, exist_ok=True)
            streams = self.specialize(self.bind(arguments, keywords, is_array, self.describe)).optimized.streams
            write_file(Path(folder) / "kernel.neff", pack_kernel(streams))

    def _to_subclass(self, cls: "type[C]", **settings: object) -> "C":
        """Return the kernel as an instance of ``cls`` with the fields ``settings`` and an empty cache."""
        fields_of_kernel = {part.name: getattr(self, part.name) for part in fields(Kernel)
                            if part.name != "specializations"}
        return cls(**fields_of_kernel | settings)

    def _bind_args(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> dict[str, Any]:
        """Return the arguments of a call by parameter name, without defaults."""
        values_of(self.func, arguments, keywords)               # raises an error if they do not match the signature
        bound: dict[str, Any] = {}
        signature = signature_of(self.func)
        for name, value in signature.bind(*arguments, **keywords).arguments.items():
            match signature.parameters[name].kind:
                case Parameter.VAR_KEYWORD:
                    bound |= value
                case Parameter.VAR_POSITIONAL | Parameter.POSITIONAL_ONLY:
                    raise NkiTypeError(f"the parameter {name} of {self.__name__} cannot be passed by name",
                                       fix="declare it without / and *: a compiled kernel gets its arguments by "
                                           "name").here()
                case _:
                    bound[name] = value
        return bound

    def eager_program(self) -> Callable[..., simulator.EagerCore]:
        return partial(simulator.EagerCore, target=self.platform)

    def run(self, arguments: tuple[object, ...], keywords: dict[str, object], on: str) -> object:
        if on == "eager":
            return simulator.simulate(self, arguments, keywords, self.platform)
        return super().run(arguments, keywords, on)

    def inline(self, arguments: tuple[object, ...], keywords: dict[str, object]) -> object:
        """Capture the function as part of the calling kernel."""
        core_rule(not self.has_grid or self.grid == (1,), NestedGrid, name=self.__name__)
        values_of(self.func, arguments, keywords)           # an error for arguments that the signature does not take
        with bare_names(self.func):
            return self.func(*arguments, **keywords)

    @staticmethod
    def reported(error: NkiMlirError) -> NkiMlirError:
        return of_core(error) if isinstance(error, TargetRule) else error

    @staticmethod
    def describe(value: object) -> tuple[tuple[int, ...], DType]:
        """Return the shape and dtype of an array argument."""
        return describe_array(value if is_masked(value) else simulator.to_numpy(value))

    def call(self, builder: Builder, bound: Bound, parameters: list[Buffer]) -> object:
        """Run the function's Python on the current builder and return its result. Add the edges of the schedule."""
        region = memory.shared_hbm if prod(builder.grid) > 1 else memory.private_hbm
        builder.properties["kernel"] = self
        builder.ignores_older_documents = builder.names_by_assignment = builder.shares_by_name = True
        warn_of_refused(self.func)
        builder.touches.values = ValueNumbers()
        tensors = [NkiTensor.full(Storage(p, region, p.dtype)) for p in parameters]
        builder.properties["shared_tensors"] = list(tensors)
        positional, keywords = bound.with_tensors(tensors)
        with bare_names(self.func):
            try:
                result = self.func(*positional, **keywords)
            except Exception as error:
                if (explanation := explained(error, bound.values)) is error:
                    raise
                raise explanation from None
        self.check_grid_argument(builder, bound.values.get("grid"))
        named: dict[str, list[NkiInstruction]] = builder.properties.get("named_instructions", {})
        for edge in self.options.get("schedule", ()):
            for name in edge:
                require(name in named, f"Schedule edge names '{name}', which is not an instruction of the kernel",
                        fix="give an instruction that name with name=")
            name, dependency = edge
            for instruction in named[name]:
                instruction.depends_on(*named[dependency])
        return result

    def _capture(self, bound: Bound) -> Specialization:
        try:
            return super()._capture(bound)
        except TargetRule as error:             # instructions convert their errors themselves
            raise of_core(error) from error

    def trace(self, builder: Builder, function: Callable[..., object], bound: Bound, parameters: list[Buffer]
              ) -> Traced:
        """Capture the kernel and return its outputs: the tensors it returns, or else the parameters it writes."""
        returned = map_leaves(self.call(builder, bound, parameters), lambda v: isinstance(v, NkiTensor),
                              lambda v: output_view(v, self.location))
        result = traced(builder, returned, parameters, (), False, self.location)
        if not result.buffers:
            warn(result.why_empty, self.location)
        self.warn_overwritten(builder, bound, parameters, result)
        return result

    def check_grid_argument(self, builder: Builder, grid: object) -> None:
        """Raise an error if a kernel that loops over its programs itself is launched on several programs.

        ``nki-migrate`` writes such loops, up to the extents in the parameter ``grid``. If these are 1, each program
        would compute the first program's part only.
        """
        is_one_program = isinstance(grid, (tuple, list)) and len(grid) > 0 and all(n == 1 for n in grid)
        if is_one_program and prod(builder.grid) > 1 and "reads_program" not in builder.properties:
            extents = ", ".join(map(str, builder.grid))
            argument = f"({extents},)" if len(builder.grid) == 1 else f"({extents})"
            require(False, f"{self.__name__} is launched with [{extents}], but its parameter grid is {grid!r} and it "
                    "reads no nl.program_id",
                    why=f"the kernel loops over the programs in grid itself, so that each of {prod(builder.grid)} "
                        "programs computes the part of the first one only",
                    fix=f"pass the grid as an argument: {self.__name__}(..., grid={argument})", code="NKI-ARGUMENT")

    def warn_overwritten(self, builder: Builder, bound: Bound, parameters: list[Buffer], traced: Traced) -> None:
        """Warn of each parameter that the kernel writes but neither returns nor declares mutable, if it returns tensors
        or declares other parameters mutable."""
        mutable = self.declared_mutable(bound)
        if self.by_reference or not (mutable or traced.structure):
            return
        outputs = traced.buffers if traced.structure else []
        for parameter in parameters:
            if parameter in builder.first_writes and parameter.name not in mutable and parameter not in outputs:
                warn(f"the kernel writes to its parameter {parameter.name}, and neither returns it nor declares it "
                     "mutable: the caller's array changes; if you intend that, annotate it nt.mutable_tensor or "
                     "return it",
                     builder.first_writes[parameter])


def extents_of(cores: Any, depth: int = 0) -> tuple[int, ...]:
    """Return the extents of a launch grid: numbers, core markers of the beta generation, or sequences of them."""
    if isinstance(cores, (tuple, list)) and cores:
        check_depth(depth)
        return tuple(n for c in cores for n in extents_of(c, depth + 1))
    refuse_function(cores)
    try:
        return (operator.index(cores),)
    except TypeError:
        raise NkiTypeError(f"a kernel is launched on an integer number of cores, got {shown(cores)}",
                           fix="write kernel[2](...)", code="NKI-ARGUMENT").here() from None


def cores_in(grid: tuple[int, ...]) -> int | None:
    """Return the number of cores of a launch, or None for a grid of several axes."""
    return grid[0] if len(grid) == 1 else None if grid else 1


def output_view(tensor: NkiTensor, at: Location | None) -> View:
    """Return the core view of a returned tensor. A part of a tensor is copied to a new one in HBM first. ``at`` is the
    location of the kernel, for errors."""
    if tensor.buffer is not memory.shared_hbm and tensor.storage.buffer.role == "local":
        older(f"the kernel returns {tensor.name}, which is in {tensor.buffer.value}: results must be in nl.shared_hbm",
              at)
    if tensor.indirection is None:
        view = core_view(tensor)
        view = view.like(dtype=carrier(tensor.dtype))
        if tensor.on_chip or (view.dtype is view.buffer.dtype and is_complete(view)):
            return view
    if prod(active().grid) != 1:
        raise BadResult(what=f"the kernel returns a part of {tensor.name} from several cores").located(at)
    output = allocate(tensor.shape, tensor.dtype, memory.shared_hbm)
    active().rename(output.storage.buffer, tensor.name)
    assign(output, tensor)
    return output_view(output, at)


def kernel_of(function: object) -> Kernel:
    """Return the kernel inside other decorators, or make a kernel of a plain function."""
    if isinstance(function, Kernel):
        return function
    if isinstance(function, Simulation):
        return function.kernel
    if isinstance(function, CoreKernel):
        return Kernel(function.func)
    if not is_python_function(function):
        raise NoFunction.of(function, shown(function)).here()
    return Kernel(function)


def instead_of(option: str) -> str:
    """Return the fix for an option of older releases: this generation's decorator has no options."""
    return (f"set {TARGET.name} to trn1, trn2 or trn3" if option == "platform_target" else "leave it out") + (
        f": {option}= is an option of older releases")


_decorators = Decorators(kernel_of, "eager", instead_of)
trace, baremetal, benchmark, profile, simulate_kernel = (
    _decorators.trace, _decorators.baremetal, _decorators.benchmark, _decorators.profile, _decorators.simulate_kernel)


@takes_kernel
def jit(fn: Callable[..., object] | None = None, mode: str = "auto", **kwargs: Any) -> Any:
    """Decorate a function as a kernel; it works with and without keywords, and on a kernel.

    Arguments:
        fn: the function or kernel; without it the result is a decorator
        mode: simulation, baremetal or benchmark runs calls that way; otherwise the arguments decide
        kwargs: platform_target (trn1, trn2, trn3), unless ``NEURON_PLATFORM_TARGET_OVERRIDE`` names one

    Result:
        A kernel. It returns arrays of the framework of its arguments: NumPy, JAX or PyTorch. ``kernel[2]`` runs on
        two cores.

    Errors:
        None.

    Example:
        @nki.jit
        def double(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.multiply(nl.load(x), 2.0))
            return out
        assert np.array_equal(double(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
    """
    fn = kwargs.pop("func", fn)
    mode = mode if isinstance(mode, str) and mode in MODES else "auto"          # newer releases have no modes
    if isinstance(fn, Kernel) and mode == "auto" and not kwargs:
        return fn
    return _decorators.jit(fn, mode, **kwargs)


class Simulation:
    """A kernel (or plain function) that runs in the simulator when it is called with arrays, on ``[cores]`` cores."""

    def __init__(self, kernel: object) -> None:
        self.kernel = kernel_of(kernel)

    def __repr__(self) -> str:
        return f"<simulation of {self.kernel!r}>"

    def __getitem__(self, cores: object) -> "Simulation":
        return Simulation(self.kernel[cores])

    @without_internal_frames
    def __call__(self, *arguments: object, **keywords: object) -> Any:
        with plain_index_errors():
            return simulator.simulate(self.kernel, arguments, keywords, self.kernel.platform, updates=False)


@takes_kernel
def simulate(kernel: object) -> Simulation:
    """Return a function that runs the kernel in the simulator.

    Arguments:
        kernel: the function or kernel, with a launch grid or without

    Result:
        A function on NumPy, JAX or PyTorch arrays that returns the kernel's results and updates the inputs that the
        kernel writes. ``simulate(kernel)[2]`` runs on two cores.

    Errors:
        Arrays of 64-bit elements are errors; errors of the kernel are raised.

    Example:
        assert np.array_equal(nki.simulate(double)(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
    """
    return Simulation(kernel)


@takes_kernel
def cpu_simulate(kernel: object) -> Simulation:
    """Return a function that runs the kernel in the simulator: the name of ``simulate`` in older releases.

    Arguments:
        kernel: the function or kernel

    Result:
        The function that ``simulate`` returns.

    Errors:
        The errors of simulate.

    Example:
        assert np.array_equal(nki.cpu_simulate(double)[1](np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
    """
    return Simulation(kernel)


def grid_axis(value: object, subject: str) -> int:
    """Return ``value`` as an axis of the launch grid. A negative number is an error."""
    axis = integer(value, subject)
    require(axis >= 0, f"invalid program axis {axis}", fix="use 0 for the first axis", code="NKI-GRID-AXIS")
    return axis


@reported
def program_id(axis: object) -> int:
    """Return the index of this core along an axis of the launch grid, 0 along an axis that the grid does not have."""
    builder = active("nl.program_id")
    builder.properties["reads_program"] = True
    axis = grid_axis(axis, "program_id axis")
    return int(builder.program_id(axis)) if axis < len(builder.grid) else 0


@reported
def num_programs(axes: Any) -> int:
    """Return the number of cores along axes of the launch grid: 1 along an axis that the grid does not have, and all
    cores if ``axes`` is None."""
    builder = active("nl.num_programs")
    builder.properties["reads_program"] = True
    axis_list = range(len(builder.grid)) if axes is None else axes if isinstance(axes, (tuple, list)) else [axes]
    axis_list = [grid_axis(axis, "num_programs axes") for axis in axis_list]
    return int(np.prod([builder.grid[a] for a in axis_list if a < len(builder.grid)], dtype=int))


program_ndim = reported(dimensions_of_grid)
