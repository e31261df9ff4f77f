# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels with tiles that are hard to capture: sizes, named errors, masks, overlap, accumulation, grids.
``test_capture`` runs them.
"""

from nki_mlir.capture.errors import AnnotationMismatch, ArangeInCondition, OutOfScope, UnrollLimit
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta.typing import tensor

from .traps import COLUMNS, ROWS, copy_rows, probe, rows


# -- size --------------------------------------------------------------------------------------------------------------
@probe(loops=1, attempts=1, runs=False)
def million_iterations(x, o):
    for i in nl.sequential_range(1_000_000):
        copy_rows(o, x, 0)


@probe(raises=UnrollLimit, says="must be unrolled because .*: n, and exceeds the limit of 1000 iterations", limit=1000,
       runs=False)
def unroll_limit(x, o):
    n = 0
    for i in nl.sequential_range(1_000_000):
        copy_rows(o, x, n % 4)
        n += 1


# -- errors ------------------------------------------------------------------------------------------------------------
@probe(raises=OutOfScope, says="tensor t was created inside a loop or branch that has ended")
def tensor_of_a_branch_used_after(x, o):
    for i in nl.affine_range(4):
        if i < 2:
            t = nl.load(rows(x, i))
        else:
            t = nl.load(rows(x, 0))
        nl.store(rows(o, i), t)


@probe(raises=OutOfBounds, says=r"tensor `x` on dimension 0: index range \[(0|512), 639\] exceed dimension size of 512")
def index_past_the_end(x, o):
    for i in nl.affine_range(5):
        copy_rows(o, x, i)


@probe(raises=AnnotationMismatch, says=r"the annotation says \(128, 32\), but the value has shape \(128, 64\)")
def wrong_annotation(x, o):
    tile: tensor[128, 32] = nl.load(rows(x, 0))
    nl.store(rows(o, 0), tile)


@probe(raises=ArangeInCondition, says=r"depends on nl\.arange or nl\.mgrid, which has 128 values at once")
def arange_in_if(x, o):
    if nl.arange(128)[:, None] < 64:
        copy_rows(o, x, 0)


@probe(raises=OutOfBounds, says=r"tensor `t0` on dimension 0: index range \[64, 127\] exceed dimension size of 64")
def view_of_a_view_past_its_end(x, o):
    part = nl.load(rows(x, 0))[0:64, :]
    nl.store(o[0:64, :], part[64:128, :])       # inside the buffer, outside the view


# -- masks and overlap -------------------------------------------------------------------------------------------------
@probe(loops=1)                        # 5 tiles of 120 rows over 512: the last has 32
def masked_edge_tile(x, o):
    p, f = nl.arange(120)[:, None], nl.arange(COLUMNS)[None, :]
    for i in nl.affine_range(5):
        inside = i * 120 + p < ROWS
        tile = nl.load(x[i * 120 + p, f], mask=inside)
        nl.store(o[i * 120 + p, f], tile * 2, mask=inside)


@probe(loops=1)
def masked_triangle(x, o):
    p, f = nl.arange(128)[:, None], nl.arange(COLUMNS)[None, :]
    for i in nl.affine_range(4):
        nl.store(o[i * 128 + p, f], nl.load(x[i * 128 + p, f]), mask=(p >= f) & (i * 128 + p < 400))


@probe(loops=1, unproved=2, contains="nki.limits")     # in bounds, but only two conditions together show it
def mask_beyond_the_analysis(x, o):
    p, f = nl.arange(120)[:, None], nl.arange(COLUMNS)[None, :]
    for i in nl.affine_range(5):
        inside = (2 * p + i < 66) & (i >= 0)
        if i == 4:
            nl.store(o[i * 120 + p, f], nl.load(x[i * 120 + p, f], mask=inside), mask=inside)


@probe(raises=OutOfBounds, says="an index is 8 elements outside dimension 0 of `o`, and neither mask nor if excludes it")
def mask_too_weak(x, o):
    p, f = nl.arange(120)[:, None], nl.arange(COLUMNS)[None, :]
    for i in nl.affine_range(5):
        nl.store(o[i * 120 + p, f], nl.load(x[0:120, :]), mask=i * 120 + p < ROWS + 8)


# The flat offset stays inside: only the dimension's own bound shows it.
@probe(raises=OutOfBounds, says="an index is 36 elements outside dimension 1 of `x`, and neither mask nor if excludes it")
def one_dimension_overrun(x, o):
    p, f = nl.arange(64)[:, None], nl.arange(COLUMNS)[None, :]
    for i in nl.affine_range(2):
        inside = i * 48 + f < 100
        nl.store(o[p, i * 48 + f], nl.load(x[p, i * 48 + f], mask=inside), mask=inside)


@probe(loops=0)
def overlapping_copy(x, o):
    tile = nl.load(rows(x, 0))
    tile[:, 1:COLUMNS] = tile[:, 0:COLUMNS - 1]
    nl.store(rows(o, 0), tile)


# -- accumulation in PSUM ----------------------------------------------------------------------------------------------
def product(x, i):
    tile = nl.load(rows(x, i))
    return nl.matmul(tile, tile, transpose_x=True)


@probe(loops=1, contains="accumulate = true", lacks="tensor_tensor")
def accumulate_matmul(x, o):
    acc = nl.zeros((COLUMNS, COLUMNS), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(4):
        acc += product(x, i)
    nl.store(o[0:COLUMNS, :], acc)


@probe(loops=1, contains="accumulate = true", lacks="tensor_copy")
def accumulate_into_part(x, o):
    acc = nl.zeros((COLUMNS, 2 * COLUMNS), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(4):
        acc[:, COLUMNS:2 * COLUMNS] += product(x, i)
    nl.store(o[0:COLUMNS, :], acc[:, COLUMNS:2 * COLUMNS])


@probe(loops=1, because="used elsewhere", lacks="accumulate = true")
def product_used_twice(x, o):
    acc = nl.zeros((COLUMNS, COLUMNS), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(4):
        one = product(x, i)
        acc += one
        nl.store(o[128 * i:128 * i + COLUMNS, :], one)
    nl.store(o[0:COLUMNS, :], acc)


# -- grids -------------------------------------------------------------------------------------------------------------
@probe(loops=0, grid=(4,), attempts=1)
def program_id_symbolic(x, o):
    copy_rows(o, x, nl.program_id(0), 2.0)


@probe(loops=0, grid=(4,), because="truth")
def program_id_specialized(x, o):
    copy_rows(o, x, nl.program_id(0), 2.0 if nl.program_id(0) == 0 else 3.0)
