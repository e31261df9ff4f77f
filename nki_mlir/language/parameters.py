# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each parameter of the beta generation's functions takes: checked where the kernel passes it.

Parameters of one name take the same kind of value in all functions; ``OF_FUNCTION`` has the few that do not.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np

from nki_mlir.diagnostics import KernelError
from nki_mlir.frontend.builder import active
from nki_mlir.frontend.index import Index
from nki_mlir.frontend.locations import user_location
from nki_mlir.frontend.tensor import View
from nki_mlir.language.creation import plain_shape
from nki_mlir.language.keywords import ACCEPTED, warn_of
from nki_mlir.language.operations import HostArray, located_dtype


class BadParameter(KernelError, TypeError):
    code = "NKI-PARAMETER"
    message = "{function}: {parameter} is {found}, it takes {what}"
    fix = "call it as {form}"


class BadCall(BadParameter):
    message = "{what}"


@dataclass(frozen=True)
class Kind:
    """Values that a parameter takes: what messages call them, and which they are. Tiles exist in kernels only."""

    what: str
    takes: Callable[[Any], bool]
    holds_none: bool = False            # whether None stands for the default where that is another value
    is_tile: bool = False


NUMBERS = (int, float, np.integer, np.floating, np.bool_, Index)


def is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS) or type(value).__module__ == "ml_dtypes" or (
        isinstance(value, np.ndarray) and value.ndim == 0)


def is_integer(value: Any) -> bool:
    return not isinstance(value, (bool, np.bool_, View)) and hasattr(value, "__index__") and not (
        isinstance(value, np.ndarray) and value.ndim)


def is_tile(value: Any) -> bool:
    """A tile, also one that is addressed by another or plus an index."""
    return isinstance(value, View) or hasattr(value, "as_sum") or hasattr(value, "buffer")


def are_integers(value: Any) -> bool:
    return isinstance(value, (tuple, list, range, np.ndarray)) and all(is_integer(n) for n in value)


def is_dtype(value: Any) -> bool:
    located_dtype(value)
    return True


def is_shape(value: Any) -> bool:
    plain_shape(value)
    return True


def are_numbers(value: Any) -> bool:
    """Whether NumPy makes an array of numbers of it."""
    try:
        kind = np.asarray(value).dtype
    except ValueError:                              # rows of different lengths
        return False
    return kind.kind in "biuf" or kind.type.__module__ == "ml_dtypes"


def member_of(enumeration: str, names: str, *, numbered: bool = False) -> Kind:
    """Members of an enumeration of ``nisa``, or their names; reduction commands also by number."""
    known = names.split()

    def takes(value: Any) -> bool:
        if numbered and type(value) is int:
            return 0 <= value < len(known)
        name = getattr(value, "name", value)
        return isinstance(name, str) and name.removesuffix("_engine") in known
    return Kind("one of " + ", ".join(f"{enumeration}.{n}" for n in known), takes, holds_none=True)


FLAG = Kind("True or False", lambda value: isinstance(value, (bool, np.bool_)) or (type(value) is int and value < 2))
NUMBER = Kind("a number", is_number)
INTEGER = Kind("an integer", is_integer)
INTEGERS = Kind("a tuple of integers", are_integers)
COUNT = Kind("a positive integer", lambda value: is_integer(value) and value > 0)
COUNTS = Kind("a tuple of positive integers", lambda value: are_integers(value) and all(n > 0 for n in value))
SEED = Kind("an integer or a [1, 1] tile of integers", lambda value: is_integer(value) or is_tile(value), is_tile=True)
DIVISOR = Kind("a number other than 0", lambda value: is_number(value) and value != 0)
AXES = Kind("an integer or a tuple of integers", lambda value: is_integer(value) or are_integers(value))
INDEX = Kind("an integer or an index expression", lambda value: isinstance(value, Index) or is_integer(value))
START = Kind("an integer, an index expression or a [1, 1] tile", lambda value: INDEX.takes(value) or is_tile(value))
INDICES = Kind("a loop variable or a tuple of them", lambda value: all(
    INDEX.takes(v) for v in (value if isinstance(value, (tuple, list)) else [value])))
TILE = Kind("a tile", is_tile, is_tile=True)
SCALAR = Kind("a number or a tile", lambda value: is_number(value) or is_tile(value), is_tile=True)
DTYPE = Kind("a dtype", is_dtype, holds_none=True)
SHAPE = Kind("a tuple of integers", is_shape)
ARRAY = Kind("an array of numbers", are_numbers)
NAME = Kind("a string", lambda value: isinstance(getattr(value, "name", value), str), holds_none=True)
FUNCTION = Kind("a function", callable)

_GROUPS: list[tuple[Kind, str]] = [
    (FLAG, "keepdims negate reverse0 reverse1 reverse_pred transpose_x is_stationary_onezero is_moving_onezero "
           "is_transpose parallel_reduce asynchronous"),
    (NUMBER, "fill_value imm on_false_value epsilon range_start"),
    (INTEGER, "num_elem_per_idx base_addr base_bank base_partition"),
    (COUNT, "num_valid_indices"),
    (INTEGERS, "shuffle_mask tile_position tile_size"),
    (COUNTS, "num_par_tiles num_free_tiles num_bank_tiles"),
    (AXES, "axis axes program_axes"),
    (TILE, "data data0 data1 data2 src dst src_buffer index indices predicate on_true on_true_tile reduce_res bound0 "
           "bound1 vals dst_idx stationary moving segment_ids"),
    (SCALAR, "operand0 operand1 initial scale bias rate prob imm0 imm1 on_false"),
    (SEED, "seed"),
    (DTYPE, "dtype compute_dtype"),
    (SHAPE, "shape"),
    (NAME, "name perf_mode"),
    (FUNCTION, "func"),
    (member_of("nisa.engine", "unknown tensor scalar gpsimd vector sync"), "engine"),
    (member_of("nisa.reduce_cmd", "idle reset reduce reset_reduce load_reduce", numbered=True), "reduce_cmd"),
    (member_of("nisa.oob_mode", "error skip"), "oob_mode mode"),
    (member_of("nisa.dge_mode", "none swdge hwdge unknown"), "dge_mode")]
KINDS: dict[str, Kind] = {name: kind for kind, names in _GROUPS for name in names.split()}
OF_FUNCTION: dict[str, Kind] = {
    "memset value": NUMBER, "rms_norm n": DIVISOR, "shared_identity_matrix n": COUNT, "program_id axis": INTEGER,
    "dma_transpose axes": INTEGERS, "iota expr": INDEX, "loop_reduce loop_indices": INDICES, "loop_reduce x": TILE,
    "where condition": SCALAR, "where x": SCALAR, "where y": SCALAR, "empty_like a": TILE, "zeros_like a": TILE,
    "shared_constant constant": ARRAY, "static_cast x": ARRAY, "ds start": START, "ds size": INDEX,
    "tensor_copy_predicated src": SCALAR, "atomic_rmw value": SCALAR, "scalar_tensor_tensor operand1": TILE}


def kind_of(function: str, parameter: inspect.Parameter) -> Kind | None:
    return OF_FUNCTION.get(f"{function} {parameter.name}") or KINDS.get(parameter.name)


def checked(function: Callable, name: str = "") -> Callable:
    """The function with its arguments checked; keywords that it ignores are reported."""
    title = name or function.__name__
    every = inspect.signature(function).parameters.values()
    ignores = any(p.kind is p.VAR_KEYWORD for p in every)
    parameters = {p.name: p for p in every if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    kinds = {n: kind for n, p in parameters.items() if (kind := kind_of(title, p)) is not None}
    optional = {n for n, p in parameters.items() if p.default is None or (
        n in kinds and kinds[n].holds_none and p.default is not p.empty)}
    in_order = [n for n, p in parameters.items() if p.kind is not p.KEYWORD_ONLY]
    if ignores:
        kinds |= {n: KINDS[n] for n in ACCEPTED & KINDS.keys() if n not in parameters}
        optional |= ACCEPTED - parameters.keys()
    known = parameters.keys() | ACCEPTED

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        for name, value in zip(in_order, arguments):
            if name in kinds and not (value is None and name in optional) and not kinds[name].takes(value):
                raise wrong(name, value)
        for name, value in keywords.items():
            if name in kinds:
                if not (value is None and name in optional) and not kinds[name].takes(value):
                    raise wrong(name, value)
            elif ignores and name not in known:
                warn_of(title, name, parameters.keys())
        try:
            return function(*arguments, **keywords)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise                               # from inside the function, which has been called
            raise BadCall(what=str(error).replace(function.__name__, title, 1), form=form).located(
                user_location()) from None

    def wrong(name: str, value: Any) -> KernelError:
        if kinds[name].is_tile:
            active(f"nl.{title}")                   # outside of kernels there are no tiles: that is the error
            if isinstance(value, np.ndarray):
                return HostArray(shape=value.shape).located(user_location())    # type: ignore[return-value]
        error = BadParameter(function=title, parameter=name, found=shown(value), what=kinds[name].what, form=form)
        return error.located(user_location())                                   # type: ignore[return-value]
    form = f"{title}({', '.join(written(p) for p in parameters.values())})"
    return call


def shown(value: Any) -> str:
    """A value that is not taken, on one line."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, View):
        return f"a tile of shape {value.shape}"
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"


def written(parameter: inspect.Parameter) -> str:
    """A parameter as documents write it."""
    if parameter.default is parameter.empty:
        return parameter.name
    default = parameter.default
    return f"{parameter.name}={getattr(default, '__name__', None) or default!s}"


def check_parameters(names: dict[str, Any], others: Iterable[str] = ()) -> None:
    """Let the functions that a module defines, and these that it has from others, check what they are given."""
    for name, value in names.items():
        defined = inspect.isfunction(value) and value.__module__ == names["__name__"] and not name.startswith("_")
        if defined or name in others:
            names[name] = checked(value, name)
