# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels that random graphs call, for any shape, and the rules that draw their calls."""

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta import typing as nt
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki

from .rules import NUMBERS
from .writer import FLOATS, SMALL, GraphWriter

CALLS = []


def call(function):
    CALLS.append(function)
    return function


def blocks(rows):
    return [(start, min(128, rows - start)) for start in range(0, rows, 128)]


@nki.jit
def doubled_plus(a, b):
    """2 a + b, in blocks of 128 rows."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start, rows in blocks(a.shape[0]):
        part = nl.ds(start, rows)
        nl.store(out[part, :], nl.load(a[part, :]) * 2 + nl.load(b[part, :]))
    return out


@nki.jit
def by_rows(a):
    """Two results: each row's greatest value, and what the row is below it."""
    peak = nl.ndarray((a.shape[0], 1), dtype=a.dtype, buffer=nl.shared_hbm)
    below = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start, rows in blocks(a.shape[0]):
        part = nl.ds(start, rows)
        tile = nl.load(a[part, :])
        most = nl.max(tile, axis=1, keepdims=True)
        nl.store(peak[part, :], most)
        nl.store(below[part, :], nl.subtract(most, tile))
    return peak, below


@nki.jit
def added_in_place(table: nt.mutable_tensor, rows):
    """Adds to the first rows of a table."""
    n = rows.shape[0]
    nl.store(table[0:n, :], nl.load(table[0:n, :]) + nl.load(rows[0:n, :]))
    return table


@current_nki.jit
def halves_swapped(a):
    """The halves of the columns change places, by instructions of the current generation."""
    out = current_nl.ndarray(a.shape, a.dtype, buffer=current_nl.shared_hbm)
    half = a.shape[1] // 2
    for start, rows in blocks(a.shape[0]):
        tile = current_nl.ndarray((rows, a.shape[1]), a.dtype, buffer=current_nl.sbuf)
        nisa.dma_copy(tile[:, 0:half], a[start:start + rows, half:2 * half])
        nisa.dma_copy(tile[:, half:2 * half], a[start:start + rows, 0:half])
        nisa.dma_copy(out[start:start + rows, :], tile)
    return out


@nki.jit
def matmul(a, b):
    """a @ b in float32, of up to 128 x 128 and 128 x 512."""
    out = nl.ndarray((a.shape[0], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.matmul(nl.load(a), nl.load(b)))
    return out


@nki.jit
def shifted_programs(a):
    """A program for each matrix of a stack; each adds its number."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    nl.store(out[i], nl.load(a[i]) + i)
    return out


def matrix(value):
    return len(value.shape) == 2


@call
def call_doubled_plus(w: GraphWriter):
    a = w.value(matrix, dtypes=(*FLOATS, "int32"))
    b = w.value(shape=a.shape, dtypes=(a.dtype,))
    return w.let(f"kernels.doubled_plus({a.text}, {b.text})", a.shape, a.dtype, 3 * SMALL)


@call
def call_by_rows(w: GraphWriter):
    a = w.value(matrix, dtypes=FLOATS)
    both = f"kernels.by_rows({a.text})"
    if w.below(2):
        return w.let(f"{both}[0]", (a.shape[0], 1), a.dtype)
    return w.let(f"{w.library}.add(*{both})", a.shape, a.dtype, 3 * SMALL)


@call
def call_added_in_place(w: GraphWriter):
    a = w.value(matrix, dtypes=("float32", "bfloat16", "int32"))
    b = w.value(shape=(1 + w.below(min(128, a.shape[0])), a.shape[1]), dtypes=(a.dtype,))
    table = a.text if w.library == "jnp" else f"{a.text}.clone()"
    return w.let(f"kernels.added_in_place({table}, {b.text})", a.shape, a.dtype, 2 * SMALL)


@call
def call_halves_swapped(w: GraphWriter):
    a = w.value(lambda v: matrix(v) and v.shape[1] % 2 == 0, dtypes=NUMBERS)
    return w.let(f"kernels.halves_swapped({a.text})", a.shape, a.dtype)


@call
def call_matmul(w: GraphWriter):
    a = w.value(lambda v: matrix(v) and max(v.shape) <= 128, dtypes=("float32", "bfloat16"))
    b = w.value(shape=(a.shape[1], w.pick(1, 5, 64, 300)), dtypes=(a.dtype,))
    return w.let(f"kernels.matmul({a.text}, {b.text})", (a.shape[0], b.shape[1]), "float32", SMALL ** 2 * a.shape[1])


@call
def call_shifted_programs(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) == 3 and v.shape[0] <= 8 and v.shape[1] <= 128, dtypes=("float32", "int32"))
    return w.let(f"kernels.shifted_programs[{a.shape[0]}]({a.text})", a.shape, a.dtype, SMALL + a.shape[0])
