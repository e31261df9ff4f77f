# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Binds a kernel's arguments: which are tensors, and which are constants.

Tensors may be nested in tuples, lists, dicts, named tuples, dataclasses and objects of ``NKIObject``. Everything else
is a compile-time constant.
"""

import copy
import dataclasses
import inspect
import linecache
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import is_
from types import TracebackType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from nki_mlir.capture.locations import raised_at
from nki_mlir.capture.wrapping import name_of
from nki_mlir.diagnostics import KernelError, NkiMlirError, value_text
from nki_mlir.language.kernel_object import NKIObject, is_frozen
from nki_mlir.language.misused_values import CALLED, CALLED_VALUES, ENTERED, ENTERED_VALUES, CalledValue, EnteredValue
from nki_mlir.language.python_errors import with_fix
from nki_mlir.scalar.dtypes import FLOAT32, DType, dtype_of
from nki_mlir.similar_names import nearest


class BadArgument(KernelError, TypeError):
    code = "NKI-ARGUMENT"
    message = "{what}"
    fix = "call the kernel with the arguments of its signature"


class WrongCall(BadArgument):
    message = "{function}{signature}: {complaint}"
    fix = "{instead}"


class ElementType(BadArgument):
    message = "{what}: {reason}"
    fix = "{instead}"

    @classmethod
    def of(cls, subject: str, dtype: object, reason: object, convert: str = "x.astype(np.float32)") -> "ElementType":
        """Return the error for a tensor of this dtype; ``convert`` is an expression that converts one."""
        return cls(what=subject, reason=reason, instead=conversion(dtype, convert))


def conversion(dtype: object, convert: str = "x.astype(np.float32)") -> str:
    """Return advice for a tensor whose dtype is not an element type."""
    try:
        described = np.dtype(dtype_name(dtype))             # type: ignore[call-overload]
        kind = described.kind if described.names or described.type.__module__ == "numpy" else ""    # not of ml_dtypes
    except (TypeError, ValueError, RecursionError):
        kind = ""
    if kind == "c":
        return "pass its real part and its imaginary part as two tensors of float32"
    return "pass a tensor of numbers" if kind and kind in "OVSUMm" else f"convert it first, for example with {convert}"


class NoShape(BadArgument):
    message = "a tensor of shape {shape!r}: {reason}"
    fix = "give a tuple of extents that are integers of 0 or more, for example (128, 512)"


class TensorTooLarge(BadArgument):
    message = "a tensor of shape {shape!r} and dtype {dtype}: {reason}"
    fix = "give smaller extents"


class NoTensor(BadArgument):
    message = "parameter {name} is {value}, and the kernel reads its {attribute}"
    why = "only arrays and tensors have shapes and dtypes; anything else is passed to a kernel as a Python constant"
    fix = "pass {instead}"


class NestedArgument(BadArgument):
    message = "an argument contains itself, or is nested more than {depth} deep"
    fix = "pass its tensors and numbers in plain lists or dicts"


MOST_AXES = 64                      # of an array of NumPy
DEPTH = 100                         # most levels of nested containers and objects
SIMPLE = {type(None), bool, int, float, str}
NOTHING = object()                  # no argument is this object
TENSOR_ATTRIBUTES = ("shape", "dtype", "ndim", "size", "reshape", "ap")


class EndlessRecursion(KernelError, RecursionError):
    code = "NKI-RECURSION"
    message = "the kernel's Python functions call each other more than {limit:,} calls deep"
    why = "Python runs during the capture, so no condition on the values of tiles can end the recursion"
    fix = "end it with a condition on a constant, or write it as a loop"


def explained(error: Exception, values: Mapping[str, object]) -> Exception:
    """Return the error that explains a Python error in a kernel.

    ``NoTensor``: the kernel reads the shape, dtype or elements of an argument that is not a tensor.
    ``EndlessRecursion``: Python raised ``RecursionError``. ``CalledValue``: the kernel calls a value. ``EnteredValue``:
    the kernel uses one in ``with``. Other errors are returned unchanged, with a note that says the fix if there is one.
    """
    if isinstance(error, NkiMlirError):
        return error
    if isinstance(error, RecursionError):
        return EndlessRecursion(limit=sys.getrecursionlimit()).located(raised_at(error.__traceback__))
    if isinstance(error, TypeError) and (match := re.fullmatch(CALLED, str(error))) and (
            called := CALLED_VALUES.get(match[1]) or CALLED_VALUES.get(match[1].rpartition(".")[0])):
        kind, instead = called
        return CalledValue(kind=kind, instead=instead).located(raised_at(error.__traceback__))
    if isinstance(error, TypeError | AttributeError) and (match := re.fullmatch(ENTERED, str(error))) and (
            entered := ENTERED_VALUES.get(match[1] or type(getattr(error, "obj", None)).__name__)):     # Python 3.10
        kind, instead = entered
        return EnteredValue(kind=kind, instead=instead).located(raised_at(error.__traceback__))
    if isinstance(error, TypeError):
        read, attribute = subscripted(error.__traceback__, values), "elements"
    elif isinstance(error, AttributeError):
        read, attribute = error.obj, error.name if error.name in TENSOR_ATTRIBUTES else ""
    else:
        return with_fix(error)
    if not attribute or (hasattr(read, "shape") and hasattr(read, "dtype")):
        return with_fix(error)
    sequence = isinstance(read, tuple | list)                   # a capture has copies of these, and of dicts
    name = next((name for name, value in values.items() if value is read or (
        sequence and isinstance(value, tuple | list) and same_items(value, read)) or (
        isinstance(read, dict) and isinstance(value, dict) and value.keys() == read.keys())), None)
    if name is None and attribute_names(read):                  # a capture has copies of objects
        names = [name for name, value in values.items() if type(value) is type(read)]
        name = names[0] if len(names) == 1 else None
    if name is None:
        return with_fix(error)
    value, instead = read, "an array, for example np.zeros((128, 512), np.float32)"
    shape, dtype = value, "float32"
    if isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], tuple | list):
        shape, dtype = value[0], dtype_text(value[1])
    if isinstance(shape, tuple | list) and shape and all(isinstance(n, int) for n in shape):
        instead = f"nki_mlir.spec({tuple(shape)}, '{dtype}') for a tensor of that shape, or an array"
    elif isinstance(value, list):
        instead = "np.array(the list, np.float32)"
    elif isinstance(value, dict):
        instead = f"an array, for example one of {name}.values()"
    text = value_text(value, repr)
    wrong = NoTensor(name=name, attribute=attribute, instead=instead,
                     value=f"of type {type(value).__name__}" if len(text) > 40 or text[0] in "<{" else text)
    return wrong.located(raised_at(error.__traceback__))


def subscripted(traceback: TracebackType | None, values: Mapping[str, object]) -> Any:
    """Return the variable whose element the user's code reads or writes where an exception was raised.

    Return ``NOTHING`` if the code does neither, or if the variable is None, unless the argument of its name is None.
    """
    at, raising = raised_at(traceback), None
    while traceback is not None:
        raising, traceback = traceback.tb_frame, traceback.tb_next
    if at is None or raising is None or raising.f_code.co_filename != at.file:
        return NOTHING
    line = linecache.getline(at.file, at.line).encode()         # columns count bytes
    match = re.match(rb"(\w+)\[(?!['\"])", line[at.column:at.end_column])        # no tensor has strings as indices
    name = match[1].decode() if match else ""
    read = raising.f_locals.get(name, NOTHING)
    return NOTHING if read is None and values.get(name, NOTHING) is not None else read


def same_items(first: Sequence[object], second: Sequence[object]) -> bool:
    """Return whether two sequences have the same objects. A capture copies sequences and replaces arrays, for which the
    first sequence may have other objects."""
    return len(first) == len(second) and all(
        same_items(a, b) if isinstance(a, tuple | list) and isinstance(b, tuple | list) else
        a is b or (hasattr(b, "shape") and hasattr(b, "dtype"))
        for a, b in zip(first, second))


def dtype_text(value: object) -> str:
    """Return the name of a dtype; float32's for any other value."""
    try:
        return dtype_of(value).name
    except TypeError:
        return FLOAT32.name


class MaskedArgument(BadArgument):
    message = "a masked array is passed to a kernel, which would not see its mask"
    fix = "pass array.filled(value), and array.mask as a separate parameter where the kernel needs it"


class Described:
    """A tensor of which only the shape and the dtype are known. A call takes it as a tensor of zeros."""

    annotated_shape: tuple[Any, ...]
    annotated_dtype: object = None

    def zeros(self) -> np.ndarray:
        """Return an array of this shape and dtype."""
        return zeros_of(self.annotated_shape, FLOAT32 if self.annotated_dtype is None else self.annotated_dtype)


def dtype_name(dtype: object) -> object:
    """Return the name of a PyTorch dtype, which is the language's name; any other value unchanged."""
    text = value_text(dtype)
    return text.removeprefix("torch.") if text.startswith("torch.") else dtype


def extents_of(shape: Any) -> tuple[Any, ...]:
    """Return the extents of a description as a tuple; raise ``NoShape`` for a single number, a text, or more extents
    than an array has: an iterator may never end."""
    if isinstance(shape, str):
        raise NoShape(shape=shape, reason="it is a text").here()
    try:
        extents = tuple(islice(shape, MOST_AXES + 1))
    except TypeError as error:
        raise NoShape(shape=shape, reason=error).here() from None
    if len(extents) > MOST_AXES:
        raise NoShape(shape=shape, reason=f"it has more than {MOST_AXES} extents").here()
    return extents


def zeros_of(shape: Any, dtype: object) -> np.ndarray:
    """Return an array for a description; its memory is never touched."""
    shape = extents_of(shape)
    try:
        extents = [int(n) for n in shape]
    except (OverflowError, TypeError, ValueError) as error:
        raise NoShape(shape=shape, reason=error).here() from None
    wrong = [n for n, extent in zip(shape, extents) if extent < 0 or (isinstance(n, (str, float)) and n != extent)]
    if wrong:
        raise NoShape(shape=shape, reason=f"an extent is {value_text(wrong[0], repr)}").here()
    try:
        element = dtype_of(dtype_name(dtype))
    except (TypeError, ValueError, RecursionError) as error:
        subject = f"a tensor of shape {value_text(shape)} and dtype {value_text(dtype)}"
        raise ElementType.of(subject, dtype, error, "dtype=np.float32").here() from None
    try:
        return np.zeros(extents, element.numpy)
    except (MemoryError, OverflowError, ValueError) as error:
        raise TensorTooLarge(shape=shape, dtype=element.name, reason=error).here() from None


def with_arrays(arguments: tuple[object, ...], keywords: dict[str, object]
                ) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the arguments of a call with arrays in place of tensors that are only described."""
    if not any([isinstance(value, Described) for value in (*arguments, *keywords.values())]):
        return arguments, keywords

    def as_array(value: object) -> object:
        return value.zeros() if isinstance(value, Described) else value
    return tuple(as_array(a) for a in arguments), {name: as_array(value) for name, value in keywords.items()}


class TensorSpec(NamedTuple):
    """A tensor argument: its path in the arguments, shape, dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: DType


@dataclass
class Bound:
    """The arguments of a call, bound to the signature. ``tensors`` are the leaves in signature order, ``specs``
    describe them.

    ``plain``: for each argument None if it is a tensor, or the type and value of a constant. None instead of the tuple
    if an argument is neither.
    """

    names: list[str]
    values: dict[str, object]
    specs: list[TensorSpec] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)

    def with_tensors(self, replacements: list[Any]) -> tuple[list[object], dict[str, object]]:
        """Return (positional, keyword) arguments with the tensor leaves replaced, in order. The kernel changes copies
        only."""
        new_tensors, copies = iter(replacements), dict[int, object]()
        values = {name: map_leaves(value, self.is_tensor, lambda _: next(new_tensors), copies)
                  for name, value in self.values.items()}
        return self.call(values)

    is_tensor: Callable[[object], bool] = lambda value: False
    call: Callable[[dict[str, object]], tuple[list[object], dict[str, object]]] = lambda values: ([], values)
    plain: tuple[object, ...] | None = None

    def paths(self, name: str) -> list[str]:
        """Return the paths of the tensors of an argument, as ``specs`` names them."""
        return [path for path, _ in leaves_of(self.values[name], self.is_tensor, name)]

    @property
    def constants(self) -> list[object]:
        """The arguments without their tensors, in order."""
        return [map_leaves(value, self.is_tensor, lambda _: None) for value in self.values.values()]


def map_leaves(value: Any, is_leaf: Callable[[object], bool], change: Callable[[Any], object],
               copies: dict[int, object] | None = None, depth: int = 0) -> Any:
    """Return ``value`` with its leaves changed, in new containers and objects. Objects without leaves are not
    copied.

    With ``copies`` (of objects, by ``id``), it copies these as well, so that a change of the result does not change
    ``value``.
    """
    if is_leaf(value):
        return change(value)
    if depth > DEPTH:
        raise NestedArgument(depth=DEPTH).here()
    inside: Callable[[object], Any] = lambda part: map_leaves(part, is_leaf, change, copies, depth + 1)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(inside, value))
    if isinstance(value, (tuple, list)):
        return type(value)(value if has_constants_alone(value, is_leaf) else map(inside, value))
    if isinstance(value, dict):
        items = {k: inside(v) for k, v in value.items()}
        if type(value) is dict:
            return items
        changed = copy.copy(value)
        changed.update(items)
        return changed
    names = attribute_names(value)
    if not names:
        return value
    if not leaves_of(value, is_leaf):
        if copies is None or is_frozen(type(value)):
            return value
        if id(value) not in copies:
            copies[id(value)] = copy.copy(value)
            set_attributes(copies[id(value)], {n: inside(getattr(value, n)) for n in names})
        return copies[id(value)]
    changed = copy.copy(value)
    set_attributes(changed, {n: inside(getattr(value, n)) for n in names})
    return changed


def has_constants_alone(values: Sequence[object], is_leaf: Callable[[object], bool]) -> bool:
    """Return whether a sequence, which may have millions of values, has only numbers, texts and None, and no leaves."""
    kinds = {*map(type, values)}
    return kinds <= SIMPLE and not any(is_leaf(next(v for v in values if type(v) is kind)) for kind in kinds)


def leaves_of(value: object, is_leaf: Callable[[object], bool], path: str = "", enclosing: tuple[object, ...] = ()
              ) -> list[tuple[str, object]]:
    """Return (path, leaf) pairs in order. An object that contains itself is visited once."""
    if is_leaf(value):
        return [(path, value)]
    if len(enclosing) > DEPTH:
        raise NestedArgument(depth=DEPTH).here()
    within = (*enclosing, value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [x for n, v in zip(value._fields, value) for x in leaves_of(v, is_leaf, f"{path}.{n}", within)]
    if isinstance(value, (tuple, list)):
        return [] if has_constants_alone(value, is_leaf) else [
            x for k, v in enumerate(value) for x in leaves_of(v, is_leaf, f"{path}_{k}", within)]
    if isinstance(value, dict):
        return [x for k, v in value.items() for x in leaves_of(v, is_leaf, f"{path}_{k}", within)]
    names = attribute_names(value)
    if not names or any([value is v for v in enclosing]):
        return []
    return [x for n in names for x in leaves_of(getattr(value, n), is_leaf, f"{path}.{n}", within)]


def attribute_names(value: object) -> list[str]:
    """Return the names of a dataclass's fields or of an ``NKIObject``'s attributes; none for any other value."""
    if isinstance(value, type):
        return []
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
        return [*names, *(n for n in getattr(value, "__dict__", ()) if n not in names)]
    return list(vars(value)) if isinstance(value, NKIObject) else []


def set_attributes(value: object, attributes: dict[str, object]) -> None:
    """Set attributes, also of frozen dataclasses."""
    for name, attribute in attributes.items():
        object.__setattr__(value, name, attribute)


def defaults_of(function: object) -> tuple[object, ...]:
    return *(getattr(function, "__defaults__", None) or ()), *(getattr(function, "__kwdefaults__", None) or {}).values()


class Read(NamedTuple):
    """The signature of a function, and the function's defaults when it was read: a program may change them later.

    ``bound``: the function is a bound method, whose signature has no ``self``. ``plain`` has the names and the defaults
    of the parameters if each can be passed by position and by name, else None.
    """

    bound: bool
    defaults: tuple[object, ...]
    signature: inspect.Signature
    plain: tuple[tuple[str, ...], dict[str, object]] | None


_read: WeakKeyDictionary[object, Read] = WeakKeyDictionary()          # entries end with their kernel


def read(function: Any) -> Read:
    """Return the signature of a function, memoized as long as the function keeps its defaults."""
    owner: Any = getattr(function, "__func__", function)                # Python creates a bound method for each use
    hashable, bound, defaults = owner.__hash__ is not None, owner is not function, defaults_of(function)
    parsed = _read.get(owner) if hashable else None
    if parsed is None or parsed.bound is not bound or len(parsed.defaults) != len(defaults) or not all(
            map(is_, parsed.defaults, defaults)):
        signature = inspect.signature(function, follow_wrapped=False)
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in signature.parameters.values()):
            signature = inspect.signature(function)             # a wrapper that passes its arguments on
        usual = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in signature.parameters.values())
        plain = tuple(signature.parameters), {n: p.default for n, p in signature.parameters.items()
                                              if p.default is not p.empty}
        parsed = Read(bound, defaults, signature, plain if usual else None)
        if hashable:
            _read[owner] = parsed
    return parsed


def signature_of(function: object) -> inspect.Signature:
    return read(function).signature


def values_of(function: Any, arguments: tuple[object, ...], keywords: dict[str, object]) -> dict[str, object]:
    """Return the values of all parameters, in their order; raise ``BadArgument`` with the signature's own complaint."""
    parameters = read(function).plain
    if parameters is not None:
        names, defaults = parameters
        count, missing = len(arguments), names[len(arguments):]
        values = dict(zip(names, arguments))
        if missing:
            named = defaults | keywords if keywords else defaults
            values.update([(name, named[name]) for name in missing if name in named])
        if count <= len(names) == len(values) and (not keywords or keywords.keys() <= {*missing}):
            return values
    signature = signature_of(function)
    try:
        bound = signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise wrong_call(function, signature, arguments, keywords, str(error)).here() from None
    bound.apply_defaults()
    return dict(bound.arguments)


def wrong_call(function: Any, signature: inspect.Signature, arguments: tuple[object, ...], keywords: dict[str, object],
               complaint: str) -> WrongCall:
    """Return the error for the arguments of a call. A misspelled name is reported before the parameter that it leaves
    out."""
    names = [p.name for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    missing = [name for name in names[len(arguments):] if name not in keywords
               and signature.parameters[name].default is inspect.Parameter.empty]
    one_for_each = f"pass one argument for each parameter: {', '.join(names)}" if names else "pass no argument"
    unknown = [] if len(names) < len(signature.parameters) else [name for name in keywords if name not in names]
    if unknown:
        suggestion = nearest(unknown[0], names) or "".join(missing[:1])
        complaint = f"got an unexpected keyword argument '{unknown[0]}'"
        instead = f"write {suggestion}=" if suggestion else one_for_each
        if unknown[0] == "grid":
            instead = f"launch programs with {name_of(function)}[n](...)"
    elif missing:
        instead = f"pass {', '.join(missing)} as well"
    else:
        instead = one_for_each
    return WrongCall(function=name_of(function), signature=signature, complaint=complaint, instead=instead)


def bind(function: object, arguments: tuple[object, ...], keywords: dict[str, object],
         is_tensor: Callable[[object], bool], describe: Callable[[object], tuple[tuple[int, ...], DType]]) -> Bound:
    """Bind arguments to the signature, defaults included."""
    values = values_of(function, arguments, keywords)
    specs: list[TensorSpec] = []
    tensors: list[object] = []
    plain: list[object] | None = []
    for name, value in values.items():
        kind: type = type(value)
        leaves: Any = ()
        if is_tensor(value):
            leaves = ((name, value),)
            if plain is not None:
                plain.append(None)
        elif kind in SIMPLE:
            if plain is not None:
                plain += kind, repr(value) if kind is float else value      # 0.0 is not -0.0, and nan is nan
        else:
            leaves, plain = leaves_of(value, is_tensor, name), None
        for path, leaf in leaves:
            specs.append(TensorSpec(path, *describe(leaf)))
            tensors.append(leaf)

    def call(changed: dict[str, object]) -> tuple[list[object], dict[str, object]]:
        again = inspect.BoundArguments(signature_of(function), changed)
        return list(again.args), again.kwargs
    return Bound(list(values), values, specs, tensors, is_tensor, call, None if plain is None else tuple(plain))
