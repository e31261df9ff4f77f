# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One operator of a library: checking arguments, shapes by its shape function, and calls on arrays of any framework."""

import ctypes
import importlib
import numbers
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nki_mlir.customop import abi, cost
from nki_mlir.customop.abi import CODES, DTYPE_NAMES, DTYPES, PARAMETERS
from nki_mlir.customop.errors import WrongArgument, WrongArgumentDtype, WrongArity
from nki_mlir.customop.settings import CallSettings, current_engine

if TYPE_CHECKING:
    from nki_mlir.customop.library import Library


# Tensors of others: the module that has the class, and ours that calls an operator on them.
TENSORS = (("torch", "Tensor", "torch_binding"), ("jax", "Array", "jax_binding"),
           ("nki_mlir.frontend.tensor", "View", "kernel_binding"),
           ("nki_mlir.language.current.tensor", "NkiTensor", "kernel_binding"))


class DenseArray(NamedTuple):
    """A dense array: where it is, the code of its dtype, its shape."""

    address: int
    code: int
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Operator:
    """A custom operator, callable on NumPy arrays, JAX arrays and tracers, PyTorch tensors, and tensors of NKI kernels.

    ``parameters`` has a letter for each: T a tensor, S a Scalar, d a double, i an int64_t.

    Errors:
        Another count of arguments, another kind than the parameter's, a dtype that the engine does not have, what the
        shape function refuses, and what the kernel does wrong (a Fault) are errors of calls.

    Example:
        relu = load("relu", ["relu.cpp"], ["relu_shape.cpp"]).relu_forward
        x = np.linspace(-1, 1, 8, dtype=np.float32)[None]
        assert np.array_equal(relu(x), np.maximum(x, 0)) and relu.shape(x) == ((1, 8), np.float32)
        assert relu.microseconds(x) > 0 and len(relu.counters(x)) == 1
    """

    library: "Library"
    number: int
    name: str
    kernel: str
    parameters: str

    @property
    def signature(self) -> str:
        return f"{self.library.name}.{self.name}({', '.join(PARAMETERS[p][1] for p in self.parameters)})"

    def __repr__(self) -> str:
        return f"<custom operator {self.signature}>"

    def __call__(self, *arguments: object) -> object:
        self.check_arity(arguments)
        for module, kind, binding in TENSORS:
            loaded = getattr(sys.modules.get(module), kind, None)
            if loaded is not None and any(isinstance(a, loaded) for a in arguments):
                return importlib.import_module(f"nki_mlir.customop.{binding}").call(self, arguments)
        return self.on_numpy(arguments, current_engine())

    def on_numpy(self, arguments: Sequence[object], engine: CallSettings) -> np.ndarray:
        """The result of a call on arrays and numbers."""
        return self.measured(arguments, engine)[0]

    def measured(self, arguments: Sequence[object], engine: CallSettings) -> tuple[np.ndarray, list[abi.Counters]]:
        """The result of a call on arrays and numbers, and what each core did for it."""
        arrays = [np.asarray(a, order="C") if p == "T" and isinstance(a, np.ndarray) else a
                  for p, a in zip(self.parameters, arguments)]
        values = self.values(arrays, lambda a: a.ctypes.data)
        shape, code = self.infer(values)
        result = np.empty(shape, DTYPES[code])
        return result, self.run(values, DenseArray(result.ctypes.data, code, shape), engine)

    def counters(self, *arguments: object) -> list[abi.Counters]:
        """What each core does in a call on NumPy arrays; element accesses are counted by the checked build only."""
        self.check_arity(arguments)
        return self.measured(arguments, current_engine())[1]

    def microseconds(self, *arguments: object) -> float:
        """An estimate of the call's time on the device, see ``nki_mlir.customop.cost``."""
        return cost.microseconds(self.counters(*arguments))

    def shape(self, *arguments: object) -> tuple[tuple[int, ...], np.dtype]:
        """Shape and dtype of the result for arrays, or anything with ``shape`` and ``dtype``; nothing is computed."""
        self.check_arity(arguments)
        shape, code = self.infer(self.values(arguments, lambda a: 0))
        return shape, DTYPES[code]

    # -- arguments -----------------------------------------------------------------------------------------------------
    def check_arity(self, arguments: Sequence[object]) -> None:
        """The error of another count of arguments."""
        if len(arguments) != len(self.parameters):
            raise WrongArity(signature=self.signature, given=len(arguments), wanted=len(self.parameters))

    def values(self, arguments: Sequence[Any], address: Any) -> list[DenseArray | float]:
        """Arguments as the engine takes them; raises ``WrongArgument`` and ``WrongArgumentDtype``."""
        values: list[DenseArray | float] = []
        for place, (parameter, argument) in enumerate(zip(self.parameters, arguments)):
            if parameter != "T":
                if not isinstance(argument, numbers.Real | np.bool_):
                    self.refuse(place, argument, "a number")
                if parameter == "i" and not float(argument).is_integer():
                    self.refuse(place, argument, "a whole number")
                values.append(float(argument))
            elif not hasattr(argument, "shape") or not hasattr(argument, "dtype"):
                self.refuse(place, argument, "an array")
            else:
                code = CODES.get(np.dtype(argument.dtype))
                if code is None:
                    self.refuse_dtype(place, argument.dtype)
                values.append(DenseArray(address(argument), code, tuple(argument.shape)))       # type: ignore[arg-type]
        return values

    def refuse(self, place: int, argument: object, wanted: str) -> None:
        """The error of an argument that is not what its parameter takes."""
        raise WrongArgument(place=place, signature=self.signature, given=f"{argument!r:.60}", wanted=wanted)

    def refuse_dtype(self, place: int, dtype: object) -> None:
        """The error of a dtype that the engine does not have."""
        raise WrongArgumentDtype(place=place, signature=self.signature, given=str(dtype).removeprefix("torch."),
                                 known=DTYPE_NAMES)

    # -- the engine ----------------------------------------------------------------------------------------------------
    def infer(self, values: Sequence[DenseArray | float]) -> tuple[tuple[int, ...], int]:
        """Shape and dtype code of the result, by the shape function; raises what it finds wrong."""
        report = self.library.dll.gpsimd_shape(self.number, self.arguments(values))
        with self.library.reading(report, cores=1) as read:
            return tuple(read.sizes[:read.rank]), read.dtype

    def run(self, values: Sequence[DenseArray | float], result: DenseArray, engine: CallSettings) -> list[abi.Counters]:
        """Run the kernel on the cores; what each did."""
        cores = abi.CORES if self.library.multicore else 1
        options = abi.EngineOptions(cores, engine.workers, engine.ring_bytes())
        destination = self.arguments([result])
        report = self.library.dll.gpsimd_run(self.number, self.arguments(values), destination, ctypes.byref(options))
        printed = b""
        try:
            with self.library.reading(report, cores, self.library.addresses[self.name]) as read:
                printed = ctypes.string_at(read.printed, read.printed_bytes) if read.printed_bytes else b""
                return [abi.Counters.from_buffer_copy(read.counters[k]) for k in range(cores)]
        finally:
            engine.show(printed.decode(errors="replace"))

    def arguments(self, values: Sequence[DenseArray | float]) -> object:
        """The C array; it keeps what it points to."""
        made = (abi.Arg * max(1, len(values)))()
        for argument, value in zip(made, values):
            if isinstance(value, DenseArray):
                sizes = (ctypes.c_int64 * max(1, len(value.shape)))(*value.shape)
                argument.kind, argument.data, argument.dtype = ord("T"), value.address, value.code
                argument.rank, argument.sizes = len(value.shape), sizes
            else:
                argument.kind, argument.number = ord("d"), value
        return made
