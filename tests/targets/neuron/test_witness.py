# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Witnesses of the checker of streams: orders that the simulator takes, and in which values are wrong."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.cli import run
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa import instruction as isa
from nki_mlir.dialects.isa.instruction import Update, Wait
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.checker.witness import Witness
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code
from nki_mlir.targets.neuron.format.assembly import parse_program
from nki_mlir.targets.neuron.order import EngineStep, QueueStep, order_text, parse_order
from nki_mlir.targets.neuron.simulator import simulate_cores

from .ordering import waits_of, without_wait
from .random_code import RandomCode
from .test_checker import TEXT

RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal((128, 128)).astype(np.float32) for _ in range(2))


def result(text: str, order=()) -> np.ndarray:
    out = np.zeros((128, 128), np.float32)
    simulate_cores([parse_program(text)], [X.copy(), W.copy()], [out], order=order)
    return out


def witness(text: str):
    return check_streams([parse_program(text)]).witness


SOUND = result(TEXT)


@pytest.mark.parametrize("wait, last", [
    ("S[4] (qSyncIO0)>=16 ACTIVATE", "act 0001"),                   # reads what a transfer has not brought
    ("S[3] (qGpSimdIO0)>=16 MATMUL", "pe 0001"),
    ("S[0] (Tensor)>=1 COPY", "dve 0000"),                          # reads PSUM before the product is there
    ("S[2] (Vector)>=1 DMA", "queue 2 moves 0")])                   # stores what is not computed
def test_without_a_wait__the_witness_gives_other_values(wait, last):
    text = TEXT.replace(wait, wait.split()[-1])
    steps = witness(text)
    assert order_text(steps[-1:], 1) == f"{last}\n"
    assert not np.array_equal(result(text, steps), SOUND, equal_nan=True)


def test_sound_streams_have_no_witness():
    assert witness(TEXT) == ()


def test_text__is_read_as_it_is_written():
    text = TEXT.replace("S[2] (Vector)>=1 DMA", "DMA")
    steps = witness(text)
    programs = [parse_program(text)]
    assert parse_order("// a comment\n\n" + order_text(steps, 1), programs) == list(steps)
    two = [EngineStep(1, next(iter(programs[0].streams)), 0), QueueStep(0, 2, True, 15)]
    assert parse_order(order_text(two, 2), programs * 2) == two


@pytest.mark.parametrize("line", ["dve", "dve x", "xx 0001", "queue 9 moves 0", "queue 0 reports 16", "core 1 dve 0000",
                                  "queue 0 moves", "dve 0001 0002", "dve -1"])
def test_what_is_no_step__is_an_error_with_its_line(line):
    with pytest.raises(NkiMlirError) as raised:
        parse_order(f"act 0000\n{line}\n", [parse_program(TEXT)], "a.order")
    assert str(raised.value) == (
        f"a.order:2:1: error: '{line}' is not a step of an order [NKI-ORDER-LINE]\n"
        "  fix: write ENGINE NUMBER, queue NUMBER moves TRANSFER or queue NUMBER reports ENGINE, with core NUMBER in front")


@pytest.mark.parametrize("order, reason", [
    ("act 0001", "act 0001: act is at 0000"),
    ("act 0000\nact 0001", "act 0001: act waits at 0001 ACTIVATE (k.py:6) for S[4] (qSyncIO0)>=16, which is 0"),
    ("queue 0 moves 0", "queue 0 moves 0: no such transfer is under way"),
    ("sp 0000\nqueue 1 moves 0\nqueue 1 moves 0", "queue 1 moves 0: no such transfer is under way"),
    ("queue 1 reports 3", "queue 1 reports 3: no such transfer is under way")])
def test_what_the_streams_cannot_do__is_an_error(order, reason):
    with pytest.raises(NkiMlirError) as raised:
        result(TEXT, parse_order(order, [parse_program(TEXT)]))
    number = order.count("\n") + 1
    assert str(raised.value) == (
        f"error: the streams cannot take step {number} of the order, {reason} [NKI-ORDER]\n"
        "  why: the order was written for other streams, or for data that lead to other branches\n"
        "  fix: write the order again with nki-run --witness=FILE")


@pytest.mark.parametrize("seed", range(2))
def test_of_random_streams__each_witness_can_be_replayed(seed):
    drawn = RandomCode(seed, 20, loops=False)
    program = emit_code(drawn.code, Emission())
    replayed = 0
    for wait in waits_of(program):
        mutant = without_wait(program, *wait)
        steps = check_streams([mutant]).witness
        if steps:
            simulate_cores([mutant], [a.copy() for a in drawn.arrays], [np.zeros_like(drawn.expected())], order=steps)
            replayed += 1
    assert replayed > 5


def test_command__writes_a_witness_and_replays_it(tmp_path, capsys):
    streams, order, values = (str(tmp_path / name) for name in ("k.nkiasm", "k.order", "out.npz"))
    (tmp_path / "k.nkiasm").write_text(TEXT.replace("S[0] (Tensor)>=1 COPY", "COPY"))
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "w.npy", W)
    arguments = [streams, f"--arg=128x128xf32={tmp_path}/x.npy", f"--arg=128x128xf32={tmp_path}/w.npy"]
    assert run.main([*arguments, f"--witness={order}"]) == 1
    assert (tmp_path / "k.order").read_text().startswith(
        "// k.py:8:1: error: dve 0000 COPY (k.py:8) writes byte 512 of partition 0 of sbuf, which pool 0000 DMA (k.py:7) may "
        "write later; nothing orders them [NKI-STREAM-ORDER]\n//   why: ")
    assert run.main([*arguments, f"--order={order}", f"--save={values}"]) == 0
    assert not np.array_equal(np.load(values)["out"], SOUND, equal_nan=True)
    assert run.main([*arguments, "--on=isa"]) == 1
    assert "note: --witness=FILE writes an order of the streams" in capsys.readouterr().err


def test_command__takes_orders_of_streams_only(capsys):
    assert run.main(["examples/mlir/tensor_add.mlir", "--order=x"]) == 1
    assert "--order does not take a kernel or module [NKI-ORDER-SOURCE]" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        run.main(["x.nkiasm", "--order=x", "--time"])
    assert "--order runs instruction streams, and excludes --time" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(10))
def test_instruction__waits_clears_and_counts(seed):
    """An engine's instruction executes when all its waits hold; then it clears semaphores, and then it adds."""
    draw = random.Random(seed)
    before = [draw.randint(0, 3) for _ in range(8)]
    waits = [Wait(draw.randrange(8), draw.randint(0, 3)) for _ in range(draw.randint(0, 2))]
    first = draw.randrange(8)
    last, update = draw.randint(first, 7), Update(draw.randrange(8), draw.randint(1, 4))
    instruction = SimpleNamespace(waits=waits, update=update, op=isa.RangeClear(first, last))
    event = SimpleNamespace(core=0, queue_lane=-1, engine=None, pc=5, instruction=instruction)
    witness = Witness(SimpleNamespace(programs=[], lanes=[], lane_of={}, steps=[]), SimpleNamespace(first=None, then=event))
    witness.semaphores, witness.steps, witness.done = [[*before]], [], False
    may_run = all(before[wait.semaphore] >= wait.value for wait in waits)
    assert witness.execute(event) is witness.done is may_run
    expected = [0 if first <= k <= last else value for k, value in enumerate(before)] if may_run else before
    expected[update.semaphore] += update.amount * may_run
    assert witness.semaphores == [expected]
    assert witness.steps == [EngineStep(0, None, 5)] * may_run
