# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Register instructions: values between registers, constants and tensors."""



from nki_mlir.dialects.nisa import movement
from nki_mlir.frontend.tensor import View
from nki_mlir.language.creation import emit
from nki_mlir.language.current import assignment
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.calls import reported
from nki_mlir.language.current.errors import integer, invalid, require, warn
from nki_mlir.language.current.instruction import instruction
from nki_mlir.language.current.regions import sbuf
from nki_mlir.language.current.register import VirtualRegister, writable
from nki_mlir.language.current.storage import Storage
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.dtypes import INT32


def as_tensor(register: VirtualRegister) -> NkiTensor:
    """The [1, 1] tile of a register."""
    return NkiTensor.full(Storage(register.state.buffer, sbuf, INT32))


def as_int32(tensor: NkiTensor) -> NkiTensor:
    """A tensor of one 32-bit integer, read by its bits; others are converted."""
    if tensor.dtype.is_integer and tensor.itemsize == 4:
        return tensor.like(dtype=INT32)
    return tensor


def _one(op: str, label: str, tensor: object) -> NkiTensor:
    if not isinstance(tensor, NkiTensor):
        invalid(f"{op} {label}: expecting 'tensor', got '{type(tensor).__name__}'")
    require(tensor.size == 1 and tensor.itemsize <= 4, f"{op} {label} must be one element of up to 32 bits")
    return tensor


def put(state: View, value: object, what: str) -> None:
    wrapped = (integer(value, what) + (1 << 31)) % (1 << 32) - (1 << 31)
    emit(movement.MemsetOp, {"dst": state}, value=float(wrapped))


@reported
def register_alloc(x: object) -> VirtualRegister:
    """A new register, with a value where one is given."""
    made = VirtualRegister()
    if isinstance(x, NkiTensor):
        register_load(made, x)
    elif isinstance(x, VirtualRegister):
        register_move(made, x)
    elif x is not None:
        put(made.state, x, "register_alloc x")
    return made


@instruction
def register_move(dst: VirtualRegister, src: int | VirtualRegister) -> None:
    """dst = a number or another register."""
    state = writable(dst, "register_move")
    if isinstance(src, VirtualRegister):
        emit(movement.TensorCopyOp, {"dst": state, "src": src.state})
    else:
        put(state, src, "register_move src")


@instruction
def register_load(dst: VirtualRegister, src: NkiTensor) -> None:
    """dst = the element of a tensor of one element."""
    state = writable(dst, "register_load")
    tensor = _one("register_load", "src", src)
    if tensor.dtype.is_float:
        warn("register_load of a float converts it to an integer")
    held = NkiTensor.full(Storage(state.buffer, sbuf, INT32))
    assignment.assign(held, as_int32(low.reading(tensor)))


@instruction
def register_store(dst: NkiTensor, src: VirtualRegister) -> None:
    """The one element of a tensor = a register."""
    tensor = _one("register_store", "dst", dst)
    require(isinstance(src, VirtualRegister), f"register_store src: expecting 'register', got '{type(src).__name__}'")
    assignment.assign(as_int32(tensor), as_tensor(src))
