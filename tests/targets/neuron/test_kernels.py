# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels from Python to instruction streams: values under adversarial schedulers, loops kept or written out."""

import importlib

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.cli.lowering import lower_to_isa
from nki_mlir.compat import install
from nki_mlir.dialects.op import NisaOp
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta.typing import scalar
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.machine import Engine
from nki_mlir.machine.costs import NOTHING
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.checker import check_streams
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_variants
from nki_mlir.targets.neuron.codegen.program_order import end_of
from nki_mlir.targets.neuron.format.assembly import print_program
from nki_mlir.targets.neuron.format.container import decode_program, encode_program
from nki_mlir.targets.neuron.simulator import simulate

from ...examples import cases
from ...tolerances import assert_within

install()
kernels = importlib.import_module("tests.targets.neuron.kernels")
CASES = [pytest.param(*case, id=case[0].__name__) for case in kernels.cases()]


def specialization(kernel, arguments):
    return kernel.specialize(kernel.bind(arguments, {}, is_array, describe_array))


def simulated(spec, arguments, options=None, seeds=(None,)):
    """The results under each seed, several of them in one array."""
    program = neuron.streams(spec.captured, spec.grid)[0] if options is None else emit_variants(
        neuron.lowered(spec.captured), spec.grid, options)
    program = decode_program(encode_program(program))
    assert check_streams([program]).violations == []
    outcomes = []
    for seed in seeds:
        outputs = [np.zeros(s.shape, s.dtype.numpy) for s in spec.shared]
        simulate(program, [np.ascontiguousarray(a).copy() for a in arguments if is_array(a)], outputs, seed)
        results = [outputs[r.shared] for r in spec.results]
        outcomes.append(np.asarray(results) if len(results) > 1 else results[0])
    return outcomes


@pytest.mark.parametrize("kernel,arguments,answer,bound", CASES)
@pytest.mark.parametrize("options", [Emission(), Emission(reorder=False), Emission(unroll_limit=8)], ids=str)
def test_kernel__gives_the_answer_under_every_scheduler(kernel, arguments, answer, bound, options):
    spec = specialization(kernel, arguments)
    for result in simulated(spec, arguments, options, (None, *range(6))):
        assert_within(result, answer, bound)


@pytest.mark.parametrize("kernel,arguments,answer,bound", CASES)
def test_kernel__runs_on_the_isa_executor(kernel, arguments, answer, bound):
    result = kernel.run(arguments, {}, "isa")
    assert_within(np.asarray(result), answer, bound)


@pytest.mark.parametrize("name", ["softmax", "matmul", "attention", "top_k"])
@pytest.mark.usefixtures("example_modules")
def test_example__gives_the_same_under_every_scheduler(name, monkeypatch):
    for kernel, arguments, answer, tolerance in cases(name, monkeypatch):
        spec = specialization(kernel, tuple(arguments))
        first, *others = simulated(spec, arguments, seeds=(None, 0, 1, 2))
        assert np.abs(first.astype(np.float64) - answer).max() <= tolerance
        for other in others:
            np.testing.assert_array_equal(other, first)


@pytest.mark.parametrize("name", ["giou", "normalization"])
@pytest.mark.usefixtures("example_modules")
def test_example__is_not_slower_after_a_longer_search(name, monkeypatch):
    for kernel, arguments, *_ in cases(name, monkeypatch):
        spec = specialization(kernel, tuple(arguments))
        lowered = neuron.lowered(spec.captured)
        short, long = (end_of(emit_variants(lowered, spec.grid, Emission(level=level))) for level in (1, 3))
        assert long <= short


def test_variants__of_a_grid_are_one_program():
    spec = specialization(kernels.uneven[3, 2], (np.zeros((512, 192), np.float32),))
    assert len(spec.modules) == 3
    program = neuron.streams(spec.captured, spec.grid)[0]
    stores = [i.op.dst.access.free.const // (128 * 32) for stream in program.streams.values() for i in stream
              if isinstance(i.op, NisaOp) and i.op.dst.space == "hbm"]
    assert sorted(stores) == list(range(6)) and len(program.of_kind("output")) == 1


def test_register_loop__says_so_in_the_text():
    spec = specialization(kernels.pipeline, (np.zeros((512, 192), np.float32), np.zeros((128, 128), np.float32)))
    program = emit_variants(neuron.lowered(spec.captured), spec.grid, Emission(unroll_limit=8))
    assert len(program.notes) == 1
    assert program.notes[0].endswith(
        "a loop of 4 iterations stays a register loop: the code would be over 8 instructions")
    assert program.notes[0].startswith(kernels.__file__)


def test_device_print__is_an_instruction_that_takes_no_engine(capsys):
    array = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
    program = neuron.streams(specialization(kernels.through_scratch, (array,)).captured, ())[0]
    assert {i.op.mnemonic for s in program.streams.values() for i in s} <= {
        "DMA", "TENSOR_SCALAR", "COPY", "TRANSPOSE", "EVENT_SEMAPHORE", "DEVICE_PRINT"}
    (printed,) = [i for i in program.streams[Engine.SYNC] if i.op.mnemonic == "DEVICE_PRINT"]
    assert printed.op.work() is NOTHING
    for seed in range(3):
        simulate(program, [array], [np.zeros((128, 128), np.float32)], seed=seed)
        assert capsys.readouterr().out == f"scratch\n{array + 1}\n"


@nki.jit
def printed_under_a_mask(a, counts):
    """A mask that leaves rows out by a loop of the device, whose body is scheduled with others."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    left = nl.load(counts)
    tile = nl.load(a)
    going = scalar(True)
    while going:
        for i in range(2):
            nl.device_print("rows", tile, mask=nl.arange(4)[:, None] >= 2 * i)
            nl.store(out, nl.load(a) + 1)
        left[...] = nl.subtract(left, 1)
        going = scalar(left)
    return out


def test_device_print__under_a_mask_in_a_loop_of_the_device(capsys):
    array = np.arange(8, dtype=np.float32).reshape(4, 2)
    printed = []
    for executor in ("interpreter", "isa"):
        assert np.array_equal(printed_under_a_mask.on(executor)(array, np.full((1, 1), 2, np.int32)), array + 1)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].count("rows") == 4


@nki.jit
def gathered_under_a_mask(x, counts):
    """Instructions that take no open mask, in a loop whose variable decides, in a loop of the device."""
    out = nl.ndarray((3, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    left = nl.load(counts)
    going = scalar(True)
    while going:
        for i in nl.affine_range(3):
            row = nl.full((1, 1), 1, nl.int32)
            tile = nl.zeros((1, x.shape[1]), x.dtype)
            tile[...] = nl.load(x[row, nl.arange(4)[None, :]], mask=i < 2)
            nl.store(out[i:i + 1, :], tile)
        left[...] = nl.subtract(left, 1)
        going = scalar(left)
    return out


@pytest.mark.parametrize("executor", ["eager", "interpreter", "jit", "isa"])
def test_gather__under_a_mask_of_a_loop_in_a_loop_of_the_device(executor):
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    expected = np.stack([x[1], x[1], np.zeros(4, np.float32)])
    assert np.array_equal(gathered_under_a_mask.on(executor)(x, np.full((1, 1), 2, np.int32)), expected)


@nki.jit
def printed_in_order(a):
    """Prints of values that are ready in another order."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nl.device_print("an exponential, \"slow\"\n", nl.exp(nl.exp(nl.exp(tile)))[0:1, 0:1])
    for i in nl.affine_range(3):
        nl.device_print(f"of all\t{7}", tile[i:i + 1, 0:2])
    nl.device_print("", tile[0:1, 0:1])
    nl.store(out, tile)
    return out


def test_device_print__keeps_the_order_and_any_text(capsys):
    array = np.zeros((4, 8), np.float32)
    array[:, 0] = range(4)
    program = neuron.streams(specialization(printed_in_order, (array,)).captured, ())[0]
    again = neuron.disassemble(neuron.assemble(text := print_program(program)))
    assert again == text and 'prefix="of all\\t7"' in text and 'prefix="" ' in text
    exp = np.exp(np.exp(np.exp(array[0:1, 0:1])))
    expected = "".join(f"{prefix}\n{value}\n" for prefix, value in (
        ('an exponential, "slow"\n', exp), *((f"of all\t{7}", array[i:i + 1, 0:2]) for i in range(3)),
        ("", array[0:1, 0:1])))
    for seed in range(5):
        simulate(decode_program(neuron.assemble(text)), [array], [np.zeros((4, 8), np.float32)], seed=seed)
        assert capsys.readouterr().out == expected


@pytest.mark.parametrize("form", ["asm", "bin", "mlir"])
def test_command__emits_every_form(form):
    (module,) = specialization(kernels.masked_rows, (np.zeros((300, 16), np.float32),)).modules
    with module.context, ir.Location.unknown():
        copy = ir.Module.parse(module.operation.get_asm(enable_debug_info=True))
        text = lower_to_isa(copy, form, None)
    match form:
        case "asm":
            assert text.startswith(".nki_isa 1\n.kernel masked_rows\n.target trn2\n")
            assert neuron.disassemble(neuron.assemble(text)) == text
        case "bin":
            assert neuron.assemble(neuron.disassemble(text)) == text
        case "mlir":
            assert '"isa.program"' in text and '"isa.stream"' in text


def test_instruction_counts__are_by_engine():
    spec = specialization(kernels.masked_rows, (np.zeros((300, 16), np.float32),))
    counts = neuron.instruction_counts(neuron.streams(spec.captured, spec.grid)[0])
    assert list(counts) == ["tensor", "scalar", "vector", "gpsimd", "sync"]
    assert counts["tensor"] == 0 and sum(counts.values()) >= 9
