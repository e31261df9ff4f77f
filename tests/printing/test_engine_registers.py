# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registers of engines, and generators of random numbers, that each program of a grid begins with zeros."""

import numpy as np
import pytest

from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.printing.errors import Unprintable

from ..random_programs.comparing import EXECUTORS
from .reading import printed, reread, reread_beta

X = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
REDUCE = {"reduce_op": np.add, "reduce_cmd": nisa.reduce_cmd.reduce}


@nki.jit
def sums(x):
    out = nl.ndarray((3, 8, 1), x.dtype, buffer=nl.shared_hbm)
    rows = nl.zeros((8, 1), nl.float32)
    nisa.activation(nl.copy, nl.load(x), reduce_res=rows, **REDUCE)
    nl.store(out[nl.program_id(0)], rows)
    return out


@nki.jit
def sums_apart(x):
    """The programs differ, so that one follows the other."""
    out = nl.ndarray((3, 8, 1), x.dtype, buffer=nl.shared_hbm)
    rows, program, tile = nl.zeros((8, 1), nl.float32), nl.program_id(0), nl.load(x)
    nisa.activation(nl.copy, nl.multiply(tile, 2.0) if program < 1 else tile, reduce_res=rows, **REDUCE)
    nl.store(out[program], rows)
    return out


@nki.jit
def numbers(x):
    out, total = nl.ndarray((3, 8, 4), x.dtype, buffer=nl.shared_hbm), nl.zeros((8, 4), nl.float32)
    for _ in nl.sequential_range(3):
        total[...] = nl.add(total, nl.rand((8, 4), dtype=nl.float32))
    nl.store(out[nl.program_id(0)], total)
    return out


@nki.jit
def seeded_numbers(x):
    out = nl.ndarray((3, 8, 4), x.dtype, buffer=nl.shared_hbm)
    nl.random_seed(5)
    nl.store(out[nl.program_id(0)], nl.rand((8, 4), dtype=nl.float32))
    return out


@nki.jit
def dropped(x):
    out = nl.ndarray((3, 8, 8), x.dtype, buffer=nl.shared_hbm)
    nl.store(out[nl.program_id(0)], nl.dropout(nl.load(x), 0.5))
    return out


@nki.jit
def kept_and_zeroed(x):
    """Dropout with these probabilities gives the same values whatever the generator draws."""
    out = nl.ndarray((3, 8, 8), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out[nl.program_id(0)], nl.add(nl.dropout(tile, 0.0), nl.dropout(tile, 1.0)))
    return out


@nki.jit
def kept_and_drawn(x):
    out = nl.ndarray((3, 8, 8), x.dtype, buffer=nl.shared_hbm)
    nl.store(out[nl.program_id(0)], nl.add(nl.dropout(nl.load(x), 0.0), nl.rand((8, 8), dtype=nl.float32)))
    return out


@nki.jit
def sums_of_a_loop(x):
    out = nl.ndarray((3, 8, 1), x.dtype, buffer=nl.shared_hbm)
    tile, rows = nl.load(x), nl.zeros((8, 1), nl.float32)
    for _ in nl.sequential_range(3):
        nisa.activation(nl.copy, tile, reduce_res=rows, **REDUCE)
    nl.store(out[nl.program_id(0)], rows)
    return out


@nki.jit
def numbers_around_a_reduction(x):
    out = nl.ndarray((3, 8, 4), x.dtype, buffer=nl.shared_hbm)
    total = nl.all_reduce(nl.rand((8, 4), dtype=nl.float32), op=np.add, program_axes=0)
    nl.store(out[nl.program_id(0)], nl.add(total, nl.rand((8, 4), dtype=nl.float32)))
    return out


@nki.jit
def running_row(x):
    """No engine begins at row 7, so a pass moves the row, and gives it registers without a name."""
    out, rows, tile = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.zeros((8, 8), nl.float32), nl.load(x)
    nisa.tensor_scalar_cumulative(src=tile, dst=rows, op0=np.subtract, op1=np.maximum, imm0=0.5,
                                  mask=nl.arange(8)[:, None] == 7)
    nl.exp(tile)                # unread: the pass that drops it also drops the copies of the registers
    nl.store(out, rows)
    return out


@pytest.mark.parametrize("generation", ["current", "beta"])
@pytest.mark.parametrize("kernel", [sums, sums_apart, numbers, seeded_numbers, dropped, kept_and_zeroed,
                                    kept_and_drawn], ids=lambda k: k.__name__)
def test_each_program_begins_anew(kernel, generation):
    launched = kernel[3]
    text = printed(launched, [X], generation=generation)
    assert text.count("nl.random_seed(") == (kernel in (numbers, seeded_numbers, dropped, kept_and_drawn))
    again = (reread if generation == "current" else reread_beta)(text)
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X), launched.on(executor)(X))


def test_one_program_needs_no_seed():
    assert "random_seed" not in printed(numbers[1], [X])


@pytest.mark.parametrize("kernel, placed, what", [
    (sums_of_a_loop, False, "a sum of a loop that continues a value of the registers from before the loop"),
    (numbers_around_a_reduction, False, "registers that several programs use in turn"),
    (numbers, True, "registers that several programs use in turn")])
def test_registers_that_one_engine_does_not_have_are_refused(kernel, placed, what):
    with pytest.raises(Unprintable, match=f"{what} cannot be printed as NKI Python"):
        printed(kernel[3], [X], keep_placement=placed)


def test_a_sum_that_begins_anew_needs_no_named_registers(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    text = printed(running_row, [X], keep_placement=True)
    assert "nisa.tensor_scalar_cumulative(" in text
    again = reread(text)
    assert printed(again, [X], keep_placement=True) == text
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(X), running_row.on(executor)(X))


@nki.jit
def extremes_of_late_rows(x):
    """No engine begins at the rows of the reduction, and the other fold's mask is not a box."""
    out, tile = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm), nl.load(x)
    p, f = nl.arange(128)[:, None], nl.arange(8)[None, :]
    chosen, total = nl.ndarray((128, 8), nl.float32), nl.zeros((128, 1), nl.float32)
    nisa.select_reduce(dst=chosen, predicate=nl.greater(tile, 0.0, dtype=nl.uint8), on_true=tile, on_false=-3.0,
                       reduce_res=total, reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_op=np.max, mask=p >= 82)
    total[...] = nl.max(tile, axis=1, keepdims=True, mask=p >= f)
    nl.store(out, total)
    nl.store(out[0:32, :], chosen[96:128, 0:1])
    return out


def test_registers_on_rows_where_no_engine_begins():
    x = np.random.default_rng(0).standard_normal((128, 8)).astype(np.float32)
    again = reread(printed(extremes_of_late_rows, [x]))
    again_in_beta = reread_beta(printed(extremes_of_late_rows, [x], generation="beta"))
    for executor in EXECUTORS:
        np.testing.assert_array_equal(again.on(executor)(x), extremes_of_late_rows.on(executor)(x))
        np.testing.assert_array_equal(again_in_beta.on(executor)(x), extremes_of_late_rows.on(executor)(x))


@nki.jit
def continued_sums_of_late_rows(x):
    out, tile = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm), nl.load(x)
    p, f = nl.arange(128)[:, None], nl.arange(8)[None, :]
    sums, largest = nl.ndarray((128, 8), nl.float32), nl.zeros((128, 1), nl.float32)
    for command in (nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce):
        nisa.tensor_scalar_cumulative(dst=sums, src=tile, op0=np.multiply, op1=np.add, imm0=2.0, reduce_cmd=command,
                                      mask=p >= 82)
    largest[...] = nl.max(tile, axis=1, keepdims=True, mask=p >= f)
    nl.store(out, largest)
    nl.store(out[0:32, :], sums[96:128, 7:8])
    return out


def test_registers_that_continue_on_rows_where_no_engine_begins__are_refused_in_beta():
    with pytest.raises(Unprintable, match="a sum in the registers of an engine on rows where no engine can start cannot be"):
        printed(continued_sums_of_late_rows, [np.zeros((128, 8), np.float32)], generation="beta")
