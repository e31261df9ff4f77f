# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small kernels of every calling convention."""

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta import typing as nt
from nki_mlir.language.current import isa as current_nisa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki


def ids(shape):
    return nl.arange(shape[0])[:, None], nl.arange(shape[1])[None, :]


@nki.jit
def add(a, b):
    """a + b; one program a block of 16 rows."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    p, f = ids((16, a.shape[1]))
    p = p + nl.program_id(0) * 16
    nl.store(out[p, f], nl.load(a[p, f]) + nl.load(b[p, f]))
    return out


@nki.jit
def scaled(x, factor, offset=0.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = ids(x.shape)
    nl.store(out[p, f], nl.load(x[p, f]) * factor + offset)
    return out


def scaled_by(read):
    """Return a kernel that multiplies by the number that a function reads."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * read())
        return out
    return kernel


@nki.jit
def sum_and_difference(a, b):
    total = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    difference = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    p, f = ids(a.shape)
    left, right = nl.load(a[p, f]), nl.load(b[p, f])
    nl.store(total[p, f], left + right)
    nl.store(difference[p, f], left - right)
    return total, difference


@nki.jit
def named_results(pair):
    """Results in a dict, an argument in a tuple."""
    a, b = pair
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    p, f = ids(a.shape)
    nl.store(out[p, f], nl.load(a[p, f]) * nl.load(b[p, f]))
    return {"product": out}


@nki.jit
def with_optional(a, both):
    """Return two results, the second one only if the caller requests it."""
    first = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    second = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm) if both else None
    nl.store(first, nl.load(a) + nl.load(a))
    if both:
        nl.store(second, nl.load(a) * nl.load(a))
    return first, second


def add_into(a, b, out):
    """By reference: ``out`` is written and never read."""
    p, f = ids(a.shape)
    nl.store(out[p, f], nl.load(a[p, f]) + nl.load(b[p, f]))


def scaled_into(x, out, factor=1.0):
    p, f = ids(x.shape)
    nl.store(out[p, f], nl.load(x[p, f]) * factor)


def reads_its_output(x, out):
    """``out`` is written, then read."""
    p, f = ids(x.shape)
    nl.store(out[p, f], nl.load(x[p, f]))
    nl.store(out[p, f], nl.load(out[p, f]) + 1.0)


@nki.jit
def add_rows(table: nt.mutable_tensor, rows):
    """Adds to the first rows of ``table`` in place."""
    p, f = ids(rows.shape)
    nl.store(table[p, f], nl.load(table[p, f]) + nl.load(rows[p, f]))
    return table


@nki.jit
def put_rows(table: nt.mutable_tensor, rows):
    """Replaces the first rows of ``table``, which it never reads."""
    p, f = ids(rows.shape)
    nl.store(table[p, f], nl.load(rows[p, f]))
    return table


@nki.jit
def lower_triangle(x):
    """Writes a part of its output: the rest is zero."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = ids(x.shape)
    nl.store(out[p, f], nl.load(x[p, f]), mask=p >= f)
    return out


@nki.jit
def stored_in_parts(x, parts):
    """Stores an exponential in quarters of its columns, of which there are so many, two blocks of rows each."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, columns = x.shape[0] // 2, x.shape[1] // 4
    for i in nl.static_range(2):
        for j in nl.static_range(parts):
            part = nl.load(x[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns])
            nl.store(out[i * rows:(i + 1) * rows, j * columns:(j + 1) * columns], nl.exp(part))
    return out


@nki.jit
def takes_rows(x):
    """Takes rows of x that x itself names: whether they are there is known when it runs."""
    out = nl.ndarray((8, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = ids((8, 8))
    row = nl.copy(nl.load(x[p, nl.arange(1)[None, :]]), dtype=nl.int32)
    nl.store(out[p, f], nl.load(x[row[p, 0], f]))
    return out


@nki.jit
def printing(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = ids(x.shape)
    tile = nl.load(x[p, f])
    nl.device_print("tile", tile)
    nl.store(out[p, f], tile)
    return out


@nki.jit
def first_program_doubles(x):
    """Python branches on the program id: two modules for one kernel."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = ids((16, x.shape[1]))
    names = ["first", "second"]
    p = p + nl.program_id(0) * 16
    tile = nl.load(x[p, f])
    if names[nl.program_id(0)] == "first":
        tile = tile * 2.0
    nl.store(out[p, f], tile)
    return out


@nki.jit
def product(x, y):
    """x @ y, 32 x 64 times 64 x 48."""
    out = nl.ndarray((x.shape[0], y.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    p, f = ids(out.shape)
    nl.store(out[p, f], nl.matmul(nl.load(x), nl.load(y)))
    return out


@nki.jit
def summed_over_programs(x):
    """Each program's rows, plus those of all others."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = nl.ds(nl.program_id(0) * 16, 16)
    nl.store(out[rows, :], nl.all_reduce(nl.load(x[rows, :]), nl.add, program_axes=0))
    return out


@current_nki.jit
def copied_times(x, count):
    """x, which a loop of the device copies ``count`` times."""
    out = current_nl.ndarray(x.shape, x.dtype, buffer=current_nl.shared_hbm, name="out")
    bound = current_nisa.register_alloc()
    current_nisa.register_load(bound, count)

    def body(i):
        current_nisa.dma_copy(out, x)
    current_nl.fori_loop(0, bound, body)
    return out


@current_nki.jit
def doubled_by_cores(x):
    """2 * x; each core of the launch doubles its part of the columns."""
    width = x.shape[1] // current_nl.num_programs()
    part = current_nl.ds(current_nl.program_id(0) * width, width)
    out = current_nl.ndarray(x.shape, x.dtype, buffer=current_nl.shared_hbm)
    tile = current_nl.ndarray((x.shape[0], width), x.dtype, buffer=current_nl.sbuf)
    current_nisa.dma_copy(tile, x[:, part])
    current_nisa.tensor_scalar(tile, tile, current_nl.multiply, 2.0)
    current_nisa.dma_copy(out[:, part], tile)
    return out
