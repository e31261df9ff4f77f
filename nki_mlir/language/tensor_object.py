# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The behavior of both generations' tensors as Python objects: names of operators, copies, lengths, texts."""

import ast
import linecache
import re
import reprlib
from types import NoneType
from typing import Any, NoReturn, TypeVar

import numpy as np

from nki_mlir.capture.locations import user_location
from nki_mlir.capture.mask import Mask
from nki_mlir.capture.prompts import GENERATED, at_prompt, variable
from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.language.signatures.table import language_functions
from nki_mlir.similar_names import COMPOSED, same_name

BINARY = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "mod": "mod", "pow": "power",
          "floordiv": "floor_divide", "lshift": "left_shift", "rshift": "right_shift", "and": "bitwise_and",
          "or": "bitwise_or", "xor": "bitwise_xor"}
UNARY = {"neg": "negative", "invert": "invert", "abs": "abs"}


DEVICE_VALUE = "NKI-DEVICE-VALUE"          # the code of the errors that say that only the device knows the elements
OF_PYTHON = (NoneType, complex, str, bytes, list, tuple, dict, set, range)   # operands that a tile refuses


class NotAnOperand(KernelError, TypeError):
    code = "NKI-TYPE"
    message = "an operator has a tile and {what} for operands"
    fix = "{instead}"


def not_implemented(other: object) -> Any:
    """Return ``NotImplemented`` for an operand whose class may handle tiles; raise ``NotAnOperand`` for a
    Python value."""
    subject, instead = "None", "an operand is a tile or a number"
    if isinstance(other, Mask):
        raise NotAnOperand(what=other.described, instead=other.pass_instead).here()
    if hasattr(other, "__dlpack__"):                # an array of a framework
        package = type(other).__module__.partition(".")[0]
        raise NotAnOperand(what=f"a {type(other).__name__} of {package}",
                           instead="pass the array to the kernel as an argument").here()
    if not isinstance(other, OF_PYTHON):
        return NotImplemented
    if other is not None:
        subject = f"the {type(other).__name__} {reprlib.repr(other)}"
    if isinstance(other, (list, tuple, range)):
        instead += "; pass an array of these values to the kernel, and load it"
    elif isinstance(other, complex):
        instead += "; compute the real and the imaginary part in two tiles"
    elif other is None:
        instead += "; where a tensor is optional, test it with `is None` first"
    raise NotAnOperand(what=subject, instead=instead).here()


class HostFunction(KernelError, TypeError):
    code = "NKI-HOST-FUNCTION"
    message = "{library}'s {name} is called on a tile, whose values only the device knows"
    fix = "{instead}"


class JaxFunction(KernelError):             # not a TypeError: JAX would catch and replace it
    code = "NKI-HOST-FUNCTION"
    message = "JAX's {name} is called on a tile, whose values only the device knows"
    fix = "{instead}"


def host_function(library: str, name: str) -> NkiMlirError:
    """Return the error for a call of another library's function."""
    return HostFunction(library=library, name=name, instead=computes_same(name)).here()


def power_modulo() -> NkiMlirError:
    """Return the error for Python's ``pow`` of a tile with a modulus."""
    instead = "call nl.mod on the result of nl.power"
    return HostFunction(library="Python", name="pow with a modulus", instead=instead).here()


def computes_same(name: str) -> str:
    """Return the function of the language to call instead of another library's function."""
    function = same_name(name, language_functions())
    return f"call nl.{function}" if function else COMPOSED.get(name, "call functions of nki.language")


def called_name() -> str:
    """Return the name of the function that the kernel calls now, without its modules; "" if it cannot be read."""
    at = user_location()
    try:
        node = ast.parse(linecache.getline(at.file, at.line)[at.column:at.end_column], mode="eval").body
    except SyntaxError:                         # the call is on several lines
        return ""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", ""))


def refuse_math() -> None:
    """Raise an error if the kernel is calling a function of Python's ``math``, since a tile has no value for it."""
    at = user_location()
    if called := re.match(r"math\.(\w+)\(", linecache.getline(at.file, at.line)[at.column:at.end_column]):
        raise host_function("math", called[1])


class FixedAttribute(NkiMlirError, AttributeError):                                     # type: ignore[misc]
    code = "NKI-ATTRIBUTE"
    message = "the attribute {name} of a tensor cannot be {verb}"
    why = "a tensor is a view of memory, and a view does not change"
    fix = "{instead}"


class DeletedElements(NkiMlirError, TypeError):
    code = "NKI-DELETE"
    message = "elements of a tensor cannot be deleted"
    why = "a tensor is a view of memory, whose size does not change"
    fix = "use a view without them, for example t[:, 4:64]"


# The code to write instead of an assignment to an attribute.
INSTEAD = {"dtype": "convert the elements with nl.copy(tile, dtype=...), or read their bits as another dtype with "
                    "tile.view(dtype)",
           "shape": "use another view, tile.reshape(shape), instead of the tile",
           "buffer": "allocate a tensor with this buffer, and copy the elements to it",
           "name": "give the name where the tensor is created, nl.ndarray(..., name=...)",
           "mask": "give the operation the mask, or subscript the tile with it"}


def fixed_attribute(name: str, verb: str) -> NkiMlirError:
    """Return the error for an attribute that the kernel assigns or deletes."""
    return FixedAttribute(name=name, verb=verb, instead=INSTEAD.get(name, "keep the value in a variable")).here()


T = TypeVar("T", bound="TensorObject")


class TensorObject:
    """The base of the classes of tensors."""

    __slots__ = ()
    shape: Any
    dtype: Any
    name: Any

    # A class that creates tensors sets their attributes in a subclass without these methods.
    def __setattr__(self, name: str, value: object) -> None:
        raise fixed_attribute(name, "assigned")

    def __delattr__(self, name: str) -> None:
        raise fixed_attribute(name, "deleted")

    def __delitem__(self, items: object) -> None:
        raise DeletedElements().here()

    @property
    def itemsize(self) -> int:
        return int(self.dtype.itemsize)

    def __len__(self) -> int:
        return int(self.shape[0])

    # These methods read the value on the host: ``float`` raises the error that says that only the device knows it.
    def __format__(self, form: str) -> str:
        return format(float(self), form) if form else str(self)                        # type: ignore[arg-type]

    def __round__(self, digits: int | None = None) -> float:
        return round(float(self), digits)                                              # type: ignore[arg-type]

    def __divmod__(self, other: object) -> Any:
        return divmod(float(self), other)                                              # type: ignore[arg-type,operator]

    __rdivmod__ = __divmod__

    def __copy__(self: T) -> T:
        return self

    def __deepcopy__(self: T, memory: object) -> T:
        """Return the tensor itself, whose memory is the device's: copies of an object share its tensors."""
        return self

    def numpy(self) -> np.ndarray:
        """Return a copy of the elements, at the prompt of a debugger while the kernel runs eagerly.

        Arguments:
            none

        Result:
            An array.

        Errors:
            In a kernel's own code it is an error, since other executors know no values while Python runs.

        Example:
            (Pdb) p tile.numpy().max()
        """
        values: np.ndarray | None = self._values() if at_prompt() else None
        return self._no_array() if values is None else values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype)

    def _values(self) -> Any:
        """Return the elements if they are known, else None."""
        raise AssertionError(type(self))

    def _no_array(self) -> NoReturn:
        """Raise the error for elements that are not known."""
        raise AssertionError(type(self))

    def _at_prompt(self, function: np.ufunc, method: str, operands: tuple[object, ...], keywords: dict[str, Any]
                   ) -> Any:
        """Return the result of a NumPy function for the elements, at a prompt; None elsewhere."""
        if not at_prompt():
            return None
        values = [o.numpy() if isinstance(o, TensorObject) else o for o in operands]
        return getattr(function, method)(*values, **keywords)

    def __array_function__(self, function: Any, types: object, args: Any, keywords: Any) -> Any:
        """Call a function of NumPy, if the tensor has a method for it; refuse it if it needs the elements."""
        try:
            return function._implementation(*args, **keywords)
        except NkiMlirError as error:
            if error.code not in (DEVICE_VALUE, HostFunction.code):
                raise
            raise host_function("NumPy", function.__name__) from None

    @classmethod
    def __torch_function__(cls, function: Any, types: object, args: object = (), kwargs: object = None) -> NoReturn:
        """Refuse the tensor as an operand of PyTorch's functions and operators, which call this."""
        raise host_function("PyTorch", getattr(function, "__name__", str(function)))

    @property
    def __jax_array__(self) -> NoReturn:
        """Refuse the tensor as an operand of JAX's functions and operators, which read this."""
        name = called_name()
        instead = computes_same(name) if name else "pass JAX's arrays to the kernel as arguments"
        raise JaxFunction(name=name or "function or operator", instead=instead).here()

    def _text(self, memory: str, value: object) -> str:
        """Return the name, shape and dtype, the memory and address, and the elements if they are known."""
        name = self.name
        if not name or GENERATED.fullmatch(name):
            name = variable(lambda other: other is self) or variable(self._is_part_of) or name
        addresses = self._addresses()
        where = f", address {' '.join(map(str, addresses))}" if addresses else ""
        header = f"{name}{list(self.shape)} {self.dtype} in {memory}{where}"
        return header if value is None else f"{header}\n{value}"

    def _is_part_of(self, other: object) -> bool:
        """Return whether the tensor is a view of another one's memory."""
        return False

    def _addresses(self) -> tuple[tuple[int, int], ...]:
        """Return (partition, byte) of each block if the kernel chose them, else ()."""
        return ()

    def _table(self, memory: str, value: Any) -> str:
        """Return ``_text`` as HTML for a notebook: a table with a row for each partition."""
        rows = None if value is None or not value.size else value.reshape(value.shape[0] if value.ndim else 1, -1)
        header = self._text(memory, None)
        from nki_mlir import display  # start-up: imported on first use
        return display.tile(header, rows, rows.shape) if rows is not None else display.tile(header, [], (0, 0))
