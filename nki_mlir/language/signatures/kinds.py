# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The values that parameters take: one test and normal form for each kind of parameter.

Parameters of one name take the same kind of value in all functions; entries of the table list the few exceptions. A
kind converts the value to the form that functions take, or returns ``REFUSED``: then the call may be in the form of
another release.
"""

import enum
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nki_mlir.capture.index import Index, Mask
from nki_mlir.language.tensor_object import TensorObject
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import DType, dtype_of
from nki_mlir.scalar.tokens import token_name


class Refused(enum.Enum):
    """The result of converting a value that a kind does not take."""

    REFUSED = 0


REFUSED = Refused.REFUSED
Converter: TypeAlias = Callable[[Any], object]


@dataclass
class GenerationValues:
    """The types of tiles, registers and enumerations of one generation."""

    tiles: tuple[type, ...] = ()
    registers: tuple[type, ...] = ()
    enumerations: dict[str, type[enum.Enum]] = field(default_factory=dict)
    report_number: Callable[[object, enum.Enum], None] = lambda value, member: None     # of an older release's argument
    numbers: dict[tuple[str, int], str] = field(default_factory=dict)      # numbers of removed members
    region: Converter = lambda value: value

    def is_tile(self, value: object) -> bool:
        """Return whether a value is a tile, including one that another tile addresses or that is a tile plus an
        index."""
        return isinstance(value, self.tiles) or hasattr(value, "as_sum")


class ParameterKind(NamedTuple):
    """The values that a parameter takes. Messages of the beta generation use ``description``, messages of the current
    one ``label``; without a label the function itself reports wrong values."""

    description: str
    make: Callable[[GenerationValues], Converter]
    label: str = ""
    holds_none: bool = False            # None stands for the default, even if the default is another value
    is_tile: bool = False
    only_tests: bool = False            # values are tested, but not converted
    enumeration: str = ""               # an enumeration of ``nisa``: the values are its members


def where(test: Callable[[Any], bool]) -> Callable[[GenerationValues], Converter]:
    """Return the conversion that accepts values for which the test holds, unchanged."""
    return lambda values: lambda value: value if test(value) else REFUSED


# -- numbers -----------------------------------------------------------------------------------------------------------
NUMBERS = (int, float, np.integer, np.floating, np.bool_, Index)


def is_number(value: object) -> bool:
    return isinstance(value, NUMBERS) or (type(value).__module__ == "ml_dtypes" and hasattr(value, "__float__")) or (
        isinstance(value, np.ndarray) and value.ndim == 0 and holds_numbers(value.dtype))


def holds_numbers(dtype: np.dtype) -> bool:
    return dtype.kind in "biuf" or dtype.type.__module__ == "ml_dtypes"


def number_value(value: Any) -> object:
    """Convert a number to Python's or NumPy's."""
    if isinstance(value, NUMBERS):
        return value
    if not is_number(value):
        return REFUSED
    return value.item() if isinstance(value, np.ndarray) else float(value)


def is_integer(value: object) -> bool:
    return type(value) is int or (
        hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_, type)) and not hasattr(value, "buffer")
        and not (isinstance(value, np.ndarray) and (value.ndim or value.dtype.kind not in "iu")))


def integer_value(value: Any) -> object:
    """Convert an integer to Python's."""
    return value if type(value) is int else operator.index(value) if is_integer(value) else REFUSED


def integral_value(value: Any) -> object:
    """Convert an integer, or a float without a fraction, to Python's integer."""
    return int(value) if isinstance(value, (float, np.floating)) and float(value).is_integer() else integer_value(value)


def axes_value(value: Any) -> object:
    """Convert the axes of a range or an array to a tuple; keep an integer, a tuple or a list."""
    if is_integer(value):
        return value
    if not are_integers(value):
        return REFUSED
    return value if isinstance(value, (tuple, list)) else tuple(map(int, value))


def are_integers(value: object) -> bool:
    return (isinstance(value, (tuple, list, range)) or (isinstance(value, np.ndarray) and value.ndim == 1)) and all(
        is_integer(n) for n in value)


def is_flag(value: object) -> bool:
    return isinstance(value, (bool, np.bool_)) or (isinstance(value, (int, np.integer)) and value in (0, 1))


def are_numbers(value: object) -> bool:
    """Return whether NumPy can convert a value to an array of numbers."""
    if isinstance(value, TensorObject):             # its numbers are on the device
        return False
    try:
        kind = np.asarray(value).dtype
    except ValueError:                              # rows of different lengths
        return False
    return holds_numbers(kind)


def is_index(value: object) -> bool:
    return isinstance(value, Index) or is_integer(value)


# -- objects of the machine --------------------------------------------------------------------------------------------
def tiles(values: GenerationValues) -> Converter:
    exact = values.tiles
    return lambda value: value if isinstance(value, exact) or hasattr(value, "as_sum") or hasattr(
        value, "buffer") else REFUSED


def scalars(values: GenerationValues) -> Converter:
    kinds = (*values.tiles, *values.registers)
    return lambda value: value if isinstance(value, kinds) or hasattr(value, "as_sum") or hasattr(
        value, "buffer") else number_value(value)


def or_none(convert: Converter, default: object) -> Converter:
    """Return the conversion in which None stands for the default."""
    return lambda value: default if value is None else convert(value)


def seeds(values: GenerationValues) -> Converter:
    return lambda value: value if is_integer(value) or values.is_tile(value) else REFUSED


def starts(values: GenerationValues) -> Converter:
    return lambda value: value if is_index(value) or values.is_tile(value) or hasattr(value, "buffer") else REFUSED


def are_sources(value: object) -> bool:
    """Return whether a value is a list of tiles; None and lists of numbers are scales."""
    return isinstance(value, (list, tuple)) and not any(is_number(v) for v in value)


# -- names of the language ---------------------------------------------------------------------------------------------
def dtype_value(value: object) -> object:
    """Convert a dtype of the language, of NumPy or of a framework, or the name of one."""
    if type(value) is DType:
        return value
    if type(value).__module__ == "torch":
        value = str(value).removeprefix("torch.")
    try:
        return REFUSED if value is None else dtype_of(value)
    except (TypeError, ValueError):                 # NumPy's for an object whose ``dtype`` is not NumPy's
        return REFUSED


def names_dtype(value: object) -> bool:
    """Return whether a value is the name of a dtype, one of the language or not, or an object that stands for one."""
    return isinstance(value, (str, np.dtype)) or hasattr(value, "__name__") or (
        hasattr(value, "name") and not isinstance(value, TensorObject)) or type(value).__module__ == "torch"


OPERATORS = ALU.keys() | ACTIVATIONS.keys()


def is_operator(value: object) -> bool:
    return getattr(value, "nki_token", None) in OPERATORS or token_name(value) in OPERATORS


def name_value(value: object) -> object:
    name = getattr(value, "name", value)
    return name if isinstance(name, str) else REFUSED


def shape_value(value: object) -> object:
    """Convert extents to a tuple. An extent that is marked as the partition keeps its mark."""
    if type(value) is tuple and all([isinstance(n, int) for n in value]):
        return value
    items = value if isinstance(value, (tuple, list, range)) else (value,)
    if not all(is_integer(n) for n in items):
        return REFUSED
    return tuple(n if isinstance(n, int) else n.__index__() for n in items)


def is_shape(value: object) -> bool:
    return isinstance(value, (tuple, list)) and all(hasattr(n, "__index__") and not isinstance(n, type) for n in value)


def member_of(enumeration: str, names: str) -> ParameterKind:
    """Return the kind of an enumeration of ``nisa``: members, their names, or their numbers in the generation of the
    call."""
    def make(values: GenerationValues) -> Converter:
        members = values.enumerations.get(enumeration)
        if members is None:                                 # the generation lacks this enumeration
            return lambda value: value
        by_number = {m.value: m for m in members} | {
            n: members[name] for (kind, n), name in values.numbers.items() if kind == enumeration}

        def convert(value: object) -> object:
            if type(value) is members:
                return value
            if isinstance(value, (bool, np.bool_)):
                return REFUSED
            if isinstance(value, (int, np.integer)) and not isinstance(value, enum.Enum):
                member = by_number.get(int(value), REFUSED)
                if isinstance(member, enum.Enum):
                    values.report_number(value, member)
                return member
            if isinstance(value, enum.Enum) and type(value).__name__ != enumeration:
                return REFUSED
            name = getattr(value, "name", value)
            return members.__members__.get(name.removesuffix("_engine"), REFUSED) if isinstance(name, str) else REFUSED
        return convert
    return ParameterKind("one of " + ", ".join(f"nisa.{enumeration}.{n}" for n in names.split()), make, holds_none=True,
                         enumeration=enumeration)


def transport(values: GenerationValues) -> Converter:
    """Convert the older ``use_gpsimd_dma``: map True and False to the DMA engine that replaces them."""
    members = values.enumerations.get("dma_engine")
    return lambda value: REFUSED if members is None or not isinstance(value, (bool, np.bool_)) else (
        members["gpsimd_dma"] if value else members["dma"])


def shape_of_tile(values: GenerationValues) -> Converter:
    """Convert the first argument where older releases take a shape: refuse a tile."""
    return lambda value: REFUSED if values.is_tile(value) else shape_value(value)


FLAG = ParameterKind("True or False", where(is_flag), "'bool'")
NUMBER = ParameterKind("a number", lambda values: number_value, "'number'")
INTEGER = ParameterKind("an integer", lambda values: integer_value, "'integer'")
INTEGRAL = ParameterKind("an integer", lambda values: integral_value, "'integer'")
INTEGERS = ParameterKind("a tuple of integers", where(are_integers))
PAIR = ParameterKind("a tuple of integers", where(are_integers), "'pair'", holds_none=True)
COUNT = ParameterKind("a positive integer", where(lambda value: is_integer(value) and value > 0))
COUNTS = ParameterKind("a tuple of positive integers", where(
    lambda value: are_integers(value) and all(n > 0 for n in value)))
SEED = ParameterKind("an integer or a [1, 1] tile of integers", seeds, is_tile=True)
DIVISOR = ParameterKind("a number other than 0", where(lambda value: is_number(value) and value != 0),
                        "a 'number' other than 0")
AXES = ParameterKind("an integer or a tuple of integers", lambda values: axes_value)
INDEX = ParameterKind("an integer or an index expression", where(is_index))
START = ParameterKind("an integer, an index expression or a [1, 1] tile", starts)
INDICES = ParameterKind("a loop variable or a tuple of them", where(lambda value: all(
    is_index(v) for v in (value if isinstance(value, (tuple, list)) else [value]))))
TILE = ParameterKind("a tile", tiles, is_tile=True, only_tests=True)
TENSOR = ParameterKind("a tile", tiles, "'tensor'", is_tile=True)
SCALAR = ParameterKind("a number or a tile", scalars, "'number' or 'tensor'", is_tile=True)
MAYBE = ParameterKind("a number, a tile or None", lambda values: or_none(scalars(values), None), "'number' or 'tensor'",
                      is_tile=True)
DTYPE = ParameterKind("a dtype", lambda values: dtype_value, "a dtype", holds_none=True)
SHAPE = ParameterKind("a tuple of integers", lambda values: shape_value)
EXTENTS = ParameterKind("a tuple of integers", where(is_shape), "'sequence' of integers")
TILE_SHAPE = ParameterKind("a tuple of integers", shape_of_tile)
ARRAY = ParameterKind("an array of numbers", where(are_numbers))
NAME = ParameterKind("a string", lambda values: name_value, "'string'", holds_none=True)
TEXT = ParameterKind("a string", lambda values: name_value, "'string'")
FUNCTION = ParameterKind("a function", where(callable), "'function'")
OPERATOR = ParameterKind("", where(is_operator), only_tests=True)
REGION = ParameterKind("", lambda values: values.region, holds_none=True)
SOURCES = ParameterKind("a list of tiles", where(are_sources), only_tests=True)
SCALES = ParameterKind("a list of numbers", where(lambda value: value is None or (
    isinstance(value, (list, tuple)) and all(map(is_number, value)))))
MASK = ParameterKind("", where(lambda value: isinstance(value, (Mask, bool, np.bool_))), holds_none=True,
                     only_tests=True)
PATTERN = ParameterKind("a list of [step, count] pairs", where(lambda value: isinstance(value, (list, tuple)) and all(
    isinstance(p, (list, tuple)) for p in value)))
TRANSPORT = ParameterKind("True or False", transport)
ANY = ParameterKind("", lambda values: lambda value: value, only_tests=True)

_GROUPS: list[tuple[ParameterKind, str]] = [
    (FLAG, "keepdims negate reverse0 reverse1 reverse_pred transpose_x is_stationary_onezero is_moving_onezero "
           "is_transpose parallel_reduce asynchronous accumulate unique_indices reduce_res_negate recv_counts_known "
           "has_rdispls"),
    (NUMBER, "fill_value imm on_false_value epsilon range_start"),
    (INTEGER, "num_elem_per_idx base_addr base_bank base_partition priority channel_multiplier collective_dim "
              "iteration_id channel_id index_offset padding_val send_to_rank recv_from_rank pipe_id"),
    (COUNT, "num_valid_indices"),
    (INTEGERS, "shuffle_mask"),
    (PAIR, "tile_position tile_size"),
    (COUNTS, "num_par_tiles num_free_tiles num_bank_tiles"),
    (AXES, "axis axes program_axes"),
    (TILE, "data data0 data1 data2 src dst src_buffer index indices predicate on_true on_true_tile reduce_res bound0 "
           "bound1 vals dst_idx stationary moving segment_ids tensor stationary_scale moving_scale dst_scale"),
    (SCALAR, "operand0 operand1 initial scale bias rate prob imm0 imm1 on_false reduce_init relu_param max_value "
             "min max"),
    (SEED, "seed"),
    (DTYPE, "dtype compute_dtype"),
    (SHAPE, "shape"),
    (NAME, "name"),
    (TEXT, "prefix print_prefix"),
    (FUNCTION, "func body_fun"),
    (OPERATOR, "op op0 op1 reduce_op comp_op0 comp_op1 cmp_op dst_rmw_op"),
    (REGION, "buffer"), (MASK, "mask"),
    (SOURCES, "srcs"), (SCALES, "scales"), (PATTERN, "pattern"), (TRANSPORT, "use_gpsimd_dma"),
    (member_of("engine", "unknown tensor scalar gpsimd vector sync"), "engine"),
    (member_of("reduce_cmd", "idle reset reduce reset_reduce load_reduce"), "reduce_cmd"),
    (member_of("oob_mode", "error skip"), "oob_mode mode"),
    (member_of("dge_mode", "none swdge hwdge unknown"), "dge_mode"),
    (member_of("dma_engine", "dma gpsimd_dma"), "dma_engine"),
    (member_of("matmul_perf_mode", "none double_row"), "perf_mode")]
KINDS: dict[str, ParameterKind] = {name: kind for kind, names in _GROUPS for name in names.split()}
