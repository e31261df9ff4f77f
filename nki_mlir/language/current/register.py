# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registers: 32-bit values of the run time, each a [1, 1] tile, so that both builders run them alike."""

from collections.abc import Callable
from typing import ClassVar, NoReturn

import numpy as np

from nki_mlir.frontend.builder import active
from nki_mlir.frontend.tensor import View
from nki_mlir.language.current.errors import NkiTypeError, require
from nki_mlir.scalar.dtypes import INT32


class VirtualRegister:
    """A value that is known while the program runs. ``frozen``: a loop's own, which the body cannot write."""

    __slots__ = ("frozen", "state")
    __hash__ = object.__hash__
    __bool__: ClassVar[Callable[["VirtualRegister"], bool]]     # ``dynamic_loops`` defines it: it opens loops

    def __init__(self, state: View | None = None, frozen: bool = False) -> None:
        self.state = state if state is not None else View.full(active("a register").allocate((1, 1), INT32, "sbuf"))
        self.frozen = frozen

    @property
    def value(self) -> int | None:
        """The number in it while the kernel is simulated; None while it is captured."""
        held = self.state.buffer.handle
        return int(held[0, 0]) if isinstance(held, np.ndarray) else None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, (int, float, VirtualRegister)) and self._no_number(other))

    def _no_number(self, *others: object) -> NoReturn:
        raise NkiTypeError("a register is no Python number: its value is known on the device only; use it as "
                           "scalar_offset=, as a loop bound, or compute on it in SBUF with nisa.register_store"
                           ).here()

    __int__ = __index__ = __float__ = _no_number
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __neg__ = _no_number
    __lt__ = __le__ = __gt__ = __ge__ = _no_number

    def __repr__(self) -> str:
        value = self.value
        return f"register {self.state.buffer.name}" + ("" if value is None else f" = {value}")


def writable(register: "VirtualRegister", what: str) -> View:
    """The tile of a register that an instruction writes."""
    require(isinstance(register, VirtualRegister), f"{what}: expecting 'register', got {type(register).__name__}")
    require(not register.frozen, f"{what}: a loop's own register cannot be written")
    return register.state
