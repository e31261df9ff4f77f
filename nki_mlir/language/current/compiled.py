# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.framework.compiled``: kernels whose calls write the compiled kernel to a file, or run it with an executor."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.launch_members import RANKS
from nki_mlir.language.arguments import map_leaves, with_arrays
from nki_mlir.language.current.compile_options import TARGETS, CompileOptions
from nki_mlir.language.current.compiler import Frontend
from nki_mlir.language.current.driver import (
    CompiledKernel,
    Executor,
    FrameworkConfig,
    NirResult,
    compile_bir_to_neff,
    compile_kernel_to_nir,
    compile_to_bir,
    run_from_bir,
)
from nki_mlir.language.current.kernel import Kernel
from nki_mlir.language.current.simulator import is_array, to_numpy
from nki_mlir.language.framework_tensors import framework_of
from nki_mlir.language.kernel import capturing, default_executor
from nki_mlir.language.kernel_attributes import takes_attributes
from nki_mlir.machine import machine_named
from nki_mlir.targets.mesh import Mesh

CACHE = "_nki_compile_cache"                # attribute of a function: its captures by key


class UnequalRanks(NkiMlirError, RuntimeError):
    code = "NKI-RANKS-UNEQUAL"
    message = "the arguments of {kernel} do not agree on the number of ranks: {counts}"
    fix = "pass each tensor as a list with one array for each rank, and constants without a list"


class MultiRankExecutionError(NkiMlirError, RuntimeError):
    """Some ranks of a call failed; ``rank_failures`` is rank -> exception.

    Example:
        def executor(compiled, inputs, outputs, rank_id, world_size):
            raise ValueError("no device")
        kernel = StandaloneKernel(func=double, _executor=executor)
        try:
            kernel([np.ones((4, 8), np.float32)] * 2)
        except MultiRankExecutionError as error:
            assert str(error.rank_failures[0]) == "no device"
    """

    code = "NKI-RANKS-FAILED"
    message = "{failures}"
    why = "a call with lists of arrays runs the kernel once for each rank, and no rank's result is returned alone"

    def __init__(self, rank_failures: dict[int, BaseException]) -> None:
        super().__init__(failures="; ".join(f"rank {rank}: {getattr(error, 'headline', error)}"
                                            for rank, error in sorted(rank_failures.items())))
        self.rank_failures = rank_failures


@takes_attributes
@dataclass(eq=False, frozen=True, repr=False)
class CompileKernel(Kernel):
    """A kernel that writes ``artifacts_dir/kernel.neff`` when it is called.

    ``_executor`` is a function of the CompiledKernel, the inputs and the outputs (arrays by name), which fills the
    outputs; without one the kernel runs on the CPU, as with ``_enable_simulation``. A call with tensors of a framework
    runs in the framework and writes no file; with an executor they are converted to NumPy arrays instead. A call with
    lists of arrays, one array per rank, runs the kernel on each rank and returns a list of results; an executor then
    also gets ``rank_id`` and ``world_size``.

    Example:
        kernel = CompileKernel(func=double, artifacts_dir="artifacts", _enable_simulation=True)
        assert np.array_equal(kernel(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
        assert os.path.exists("artifacts/kernel.neff")
    """

    artifacts_dir: str | None = None
    _executor: Executor | None = None
    _enable_simulation: bool = False
    _enable_backend_opt: bool = False

    @without_internal_frames
    def __call__(self, *arguments: object, **keywords: object) -> Any:
        if capturing():
            return self.inline(arguments, keywords)
        arguments, keywords = with_arrays(arguments, keywords)
        if self._executor is None and framework_of(arguments, keywords) is not None:
            return super().__call__(*arguments, **keywords)
        inputs = self._convert_inputs(self._bind_args(arguments, keywords))
        ranks = self._inputs_of_ranks(inputs)
        if ranks is not None:
            return self._run_ranks(ranks)
        return map_leaves(self._result(inputs), is_array, as_class_of(inputs))

    def _result(self, inputs: dict[str, Any]) -> Any:
        """Run a call on arrays, with the executor if there is one, and return the result."""
        if self._executor is None and self.artifacts_dir is None:
            return super().__call__(**inputs)
        options = self._compile_opts()
        nir = self._cached_compile_to_bir(inputs=inputs, compile_opts=options)
        if self._executor is not None:
            return run_from_bir(nir, options, inputs, executor=self._executor)
        compile_bir_to_neff(options, nir)
        return super().__call__(**inputs)

    def _inputs_of_ranks(self, inputs: dict[str, Any]) -> list[dict[str, Any]] | None:
        """Return the inputs of each rank, or None if no input is a list of arrays."""
        counts = {name: len(value) for name, value in inputs.items() if is_list_of_arrays(value)}
        if not counts:
            return None
        texts = [f"{name} is a list of {count}" for name, count in counts.items()]
        texts += [f"{name} is one array" for name, value in inputs.items() if is_array(value)]
        if len(texts) > len(counts) or len({*counts.values()}) > 1:
            raise UnequalRanks(kernel=self.__name__, counts=", ".join(texts)).here()
        return [{name: value[rank] if name in counts else value for name, value in inputs.items()}
                for rank in range(max(counts.values()))]

    def _run_ranks(self, ranks: list[dict[str, Any]]) -> list[object]:
        """Run the ranks concurrently, since they may exchange data, and return their results. Captures come first."""
        options = self._compile_opts()
        captured = [self._cached_compile_to_bir(inputs=inputs, compile_opts=options) for inputs in ranks]
        executor = CompiledKernel.execute if self._executor is None else self._executor
        bodies = [partial(run_from_bir, nir, options, inputs,
                          partial(executor, rank_id=rank, world_size=len(ranks)))
                  for rank, (nir, inputs) in enumerate(zip(captured, ranks))]
        mesh = Mesh(bodies, RANKS, parallel=(self.executor or default_executor()) == "jit")
        try:
            return mesh.run()
        except Exception as error:
            raise MultiRankExecutionError(mesh.errors) from error

    def _compile_opts(self) -> CompileOptions:
        target = machine_named(self.platform).name
        options = CompileOptions(target=target if target in TARGETS else None, lnc=self.lnc,
                                 artifacts_dir=self.artifacts_dir, enable_simulation=self._enable_simulation)
        return options if self._enable_backend_opt else options.disable_backend_optimizations()

    def _cached_compile_to_bir(self, *, inputs: dict[str, Any], compile_opts: CompileOptions | None = None,
                               frontend: object = None) -> NirResult:
        options = compile_opts or self._compile_opts()
        nir = compile_kernel_to_nir(self, inputs=inputs, compile_opts=options, frontend=frontend,
                                    trace_cache=self._make_trace_cache(inputs, options))
        cache: dict[str, NirResult] = vars(self.func).setdefault(CACHE, {}) if hasattr(self.func, "__dict__") else {}
        cache[nir.cache_hash] = nir
        return nir

    def _make_trace_cache(self, inputs: dict[str, Any], compile_opts: CompileOptions) -> object:
        """Return the cache for captures: None, since kernels cache captures themselves. Subclasses may override it."""
        return None

    @property
    def _frontend_cls(self) -> type[Frontend]:
        return Frontend

    def compile(self, *arguments: object, **keywords: object) -> tuple[FrameworkConfig, str]:
        """Capture the kernel; return how a framework's program calls it with these arguments, and the capture's key."""
        inputs = self._convert_inputs(self._bind_args(*with_arrays(arguments, keywords)))
        nir = self._cached_compile_to_bir(inputs=inputs)
        return nir.build_config(), nir.cache_hash

    def _convert_input(self, value: Any, name: str) -> Any:
        """Convert the arrays in an argument to NumPy. Subclasses may override it."""
        return map_leaves(value, is_array, to_numpy)

    def _convert_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: self._convert_input(value, name) for name, value in inputs.items()}

    def get_cache_key(self, *arguments: object, **keywords: object) -> str:
        """Return the key of the capture for these arguments: calls with equal keys share a capture."""
        inputs = self._convert_inputs(self._bind_args(*with_arrays(arguments, keywords)))
        return self._cached_compile_to_bir(inputs=inputs).cache_hash


def as_class_of(inputs: dict[str, Any]) -> Callable[[Any], Any]:
    """Return a function that views an array as the inputs' subclass of ``np.ndarray``, if they have exactly one."""
    classes = {type(value) for value in inputs.values() if isinstance(value, np.ndarray)} - {np.ndarray, np.memmap}
    array_class = classes.pop() if len(classes) == 1 else np.ndarray
    return lambda array: (
        array.view(array_class) if isinstance(array, np.ndarray) and not isinstance(array, array_class) else array)


def is_list_of_arrays(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_array, value))


@takes_attributes
@dataclass(eq=False, frozen=True, repr=False)
class StandaloneKernel(CompileKernel):
    """A ``CompileKernel`` that returns NumPy arrays for tensors of a framework too.

    Example:
        seen = []
        def executor(compiled, inputs, outputs):
            seen.append(compiled.neff_path)
            compiled.execute(inputs, outputs)
        kernel = StandaloneKernel(func=double, lnc=1, artifacts_dir="artifacts", _executor=executor)
        assert np.array_equal(kernel(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
        assert seen == [os.path.join("artifacts", "kernel.neff")]
    """

    @without_internal_frames
    def __call__(self, *arguments: object, **keywords: object) -> Any:
        if capturing():
            return self.inline(arguments, keywords)
        arguments, keywords = with_arrays(arguments, keywords)
        return super().__call__(**self._convert_inputs(self._bind_args(arguments, keywords)))


__all__ = ["CompileKernel", "MultiRankExecutionError", "StandaloneKernel", "compile_kernel_to_nir", "compile_to_bir",
           "run_from_bir"]
