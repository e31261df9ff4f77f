# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops and programs that a kernel's Python has run one by one, as loops and one program in the text."""

from unittest.mock import patch

import numpy as np
import pytest

from nki_mlir.cli.lowering import split_input
from nki_mlir.cli.source import read_modules
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.printing import kernel

from .reading import printed, reread, reread_beta

X = np.arange(4096, dtype=np.float32).reshape(64, 64)


def body(text):
    return [line.strip() for line in text.split('"""\n')[1].splitlines() if line.strip()]


def part(source, row, column):
    tile = nl.ndarray((16, 32), source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[row * 16:row * 16 + 16, column * 32:column * 32 + 32])
    return tile


@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for row in range(4):
        for column in range(2):
            loaded = part(x, row, column)
            nisa.tensor_scalar(dst=loaded, data=loaded, op0=nl.multiply, operand0=2.0)
            nisa.dma_copy(dst=out[row * 16:row * 16 + 16, column * 32:column * 32 + 32], src=loaded)
    return out


def test_loops_have_the_names_of_the_source():
    text = printed(doubled, [X])
    lines = body(text)
    assert lines[1:3] == ["for row in range(4):", "for column in range(2):"]
    assert "nisa.dma_copy(dst=out[nl.ds(row * 16, 16), nl.ds(column * 32, 32)], src=tile)" in lines
    assert np.array_equal(reread(text)(X), 2 * X) and printed(reread(text), [X]) == text


@nki.jit
def in_steps(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for first in range(8, x.shape[0], 16):
        rows = min(16, x.shape[0] - first)
        tile = nl.ndarray((rows, x.shape[1]), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[first:first + rows])
        nisa.dma_copy(dst=out[first - 8:first - 8 + rows], src=tile)
    nisa.dma_copy(dst=out[56:64], src=x[0:8])
    return out


def test_loops_with_steps_have_those_of_the_source():
    """The last rows are too few for an iteration."""
    text = printed(in_steps, [X])
    assert body(text) == [
        "out = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.shared_hbm)",
        "for first in range(8, 56, 16):",
        "tile = nl.ndarray((16, 64), dtype=nl.float32, buffer=nl.sbuf)",
        "nisa.dma_copy(dst=tile, src=x[nl.ds(first, 16), :])",
        "nisa.dma_copy(dst=out[nl.ds(first - 8, 16), :], src=tile)",
        "tile_2 = nl.ndarray((8, 64), dtype=nl.float32, buffer=nl.sbuf)",
        "nisa.dma_copy(dst=tile_2, src=x[56:64, :])",
        "nisa.dma_copy(dst=out[48:56, :], src=tile_2)",
        "nisa.dma_copy(dst=out[56:64, :], src=x[0:8, :])",
        "return out"]
    assert printed(reread(text), [X]) == text
    in_beta = printed(in_steps, [X], generation="beta")
    assert "for first in nl.sequential_range(8, 56, 16):" in in_beta
    for again in (reread(text), reread_beta(in_beta)):
        assert np.array_equal(again.on("interpreter")(X), np.concatenate([X[8:], X[:8]]))


@nki.jit
def half_of_a_core(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    rows = nl.ndarray((32, 64), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows, src=x[core * 32:core * 32 + 32, :])
    nisa.tensor_scalar(dst=rows, data=rows, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out[32 - core * 32:64 - core * 32, :], src=rows)
    return out


@nki.jit
def number_of_a_core(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    rows = nl.ndarray((32, 64), x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=rows, value=float(core))
    nisa.dma_copy(dst=out[core * 32:core * 32 + 32, :], src=rows)
    return out


def test_programs_that_differ_in_where_tiles_start_are_one():
    text = printed(half_of_a_core[2], [X])
    assert body(text)[:3] == [
        "program_id = nl.program_id(0)", "rows = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.sbuf)",
        "nisa.dma_copy(dst=rows, src=x[nl.ds(program_id * 32, 32), :])"]
    assert np.array_equal(reread(text)(X), np.concatenate([X[32:] + 1, X[:32] + 1]))
    assert printed(reread(text), [X]) == text


def test_programs_with_other_numbers_are_two():
    text = printed(number_of_a_core[2], [X])
    assert "if program_id == 0:" in body(text) and text.count("nisa.memset") == 2
    assert np.array_equal(reread(text)(X), np.repeat([0, 1], 32)[:, None] * np.ones((1, 64)))


@nki.jit
def causal_rows(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    for block in range(2):
        first = core * 32 + block * 16
        rows = nl.ndarray((16, 64), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=x[first:first + 16, :])
        nisa.affine_select(dst=rows, pattern=[[-1, 64]], offset=first, channel_multiplier=1, cmp_op=nl.greater_equal,
                           on_true_tile=rows, on_false_value=0.0)
        columns = nl.ndarray((16, 64), nl.float32, buffer=nl.sbuf)
        nisa.iota(dst=columns, pattern=[[1, 64]], offset=first)
        nisa.tensor_tensor(dst=rows, data1=rows, data2=columns, op=nl.add)
        nisa.dma_copy(dst=out[first:first + 16, :], src=rows)
    return out


def test_conditions_and_indices_move_with_the_loop_and_the_program():
    text = printed(causal_rows[2], [X])
    assert body(text)[2] == "for block in range(2):"
    assert text.count("nisa.affine_select") == 1 and "offset=program_id * 32 + block * 16" in text
    expected = np.tril(X) + np.arange(64) + np.arange(64)[:, None] // 16 * 16
    assert np.array_equal(reread(text)(X), expected) and printed(reread(text), [X]) == text


@nki.jit
def in_parts(x):
    out = nl.ndarray((16, 64), x.dtype, buffer=nl.shared_hbm)
    rows = nl.ndarray((16, 64), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows[:, 0:32], src=x[0:16, 0:32])
    nisa.dma_copy(dst=rows[:, 32:64], src=x[16:32, 0:32])
    nisa.dma_copy(dst=out, src=rows)
    return out


@nki.jit
def a_part_alone(x):
    out = nl.ndarray((16, 64), x.dtype, buffer=nl.shared_hbm)
    rows = nl.ndarray((16, 64), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows[:, 0:32], src=x[0:16, 0:32])
    nisa.dma_copy(dst=out, src=rows)
    return out


def test_tiles_that_are_written_in_parts_get_no_zeros():
    text = printed(in_parts, [X])
    assert "memset" not in text
    assert np.array_equal(reread(text)(X), np.concatenate([X[:16, :32], X[16:32, :32]], 1))


def test_what_nothing_writes_stays_zero():
    text = printed(a_part_alone, [X])
    assert "nisa.memset(dst=rows, value=0.0)" in body(text)


@nki.jit
def of_three_lines(x):
    """Different statements stay apart, although one loop could express them."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rows = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=rows[:, 0:16], src=x[:, 0:16])
    nisa.dma_copy(dst=rows[:, 16:32], src=x[:, 16:32])
    nisa.dma_copy(dst=rows[:, 32:64], src=x[:, 32:64])
    nisa.dma_copy(dst=out, src=rows)
    return out


def test_lines_of_the_source_stay_apart():
    text = printed(of_three_lines, [X])
    assert "for " not in "\n".join(body(text)) and text.count("nisa.dma_copy") == 4


@nki.jit
def exchanged(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    rows, theirs = nl.load(x[core * 32:core * 32 + 32, :]), nl.ndarray((32, 64), x.dtype, buffer=nl.sbuf)
    nisa.sendrecv(dst=theirs, src=rows, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    nisa.dma_copy(dst=out[core * 32:core * 32 + 32, :], src=theirs)
    return out


def test_an_exchange_of_cores_is_one_text():
    text = printed(exchanged[2], [X])
    assert "send_to_rank=1 - program_id, recv_from_rank=1 - program_id" in text and "if program_id" not in text
    again = reread(text)
    for executor in ("eager", "interpreter", "jit", "isa"):
        assert np.array_equal(again.on(executor)(X), np.concatenate([X[32:], X[:32]])), executor
    assert printed(again, [X]) == text


def module_text(captured, arrays):
    """The modules of a kernel as ``nki-opt`` prints them: locations are lines of this text."""
    return "// -----\n".join(str(module) for module in captured.lower(*arrays).specialization.modules)


def from_text(text):
    with patch.object(kernel, "formatted", lambda text, file: text):
        return kernel.kernel_text(read_modules(split_input(text, "-"), "-"), comments=False)


def test_lines_of_mlir_are_loops_and_programs_as_well():
    text = from_text(module_text(doubled, [X]))
    assert body(text)[1:3] == ["for i in range(4):", "for j in range(2):"]
    assert np.array_equal(reread(text)(X), 2 * X)
    text = from_text(module_text(half_of_a_core[2], [X]))
    assert "x[nl.ds(program_id * 32, 32), :]" in text and "if program_id" not in text
    assert np.array_equal(reread(text)(X), np.concatenate([X[32:] + 1, X[:32] + 1]))


def test_modules_of_other_names_or_grids_are_no_launch():
    text = module_text(doubled, [X])
    cores = split_input(module_text(half_of_a_core[2], [X]), "x.mlir")
    assert len(read_modules(cores, "x.mlir")) == 2 and len(read_modules([text], "x.mlir")) == 1
    others = [cores[0].replace("@half_of_a_core", "@other"), cores[0].replace("nki.grid = [2]", "nki.grid = [3]"), text]
    assert len(cores) == 2 and cores[0] not in others
    for parts in [*([cores[0], other] for other in others), [text, text]]:
        with pytest.raises(NkiMlirError, match="the text has several kernels"):
            read_modules(parts, "x.mlir")


def test_a_text_of_several_kernels_is_refused():
    text = module_text(doubled, [X])
    with pytest.raises(NkiMlirError, match="the text has several kernels, not the modules of one kernel's cores"):
        from_text(f"{text}// -----\n{text}")
