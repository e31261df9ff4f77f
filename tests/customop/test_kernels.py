# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Custom operators in NKI kernels, down to the instruction streams, and beside kernels in programs of frameworks."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir import customop
from nki_mlir.customop import cost, kernel_binding
from nki_mlir.customop.abi import Counters
from nki_mlir.customop.kernel_binding import TooManyTensors
from nki_mlir.customop.library import WrongArgument, WrongArgumentDtype, WrongArity
from nki_mlir.dialects.programs import PROGRAMS
from nki_mlir.dialects.verifier import WrongMemory
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.current import isa as instructions
from nki_mlir.language.current import language as tiles
from nki_mlir.language.current import nki as current
from tests.customop.conftest import EXAMPLES

BOXES = np.random.default_rng(0).uniform(0.1, 1, (128, 16, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def giou(build):
    folder = build("spread").path.parent
    return customop.load("giou", [EXAMPLES / "giou.cpp"], [EXAMPLES / "giou_shape.cpp"], folder, multicore=True).giou


@pytest.fixture(scope="module")
def scaled(giou):
    """A kernel that works on what an operator gives, and gives an operator what it made."""
    @nki.jit
    def scaled(first, second):
        moved = nl.ndarray(first.shape, dtype=first.dtype, buffer=nl.hbm)
        rows, boxes, _ = first.shape
        for k in nl.static_range(4):
            nl.store(moved[:, :, k], nl.load(first[:, :, k]) + 0.5)
        values = giou(moved, second)
        out = nl.ndarray((rows, boxes), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(values) * 2)
        return out
    return scaled


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa"])
def test_operator_in_a_kernel(giou, scaled, on):
    assert np.array_equal(scaled.on(on)(BOXES, BOXES[::-1].copy()), 2 * giou(BOXES + np.float32(0.5), BOXES[::-1]))


def test_operator_alone__returns_its_tensor(giou):
    @nki.jit
    def alone(first, second):
        return giou(first, second)
    for on in ("eager", "interpreter", "jit", "isa"):
        assert np.array_equal(alone.on(on)(BOXES, BOXES), giou(BOXES, BOXES))


@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa"])
def test_operator_in_a_kernel_of_the_current_generation(giou, on):
    @current.jit
    def doubled(first, second):
        rows, boxes, _ = first.shape
        values = giou(first, second)
        tile = tiles.ndarray((rows, boxes), dtype=tiles.float32, buffer=tiles.sbuf)
        instructions.dma_copy(dst=tile, src=values)
        instructions.tensor_scalar(dst=tile, data=tile, op0=tiles.multiply, operand0=2.0)
        out = tiles.ndarray((rows, boxes), dtype=tiles.float32, buffer=tiles.shared_hbm)
        instructions.dma_copy(dst=out, src=tile)
        return out
    assert np.array_equal(doubled.on(on)(BOXES, BOXES[::-1].copy()), 2 * giou(BOXES, BOXES[::-1]))


def test_operand_of_the_current_generation_that_is_no_tensor__is_named(giou):
    @current.jit
    def wrong(first):
        return giou(first, "second")
    with pytest.raises(WrongArgument, match="second"):
        wrong(BOXES)


def test_numbers__are_those_of_symbols_and_python_and_others_stay_for_the_error():
    def number_of(index, argument):
        return index, argument
    operator = SimpleNamespace(parameters="TiTff", number_of=number_of)
    assert kernel_binding.numbers_of(operator, [BOXES, Symbol(), BOXES, "second", np.bool_(True)]) == (
        (1, 7.0), (3, "second"), (4, np.bool_(True)))


class Symbol:
    def __float__(self):
        return 7.0


def test_a_launch__takes_as_long_as_its_slowest_core():
    short, long = Counters(bytes_in=194), Counters(transfers_in=2, bytes_in=1940, elements=3)
    assert cost.cycles([short, long]) == cost.cycles([long, short]) == cost.core_cycles(long) == pytest.approx(
        2 * 64 + 100 + 3 * 34)


def program_of(kernel, *arrays):
    from nki_mlir.scalar.dtypes import dtype_of
    from nki_mlir.targets.neuron import lowered
    from nki_mlir.targets.neuron.codegen.emission import emit_variants
    bound = kernel.bind(arrays, {}, lambda a: isinstance(a, np.ndarray), lambda a: (a.shape, dtype_of(a.dtype)))
    spec = kernel.specialize(bound)
    return emit_variants(lowered(spec.captured), spec.grid)


def test_stream__has_the_call_between_transfers(giou, scaled):
    from nki_mlir.targets.neuron.format.assembly import print_program
    text = print_program(program_of(scaled, BOXES, BOXES))
    call, = (line for line in text.split("\n") if "GPSIMD_CALL" in line)
    assert call.startswith("pool ") and "dst=fp32@" in call and "source1=fp32@second[4,1]" not in call
    counted = giou.counters(BOXES, BOXES)
    for name in ("transfers_in", "bytes_in", "transfers_out", "bytes_out"):
        assert f" {name}={sum(getattr(c, name) for c in counted)} " in call
    assert f" busy={round(cost.cycles(counted))} " in call
    assert f' library="{giou.library.path}" function=giou ' in call
    assert re.search(r"S\[\d+\] \(\w+\)>=", call), "it waits for the transfers that write its source"


def test_cost__is_the_operators(giou, scaled):
    from nki_mlir.dialects.isa.instruction import Control
    from nki_mlir.machine import Engine, machine_named
    program = program_of(scaled, BOXES, BOXES)
    call, = (i.op for i in program.streams[Engine.GPSIMD]
             if not isinstance(i.op, Control) and i.op.mnemonic == "GPSIMD_CALL")
    machine = machine_named("trn1")
    clock = machine.clocks[Engine.GPSIMD]
    assert round(machine.cost(Engine.GPSIMD, call.work()).busy * clock) == round(
        giou.microseconds(BOXES, BOXES) * clock * 1e3)


def test_text_and_binary__come_back(giou, scaled, monkeypatch):
    from nki_mlir.targets.neuron.format.assembly import parse_program, print_program
    from nki_mlir.targets.neuron.format.container import decode_program, encode_program
    from nki_mlir.targets.neuron.simulator import simulate
    text = print_program(program_of(scaled, BOXES, BOXES))
    assert print_program(parse_program(text)) == text
    for name in list(PROGRAMS):                             # as in a process that did not build the program
        monkeypatch.delitem(PROGRAMS, name)
    program = decode_program(encode_program(parse_program(text)))
    out = np.zeros((128, 16), np.float32)
    simulate(program, [BOXES, BOXES], [out], seed=3)
    assert np.array_equal(out, 2 * giou(BOXES + np.float32(0.5), BOXES))


def test_numbers_and_several_tensors(build):
    spread = build("spread", multicore=True).spread

    @nki.jit
    def twice(x):
        return spread(spread(x, 0), 0)
    x = np.arange(800, dtype=np.float32)
    expected = x + 2000 * (np.arange(800) // 100)
    for on in ("eager", "jit", "isa"):
        assert np.array_equal(twice.on(on)(x), expected)


def test_ranks__reach_the_operator_as_they_are(build):
    api = build("api")

    @nki.jit
    def ranks(flat, scalar, cube):
        return api.numbers(flat, 1, 2, 3), api.numbers(scalar, 1, 2, 3), api.numbers(cube, 1, 2, 3), api.cast(flat, 3)
    flat, scalar, cube = np.arange(4, dtype=np.float32), np.array(1, np.float32), np.zeros((1, 2, 1, 3), np.float32)
    for on in ("eager", "interpreter", "jit", "isa"):
        *dims, cast = ranks.on(on)(flat, scalar, cube)
        assert [d[0] for d in dims] == [1, 0, 4] and np.array_equal(cast, flat.astype(np.int32))


def test_mistakes__are_at_the_call_in_the_kernel(giou, build):
    @nki.jit
    def on_chip(x):
        return build("spread").spread(nl.load(x[:, :, 0]), 0)

    @nki.jit
    def of_integers(x):
        return build("spread").spread(x, 0)

    @nki.jit
    def too_few(x):
        return giou(x)
    @nki.jit
    def a_number(x):
        return giou(x, 3)
    with pytest.raises(WrongArgument, match="pass a tensor of the kernel"):
        a_number(BOXES)
    with pytest.raises(WrongMemory, match="to be in address space 'hbm'"):
        on_chip(BOXES)
    with pytest.raises(WrongArgumentDtype, match=r"argument 0 of spreading.* has dtype uint32"):
        of_integers(np.zeros(3, np.uint32))
    with pytest.raises(WrongArity, match=r"giou\(Tensor, Tensor\) is called with 1 argument; it takes 2"):
        too_few(BOXES)
    assert TooManyTensors(signature="f", limit=6).headline.endswith("its instruction can have at most 6 tensors")


# -- beside kernels in programs of frameworks --------------------------------------------------------------------------
@pytest.fixture(scope="module")
def doubled():
    @nki.jit
    def doubled(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 2)
        return out
    return doubled


@pytest.mark.jax
def test_jax_program__with_kernel_and_operator(giou, doubled):
    jax = pytest.importorskip("jax")
    program = jax.jit(lambda a, b: doubled(giou(a, b) + 1))
    assert np.array_equal(program(BOXES, BOXES), 2 * (giou(BOXES, BOXES) + 1))


@pytest.mark.torch
def test_torch_program__with_kernel_and_operator(giou, doubled):
    torch = pytest.importorskip("torch")
    from nki_mlir.customop import torch_binding
    torch_binding.load_library(giou.library.path)
    boxes = torch.from_numpy(BOXES)
    program = torch.compile(lambda a, b: doubled(torch.ops.box_ops.giou(a, b) + 1), backend="aot_eager", fullgraph=True)
    assert np.array_equal(program(boxes, boxes), 2 * (giou(BOXES, BOXES) + 1))


def test_counters__show_what_is_not_zero():
    assert repr(Counters(transfers_in=2, bytes_in=194)) == "Counters(transfers_in=2, bytes_in=194)"
    assert repr(Counters()) == "Counters()"
