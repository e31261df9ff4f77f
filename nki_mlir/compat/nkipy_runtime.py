# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nkipy.runtime`` and ``nkipy.core.backend.hlo``, for programs that run compiled kernels.

It runs kernels in files that this toolchain wrote, and refuses calls that need the vendor's compiler.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.current.runtime import Spike, SpikeBenchmark, SpikeModel, SpikeTensor


class NeedsVendorCompiler(NkiMlirError, RuntimeError):
    """The error of a call that would compile an array program.

    Example:
        assert issubclass(NeedsVendorCompiler, RuntimeError)
    """

    code = "NKI-VENDOR-COMPILER"
    message = "{what} needs the vendor's compiler"
    why = "it compiles array programs, not kernels"
    fix = "compile kernels with nki.compiler.driver, and load the file"


@dataclass(frozen=True)
class HLOTensor:
    """A parameter or result of a module: its shape, dtype and name.

    Example:
        assert HLOTensor(shape=(4, 8), dtype=np.float32, name="y").shape == (4, 8)
    """

    shape: tuple[int, ...]
    dtype: object
    name: str = ""


@dataclass
class HLOModule:
    """The inputs and results of a compiled kernel, as its author describes them.

    Example:
        module = HLOModule(name="kernel")
        module.add_parameter((4, 8), np.float32, name="x")
        module.set_results([HLOTensor((4, 8), np.float32, "y")])
        assert [p.name for p in module.parameters] == ["x"] and module.results[0].name == "y"
    """

    name: str = ""
    parameters: list[HLOTensor] = field(default_factory=list)
    results: list[HLOTensor] = field(default_factory=list)

    def add_parameter(self, shape: Sequence[int], dtype: object, name: str = "") -> HLOTensor:
        """Append an input."""
        self.parameters.append(HLOTensor(tuple(shape), dtype, name))
        return self.parameters[-1]

    def set_results(self, results: Sequence[HLOTensor]) -> None:
        """Set the results."""
        self.results = list(results)


class CompiledArtifact:
    """The file of a compiled kernel with the description of its inputs and results (``nkipy.runtime.CompiledKernel``).

    Arguments:
        traced_kernel: an object whose attribute ``_code`` is the description
        neff_path: the file of the kernel

    Errors:
        FileNotFoundError if there is no such file.

    Example:
        try:
            CompiledArtifact(None, "nothing.neff")
        except FileNotFoundError as error:
            assert "nothing.neff" in str(error)
    """

    def __init__(self, traced_kernel: Any, neff_path: str | Path) -> None:
        if not Path(neff_path).is_file():
            raise FileNotFoundError(f"there is no compiled kernel {neff_path}")
        self.compiled_artifact = os.path.abspath(neff_path)
        self.ir = getattr(traced_kernel, "_code", None)


class BaremetalExecutor:
    """An executor that runs compiled kernels on arrays.

    Arguments:
        verbose: no effect

    Errors:
        The errors of the runtime.

    Example:
        with BaremetalExecutor() as executor:
            assert isinstance(executor, BaremetalExecutor)
    """

    def __init__(self, verbose: int = 0) -> None:
        self.models: dict[str, SpikeModel] = {}

    def __enter__(self) -> "BaremetalExecutor":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self.models.clear()

    def model(self, compiled: CompiledArtifact) -> SpikeModel:
        """Return the loaded kernel. Each file is loaded once."""
        file = compiled.compiled_artifact
        if file not in self.models:
            self.models[file] = SpikeModel.load_from_neff(file)
        return self.models[file]

    def tensors(self, model: SpikeModel, arrays: Sequence[np.ndarray]) -> dict[str, SpikeTensor]:
        """Convert the arrays to tensors by name, in the order of the kernel's inputs."""
        names = list(model.input_tensors_info)
        if len(arrays) != len(names):
            raise ValueError(f"the inputs of {model.name} are {', '.join(names)}; got {len(arrays)} arrays")
        return {name: SpikeTensor(np.asarray(array), name) for name, array in zip(names, arrays)}

    def run(self, compiled: CompiledArtifact, *arrays: np.ndarray, save_trace: bool = False,
            artifacts_dir: str | Path | None = None, **options: object) -> Any:
        """Run the kernel and return its result, or a tuple of several. The trace goes to ``profile.ntff`` in
        ``artifacts_dir``, which the call creates."""
        model = self.model(compiled)
        trace = str(Path(artifacts_dir or ".") / "profile.ntff")
        if save_trace and artifacts_dir is not None:
            Path(artifacts_dir).mkdir(parents=True, exist_ok=True)
        results = model(self.tensors(model, arrays), save_trace=save_trace, ntff_name=trace)
        arrays_out = tuple(tensor.numpy() for tensor in (results or {}).values())
        return arrays_out[0] if len(arrays_out) == 1 else arrays_out

    def benchmark(self, compiled: CompiledArtifact, *arrays: np.ndarray, warmup_iterations: int = 5,
                  benchmark_iterations: int = 100, mode: str = "device", artifacts_dir: str | Path | None = None,
                  **options: object) -> SpikeBenchmark:
        """Time executions of the kernel."""
        model = self.model(compiled)
        return model.benchmark(self.tensors(model, arrays), None, warmup_iterations, benchmark_iterations, mode)


class DeviceTensor(SpikeTensor):
    """A tensor of the simulated device, with conversions from and to PyTorch.

    Example:
        assert np.array_equal(DeviceTensor.from_numpy(np.ones(4, np.float32)).numpy(), np.ones(4))
    """

    @classmethod
    def from_torch(cls, tensor: Any, name: str | None = None, core_id: int = 0) -> "DeviceTensor":
        return cls(tensor.detach().cpu().numpy(), name, core_id)

    def torch(self) -> Any:
        """Convert to a PyTorch tensor."""
        import torch  # start-up: an extra
        return torch.from_numpy(self.numpy())


class DeviceKernel(SpikeModel):
    """A loaded kernel (``nkipy.runtime.DeviceKernel``).

    Example:
        try:
            DeviceKernel.compile_and_load(double)
        except NeedsVendorCompiler as error:
            assert "compile_and_load" in str(error)
    """

    @classmethod
    def compile_and_load(cls, kernel: object, *arrays: object, **options: object) -> NoReturn:
        """Raise ``NeedsVendorCompiler``."""
        raise NeedsVendorCompiler(what="DeviceKernel.compile_and_load").here()


def is_neuron_compatible() -> bool:
    """Return whether the machine has NeuronCores.

    Arguments:
        none

    Result:
        True: there is a simulated one.

    Errors:
        None.

    Example:
        assert is_neuron_compatible()
    """
    return Spike.get_visible_neuron_core_count() >= 1


def baremetal_jit(function: object = None, backend: str = "hlo", **options: object) -> NoReturn:
    """Refuse to run an array program on the device.

    Arguments:
        function: the program
        backend: no effect
        options: no effect

    Result:
        None: it is refused.

    Errors:
        NeedsVendorCompiler: an array program is compiled by the vendor's compiler.

    Example:
        try:
            baremetal_jit(double)
        except NeedsVendorCompiler as error:
            assert "nki.compiler.driver" in str(error)
    """
    raise NeedsVendorCompiler(what="nkipy.runtime.baremetal_jit").here()


def baremetal_run_traced_kernel(kernel: object, *arrays: object, **options: object) -> NoReturn:
    """Refuse to run a traced array program on the device.

    Arguments:
        kernel: the program
        arrays: its arguments
        options: no effect

    Result:
        None: it is refused.

    Errors:
        NeedsVendorCompiler, as for baremetal_jit.

    Example:
        try:
            baremetal_run_traced_kernel(double)
        except NeedsVendorCompiler as error:
            assert "array programs" in str(error)
    """
    raise NeedsVendorCompiler(what="nkipy.runtime.baremetal_run_traced_kernel").here()


CompiledKernel = CompiledArtifact

__all__ = ["BaremetalExecutor", "CompiledArtifact", "CompiledKernel", "DeviceKernel", "DeviceTensor", "HLOModule",
           "HLOTensor", "NeedsVendorCompiler", "baremetal_jit", "baremetal_run_traced_kernel", "is_neuron_compatible"]
