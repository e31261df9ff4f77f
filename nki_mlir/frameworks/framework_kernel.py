# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.FrameworkKernel``: the base class of bindings to frameworks that this project does not know.

A binding tells which arguments are tensors, and their shape and dtype; ``dump_config`` then returns the configuration
that a custom call of the kernel needs. Without overrides, NumPy arrays are the tensors. ``read_config`` parses a
config.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from nki_mlir.capture.tracebacks import without_internal_frames
from nki_mlir.diagnostics import NkiMlirError, value_text
from nki_mlir.frameworks.registry import PlainResults, record_of
from nki_mlir.graph.custom_call import BadConfig, KernelRecord, read_record
from nki_mlir.language.arguments import BadArgument, ElementType, extents_of, signature_of, values_of, zeros_of
from nki_mlir.language.call_cache import CallCache
from nki_mlir.language.kernel import Kernel, unwrap
from nki_mlir.language.launch_grid import flat_grid
from nki_mlir.language.specialization import Specialization
from nki_mlir.scalar.dtypes import DType, dtype_of

CACHE = "__neuron_kernel_interface_kernel_cache__"      # the documented attribute of the kernel's function


class NotBound(BadArgument):
    message = "dump_config_with_boundargs takes inspect.BoundArguments, got a value of type {kind}"
    fix = "pass what bind_arguments yields: with kernel.bind_arguments(x) as bound: ..."


class NotDescribed(BadArgument):
    message = "map_framework_tensor returned {described}"
    fix = "return a pair of the tensor's shape and dtype"


class DumpedConfig(tuple[str, list[str], list[str]]):
    """``(backend_config, input_names, output_names)`` of a call. Its attributes are the other values that a custom call
    needs.

    ``return_types`` lists (dtype, shape) of each result. ``operand_output_aliases`` maps each operand that the kernel
    updates to its result; only tensor operands count. The config contains the kernel's constants, so
    ``constant_values`` is empty.

    Arguments:
        record: the kernel with its call form

    Errors:
        None.

    Example:
        config, inputs, outputs = FrameworkKernel(double).dump_config(np.ones((4, 8), np.float32))
        assert len(inputs) == len(outputs) == 1
    """

    record: KernelRecord
    constant_values: tuple[object, ...] = ()

    def __new__(cls, record: KernelRecord) -> "DumpedConfig":
        names = [a.name for a in record.operands]
        config = super().__new__(cls, (record.config, names, list(record.output_names)))
        config.record = record
        return config

    @property
    def dumped_config(self) -> str:
        return self.record.config

    @property
    def input_names(self) -> list[str]:
        return self[1]

    @property
    def output_names(self) -> list[str]:
        return self[2]

    @property
    def return_types(self) -> list[tuple[np.dtype, tuple[int, ...]]]:
        return [(r.dtype.numpy, r.shape) for r in self.record.results if r.dtype is not None]

    @property
    def operand_output_aliases(self) -> dict[int, int]:
        return self.record.form.aliases

    @property
    def has_collectives(self) -> bool:
        return self.record.has_collectives

    @property
    def result_is_sequence(self) -> bool:
        return self.record.structure != "one"


class FrameworkKernel:
    """A kernel as a framework calls it. Override the three methods about tensors.

    Arguments:
        func: the function or kernel
        func_name: its name in the config; by default the function's name
        grid: extents of the launch
        kernel_return: False if the outputs are the last parameters; None leaves it to the kernel
        enable_cache: False captures the kernel again at each call
        experimental_flags: no effect
        platform_target: trn1, trn2 or trn3, unless the environment names one
        show_compiler_tb: no effect
        options: stored in ``options``

    Errors:
        The errors of the kernel, when it is captured.

    Example:
        class Array(FrameworkKernel):
            def is_framework_tensor(self, t):
                return isinstance(t, np.ndarray)
        dumped = Array(double).dump_config(np.ones((4, 8), np.float32))
        assert [shape for _, shape in dumped.return_types] == [(4, 8)]
    """

    def __init__(self, func: object = None, func_name: str = "", grid: object = (), kernel_return: bool | None = None,
                 enable_cache: bool = True, experimental_flags: str = "", platform_target: str | None = None,
                 show_compiler_tb: bool = False, **options: object) -> None:
        self.func, self.grid = func, flat_grid(grid)
        self.func_name = func_name or getattr(func, "__name__", "kernel")
        self.kernel_return, self.enable_cache, self.platform_target = kernel_return, enable_cache, platform_target
        self.experimental_flags, self.show_compiler_tb, self.options = experimental_flags, show_compiler_tb, options

    @classmethod
    def trace(cls, func: object, grid: object = (), **keywords: Any) -> "FrameworkKernel":
        """Return this class's kernel of a function, with the function's name."""
        return cls(func=func, grid=grid, **keywords)

    def __getitem__(self, grid: object) -> "FrameworkKernel":
        changed = copy(self)
        changed.grid = flat_grid(grid)
        return changed

    # -- methods that a binding overrides ------------------------------------------------------------------------------
    def is_framework_tensor(self, t: object) -> bool:
        """Return whether an argument is a tensor operand; every other argument is a compile-time constant."""
        return isinstance(t, np.ndarray)

    def map_framework_tensor(self, t: Any) -> tuple[Any, object]:
        """Return a tensor's shape and its dtype in the framework."""
        return t.shape, t.dtype

    def translate_to_neuron_dtype(self, _dtype: object) -> object:
        """Translate a framework's dtype to a NumPy dtype or one of ``nki.language``."""
        return _dtype

    # -- configs -------------------------------------------------------------------------------------------------------
    @without_internal_frames
    def dump_config(self, *args: object, **kwargs: object) -> DumpedConfig:
        """Capture the kernel for the shapes of these arguments; return ``(backend_config, input_names,
        output_names)``.

        Parameters that the kernel writes and does not read are its outputs: results of the call, not operands.
        """
        kernel = self.kernel
        bound = kernel.bind(args, kwargs, self.is_framework_tensor, self._describe)
        spec = kernel.specialize(bound)
        plain = tuple(k for k in range(len(spec.inputs)) if not is_mutable(spec, kernel, k))
        record = record_of(spec, PlainResults(plain))
        return DumpedConfig(replace(record, name=self.func_name) if self.func_name != record.name else record)

    @contextmanager
    def bind_arguments(self, *args: object, **kwargs: object) -> Iterator[inspect.BoundArguments]:
        """Yield the arguments bound to the kernel's signature, with defaults applied. Raise ``WrongCall``."""
        values_of(self.kernel.func, args, kwargs)
        bound = signature_of(self.kernel.func).bind(*args, **kwargs)
        bound.apply_defaults()
        yield bound

    @without_internal_frames
    def dump_config_with_boundargs(self, boundargs: inspect.BoundArguments) -> DumpedConfig:
        """Return ``dump_config`` of arguments that ``bind_arguments`` has bound."""
        if not isinstance(boundargs, inspect.BoundArguments):
            raise NotBound(kind=type(boundargs).__name__).here()
        return self.dump_config(*boundargs.args, **boundargs.kwargs)

    @property
    def kernel(self) -> Kernel:
        """The kernel with this object's grid and target. The function's attribute ``CACHE`` stores its captures,
        unless ``enable_cache`` is False."""
        kernel = unwrap(self.func)
        cache = kernel.func.__dict__.setdefault(CACHE, CallCache()) if self.enable_cache else CallCache()
        by_reference = kernel.by_reference if self.kernel_return is None else not self.kernel_return
        return replace(kernel, grid=self.grid, cores=(), has_grid=True, target=self.platform_target or kernel.target,
                       by_reference=by_reference, specializations=cache)

    def _describe(self, tensor: object) -> tuple[tuple[int, ...], DType]:
        described = self.map_framework_tensor(tensor)
        if not isinstance(described, (tuple, list)) or len(described) != 2:
            raise NotDescribed(described=value_text(described, repr)).here()
        shape, dtype = described
        extents = zeros_of(extents_of(shape), np.float32).shape
        try:
            return extents, dtype_of(self.translate_to_neuron_dtype(dtype))
        except TypeError as error:
            raise ElementType.of(f"a tensor of dtype {dtype} is passed to a kernel", dtype, error).here() from None


def is_mutable(spec: Specialization, kernel: Kernel, index: int) -> bool:
    """Return whether input ``index`` of the kernel belongs to a parameter annotated as mutable. Such an input stays an
    operand even if the kernel only writes it."""
    annotations = getattr(kernel.func, "__annotations__", {})
    root = next((n for n in annotations if spec.inputs[index].name == n or spec.inputs[index].name.startswith(
        (f"{n}_", f"{n}."))), None)
    return root is not None and "mutable" in getattr(annotations[root], "__name__", str(annotations[root]))


@without_internal_frames
def read_config(config: str | bytes) -> KernelRecord:
    """Parse the kernel from a config that ``dump_config`` or a lowering wrote.

    Arguments:
        config: the text of ``backend_config``

    Result:
        The record: name, grid, operands, results and modules of the kernel.

    Errors:
        ``BadConfig`` if the text is not a config, or has another version.

    Example:
        config, _, _ = FrameworkKernel(double).dump_config(np.ones((4, 8), np.float32))
        assert read_config(config).name == "double"
    """
    if not isinstance(config, (str, bytes)):
        raise BadConfig(what=f"it is a value of type {type(config).__name__}, not text").here()
    try:
        return read_record(config.decode() if isinstance(config, bytes) else config)
    except UnicodeDecodeError:
        raise BadConfig(what="it is not base64 of JSON").here() from None
    except NkiMlirError as error:
        error.here()
        raise


__all__ = ["DumpedConfig", "FrameworkKernel", "read_config"]
