# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Custom operators in graphs of JAX and PyTorch: a call is a node ``AwsNeuronCustomOp``, linked like a kernel.

The node's config names the library, the operator and the operands; it does not contain the library's code. A
process that links or runs the graph must have loaded the library: the build of the graph, or another build with
this operator, if its parameters and its result are the same.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from nki_mlir.bindings import Module
from nki_mlir.customop import kernel_binding
from nki_mlir.customop.abi import ABI, CODES, DTYPES
from nki_mlir.customop.findings import Fault
from nki_mlir.customop.library import DenseArray, Operator, loaded_library
from nki_mlir.customop.settings import current_engine
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.kernel_function import ArgumentSpec, KernelFunction
from nki_mlir.frameworks.registry import Callee, PlainResults, callees, record_of
from nki_mlir.graph.custom_call import OPERATOR_TARGET, CallForm, Fixed, KernelRecord, Slot
from nki_mlir.language.kernel import Kernel, describe_array
from nki_mlir.scalar.dtypes import dtype_of

Kind = tuple[int, tuple[int, ...]]          # code of a dtype, shape


class GraphAbi(NkiMlirError, ValueError):
    code = "NKI-CUSTOMOP-GRAPH-ABI"
    message = ("the graph calls operator {operator} of library {library} for version {found} of the emulated engine; "
               "this is version {version}")
    fix = "build the library again, and export the graph again"


class OperatorChanged(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-CHANGED"
    message = "operator {operator} of the loaded library {library} {what} {found}, but in the graph it {what} {wanted}"
    fix = "load the library with which the graph was exported, or export the graph again"


class OperatorRefuses(NkiMlirError, TypeError):
    code = "NKI-CUSTOMOP-REFUSES"
    message = "operator {operator} of the loaded library {library} refuses the operands:\n{what}"


@dataclass(frozen=True)
class DescribedArray:
    """The shape and dtype of an array, which stand in for it."""

    shape: tuple[int, ...]
    dtype: np.dtype


class OperatorRecord(KernelRecord):
    """A call of an operator on tensors of given dtypes and shapes, with given numbers, as a graph records it.

    Its modules, a kernel with a single instruction, are captured when the call is linked.
    """

    target = OPERATOR_TARGET

    def __init__(self, operator: Operator, kinds: tuple[Kind, ...], numbers: tuple[float, ...]) -> None:
        values = kernel_binding.merged(operator, [DenseArray(0, *kind) for kind in kinds], numbers)
        shape, code = operator.infer(values)
        form = CallForm(tuple(range(len(kinds))), (("shared", 0),), (0,))
        vars(self).update(operator=operator, kinds=kinds, numbers=numbers, result=(code, shape), name=operator.name,
                          grid=(), structure="one", form=form, output_names=("result",))

    operator: Operator
    kinds: tuple[Kind, ...]
    numbers: tuple[float, ...]
    result: Kind

    @cached_property
    def declaration(self) -> dict[str, object]:
        """The description of the call in the graph."""
        library = self.operator.library
        return {"library": library.name, "operator": self.name, "parameters": self.operator.parameters,
                "numbers": self.numbers, "operands": [self.text(kind) for kind in self.kinds],
                "result": self.text(self.result), "abi": ABI, "build": library.build, "file": str(library.path)}

    @staticmethod
    def text(kind: Kind) -> list[str | int]:
        return [DTYPES[kind[0]].name, *kind[1]]

    @cached_property
    def key(self) -> str:
        identity = {name: value for name, value in self.declaration.items() if name != "file"}
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    @cached_property
    def config(self) -> str:
        fields = {"kernel_version": 1, "func_name": self.name, "custom_op": self.declaration}
        return base64.b64encode(json.dumps(fields).encode()).decode()

    # -- as a kernel ---------------------------------------------------------------------------------------------------
    @cached_property
    def inputs(self) -> list[ArgumentSpec]:
        return [self.spec("input", number, f"arg{number}", kind) for number, kind in enumerate(self.kinds)]

    @cached_property
    def shared(self) -> list[ArgumentSpec]:
        return [self.spec("shared", 0, "result", self.result)]

    @staticmethod
    def spec(group: str, index: int, name: str, kind: Kind) -> ArgumentSpec:
        return ArgumentSpec(group, index, name, kind[1], dtype_of(DTYPES[kind[0]]))

    def starts_from_zero(self, slot: Slot) -> bool:
        return False

    @property
    def has_effects(self) -> bool:
        return False

    @property
    def depends_on_rank(self) -> bool:
        return False

    @cached_property
    def variants(self) -> tuple[tuple[Fixed, str], ...]:
        return self.kernel.variants

    @cached_property
    def modules(self) -> dict[Fixed, Module]:
        return self.kernel.modules

    @cached_property
    def signature(self) -> KernelFunction:
        return self.kernel.signature

    @cached_property
    def kernel(self) -> KernelRecord:
        """The captured kernel that does nothing but call the operator."""
        operator, numbers = self.operator, self.numbers
        kernel_binding.check_instruction(operator, [shape for _, shape in (*self.kinds, self.result)])

        def call(*tensors: object) -> object:
            return operator(*kernel_binding.merged(operator, tensors, numbers))
        call.__name__ = operator.name
        kernel = Kernel(call)
        arrays = tuple(DescribedArray(shape, DTYPES[code]) for code, shape in self.kinds)
        bound = kernel.bind(arrays, {}, lambda value: isinstance(value, DescribedArray), describe_array)
        return record_of(kernel.specialize(bound), PlainResults())

    @property
    def program(self) -> Callable[..., None]:
        """The operator as a program ``run(inputs, shared)`` on arrays."""
        def run(inputs: Sequence[np.ndarray], shared: Sequence[np.ndarray]) -> None:
            arrays = [DenseArray(a.ctypes.data, *kind) for a, kind in zip(inputs, self.kinds)]
            target = DenseArray(shared[0].ctypes.data, *self.result)
            self.operator.run(kernel_binding.merged(self.operator, arrays, self.numbers), target, current_engine())
        return run


record = cache(OperatorRecord)              # raises the errors of the shape function


def callee(operator: Operator, arguments: Sequence[object]) -> Callee:
    """Return the callee of a call for the bindings of frameworks. Tensors are objects with shape and dtype."""
    values = operator.values(arguments, lambda tensor: 0)
    kinds = tuple((v.code, tuple(v.shape)) for v in values if isinstance(v, DenseArray))
    entry_record = record(operator, kinds, tuple(v for v in values if not isinstance(v, DenseArray)))
    entry = Callee(entry_record, "gpsimd", lambda: entry_record.program)
    return callees().setdefault(entry.key, entry)


# -- reading -----------------------------------------------------------------------------------------------------------
def record_from(call: dict[str, Any]) -> OperatorRecord:
    """Rebuild the record of a graph's call in this process. Raise an error if the library or the operator differs from
    the graph's."""
    library, name = str(call["library"]), str(call["operator"])
    if call["abi"] != ABI:
        raise GraphAbi(operator=name, library=library, found=call["abi"], version=ABI)
    loaded = loaded_library(library, str(call["build"]), str(call["file"]), name)
    operator = loaded.operators.get(name) or getattr(loaded, name)
    if operator.parameters != call["parameters"]:
        raise OperatorChanged(operator=name, library=library, what="takes", found=operator.parameters,
                              wanted=call["parameters"])
    try:
        rebuilt = record(operator, tuple(map(kind_from, call["operands"])), tuple(map(float, call["numbers"])))
    except Fault as fault:
        raise OperatorRefuses(operator=name, library=library, what=fault.full_text()) from None
    if rebuilt.result != kind_from(call["result"]):
        raise OperatorChanged(operator=name, library=library, what="gives", found=rebuilt.text(rebuilt.result),
                              wanted=call["result"])
    return rebuilt


def kind_from(text: list[Any]) -> Kind:
    name, *shape = text
    return CODES[name], tuple(map(int, shape))
