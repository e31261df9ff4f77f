# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs calls in the form of the beta generation (results as new tiles, masks) in kernels of this generation."""

import dis
import importlib
from functools import lru_cache
from types import CodeType, FrameType

from nki_mlir.capture.locations import user_frame
from nki_mlir.capture.tensor import View
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current import write_history
from nki_mlir.language.current.errors import NkiTypeError, require
from nki_mlir.language.current.memory import MemoryRegion, VirtualRegister
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.signatures.binding import Function
from nki_mlir.language.tensor import Tensor

MODULES = {"nki.language": "nki_mlir.language.beta.language", "nki.isa": "nki_mlir.language.beta.isa"}
WRITTEN = ("dst", "reduce_res", "dst_idx")


def call(function: Function, arguments: dict[str, object]) -> object:
    """Call the beta generation's function of the same name, and convert its result to this generation's tensor."""
    module, _, name = function.name.rpartition(".")
    target = getattr(importlib.import_module(MODULES[module]), name, None)
    if target is None:
        raise NkiTypeError(f"{name}() is called in a form of the beta generation, which this function does not have",
                           fix=f"call it as {function.title}{function.newest.text}").here()
    if module == "nki.isa" and not arguments.keys() & {*WRITTEN, "reduce_cmd"} and drops_result(user_frame()):
        raise NkiTypeError(f"{name} is called without dst, and its result is not used",
                           fix=f"pass the tile that it writes first: {function.title}{function.newest.text}",
                           code="NKI-PARAMETER").here()
    result = target.record.call_by_keyword({k: as_beta(v, f"{name} {k}", k in WRITTEN) for k, v in arguments.items()})
    for label in WRITTEN:
        if isinstance(target_tensor := arguments.get(label), NkiTensor):
            write_history.record_write(low.core_view(target_tensor))
            write_history.mark(target_tensor.storage, low.core_view(target_tensor))
            if isinstance(result, View) and result.buffer is target_tensor.storage.buffer:
                return target_tensor
    return low.adopt(result) if isinstance(result, View) else result


def drops_result(frame: FrameType | None) -> bool:
    """Return whether the call that a frame executes is a statement, whose result nothing reads."""
    return frame is not None and instruction_after(frame.f_code, frame.f_lasti) == "POP_TOP"


@lru_cache(maxsize=1024)
def instruction_after(code: CodeType, offset: int) -> str:
    """Return the name of the instruction after the one at ``offset``."""
    return next((i.opname for i in dis.get_instructions(code) if i.offset > offset), "")


def as_beta(value: object, subject: str, is_written: bool) -> object:
    """Convert an argument to the form that functions of the beta generation take."""
    match value:
        case NkiTensor():
            require(value.indirection is None or not is_written,
                    f"{subject} of a call in the beta generation's form has no run-time addresses",
                    fix="call it in the form of nki.isa, with dst= and .ap(...)")
            view = low.core_view(low.reading(value))
            return Tensor.opened(view.buffer, view.partition, view.free, view.dims, view.dtype)
        case VirtualRegister():
            return value.state
        case MemoryRegion():
            return value.value
        case list() | tuple():
            return type(value)(as_beta(v, subject, is_written) for v in value)
    return value
