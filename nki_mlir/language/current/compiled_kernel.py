# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``CompiledKernel``: a kernel in a file, to run on arrays by name and to time.

The file is a NEFF as ``nki.baremetal`` writes it. Times are predictions of the timing model, not measured on a device.
"""

import json
import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nki_mlir.alone import alone
from nki_mlir.files import write_file
from nki_mlir.language.arguments import BadArgument, MaskedArgument
from nki_mlir.language.current.compile_options import CompileOptions
from nki_mlir.language.current.nir_result import SOURCE, ArraySpec, NirResult, spec_of
from nki_mlir.language.current.runtime import UPDATED_INPUT, SpikeModel, SpikeTensor
from nki_mlir.language.kernel import default_executor, is_array
from nki_mlir.scalar.dtypes import dtype_of
from nki_mlir.targets.neuron.format.artifacts import pack_kernel


@dataclass
class ExecutionResult:
    """The outputs of a run, with times if it was timed.

    The model predicts one latency in seconds, so all latencies are equal. ``hfu`` and ``mbu``, the utilization of the
    tensor engine and of HBM's bandwidth, are from 0 to 1.

    Example:
        compiled = compile_bir_to_neff(CompileOptions(), compile_to_bir(
            double, inputs={"x": np.ones((4, 8), np.float32)}, compile_opts=CompileOptions()))
        result = compiled.benchmark(x=np.ones((4, 8), np.float32))
        assert isinstance(result, ExecutionResult) and result.latency == result.latency_max
        assert np.array_equal(*result.outputs.values(), np.full((4, 8), 2.0))
    """

    outputs: dict[str, np.ndarray]
    latency: float | None = None
    latency_min: float | None = None
    latency_max: float | None = None
    latency_std: float | None = None
    hfu: float | None = None
    mbu: float | None = None
    benchmark_iterations: int | None = None
    benchmark_warmup: int | None = None
    ntff_path: str | None = None
    interval: tuple[float, float] | None = None         # contains a device's latency with 80 % probability
    source: str = SOURCE


class CompiledKernel:
    """A kernel compiled to the file ``neff_path``. ``bir`` is the capture it was compiled from.

    Arguments:
        bir: the captured kernel, a NirResult
        compile_opts: where the file is written
        inputs: arrays by name; with the option ``enable_simulation`` it runs on them once: ``birsim_outputs``
        neff_path: an existing file to use; ``bir`` may be None then
        target: the target of that file, by default as the file says
        lnc: the number of cores of that file, by default as the file says
        artifacts_dir: the folder of the files beside it

    Errors:
        A file that cannot be written, or is not a compiled kernel.

    Example:
        bir = compile_to_bir(double, inputs={"x": np.ones((4, 8), np.float32)}, compile_opts=CompileOptions())
        compiled = CompiledKernel(bir, CompileOptions(artifacts_dir="artifacts"))
        assert os.path.exists("artifacts/kernel.neff") and compiled.lnc == 1
        outputs = compiled.prepare_outputs()
        compiled.execute({"x": np.ones((4, 8), np.float32)}, outputs)
        assert np.array_equal(*outputs.values(), np.full((4, 8), 2.0))
        again = CompiledKernel(neff_path="artifacts/kernel.neff", target="trn2", lnc=1, artifacts_dir="artifacts")
        assert [s.name for s in again.input_specs] == ["x"] and again.run(x=np.ones((4, 8), np.float32)).outputs
    """

    source = SOURCE
    birsim_outputs: list[np.ndarray] | None = None

    def __init__(self, bir: NirResult | None = None, compile_opts: CompileOptions | None = None,
                 inputs: Mapping[str, object] | None = None, *, neff_path: str | Path | None = None,
                 target: str | None = None, lnc: int | None = None, artifacts_dir: str | None = None) -> None:
        options = compile_opts or CompileOptions(artifacts_dir=artifacts_dir)
        began = time.perf_counter()
        self.bir = bir if isinstance(bir, NirResult) else None
        if neff_path is not None:
            self.neff_path, self.artifacts_dir = str(neff_path), artifacts_dir or str(Path(neff_path).parent)
        elif self.bir is None:
            raise BadArgument(what="a CompiledKernel is created from a captured kernel or the path of a file").here()
        else:
            self.artifacts_dir = options.artifacts_dir or tempfile.mkdtemp(prefix="nki_mlir_")
            if options.artifacts_dir is None:
                weakref.finalize(self, shutil.rmtree, self.artifacts_dir, ignore_errors=True)
            self.neff_path = str(Path(self.artifacts_dir) / options.output_path)
            self._write(self.bir)
        if self.bir is not None:
            spec = self.bir.specialization
            self.target, self.lnc, self.function_name = spec.target, prod(spec.grid), spec.name
            self.input_specs, self.output_specs = self.bir.input_specs, self.bir.output_specs
            self.input_output_aliases = {out: self.input_specs[k].name for out, k in self.bir.aliases.items()}
            self.is_tuple_return, self.none_positions = self.bir.is_tuple_return, self.bir.none_positions
        else:
            content, model = self.model.content, self.model
            self.target, self.lnc = target or content.programs[0].target, lnc or len(content.programs)
            self.function_name, self.none_positions = content.kernel, ()
            self.input_specs = [spec_of(n, i.shape, dtype_of(i.dtype)) for n, i in model.input_tensors_info.items()]
            self.output_specs = [spec_of(n, i.shape, dtype_of(i.dtype)) for n, i in model.output_tensors_info.items()]
            self.input_output_aliases = {k: s.name for k, s in enumerate(self.output_specs) if s.name in
                                         model.alias_info}
            self.is_tuple_return = len(self.output_specs) > 1
        self.compilation_time = time.perf_counter() - began
        if options.enable_simulation and inputs is not None:
            arrays = {s.name: np.asarray(inputs[s.name]) for s in self.input_specs if s.name in inputs}
            self.birsim_outputs = list(self.execute(arrays, self.prepare_outputs()).outputs.values())

    @classmethod
    def from_frontend(cls, frontend_result: NirResult, compile_opts: CompileOptions, frontend_time: float = 0.0,
                      tensor_inputs: Mapping[str, object] | None = None) -> "CompiledKernel":
        """Compile the capture that a frontend returned."""
        frontend_result.frontend_time = frontend_time or frontend_result.frontend_time
        return cls(frontend_result, compile_opts, tensor_inputs)

    @alone
    def _write(self, bir: NirResult) -> None:
        for folder in (Path(self.artifacts_dir), Path(self.neff_path).parent, Path(self.artifacts_dir) / "sg00"):
            folder.mkdir(parents=True, exist_ok=True)
        streams = bir.specialization.optimized.streams
        write_file(self.neff_path, pack_kernel(streams))
        info = {"lnc": prod(bir.specialization.grid), "num_tpb": len(streams)}
        write_file(Path(self.artifacts_dir) / "info.json", json.dumps(info))

    @cached_property
    def model(self) -> SpikeModel:
        """The file, loaded on core 0."""
        return SpikeModel.load_from_neff(self.neff_path)

    @property
    def total_time_ns(self) -> int | None:
        """The predicted time in ns: for a capture as ``NirResult.total_time_ns``, for a file always."""
        return round(self.model.milliseconds * 1e6) if self.bir is None else self.bir.total_time_ns

    @property
    def estimated_utilization(self) -> dict[str, float] | None:
        """Engine -> fraction of the time that it is busy, as in ``NirResult``; None for a file without a capture."""
        return None if self.bir is None else self.bir.estimated_utilization

    def prepare_inputs(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the arrays of a call by name, contiguous, without the constants of the capture. The name of an input
        that is updated gets the suffix ``.must_alias_input``."""
        updated = self.input_output_aliases.values()
        return {s.name + (UPDATED_INPUT if s.name in updated else ""): np.ascontiguousarray(inputs[s.name])
                for s in self.input_specs if s.name in inputs}

    def _ensure_loaded(self, rank_id: int = 0, world_size: int = 1) -> SpikeModel:
        """Load the file on core ``rank_id``."""
        return SpikeModel.load_from_neff(self.neff_path, core_id=rank_id)

    def prepare_outputs(self) -> dict[str, np.ndarray]:
        """Return an array of zeros for each output, by name."""
        return {s.name: np.zeros(s.shape, s.dtype) for s in self.output_specs}

    def execute(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], *, rank_id: int = 0,
                world_size: int = 1) -> ExecutionResult:
        """Run on arrays by name, and fill the outputs. Inputs are not changed. The ranks have no effect."""
        inputs = {name.removesuffix(UPDATED_INPUT): array for name, array in inputs.items()}
        arrays = [np.require(checked(s, inputs), requirements=["C", "A"]) for s in self.input_specs]
        targets = [checked(s, outputs) for s in self.output_specs]
        for target, result in zip(targets, self._results(arrays)):
            target[...] = result
        return ExecutionResult({s.name: array for s, array in zip(self.output_specs, targets)})

    def _results(self, arrays: list[np.ndarray]) -> Sequence[np.ndarray]:
        """Run on arrays without changing them, and return the results in the order of the outputs."""
        if self.bir is None:
            tensors = {s.name: SpikeTensor(array, s.name) for s, array in zip(self.input_specs, arrays)}
            outputs = self.model(tensors) or {}
            return [outputs[s.name].numpy() for s in self.output_specs]
        spec = self.bir.specialization
        for k in self.bir.aliases.values():
            arrays[k] = arrays[k].copy()
        shared = [np.zeros(s.shape, s.dtype.numpy) for s in spec.shared]
        on = (self.bir.kernel and self.bir.kernel.executor) or default_executor()
        spec.program("interpreter" if on == "eager" else on)(arrays, shared)        # eager needs the Python function
        return [arrays[r.input or 0] if r.shared is None else shared[r.shared] for r in spec.results]

    def run(self, profile: bool = False, rank_id: int = 0, world_size: int = 1, **inputs: np.ndarray
            ) -> ExecutionResult:
        """Run on arrays by name. With ``profile`` also predict latency and utilization, and write a trace."""
        result = self.execute(inputs, self.prepare_outputs())
        if not profile:
            return result
        trace = Path(self.neff_path).with_suffix(".ntff")
        write_file(trace, self.model.trace())
        return replace(self._timed(result), ntff_path=str(trace))

    def benchmark(self, warmup: int = 5, iterations: int = 10, rank_id: int = 0, world_size: int = 1,
                  **inputs: np.ndarray) -> ExecutionResult:
        """Run once, and return the result with the predicted latency and utilization of each iteration."""
        result = self._timed(self.execute(inputs, self.prepare_outputs()))
        return replace(result, benchmark_iterations=iterations, benchmark_warmup=warmup)

    def _timed(self, result: ExecutionResult) -> ExecutionResult:
        summary: dict[str, Any] = self.model.summary if self.bir is None else self.bir.summary
        seconds, (low, high) = summary["total_time"], summary["interval"]
        return replace(result, latency=seconds, latency_min=seconds, latency_max=seconds, latency_std=0.0,
                       hfu=summary["hfu_estimated_percent"], mbu=summary["mbu_estimated_percent"], interval=(low, high))


def checked(spec: ArraySpec, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the array of a spec's name, after checking its shape and dtype."""
    if spec.name not in arrays:
        raise BadArgument(what=f"the compiled kernel takes an array {spec.name}, which is missing").here()
    array = arrays[spec.name]
    if isinstance(array, np.ma.MaskedArray):
        raise MaskedArgument().here()
    if not is_array(array) or (array.shape, array.dtype) != (spec.shape, spec.dtype):
        raise BadArgument(what=f"the array {spec.name} of a compiled kernel has shape {spec.shape} and dtype "
                               f"{spec.dtype}, got {getattr(array, 'shape', ())} and "
                               f"{getattr(array, 'dtype', type(array).__name__)}").here()
    return array


__all__ = ["CompiledKernel", "ExecutionResult"]
