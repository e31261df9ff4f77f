# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops whose end is a number in memory: what engines load, in every order, in all forms of the program."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.cli.runnable import runnable
from nki_mlir.cli.timing import report
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.isa.instruction import CompareBranch, RegisterDivision, TensorLoad
from nki_mlir.dialects.isa.module import load_isa, program_text, read_program
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import describe_array, is_array, unwrap
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.scalar.dtypes import FLOAT32, INT32
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_code, emit_module
from nki_mlir.targets.neuron.codegen.mlir_records import read_code
from nki_mlir.targets.neuron.format.assembly import parse_program, print_program
from nki_mlir.targets.neuron.format.assembly_operation import AssemblyError
from nki_mlir.targets.neuron.format.container import decode_program, encode_program
from nki_mlir.targets.neuron.simulator import simulate
from nki_mlir.targets.neuron.timing.result import ONE_ITERATION
from nki_mlir.targets.neuron.validate import BadProgram, check_program

from .code_builder import Builder


@nki.jit
def powers(x, n):
    """x doubled n times, in row blocks that each count anew; the count is loaded while the kernel runs."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for k in range(x.shape[0] // 32):
        tile, bound = nl.load(x[k * 32:(k + 1) * 32]), nisa.register_alloc()
        nisa.register_load(bound, n[0:1, k:k + 1])

        def body(i, tile=tile):
            nisa.tensor_tensor(tile, tile, tile, nl.add)
            nisa.activation(tile, nl.abs, tile)
        nl.fori_loop(0, bound, body)
        nisa.dma_copy(out[k * 32:(k + 1) * 32], tile)
    return out


def captured():
    kernel, x = unwrap(powers), np.random.default_rng(0).standard_normal((96, 16)).astype(np.float32)
    n = np.array([[3, 0, 1]], np.int32)
    spec = kernel.specialize(kernel.bind((x, n), {}, is_array, describe_array))
    expected = x.copy()
    for k, times in enumerate(n[0]):
        if times:
            expected[k * 32:(k + 1) * 32] = np.abs(x[k * 32:(k + 1) * 32]) * 2.0 ** times
    return spec, (x, n), expected


def check(program, arrays, expected, seeds=8):
    for seed in (None, *range(seeds)):
        result = np.zeros_like(expected)
        simulate(program, [a.copy() for a in arrays], [result], seed, step_limit=100_000)
        np.testing.assert_array_equal(result, expected)


def test_values_under_every_scheduler_and_in_every_form():
    spec, arrays, expected = captured()
    program = neuron.streams(spec.captured, spec.grid)[0]
    check(program, arrays, expected)
    text = print_program(program)
    again = parse_program(text)
    assert print_program(again) == text == print_program(decode_program(encode_program(program)))
    check(again, arrays, expected, seeds=0)
    context = ir.Context()
    load_isa(context)
    with context, ir.Location.unknown():
        module = ir.Module.parse(program_text(program))
        assert module.operation.verify()
        assert print_program(without_lines(read_program(module))) == print_program(without_lines(program))


def without_lines(program):
    for stream in program.streams.values():
        for instruction in stream:
            instruction.location = None
    return program


def test_every_engine__loads_what_its_branch_compares():
    spec, _, _ = captured()
    program = neuron.streams(spec.captured, spec.grid)[0]
    streams = [s for s in program.streams.values() if s]
    assert len(streams) > 2
    for stream in streams:
        loaded = []
        for instruction in stream:
            if isinstance(instruction.op, TensorLoad):
                loaded.append(instruction.op.dst)
                assert instruction.op.src.dtype is INT32
            elif isinstance(instruction.op, CompareBranch) and instruction.op.op == "ge":
                assert loaded[-2:] == [instruction.op.lhs, instruction.op.rhs]
        assert len(loaded) == 6


def test_passes_on_modules__give_the_same_values():
    spec, arrays, expected = captured()
    module = neuron.at_nisa(spec.captured.variants[()].module)
    with module.context, ir.Location.unknown():
        for name in ("unroll-loops", "split-blocks", "schedule-instructions", "allocate-on-chip"):
            run_passes(module, [pass_named(name)])
            assert str(module).count("scf.while") == 3 and module.operation.verify()
        program = emit_module(module, Emission(reorder=False))
    check(program, arrays, expected)


def counted(outer, limit):
    """A sum that grows once for each turn of a loop at run time, inside a loop that may stay."""
    b = Builder()
    x, y = b.hbm("x", (32, 8 * outer), "input"), b.hbm("y", (32, 8 * outer), "output")
    one = b.on_chip("one", (1, 1), dtype=INT32)
    b.memset((one, 0, 1, 0, 1), 1)
    with b.loop(outer) as i:
        tile, counter = b.on_chip("tile", (32, 8)), b.on_chip("counter", (1, 1), dtype=INT32)
        b.copy((tile, 0, 32, 0, 8), (x, 0, 32, (0, {i: 8}), 8))
        b.memset((counter, 0, 1, 0, 1), 0)
        with b.while_loop("ne", counter, limit):
            b.add((counter, 0, 1, 0, 1), (counter, 0, 1, 0, 1), (one, 0, 1, 0, 1), engine="gpsimd")
            b.add((tile, 0, 32, 0, 8), (tile, 0, 32, 0, 8), (tile, 0, 32, 0, 8))
        b.copy((y, 0, 32, (0, {i: 8}), 8), (tile, 0, 32, 0, 8))
    return b.code


@pytest.mark.parametrize("unroll", [1, 50_000])
def test_inside_a_loop_that_stays_or_is_written_out(unroll):
    x = np.random.default_rng(1).standard_normal((32, 40)).astype(np.float32)
    program = emit_code(counted(5, 3), Emission(unroll_limit=unroll))
    assert len(program.notes) == (unroll == 1)
    check(program, [x], x * 8)


def test_buffers_that_a_loop_reads_again__keep_their_memory():
    """A tile that is used before the loop's end only would otherwise share memory with one that is filled behind it."""
    b = Builder()
    x, y = b.hbm("x", (32, 8), "input"), b.hbm("y", (32, 8), "output")
    constant, counter, total = b.on_chip("constant", (32, 8)), b.on_chip("counter", (1, 1), dtype=INT32), b.on_chip(
        "total", (32, 8))
    one = b.on_chip("one", (1, 1), dtype=INT32)
    b.copy((constant, 0, 32, 0, 8), (x, 0, 32, 0, 8))
    b.memset((total, 0, 32, 0, 8), 0)
    b.memset((counter, 0, 1, 0, 1), 0)
    b.memset((one, 0, 1, 0, 1), 1)
    with b.while_loop("lt", counter, 3):
        b.add((total, 0, 32, 0, 8), (total, 0, 32, 0, 8), (constant, 0, 32, 0, 8))
        late = b.on_chip("late", (32, 8))
        b.memset((late, 0, 32, 0, 8), 5)
        b.add((total, 0, 32, 0, 8), (total, 0, 32, 0, 8), (late, 0, 32, 0, 8))
        b.add((counter, 0, 1, 0, 1), (counter, 0, 1, 0, 1), (one, 0, 1, 0, 1))
    b.copy((y, 0, 32, 0, 8), (total, 0, 32, 0, 8))
    array = np.arange(256, dtype=np.float32).reshape(32, 8)
    program = emit_code(b.code, Emission())
    assert len({buffer.address for buffer in (constant, counter, total, one)}) == 4
    check(program, [array], 3 * array + 15)


# -- what is refused ---------------------------------------------------------------------------------------------------
WHILE = """
module attributes {nki.target = "trn2"} {
  func.func @kernel(%x: memref<4xi32, "hbm"> {nki.name = "x"}) attributes {nki.grid = [], nki.results = []} {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0 : i32
    %t = memref.alloc() : memref<1x1xi32, "sbuf">
    scf.while : () -> () {
      %n = memref.load BUFFER : TYPE
      %go = arith.cmpi ne, %n, %zero : i32
      scf.condition(%go)
    } do {
      scf.yield
    }
    return
  }
}"""


def read(buffer, kind):
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(WHILE.replace("BUFFER", buffer).replace("TYPE", kind))
        return read_code(the_kernel(module))


def test_error__registers_are_loaded_from_on_chip_memory():
    assert len(read("%t[%c0, %c0]", 'memref<1x1xi32, "sbuf">').body.nodes) == 1
    with pytest.raises(Unsupported, match="a register that is loaded from x"):
        read("%x[%c0]", 'memref<4xi32, "hbm">')


HEADER = """.nki_isa 1
.kernel k
.target trn2
.sbuf 64 of 212984
.psum 0 of 16384
.stream act
"""


def test_error__load_of_what_is_no_integer_at_a_fixed_place():
    for tile, what in (("fp32@0x0[1][1]*1", "TENSOR_LOAD reads one integer on chip"),
                       ("int32@0x0[1][2]*1", "TENSOR_LOAD reads one integer on chip"),
                       ("int32@0x0[1][1]*2", "TENSOR_LOAD reads one integer on chip"),
                       ("int32@0x1fffff8[1][1]*1", "Out-of-bound access for tensor `src`"),
                       ("int32@0x0+4*r1[1][1]*1", "expected a fixed address")):
        with pytest.raises(AssemblyError, match=what):
            parse_program(HEADER + f"act 0000: TENSOR_LOAD dst=r0 src={tile}\n")
    program = parse_program(HEADER + "act 0000: TENSOR_LOAD dst=r31 src=uint8@0x40003[1][1]*1\n")
    assert print_program(decode_program(encode_program(program))) == print_program(program)
    assert check_program(program) is program


def test_error__a_condition_on_a_float():
    b = Builder()
    counter, y = b.on_chip("counter", (1, 1), dtype=FLOAT32), b.hbm("y", (1, 1), "output")
    with b.while_loop("lt", counter, 3):
        b.copy((y, 0, 1, 0, 1), (counter, 0, 1, 0, 1))
    with pytest.raises(BadProgram, match="TENSOR_LOAD reads one integer on chip"):
        check_program(emit_code(b.code, Emission()))


def test_error__a_bound_divided_by_0_is_told_at_its_line(tmp_path):
    file = tmp_path / "k.mlir"
    file.write_text("""func.func @k(%out: memref<1x4xf32, "hbm">) attributes {nki.target = "trn2"} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %d = arith.floordivsi %c4, %c0 : index
  scf.for %i = %c0 to %d step %c4 { }
  return
}""")
    with pytest.raises(RegisterDivision, match="floordiv of 4 by 0 in a register") as caught:
        runnable(str(file), [], {}, None, ()).run("isa")
    assert caught.value.at is not None and (caught.value.at.file, caught.value.at.line) == (str(file), 4)


@nki.jit
def smoothed(x, iterations: int):
    """x averaged with itself shifted by one more column in each iteration; an inner loop has the counter as bound."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)

    def body(i):
        column = nl.ndarray((x.shape[0], 1), x.dtype)
        nisa.tensor_copy(column, tile.ap([[x.shape[1], x.shape[0]], [1, 1]], scalar_offset=i, indirect_dim=1))
        nisa.tensor_scalar(tile, tile, nl.add, column, op1=nl.multiply, operand1=0.5)

        def halved(_):
            nisa.tensor_scalar(tile, tile, nl.multiply, 0.5)
        nl.fori_loop(0, i, halved)
    nl.fori_loop(0, iterations, body)
    nl.fori_loop(4, 4, body)
    nisa.dma_copy(out, tile)
    return out


@pytest.mark.parametrize("iterations", [1, 3, 8])
def test_bounds_that_are_constants(iterations):
    """The counters of such loops have the numbers of the iterations, and all iterations are proved and timed."""
    x = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    expected = x.copy()
    for i in range(iterations):
        expected = (expected + expected[:, i:i + 1]) * np.float32(0.5) ** (i + 1)
    np.testing.assert_allclose(smoothed.on("isa")(x, iterations), expected, rtol=1e-6)


def test_time_of_all_iterations():
    """A loop to 24 takes longer than one to 8 by 16 run-time copies of at least 600 cycles of 0.96 GHz, in either mode."""
    @nki.jit
    def repeated(x, iterations: int):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)

        def body(i):
            column = nl.ndarray((x.shape[0], 1), x.dtype)
            nisa.tensor_copy(column, tile.ap([[x.shape[1], x.shape[0]], [1, 1]], scalar_offset=i, indirect_dim=1))
            nisa.tensor_scalar(tile, tile, nl.add, column)
        nl.fori_loop(0, iterations, body)
        nisa.dma_copy(out, tile)
        return out
    x = np.zeros((16, 32), np.float32)
    short, long = (repeated.lower(x, iterations) for iterations in (8, 24))
    least = 16 * 600 / 0.96
    assert long.time().notes == []
    assert long.time().total_ns - short.time().total_ns > least
    assert long.time(as_written=True).total_ns - short.time(as_written=True).total_ns > least


def test_the_time_of_a_loop_to_a_loaded_number_has_a_note():
    x, n = np.zeros((96, 16), np.float32), np.zeros((1, 3), np.int32)
    lowered = powers.lower(x, n)
    assert lowered.time().notes == [ONE_ITERATION] == lowered.profile().document["notes"]
    assert report(lowered.time())[-1] == f"note: {ONE_ITERATION}"
