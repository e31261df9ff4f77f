# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parse ``--arg`` values: tensors by shape and dtype with their contents, and Python constants; and ``--grid`` values.

``128x512xf32`` is a tensor of random values; ``=zeros``, ``=ones``, ``=arange``, ``=random:SEED`` or ``=FILE.npy``
gives it other contents. ``FILE.npy`` alone is the file's tensor. ``Mode.ADD`` and ``Config(rows=64)`` name what the
kernel's file defines (``named_values``). Anything else is a Python constant (``2``, ``0.5``, ``inf``, ``None``,
``(1, 2)``; a bare word is a string); its tuples, lists and dicts may contain tensors. ``name=VALUE`` passes the value
by keyword.
"""

import ast
import re
from contextlib import suppress
from math import prod
from typing import Any, Literal

import numpy as np

from nki_mlir.array_files import UnreadableArray, read_array
from nki_mlir.cli.command import CommandLineError
from nki_mlir.cli.named_values import named_value
from nki_mlir.input_limits import DIMENSIONS, ELEMENTS, PROGRAMS
from nki_mlir.scalar.dtypes import BY_MLIR, BY_NAME, DType, convert
from nki_mlir.similar_names import nearest

TENSOR = re.compile(r"^((?:\d{1,18}x)*)([a-zA-Z]\w*)(?:=(.+))?$")
SHORT = BY_MLIR | BY_NAME | {"u8": BY_NAME["uint8"], "u16": BY_NAME["uint16"], "u32": BY_NAME["uint32"],
                             "bool": BY_NAME["bool"]}


ARRAY_FILES = (".npy", ".npz")   # an archive is refused: it has several arrays
AT_ONCE = 1 << 16               # values that are drawn in one call
SEED_DIGITS = 40                        # digits of a random seed: NumPy's generators have 128 bits
NESTED = re.compile(r"(?<![\w.'\"])(?:\d{1,18}x)+[a-zA-Z]\w*(?:=[\w.:/-]+)?")       # a tensor in a tuple, list or dict


class BadArgumentText(CommandLineError):
    code = "NKI-ARG"
    message = "--arg {text}: {what}"
    fix = "write for example --arg 128x512xf32=random, --arg 2 or --arg pool_size=2"


class BadGrid(CommandLineError):
    code = "NKI-GRID-TEXT"
    message = "--grid {text}: a grid must have {what}"
    fix = "write for example --grid 4 or --grid 2,4"


def parse_grid(text: str) -> tuple[object, ...]:
    """Parse ``2,4`` to a tuple, ``nc(2)`` to an extent over two cores, and "" to an empty tuple. Raise ``BadGrid``."""
    if not text:
        return ()
    extents = [re.fullmatch(r"\s*(?:(nc)\((\d{1,18})\)|(\d{1,18}))\s*", extent) for extent in text.split(",")]
    sizes = [0 if extent is None else int(extent[2] or extent[3]) for extent in extents]
    if not all(sizes):
        raise BadGrid(text=text[:80], what="positive numbers")
    if prod(sizes) > PROGRAMS:
        raise BadGrid(text=text[:80], what=f"at most {PROGRAMS:,} programs")
    if any(extent and extent[1] for extent in extents):
        from nki_mlir.language.functions import nc  # start-up: loads the language
        return tuple(nc(size) if extent and extent[1] else size for size, extent in zip(sizes, extents))
    return tuple(sizes)


def parse_arguments(texts: list[str], values: bool = True) -> tuple[list[object], dict[str, object]]:
    """Parse the texts to (positional, keyword) arguments. Without ``values``, tensors hold zeros whose memory is never
    touched."""
    positional: list[object] = []
    keywords: dict[str, object] = {}
    for text in texts:
        name = re.match(r"^([a-zA-Z_]\w*)=(.*)$", text)
        if name and name[1] not in SHORT:
            if name[1] in keywords:
                raise BadArgumentText(text=text[:80], what=f"{name[1]} has a value already")
            keywords[name[1]] = parse_argument(name[2], len(positional) + len(keywords), values)
        else:
            positional.append(parse_argument(text, len(positional) + len(keywords), values))
    return positional, keywords


def parse_argument(text: str, index: int, values: bool = True) -> object:
    """Parse a single value. ``index`` is its number among the arguments, which varies the random seed. Raise
    ``BadArgumentText``."""
    match = TENSOR.match(text)
    if match and match[2] in SHORT and (match[1] or match[3]):
        shape = tuple(int(n) for n in match[1].split("x") if n)
        if len(shape) > DIMENSIONS or prod(shape) >= ELEMENTS:
            raise BadArgumentText(text=text if len(text) < 100 else f"{text[:80]}...",
                                  what=f"a tensor has at most {DIMENSIONS} dimensions and {ELEMENTS - 1:,} elements")
        if not values:
            return np.zeros(shape, SHORT[match[2]].numpy)
        return fill(shape, SHORT[match[2]], match[3] or "random", index, text)
    if re.fullmatch(r"[+-]?(inf|nan)", text):
        return float(text)
    if text.endswith(ARRAY_FILES) and text[0] not in "([{'\"":
        return tensor_of_file(text, values)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):      # the parser raises the last two on deep nesting
        if match and not match[1] and not match[3]:
            return text
    if match and match[1]:
        suggestion = "f32" if match[2].lower() in ("f64", "float64") else nearest(match[2], SHORT)
        raise BadArgumentText(text=text, what=f"there is no dtype '{match[2]}'"
                              + (f"; did you mean {suggestion}?" if suggestion else ""))
    return named_value(text) or nested(text, index, values)


def nested(text: str, index: int, values: bool) -> object:
    """Parse a tuple, list or dict that contains tensors."""
    tensors: dict[str, object] = {}

    def name(match: re.Match[str]) -> str:
        tensors[f"tensor {len(tensors)}"] = parse_argument(match[0], index + len(tensors), values)
        return repr(f"tensor {len(tensors) - 1}")

    def filled(value: object) -> object:
        if isinstance(value, (tuple, list)):
            return type(value)(map(filled, value))
        if isinstance(value, dict):
            return {key: filled(inner) for key, inner in value.items()}
        return tensors.get(value, value) if isinstance(value, str) else value
    try:
        if text[:1] in ("(", "[", "{"):
            return filled(ast.literal_eval(NESTED.sub(name, text)))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        pass
    short = text if len(text) < 100 else f"{text[:80]}..."
    hint = f": a tensor has a dtype, such as {short}xf32" if re.fullmatch(r"\d+(x\d+)+", short) else ""
    raise BadArgumentText(text=short, what=f"is neither a tensor nor a Python constant{hint}")


def tensor_of_file(path: str, values: bool) -> np.ndarray:
    """Read a tensor in the shape and dtype of its file; without ``values``, zeros of them."""
    array = array_of_file(path, path, None if values else "r")
    if (dtype := BY_NAME.get(array.dtype.name)) is None:
        is_named = array.dtype.kind != "V"
        dtypes = f"holds {array.dtype.name}" if is_named else "does not name its dtype"
        tensor = "x".join([*map(str, array.shape), "f32" if is_named else "bf16"])
        raise BadArgumentText(text=path, what=f"the file {dtypes}; choose one, as in --arg {tensor}={path}")
    return array.astype(dtype.numpy) if values else np.zeros(array.shape, dtype.numpy)


def array_of_file(path: str, text: str, mmap_mode: Literal["r"] | None = None) -> np.ndarray:
    """Read a ``.npy`` file. ``text`` is the argument for errors."""
    try:
        return read_array(path, mmap_mode)
    except UnreadableArray as error:
        raise BadArgumentText(text=text, what=str(error)) from None


def check_shape(path: str, shape: tuple[int, ...], text: str) -> None:
    """Raise ``BadArgumentText`` if a ``.npy`` file has an array of another shape, before its values are read."""
    with suppress(UnreadableArray):             # reading the values raises it again
        if (of_file := read_array(path, "r").shape) != shape:
            raise BadArgumentText(text=text, what=f"the file has shape {of_file}")


def as_array(value: object, shape: tuple[int, ...], dtype: "np.dtype[Any] | type[Any]") -> object:
    """Convert numbers, alone or in lists, to an array of a parameter's shape and dtype. Return any other value, or one
    that does not fit, unchanged. Raise ``BadArgumentText`` for numbers outside of the dtype's range."""
    if value is None or isinstance(value, (np.ndarray, str, dict)):
        return value
    try:
        array = np.asarray(value)
    except ValueError:                          # rows of different lengths
        return value
    if array.dtype.kind not in "biuf" or (array.shape != shape and not array.size == 1 == int(np.prod(shape))):
        return value
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(dtype).reshape(shape)
    numbers = array.reshape(shape)
    differs = converted != numbers            # NaN does from itself
    finite = differs & np.isfinite(numbers)
    is_integer = converted.dtype.kind in "iu"
    if finite.any() and (array.dtype.kind != "f" if is_integer else not np.isfinite(converted[finite]).all()):
        raise BadArgumentText(text=f"{value!r:.80}", what=f"a number is outside of the range of {converted.dtype.name}")
    return value if array.dtype.kind == "f" and converted.dtype.kind in "biu" and differs.any() else converted


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Return normally distributed floats, or integers from 0 to 99: those of one call for all of them, which would take
    eight bytes for each."""
    values = np.empty(shape, np.float32 if dtype.is_float else np.int8)
    flat = values.reshape(-1)
    for first in range(0, flat.size, AT_ONCE):
        count = min(AT_ONCE, flat.size - first)
        flat[first:first + count] = rng.standard_normal(count) if dtype.is_float else rng.integers(0, 100, count)
    return values


def fill(shape: tuple[int, ...], dtype: DType, contents: str, index: int, text: str) -> np.ndarray:
    """Create an array with the contents that ``contents`` names. ``index`` is added to the random seed; ``text`` is the
    argument for errors."""
    count = int(np.prod(shape))
    kind, _, option = contents.partition(":")
    match kind:
        case "random" if not option or (option.isascii() and option.isdecimal() and len(option) <= SEED_DIGITS):
            rng = np.random.default_rng(int(option or 0) + index)
            values: Any = drawn(rng, shape, dtype)
        case "zeros":
            values = np.zeros(shape)
        case "ones":
            values = np.ones(shape)
        case "arange":
            values = np.arange(count).reshape(shape)
        case _ if contents.endswith(ARRAY_FILES):
            check_shape(contents, shape, text)
            values = array_of_file(contents, text)
            if values.dtype.kind == "V":                        # NumPy does not write the names of other dtypes
                if values.dtype.names or values.dtype.itemsize != dtype.numpy.itemsize:
                    raise BadArgumentText(
                        text=text, what=f"the elements of the file have {values.dtype.itemsize} bytes")
                values = values.view(dtype.numpy)
        case _:
            raise BadArgumentText(text=text, what=f"'{contents}' does not describe the contents of a tensor")
    values = np.asarray(values)
    try:
        return convert(values.astype(np.float32) if values.dtype == np.float64 else values, dtype)
    except TypeError as error:
        raise BadArgumentText(text=text, what=f"the file cannot be used: {error}") from None
