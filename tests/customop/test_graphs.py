# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Custom operators as nodes of graphs, beside kernels: one program on the CPU, one of the instruction streams."""

import base64
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from nki_mlir import customop
from nki_mlir.customop import cost
from nki_mlir.customop.graph_binding import GraphAbi, OperatorChanged, OperatorRefuses, callee
from nki_mlir.customop.kernel_binding import EmptyTensor
from nki_mlir.customop.library import UnknownOperator
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.programs import NotLoaded
from nki_mlir.frameworks.stablehlo import LinkedProgram, run_linked, simulate_linked
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.transforms.verify_target import SeveralLibraries
from tests.customop.conftest import EXAMPLES

BOXES = np.random.default_rng(0).uniform(0.1, 1, (128, 16, 4)).astype(np.float32)
OTHERS = BOXES[::-1].copy()


@pytest.fixture(scope="module")
def giou(build):
    folder = build("spread").path.parent
    return customop.load("giou", [EXAMPLES / "giou.cpp"], [EXAMPLES / "giou_shape.cpp"], folder, multicore=True).giou


@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out


def both(text, *arrays):
    """The results of the module as one program on the CPU, and as instruction streams."""
    program = LinkedProgram(text)
    assert program.is_one_program
    return program(*arrays), simulate_linked(text, arrays)


def is_both(text, expected, *arrays, tolerance=0.0):
    for results in both(text, *arrays):
        assert len(results) == len(expected)
        for got, wanted in zip(results, map(np.asarray, expected)):
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), tolerance, tolerance)


# -- JAX ---------------------------------------------------------------------------------------------------------------
@pytest.fixture
def jax():
    return pytest.importorskip("jax")


@pytest.fixture
def program(jax, giou):
    return jax.jit(lambda a, b: doubled(giou(a + 0.5, b) + 1) * 3)


@pytest.mark.jax
def test_jax__operator_and_kernel_are_one_program(jax, giou, program):
    expected = program(BOXES, OTHERS)
    assert np.array_equal(expected, (giou(BOXES + np.float32(0.5), OTHERS) + 1) * 2 * 3)
    is_both(program.lower(BOXES, OTHERS).as_text(), [expected], BOXES, OTHERS)


@pytest.mark.jax
def test_jax__export(jax, giou, program):
    from jax import export

    from nki_mlir.frameworks.jax import export_checks
    shapes = [jax.ShapeDtypeStruct(BOXES.shape, np.float32)] * 2
    exported = export.export(program, disabled_checks=export_checks())(*shapes)
    is_both(exported.mlir_module(), [program(BOXES, OTHERS)], BOXES, OTHERS)
    again = export.deserialize(exported.serialize())
    assert np.array_equal(again.call(BOXES, OTHERS), program(BOXES, OTHERS))


@pytest.mark.jax
def test_jax__for_the_device_is_the_documented_call(jax, giou, program):
    text = program.trace(BOXES, OTHERS).lower(lowering_platforms=("neuron",)).as_text()
    call, = (line for line in text.split("\n") if "@AwsNeuronCustomOp" in line)
    assert "api_version = 2 : i32" in call
    config = json.loads(base64.b64decode(re.search(r'backend_config = "([^"]+)"', call)[1]))
    assert config["custom_op"] | {"build": ""} == {
        "library": "box_ops", "operator": "giou", "parameters": "TT", "numbers": [], "abi": 1, "build": "",
        "operands": [["float32", 128, 16, 4]] * 2, "result": ["float32", 128, 16], "file": str(giou.library.path)}
    is_both(text, [program(BOXES, OTHERS)], BOXES, OTHERS)


@pytest.mark.jax
def test_jax__numbers_dtypes_and_ranks(jax, build):
    api, x = build("api"), np.arange(24, dtype=np.float32)
    program = jax.jit(lambda x: (api.numbers(x.reshape(2, 3, 4), 4, 5.5, 6), api.cast(x * 2, 1), api.cast(x, 15),
                                 api.cast(api.cast(x, 0), 3), api.numbers(x[0], 1, 2, 3)))
    is_both(program.lower(x).as_text(), program(x), x)
    unsigned = jax.jit(lambda x: api.cast(api.cast(x * 2, 0) + np.uint8(200), 3))
    is_both(unsigned.lower(x).as_text(), [unsigned(x)], x)
    long = jax.jit(lambda x: api.numbers(x.reshape(1, 2, 1, 3, 4, 1, 1, 1), 1, 2, 3))
    is_both(long.lower(x).as_text(), [long(x)], x)


@pytest.mark.jax
def test_jax__what_an_instruction_has_no_room_for(jax, build):
    cast = build("api").cast
    program = jax.jit(lambda x: cast(x, 3))
    assert program(np.zeros(0, np.float32)).shape == (0,)
    with pytest.raises(EmptyTensor, match=r"api.cast\(Tensor, int\) is called in a kernel or a linked graph") as caught:
        run_linked(program.lower(np.zeros(0, np.float32)).as_text(), [np.zeros(0, np.float32)])
    assert caught.value.at.line == 3


@pytest.mark.jax
def test_jax__several_calls_in_a_row(jax, build):
    spread = build("spread", multicore=True).spread
    x = np.arange(800, dtype=np.float32).reshape(8, 100)
    program = jax.jit(lambda x: spread(spread(x, 0) - 1, 0) + spread(x, 0))
    is_both(program.lower(x).as_text(), [program(x)], x)


@pytest.mark.jax
def test_jax__in_a_graph_that_runs_around_native_calls(jax, build):
    spread = build("spread", multicore=True).spread
    x = np.random.default_rng(1).standard_normal(96).astype(np.float32)
    program = jax.jit(lambda x: jax.numpy.sort(spread(x, 0)))
    text = program.lower(x).as_text()
    linked = LinkedProgram(text)
    assert not linked.is_one_program
    assert np.array_equal(linked(x)[0], program(x))
    assert np.array_equal(simulate_linked(text, [x])[0], program(x))        # a network of exchanges sorts


@pytest.mark.jax
def test_jax__faults_of_the_kernel_end_the_program(jax, build):
    misuse = build("faults").misuse
    x = np.zeros((32, 16), np.float32)
    with pytest.raises(Exception, match=r"faults.cpp:\d+:3: error: a transfer of 8 elements"):
        jax.block_until_ready(jax.jit(lambda x: misuse(x, 0))(x))
    text = jax.jit(lambda x: misuse(x, 0)).lower(x).as_text()
    for run in (run_linked, simulate_linked):
        with pytest.raises(customop.Fault, match=r"faults.cpp:\d+:3: error: a transfer of 8 elements"):
            run(text, [x])


# -- PyTorch -----------------------------------------------------------------------------------------------------------
@pytest.mark.torch
def test_torch__operator_and_kernel_are_one_program(giou, build):
    torch = pytest.importorskip("torch")
    from nki_mlir.customop import torch_binding
    from nki_mlir.frameworks.torch_stablehlo import stablehlo_of
    torch_binding.load_library(giou.library.path)
    torch_binding.load_library(build("api").path)
    api = torch.ops.api

    class Model(torch.nn.Module):
        def forward(self, a, b):
            return doubled(torch.ops.box_ops.giou(a + 0.5, b) + 1) * 3

    class Numbers(torch.nn.Module):
        def forward(self, a, b):
            return (doubled(a[0]), api.numbers(a[0], 4, 5.5, 6), api.cast((b * 10).to(torch.int32).reshape(-1), 1),
                    api.cast(b.reshape(-1).to(torch.bfloat16), 0))
    tensors = torch.from_numpy(BOXES), torch.from_numpy(OTHERS)
    is_both(stablehlo_of(Model(), *tensors), [Model()(*tensors)], BOXES, OTHERS)
    is_both(stablehlo_of(torch.export.export(Model(), tensors)), [Model()(*tensors)], BOXES, OTHERS)
    is_both(stablehlo_of(Numbers(), *tensors), Numbers()(*tensors), BOXES, OTHERS)


# -- as instructions ---------------------------------------------------------------------------------------------------
@pytest.mark.jax
def test_stream__has_the_call_with_its_cost(giou, program):
    from nki_mlir.bindings import ir
    from nki_mlir.frameworks.stablehlo import read_graph
    from nki_mlir.graph.upstream import graph_context
    from nki_mlir.machine import Engine, machine_named
    from nki_mlir.passes.pass_manager import run_passes
    from nki_mlir.passes.pipelines import passes_to
    from nki_mlir.targets.neuron import timed
    from nki_mlir.targets.neuron.codegen.emission import emit_module
    from nki_mlir.targets.neuron.format.assembly import print_program
    with graph_context(), ir.Location.unknown():
        module = read_graph(program.lower(BOXES, OTHERS).as_text())
        run_passes(module, passes_to("nisa", module))
        emitted = emit_module(module)
        text = print_program(emitted)
    call, = (line for line in text.split("\n") if "GPSIMD_CALL" in line)
    counted = giou.counters(BOXES, OTHERS)
    for name in ("transfers_in", "bytes_in", "transfers_out", "bytes_out"):
        assert f" {name}={sum(getattr(c, name) for c in counted)} " in call
    assert call.startswith("pool ") and f" busy={round(cost.cycles(counted))} " in call
    ran, = timed([emitted]).cores
    assert ran.instructions[Engine.GPSIMD] >= 1
    clock = machine_named(emitted.target).clocks[Engine.GPSIMD]
    assert ran.busy_ns[Engine.GPSIMD] * clock >= round(cost.cycles(counted)) - 1e-6


@pytest.mark.jax
def test_command__loads_the_library_and_lowers(giou, program, tmp_path):
    file = tmp_path / "graph.mlir"
    file.write_text(program.lower(BOXES, OTHERS).as_text())
    line = 1 + next(k for k, text in enumerate(file.read_text().split("\n")) if "@AwsNeuronCustomOp" in text)

    def command(tool, *options):
        return subprocess.run([sys.executable, "-m", f"nki_mlir.cli.{tool}", *options, str(file)], text=True,
                              capture_output=True, check=False)
    refused = command("opt", "--link-kernels")
    assert refused.returncode == 1 and refused.stderr.startswith(
        f"{file}:{line}:10: error: operator giou is called, but library box_ops is not loaded in this process")
    assert f"fix: load it first: custom_op.load_library('{giou.library.path}')" in refused.stderr
    library = f"--load-library={giou.library.path}"
    lowered = command("opt", library, "--link-kernels", "--lower-to-isa")
    call, = (text for text in lowered.stdout.split("\n") if "GPSIMD_CALL" in text)
    assert call.endswith(f"// {file}:{line}")
    assert command("opt", library, "--lower-to-isa").stdout == lowered.stdout
    np.save(tmp_path / "a.npy", BOXES)
    np.save(tmp_path / "b.npy", OTHERS)
    done = command("run", library, "--on=isa", "--compare=jit", "--quiet", f"--save={tmp_path / 'r.npz'}",
                   f"--arg=128x16x4xf32={tmp_path / 'a.npy'}", f"--arg=128x16x4xf32={tmp_path / 'b.npy'}")
    assert done.returncode == 0, done.stderr
    assert np.array_equal(next(iter(np.load(tmp_path / "r.npz").values())), program(BOXES, OTHERS))


# -- what does not fit -------------------------------------------------------------------------------------------------
def graph(operands, result, /, **changes):
    """A graph that calls an operator; of what its config says, ``changes`` replace some and leave out what is None."""
    said = {"library": "box_ops", "operator": "giou", "parameters": "TT", "numbers": [], "abi": 1, "build": "",
            "operands": [["float32", *shape] for shape in operands], "result": ["float32", *result], "file": ""} | changes
    said = {name: value for name, value in said.items() if value is not None}
    config = base64.b64encode(json.dumps({"kernel_version": 1, "func_name": "giou", "custom_op": said}).encode()).decode()
    types = [f"tensor<{'x'.join(map(str, shape))}xf32>" for shape in (*operands, result)]
    parameters = ", ".join(f"%a{k}: {kind}" for k, kind in enumerate(types[:-1]))
    return f"""func.func @main({parameters}) -> {types[-1]} {{
  %0 = stablehlo.custom_call @AwsNeuronCustomOp({", ".join(f"%a{k}" for k in range(len(operands)))}) {{
    api_version = 2 : i32, backend_config = "{config}"}} : ({", ".join(types[:-1])}) -> {types[-1]}
  return %0 : {types[-1]}
}}"""


PAIR = ((128, 16, 4),) * 2


@pytest.mark.parametrize("error, text, changes", [
    (NotLoaded, "operator f is called, but library absent is not loaded", {"library": "absent", "operator": "f"}),
    (UnknownOperator, "library box_ops has no operator iou; it has giou", {"operator": "iou"}),
    (GraphAbi, "calls operator giou of library box_ops for version 7 of the emulated engine", {"abi": 7}),
    (OperatorChanged, "loaded library box_ops takes TT, but in the graph it takes TTd", {"parameters": "TTd"}),
    (OperatorChanged, r"gives \['float32', 128, 16\], but in the graph it gives \['float32', 128\]",
     {"result": ["float32", 128]}),
    (NkiMlirError, r"the call's operands are \(tensor<128x16x4xf32>, tensor<128x16x4xf32>\), the kernel's are \(tensor<8",
     {"operands": [["float32", 8, 16, 4]] * 2, "result": ["float32", 8, 16]}),
    (NkiMlirError, "config cannot be used: it has no 'numbers'", {"numbers": None}),
    (NkiMlirError, "config cannot be used: one of its fields is malformed", {"operands": 3}),
], ids=["library", "operator", "abi", "parameters", "result", "operands", "field", "malformed"])
def test_error__is_at_the_call_of_the_graph(giou, error, text, changes):
    with pytest.raises(error, match=text) as caught:
        run_linked(graph(PAIR, (128, 16), **changes), [BOXES, OTHERS])
    assert (caught.value.at.line, caught.value.at.column) == (2, 7)


def test_error__operands_that_the_shape_function_refuses(build):
    build("faults")
    source = graph(((2, 2),), (2, 2), library="faulty", operator="bad_shape", parameters="Ti", numbers=[3.0])
    with pytest.raises(OperatorRefuses, match="three rows, please") as caught:
        run_linked(source, [np.zeros((2, 2), np.float32)])
    assert caught.value.at.line == 2 and "faults_shape.cpp:" in str(caught.value)


@pytest.mark.jax
def test_device__has_one_library_a_model(jax, giou, build):
    numbers = build("api").numbers
    program = jax.jit(lambda a, b: (giou(a, b), numbers(a[0], 1, 2, 3)))
    text = program.lower(BOXES, OTHERS).as_text()
    assert np.array_equal(run_linked(text, [BOXES, OTHERS])[0], giou(BOXES, OTHERS))
    with pytest.raises(SeveralLibraries, match=r"'gpsimd_call' runs .*libapi.* one of .*libgiou.so") as caught:
        simulate_linked(text, [BOXES, OTHERS])
    assert "@AwsNeuronCustomOp" in text.split("\n")[caught.value.at.line - 1]


def test_library__the_graphs_build_goes_before_a_newer_one(tmp_path):
    (tmp_path / "shape.cpp").write_text("""#include "torchneuron/register.h"
torch::Tensor same(torch::Tensor x) { return torch::zeros(x.sizes(), torch::kFloat); }
NEURON_LIBRARY(rebuilt, m) { m.def("times", &same, "times"); }
""")
    x, built = np.ones((4, 4), np.float32), []
    for factor in (2, 3):
        (tmp_path / "times.cpp").write_text("#include <torch/torch.h>\ntorch::Tensor times(const torch::Tensor& x) "
                                            f"{{ return torch::mul(x, {factor}.0); }}\n")
        built.append(customop.load("times", [tmp_path / "times.cpp"], [tmp_path / "shape.cpp"], tmp_path))

    def result(**changes):
        source = graph(((4, 4),), (4, 4), library="rebuilt", operator="times", parameters="T", **changes)
        return run_linked(source, [x])[0][0, 0], simulate_linked(source, [x])[0][0, 0]
    assert callee(built[0].times, (x,)).key != callee(built[1].times, (x,)).key
    assert result(build=built[0].build) == (2, 2)
    assert result(build=built[1].build) == (3, 3)
    assert result(file=str(built[0].path)) == (3, 3)
    assert result() == (3, 3)
