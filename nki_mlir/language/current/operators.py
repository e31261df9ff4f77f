# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python's operators and subscripts on tensors.

``a + b`` is ``nl.add(a, b)``, and so on; ``t += v`` writes in place. The newest release has no operators: with
``NKI_MLIR_STRICT`` they are the error that it gives. Comparisons are always one: a tensor has no truth of its own.
"""

import os
from collections.abc import Callable

import numpy as np

from nki_mlir.language.current import functions
from nki_mlir.language.current.assignment import assign
from nki_mlir.language.current.errors import older
from nki_mlir.language.current.indexing import subscript
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.tensor_object import BINARY, UNARY
from nki_mlir.scalar.dtypes import FLOAT32


def computed(name: str, *operands: object) -> NkiTensor:
    """The tile that an operator gives."""
    if name != "floor_divide":
        made: NkiTensor = getattr(functions, name)(*operands)
    else:
        quotient = functions.ELEMENTWISE["divide"](*operands, dtype=FLOAT32)
        made = functions.ELEMENTWISE["floor"](quotient, dtype=functions.result_type(None, *operands))
    return made


def in_place(target: NkiTensor, value: object) -> NkiTensor:
    assign(target, value)
    return target


def _operator(name: str, swapped: bool = False, writes: bool = False) -> Callable[..., object]:
    def operate(self: NkiTensor, *other: object) -> object:
        refuse_if_strict(self)
        if not all(isinstance(o, (NkiTensor, int, float, np.number, np.bool_)) for o in other):
            return NotImplemented
        made = computed(name, *((*other, self) if swapped else (self, *other)))
        return in_place(self, made) if writes else made
    return operate


def refuse_if_strict(tensor: NkiTensor) -> None:
    if os.environ.get("NKI_MLIR_STRICT"):
        tensor._no_operator()


def set_elements(tensor: NkiTensor, key: object, value: object) -> None:
    """``tensor[key] = value``."""
    older("updating a tile by assignment is not portable; pass the view as dst of an instruction")
    target = tensor[key]
    if not (isinstance(value, NkiTensor) and target.same_place(value)):         # t[...] += v has written it
        assign(target, value)


def copied_as(tensor: NkiTensor, dtype: object) -> NkiTensor:
    """A copy in another dtype."""
    return functions.copy(tensor, dtype)


for _method, _name in BINARY.items():
    setattr(NkiTensor, f"__{_method}__", _operator(_name))
    setattr(NkiTensor, f"__r{_method}__", _operator(_name, swapped=True))
    setattr(NkiTensor, f"__i{_method}__", _operator(_name, writes=True))
for _method, _name in UNARY.items():
    setattr(NkiTensor, f"__{_method}__", _operator(_name))
NkiTensor.__getitem__, NkiTensor.__setitem__, NkiTensor.astype = subscript, set_elements, copied_as
