# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch tensors that kernels cannot read, each with one error, and NumPy arrays that are passed beside tensors."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.torch_operator import PLAIN, TENSORS, innermost
from nki_mlir.language.arguments import ElementType, MaskedArgument
from nki_mlir.language.framework_tensors import refuse_freed
from nki_mlir.language.kernel import Kernel
from nki_mlir.scalar.dtypes import dtype_of


class NotStrided(NkiMlirError, TypeError):
    code = "NKI-TORCH-LAYOUT"
    message = "{what} is passed to kernel {name}; kernels read dense tensors of numbers"
    fix = "convert it first: {convert}"


class NotScripted(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-TRACE"
    message = "kernel {name} is called while torch.jit.trace records, and TorchScript has no kernels"
    fix = "use torch.export.export or torch.compile"


class EscapedTensor(NkiMlirError, RuntimeError):
    code = "NKI-TORCH-ESCAPED"
    message = "kernel {name} is called with a tensor of a torch.vmap that has ended"
    why = "inside of the function that torch.vmap maps, a tensor stands for one part of a batch"
    fix = "return the tensor from the mapped function, and use the result of torch.vmap"


class MixedWithFake(NkiMlirError, TypeError):
    code = "NKI-TORCH-FAKE"
    message = "kernel {name} is called with fake tensors, which have no values, and with others"
    fix = "convert the others with the FakeTensorMode of the fake ones, mode.from_tensor(x), or create all in the mode"


def refuse_form(tensors: list[torch.Tensor], kernel: Kernel) -> None:
    """Raise ``NotStrided`` for nested, masked, sparse and quantized tensors, ``FreedTensor`` for those without memory,
    and ``NotScripted`` while ``torch.jit.trace`` records."""
    for t in tensors:
        if t.is_nested:
            description = "a nested tensor"
            convert = "x.to_padded_tensor(0.0), or call the kernel on each of x.unbind()"
        elif type(t).__module__.startswith("torch.masked"):
            description = "a masked tensor"
            convert = "x.to_tensor(0.0), and pass its mask as a separate tensor where the kernel needs it"
        elif t.layout is not torch.strided:
            description, convert = f"a tensor of layout {t.layout}", "x.to_dense()"
        elif t.is_quantized:
            description = f"a quantized tensor of {t.dtype}"
            convert = "x.dequantize(), or x.int_repr() for its integers"
        else:
            plain = innermost(t)
            if type(plain) in TENSORS and torch._C._dispatch_keys(plain).raw_repr() == PLAIN:
                refuse_freed([plain], f"kernel {kernel.__name__}")
            continue
        raise NotStrided(what=description, convert=convert, name=kernel.__name__).here()
    if torch._C._get_tracing_state() is not None:
        raise NotScripted(name=kernel.__name__).here()


def refuse_escaped(values: Iterable[object], kernel: Kernel) -> None:
    """Raise ``EscapedTensor`` for a tensor that ``torch.vmap`` wraps, in a call outside of that ``torch.vmap``."""
    functorch = torch._C._functorch
    interpreter = functorch.peek_interpreter_stack()
    level = 0 if interpreter is None else interpreter.level()
    for value in values:
        if isinstance(value, torch.Tensor) and functorch.is_batchedtensor(value) and (
                functorch.maybe_get_level(value) > level):
            raise EscapedTensor(name=kernel.__name__).here() from None


def refuse_mixed_fakes(tensors: list[torch.Tensor], kernel: Kernel) -> None:
    """Raise ``MixedWithFake`` if only some of the tensors are fake."""
    from torch._subclasses.fake_tensor import FakeTensor  # start-up: tensors are seldom fake
    if len({isinstance(t, FakeTensor) for t in tensors}) > 1:
        raise MixedWithFake(name=kernel.__name__).here() from None


def readable(value: Any) -> Any:
    """Return an array that PyTorch can view, a copy if need be: PyTorch refuses negative strides, and warns of memory
    that it must not write. Raise the errors of arrays that kernels do not take; other values are returned unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise MaskedArgument().here()
    try:
        dtype_of(value.dtype)
    except TypeError as error:
        subject = f"an array of dtype {value.dtype} is passed to a kernel"
        raise ElementType.of(subject, value.dtype, error).here() from None
    is_viewable = value.flags.writeable and all([step >= 0 for step in value.strides])
    return value if is_viewable else np.array(value, order="C", subok=False)
