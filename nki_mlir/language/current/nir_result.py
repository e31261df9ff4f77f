# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``NirResult``: a captured kernel with its arrays, its predicted time, and the config for a framework's call."""

import ast
import base64
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nki_mlir.language.arguments import BadArgument
from nki_mlir.language.current.compile_options import CompileOptions
from nki_mlir.language.current.kernel import Kernel
from nki_mlir.language.specialization import Specialization
from nki_mlir.scalar.dtypes import DType

SOURCE = "model"                # the timing model predicts all times


class ArraySpec(NamedTuple):
    """Name, shape and dtype of an input or output of a compiled kernel."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype


class KernelDescriptor(NamedTuple):
    """The inputs and outputs of a captured kernel; ``aliases`` maps an output to the input it updates (indices)."""

    func_name: str
    input_specs: list[ArraySpec]
    output_specs: list[ArraySpec]
    aliases: dict[int, int]
    kernel_json_path: str | None = None


class FrameworkConfig(NamedTuple):
    """The config with which a framework's program calls a kernel.

    Arguments:
        backend_config: the call's config
        backend_config_b64: the config as JSON in base64
        output_specs: the outputs
        operand_output_aliases: index of an updated input -> index of the output that it aliases
        has_collectives: whether ranks exchange data

    Errors:
        None.

    Example:
        nir = compile_kernel_to_nir(double, inputs={"x": np.ones((4, 8), np.float32)}, compile_opts=CompileOptions())
        config = nir.build_config()
        assert isinstance(config, FrameworkConfig) and config.operand_output_aliases == {}
        assert config.backend_config["func_name"] == "double" and not config.has_collectives
    """

    backend_config: dict[str, Any]
    backend_config_b64: bytes
    output_specs: tuple[ArraySpec, ...]
    operand_output_aliases: dict[int, int]
    has_collectives: bool


def spec_of(name: str, shape: Sequence[int], dtype: DType) -> ArraySpec:
    return ArraySpec(name, tuple(shape), np.dtype(dtype.numpy))


class NirResult:
    """A kernel captured for given inputs, before it is compiled to a file.

    Arguments:
        kernel: the kernel
        specialization: its capture
        options: the options of its compilation
        output_names: names of the outputs, in order; by default the kernel's
        frontend_time: seconds that the capture took

    Errors:
        More or fewer names than outputs.

    Example:
        options = CompileOptions(emit_predicted_latency=True)
        nir = compile_kernel_to_nir(double, inputs={"x": np.ones((4, 8), np.float32)}, compile_opts=options)
        assert isinstance(nir, NirResult) and "nki.binary_scalar" in str(nir.module)
        assert nir.total_time_ns == round(nir.specialization.optimized.timing.total_ns)
        assert [s.shape for s in nir.output_specs] == [(4, 8)]
        assert np.array_equal(nir(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
        bir, described = nir                            # earlier releases returned such a pair
        assert described.input_specs[0].name == "x"
    """

    source = SOURCE

    def __init__(self, kernel: Kernel | None, specialization: Specialization, options: CompileOptions,
                 output_names: Sequence[str] = (), frontend_time: float = 0.0) -> None:
        self.kernel, self.specialization, self.options = kernel, specialization, options
        self.frontend_time, self.mlir_time = frontend_time, 0.0
        names = list(output_names) or [r.name for r in specialization.results]
        if len(names) != len(specialization.results):
            raise BadArgument(what=f"{len(names)} output names for {len(specialization.results)} outputs").here()
        self.input_specs = [spec_of(*s) for s in specialization.inputs]
        self.output_specs = [spec_of(n, r.shape, r.dtype) for n, r in zip(names, specialization.results)]

    def __call__(self, *arguments: object, **keywords: object) -> Any:
        if self.kernel is None:
            raise BadArgument(what=f"{self.function_name} is a module without a Python function: compile it to a file, "
                                   "and run that").here()
        return self.kernel(*arguments, **keywords)

    def __iter__(self) -> "Iterator[NirResult]":
        """Yield the result twice: earlier releases returned a pair (capture, description of its arrays)."""
        return iter((self, self))

    @property
    def module(self) -> Any:
        """The MLIR module of the first program."""
        return self.specialization.modules[0]

    @property
    def function_name(self) -> str:
        """The kernel's name."""
        return self.specialization.name

    @property
    def aliases(self) -> dict[int, int]:
        """Outputs that are updated inputs: index of the output -> index of the input that it updates."""
        return {k: r.input for k, r in enumerate(self.specialization.results) if r.input is not None}

    @property
    def descriptor(self) -> KernelDescriptor:
        """The kernel's name, inputs, outputs and aliases."""
        return KernelDescriptor(self.function_name, self.input_specs, self.output_specs, self.aliases)

    @property
    def is_tuple_return(self) -> bool:
        """Return whether the kernel returns several arrays."""
        return self.specialization.structure != "one"

    @property
    def none_positions(self) -> tuple[int, ...]:
        """The positions at which the returned tuple has None."""
        structure = self.specialization.structure
        parts = ast.literal_eval(structure) if structure.startswith(("(", "[")) else ()
        return tuple(k for k, part in enumerate(parts) if part is None)

    @property
    def work_dir(self) -> str:
        """The directory for files of the compilation."""
        return self.options.artifacts_dir or "."

    @property
    def sg00_dir(self) -> str:
        """The part of ``work_dir`` for the first core."""
        return str(Path(self.work_dir) / "sg00")

    def build_config(self) -> FrameworkConfig:
        """Return the config with which a framework's program calls the kernel."""
        spec = self.specialization
        text = "".join(str(module) for module in spec.modules)
        config = {"func_name": self.function_name, "grid": list(spec.grid), "target": spec.target,
                  "key": self.cache_hash, "inputs": [described(s) for s in self.input_specs],
                  "outputs": [described(s) for s in self.output_specs]}
        return FrameworkConfig(config, base64.b64encode(json.dumps(config).encode()), tuple(self.output_specs),
                               {into: out for out, into in self.aliases.items()}, "nki.collective" in text)

    @property
    def interval_ns(self) -> tuple[float, float] | None:
        """The interval (ns) that contains a device's time with 80 % probability; None if ``total_time_ns`` is None."""
        return self.specialization.optimized.timing.interval_ns if self.options.emit_predicted_latency else None

    @property
    def total_time_ns(self) -> int | None:
        """The predicted time in ns; None without the option ``emit_predicted_latency``."""
        return round(self.specialization.optimized.timing.total_ns) if self.options.emit_predicted_latency else None

    @property
    def estimated_utilization(self) -> dict[str, float] | None:
        """Engine -> fraction of the time that it is busy; None without the option ``emit_predicted_latency``."""
        if not self.options.emit_predicted_latency:
            return None
        timing = self.specialization.optimized.timing
        return {engine.value: ns / timing.total_ns for engine, ns in timing.slowest.busy_ns.items()}

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The metrics of the profile, by the names that the vendor's profiler gives them."""
        from nki_mlir.targets.neuron.profile.vendor_summary import vendor_summary  # start-up: loads MLIR
        return vendor_summary(self.specialization.optimized.profile)

    @property
    def mac_count(self) -> int:
        """The number of multiply-accumulates on the tensor engine, including those of transposes."""
        from nki_mlir.targets.neuron.profile.vendor_summary import FLOPS_OF_A_PE  # start-up: loads MLIR
        return int(self.summary["hardware_flops"]) // FLOPS_OF_A_PE

    @property
    def hbm_bytes(self) -> int:
        """The number of bytes transferred to and from HBM."""
        return self.specialization.optimized.timing.hbm_bytes

    @property
    def cache_hash(self) -> str:
        """The key of the capture: equal captures have equal keys."""
        return self.specialization.key


def described(spec: ArraySpec) -> list[object]:
    """Convert the spec of an array to JSON values."""
    return [spec.name, list(spec.shape), str(spec.dtype)]


__all__ = ["FrameworkConfig", "NirResult"]
