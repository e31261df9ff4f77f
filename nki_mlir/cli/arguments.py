# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``--arg`` values: tensors by shape and dtype with a way to fill them, files, or Python constants.

``128x512xf32`` is a tensor of random values; ``=zeros``, ``=ones``, ``=arange``, ``=random:SEED`` or ``=FILE.npy``
fills it otherwise. Anything else is a Python constant (``2``, ``0.5``, ``True``, ``(1, 2)``, a bare word is a string).
``name=VALUE`` passes it by keyword.
"""

import ast
import re
from typing import Any

import numpy as np

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.scalar.dtypes import BY_MLIR, BY_NAME, DType, convert

TENSOR = re.compile(r"^((?:\d+x)*)([a-zA-Z]\w*)(?:=(.+))?$")
SHORT = BY_MLIR | BY_NAME | {"u8": BY_NAME["uint8"], "u16": BY_NAME["uint16"], "u32": BY_NAME["uint32"],
                             "bool": BY_NAME["bool"]}


class BadArgumentText(NkiMlirError):
    code = "NKI-ARG"
    message = "--arg {text}: {what}"
    fix = "write for example --arg 128x512xf32=random, --arg 2 or --arg pool_size=2"


class BadGrid(NkiMlirError):
    code = "NKI-GRID-TEXT"
    message = "--grid {text}: a grid is positive numbers"
    fix = "write for example --grid 4 or --grid 2,4"


def parse_grid(text: str) -> tuple[int, ...]:
    """``2,4`` as a tuple; empty where nothing is given."""
    numbers = tuple(int(n) if n.strip().isdecimal() else 0 for n in text.split(",")) if text else ()
    if not all(numbers):
        raise BadGrid(text=text)
    return numbers


def parse_arguments(texts: list[str], values: bool = True) -> tuple[list[object], dict[str, object]]:
    """(positional, keyword) arguments. Without ``values`` tensors hold zeros, of which no memory is touched."""
    positional: list[object] = []
    keywords: dict[str, object] = {}
    for text in texts:
        name = re.match(r"^([a-zA-Z_]\w*)=(.*)$", text)
        if name and name[1] not in SHORT:
            keywords[name[1]] = parse_argument(name[2], len(positional) + len(keywords), values)
        else:
            positional.append(parse_argument(text, len(positional) + len(keywords), values))
    return positional, keywords


def parse_argument(text: str, place: int, values: bool = True) -> object:
    """One value; ``place`` varies the random seed from argument to argument."""
    match = TENSOR.match(text)
    if match and match[2] in SHORT and (match[1] or match[3]):
        shape = tuple(int(n) for n in match[1].split("x") if n)
        if not values:
            return np.zeros(shape, SHORT[match[2]].numpy)
        return fill(shape, SHORT[match[2]], match[3] or "random", place, text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if re.fullmatch(r"\w+", text):
            return text
        raise BadArgumentText(text=text, what="is neither a tensor nor a Python constant") from None


def fill(shape: tuple[int, ...], dtype: DType, how: str, place: int, text: str) -> np.ndarray:
    """An array filled as ``how`` says."""
    count = int(np.prod(shape))
    kind, _, option = how.partition(":")
    match kind:
        case "random" if option.isdecimal() or not option:
            rng = np.random.default_rng(int(option or 0) + place)
            values: Any = rng.standard_normal(shape) if dtype.is_float else rng.integers(0, 100, shape)
        case "zeros":
            values = np.zeros(shape)
        case "ones":
            values = np.ones(shape)
        case "arange":
            values = np.arange(count).reshape(shape)
        case _ if how.endswith(".npy"):
            try:
                values = np.load(how, allow_pickle=False)
            except (OSError, ValueError) as error:
                raise BadArgumentText(text=text, what=f"cannot be read: {error}") from None
            if values.shape != shape:
                raise BadArgumentText(text=text, what=f"the file has shape {values.shape}")
        case _:
            raise BadArgumentText(text=text, what=f"'{how}' is no way to fill a tensor")
    values = np.asarray(values)
    return convert(values.astype(np.float32) if values.dtype == np.float64 else values, dtype)
