# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.runtime``: loads compiled kernels from files and runs them on tensors of the simulated device.

The simulator of instruction streams computes the values. The timing model predicts the times, so they are equal for
each execution. ``nrtpy`` and ``spike`` are other names of this module.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.files import write_file
from nki_mlir.language.current.runtime_events import SystemTraceSession, note_execution
from nki_mlir.scalar.dtypes import dtype_of
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.format.artifacts import NeffContent, NtffContent, pack_trace, read_archive, unpack_kernel

if TYPE_CHECKING:
    from nki_mlir.targets.neuron.timing import Timing

CORES = "NEURON_RT_VISIBLE_CORES"
UPDATED_INPUT = ".must_alias_input"         # suffix of the name of an input that is also an output


class SpikeRuntimeError(NkiMlirError, RuntimeError):
    """An error of the runtime.

    Example:
        assert issubclass(SpikeRuntimeError, RuntimeError)
    """

    code = "NKI-RUNTIME"
    message = "{what}"
    fix = "{fix}"


class SpikeError(SpikeRuntimeError):
    """A use of the runtime that is not allowed.

    Example:
        assert issubclass(SpikeError, SpikeRuntimeError)
    """


class NrtError(SpikeRuntimeError):
    """A file or memory that the runtime cannot use.

    Example:
        assert issubclass(NrtError, SpikeRuntimeError)
    """


class TensorInfo(NamedTuple):
    """Shape, dtype and size in bytes of an input or output of a loaded kernel."""

    shape: tuple[int, ...]
    dtype: str
    size: int


class SpikeTensor:
    """A tensor of the simulated device.

    Arguments:
        array: its elements, which are copied
        name: its name
        core_id: the core that it belongs to

    Errors:
        None.

    Example:
        tensor = SpikeTensor.from_numpy(np.ones((4, 8), np.float32), name="x")
        assert tensor.shape == (4, 8) and np.array_equal(tensor.numpy(), np.ones((4, 8)))
    """

    def __init__(self, array: np.ndarray, name: str | None = None, core_id: int = 0) -> None:
        self.tensor_ref: np.ndarray = np.array(array, order="C")
        self.name, self.core_id = name, core_id

    @classmethod
    def from_numpy(cls, array: np.ndarray, name: str | None = None, core_id: int = 0) -> "SpikeTensor":
        """Return a tensor with a copy of the elements of an array."""
        return cls(array, name, core_id)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor_ref.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.tensor_ref.dtype

    def numpy(self) -> np.ndarray:
        """Return a copy of the elements as an array."""
        elements: np.ndarray = self.tensor_ref.copy()
        return elements

    def write_from_numpy(self, array: np.ndarray) -> None:
        """Overwrite the tensor with the bytes of an array. Raise ValueError if the number of bytes differs."""
        if array.nbytes != self.tensor_ref.nbytes:
            raise ValueError(f"the array has {array.nbytes} bytes, the tensor {self.tensor_ref.nbytes}")
        data = np.frombuffer(np.ascontiguousarray(array).tobytes(), self.dtype)
        self.tensor_ref[...] = data.reshape(self.shape)


@dataclass(frozen=True)
class SpikeBenchmark:
    """Durations of executions in milliseconds. The timing model predicts them, so they are all equal.

    Example:
        assert BenchmarkResult([0.5, 0.5], 2).mean_ms == 0.5
    """

    durations_ms: list[float] = field(default_factory=list)
    iterations: int = 0
    warmup_iterations: int = 0
    source: str = "model"
    interval_ms: tuple[float, float] | None = None          # contains a device's duration with 80 % probability

    @property
    def mean_ms(self) -> float:
        return self.durations_ms[0] if self.durations_ms else 0.0

    min_ms = max_ms = mean_ms

    @property
    def std_dev_ms(self) -> float:
        return 0.0


class LoadedKernel(NamedTuple):
    """The ``model_ref`` of a model: the core that it is loaded on."""

    core_id: int


class SpikeModel:
    """A compiled kernel that is loaded on a core.

    Arguments:
        content: the unpacked content of its file
        neff_path: the file
        name: its name, by default the kernel's
        core_id: the core

    Errors:
        None; its methods raise errors.

    Example:
        bir = compile_to_bir(double, inputs={"x": np.ones((4, 8), np.float32)}, output_names=["y"])
        model = SpikeModel.load_from_neff(compile_bir_to_neff(CompileOptions(artifacts_dir="."), bir).neff_path)
        x, y = SpikeTensor.from_numpy(np.ones((4, 8), np.float32)), model.allocate_output_tensors()[0]
        model({"x": x}, {list(model.output_tensors_info)[0]: y})
        assert np.array_equal(y.numpy(), np.full((4, 8), 2.0))
        assert len(model.benchmark({"x": x}, benchmark_iter=3).durations_ms) == 3
    """

    def __init__(self, content: NeffContent, neff_path: str, name: str | None = None, core_id: int = 0) -> None:
        self.content, self.neff_path = content, neff_path
        self.name, self.model_ref = name or content.kernel, LoadedKernel(core_id)
        program = content.programs[0]
        self.inputs, self.outputs = program.of_kind("input"), program.of_kind("output")
        self.input_tensors_info = {v.name: TensorInfo(tuple(v.shape), v.dtype.name, v.nbytes) for v in self.inputs}
        updated = [] if self.outputs else self.inputs
        self.alias_info = {v.name: v.name for v in updated}
        self.output_tensors_info = {v.name: TensorInfo(tuple(v.shape), v.dtype.name, v.nbytes)
                                    for v in (*self.outputs, *updated)}

    @classmethod
    @without_internal_frames
    def load_from_neff(cls, neff_path: str | Path, name: str | None = None, core_id: int = 0, cc_enabled: bool = False,
                       rank_id: int = 0, world_size: int = 1) -> "SpikeModel":
        """Load the kernel in a file. Raise ``NrtError`` if the file cannot be read or contains no kernel."""
        check_core(core_id)
        try:
            content = unpack_kernel(read_archive(neff_path), str(neff_path))
        except OSError as error:
            raise NrtError(what=f"{neff_path} cannot be read: {error.strerror}",
                           fix="pass the path of a compiled kernel").here() from None
        except NkiMlirError as error:
            raise NrtError(what=error.headline, fix=error.advice[1]).here() from error
        start()
        return cls(content, str(neff_path), name, core_id)

    @cached_property
    def timing(self) -> "Timing":
        """The predicted timing of one execution."""
        from nki_mlir.targets.neuron.timing import time_programs  # start-up: loads MLIR
        return time_programs(self.content.programs, mode=self.content.mode)

    @property
    def milliseconds(self) -> float:
        """The predicted duration of one execution."""
        return self.timing.total_ns / 1e6

    @cached_property
    def profile(self) -> dict[str, Any]:
        """The profile of one execution, as a JSON object."""
        from nki_mlir.targets.neuron.profile import profile_of  # start-up: loads MLIR
        return profile_of(self.content.programs, self.content.mode)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The metrics of the profile, by the names that the vendor's profiler gives them."""
        from nki_mlir.targets.neuron.profile.vendor_summary import vendor_summary  # start-up: loads MLIR
        return vendor_summary(self.profile)

    def allocate_output_tensors(self) -> list[SpikeTensor]:
        """Return a tensor of zeros for each output."""
        return [SpikeTensor(np.zeros(info.shape, dtype_of(info.dtype).numpy), name, self.model_ref.core_id)
                for name, info in self.output_tensors_info.items()]

    def _allocate_outputs_with_aliases(self, inputs: Mapping[str, SpikeTensor]) -> dict[str, SpikeTensor]:
        """Return a tensor for each output by name. An output that aliases an input is the input's tensor."""
        by_name = {name.removesuffix(UPDATED_INPUT): tensor for name, tensor in inputs.items()}
        return {str(t.name): by_name[str(t.name)] if t.name in self.alias_info else t
                for t in self.allocate_output_tensors()}

    def checked(self, tensors: Mapping[str, SpikeTensor], infos: Mapping[str, TensorInfo], subject: str) -> None:
        """Check tensors against the kernel's inputs or outputs. Raise ValueError for other names, AssertionError for
        other shapes, dtypes and cores."""
        if set(tensors) != set(infos):
            raise ValueError(f"the {subject} of {self.name} are {', '.join(infos)}; got {', '.join(tensors) or 'none'}")
        for name, tensor in tensors.items():
            info = infos[name]
            assert tuple(tensor.shape) == info.shape, f"{subject} {name} has shape {info.shape}, got {tensor.shape}"
            same = dtype_of(tensor.dtype).name == info.dtype
            assert same, f"{subject} {name} has dtype {info.dtype}, got {tensor.dtype}"
            assert tensor.core_id == self.model_ref.core_id, f"{subject} {name} is on core {tensor.core_id}"

    def __call__(self, inputs: Mapping[str, SpikeTensor], outputs: Mapping[str, SpikeTensor] | None = None,
                 save_trace: bool = False, ntff_name: str | None = None) -> dict[str, SpikeTensor] | None:
        """Run the kernel and fill the outputs. Without ``outputs`` allocate them and return them by name."""
        inputs = {name.removesuffix(UPDATED_INPUT): tensor for name, tensor in inputs.items()}
        self.checked(inputs, self.input_tensors_info, "inputs")
        targets = dict(outputs) if outputs is not None else self._allocate_outputs_with_aliases(inputs)
        self.checked(targets, self.output_tensors_info, "outputs")
        arrays = [inputs[v.name].tensor_ref.copy() for v in self.inputs]
        results = [np.zeros(v.shape, v.dtype.numpy) for v in self.outputs]
        neuron.simulate(self.content.programs, arrays, results)
        for v, array in zip(self.outputs or self.inputs, results if self.outputs else arrays):
            targets[v.name].tensor_ref[...] = array
        note_execution(self.milliseconds, self.model_ref.core_id, len(self.content.programs))
        if save_trace:
            write_file(ntff_name or str(Path(self.neff_path).with_suffix(".ntff")), self.trace())
        return targets if outputs is None else None

    def trace(self) -> bytes:
        """Return the trace of one execution as the content of an .ntff file."""
        return pack_trace(NtffContent(self.content.kernel, self.content.digest, 1, self.model_ref.core_id,
                                      self.summary, self.profile))

    def benchmark(self, inputs: Mapping[str, SpikeTensor], outputs: Mapping[str, SpikeTensor] | None = None,
                  warmup_iter: int = 5, benchmark_iter: int = 5, mode: str = "device") -> SpikeBenchmark:
        """Run once, and return the predicted duration for each of ``benchmark_iter`` iterations."""
        if mode not in ("device", "host"):
            raise SpikeError(what=f"there is no mode {mode!r} of benchmark", fix="use device or host")
        self(inputs, outputs)
        for _ in range(benchmark_iter - 1):
            note_execution(self.milliseconds, self.model_ref.core_id, len(self.content.programs))
        low, high = self.timing.interval_ns
        return SpikeBenchmark([self.milliseconds] * benchmark_iter, benchmark_iter, warmup_iter,
                              interval_ms=(low / 1e6, high / 1e6))


# -- the runtime -------------------------------------------------------------------------------------------------------
_started: list[bool] = []


def start() -> None:
    """Mark the runtime as started: ``configure`` is an error until ``reset``."""
    if not _started:
        _started.append(True)


def check_core(core_id: int) -> None:
    if type(core_id) is not int or core_id < 0:
        raise SpikeError(what=f"there is no core {core_id!r}", fix="name a core by its number, from 0")


def configure(visible_cores: Sequence[int]) -> None:
    """Choose the cores that the runtime uses.

    Arguments:
        visible_cores: numbers of cores

    Result:
        None.

    Errors:
        A TypeError for a number alone, a ValueError for negative ones, a RuntimeError once a kernel is loaded.

    Example:
        reset()
        configure(visible_cores=[0, 1])
        assert os.environ["NEURON_RT_VISIBLE_CORES"] == "0,1"
    """
    if not isinstance(visible_cores, (list, tuple)):
        raise TypeError(f"visible_cores must be a list of numbers, got {visible_cores!r}")
    if any(type(core) is not int or core < 0 for core in visible_cores):
        raise ValueError(f"cores must be numbers of 0 or more, got {list(visible_cores)}")
    if _started:
        raise SpikeError(what="cores must be chosen before the first kernel is loaded", fix="call reset() first")
    os.environ[CORES] = ",".join(map(str, visible_cores))


def reset() -> None:
    """Close the runtime, so that ``configure`` can choose cores again.

    Arguments:
        none

    Result:
        None.

    Errors:
        None.

    Example:
        reset()
        configure([0])
    """
    _started.clear()


class Spike:
    """The runtime as an object, with methods for its models and tensors.

    Example:
        assert Spike.get_visible_neuron_core_count() >= 1
    """

    @staticmethod
    def get_visible_neuron_core_count() -> int:
        """Return the number of simulated cores: those that ``NEURON_RT_VISIBLE_CORES`` lists, else one."""
        text = os.environ.get(CORES, "").strip() or "0"
        cores: set[int] = set()
        for part in text.split(","):
            begin, _, end = part.partition("-")
            cores |= set(range(int(begin), int(end or begin) + 1))
        return len(cores)

    def load_model(self, neff_path: str, core_id: int = 0, **options: object) -> SpikeModel:
        """Load the kernel in a file."""
        return SpikeModel.load_from_neff(neff_path, core_id=core_id)

    def execute(self, model: SpikeModel, inputs: Mapping[str, SpikeTensor], outputs: Mapping[str, SpikeTensor],
                ntff_name: str | None = None, save_trace: bool = False) -> None:
        """Run a model and fill the outputs. A tensor of raw bytes gets the dtype and shape of the model's tensor."""
        ins, outs = model.input_tensors_info, model.output_tensors_info
        model({n: as_tensor(t, ins.get(n)) for n, t in inputs.items()},
              {n: as_tensor(t, outs.get(n)) for n, t in outputs.items()}, save_trace, ntff_name)

    def get_tensor_info(self, model: SpikeModel) -> "ModelTensors":
        """Return shapes, dtypes and sizes of the inputs and outputs of a model."""
        return ModelTensors(model.input_tensors_info, model.output_tensors_info)

    def allocate_tensor(self, size: int, core_id: int = 0, name: str | None = None) -> SpikeTensor:
        """Allocate ``size`` bytes of zeros."""
        check_core(core_id)
        return SpikeTensor(np.zeros(size, np.uint8), name, core_id)

    def slice_from_tensor(self, tensor: SpikeTensor, offset: int = 0, size: int | None = None,
                          name: str | None = None) -> SpikeTensor:
        """Return a tensor of the bytes from ``offset`` on, which shares the memory of ``tensor``."""
        return sharing(tensor, bytes_of(tensor, offset, size), name)

    def free_tensor(self, tensor: SpikeTensor) -> None:
        """Do nothing: a tensor holds no resources of the runtime."""

    def tensor_write(self, tensor: SpikeTensor, data: bytes, offset: int = 0) -> None:
        """Write bytes into a tensor from byte ``offset`` on."""
        values = np.frombuffer(bytes(data), np.uint8)
        bytes_of(tensor, offset, len(values))[...] = values

    def tensor_read(self, tensor: SpikeTensor, offset: int = 0, size: int | None = None) -> bytes:
        """Return ``size`` bytes of a tensor from byte ``offset`` on."""
        return bytes_of(tensor, offset, size).tobytes()

    def tensor_write_from_pybuffer(self, tensor: SpikeTensor, buffer: Any, offset: int = 0) -> None:
        """Write the bytes of an object with a buffer (for example an array) into a tensor."""
        self.tensor_write(tensor, np.ascontiguousarray(buffer).tobytes(), offset)

    def tensor_read_to_pybuffer(self, tensor: SpikeTensor, buffer: Any, offset: int = 0) -> None:
        """Fill the buffer of an object (for example an array) with bytes of a tensor."""
        target = memoryview(buffer).cast("B")
        target[:] = self.tensor_read(tensor, offset, len(target))

    def unload_model(self, model: SpikeModel) -> None:
        """Do nothing: a model holds no resources of the runtime."""

    def close(self) -> None:
        """Close the runtime, like ``reset``."""
        reset()


class ModelTensors(NamedTuple):
    """The inputs and outputs of a model by name."""

    inputs: dict[str, TensorInfo]
    outputs: dict[str, TensorInfo]


def bytes_of(tensor: SpikeTensor, offset: int, size: int | None) -> np.ndarray:
    """Return a view of bytes of a tensor. Raise ``SpikeError`` if the tensor does not contain them all."""
    flat = tensor.tensor_ref.reshape(-1).view(np.uint8)
    end = len(flat) if size is None else offset + size
    if not 0 <= offset <= end <= len(flat):
        raise SpikeError(what=f"bytes {offset} to {end} are not in a tensor of {len(flat)} bytes",
                         fix="name bytes that the tensor has")
    part: np.ndarray = flat[offset:end]
    return part


def sharing(tensor: SpikeTensor, memory: np.ndarray, name: str | None = None) -> SpikeTensor:
    """Return a tensor of ``memory``, a part of the memory of ``tensor``, on the same core."""
    shared = SpikeTensor(np.empty(0, np.uint8), name or tensor.name, tensor.core_id)
    shared.tensor_ref = memory
    return shared


def as_tensor(tensor: SpikeTensor, info: TensorInfo | None) -> SpikeTensor:
    """Return a tensor of raw bytes as one with the dtype and shape of ``info``, sharing its memory. Any other tensor is
    returned unchanged."""
    raw = tensor.dtype == np.uint8 and len(tensor.shape) == 1
    if info is None or not raw or tensor.tensor_ref.nbytes != info.size:
        return tensor
    return sharing(tensor, tensor.tensor_ref.view(dtype_of(info.dtype).numpy).reshape(info.shape))


def get_spike_singleton() -> Spike:
    """Start the runtime.

    Arguments:
        none

    Result:
        The runtime.

    Errors:
        None.

    Example:
        assert isinstance(get_spike_singleton(), Spike)
    """
    start()
    return Spike()


BenchmarkResult = SpikeBenchmark

__all__ = ["BenchmarkResult", "NrtError", "Spike", "SpikeError", "SpikeModel", "SpikeRuntimeError", "SpikeTensor",
           "SystemTraceSession", "configure", "get_spike_singleton", "reset"]
