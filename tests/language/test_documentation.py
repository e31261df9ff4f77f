# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``help()`` of instructions says all of them, and its examples compute what NumPy does beside them."""

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from nki_mlir.dialects.op import REGISTRY
from nki_mlir.language.current.errors import NkiValidationError
from nki_mlir.language.documentation.instructions import INSTRUCTIONS
from nki_mlir.language.documentation.page import EXAMPLES_OF
from nki_mlir.language.signatures.table import BETA, CURRENT

PARTS = ("Arguments", "Result", "Errors", "Engine", "Cost", "Example", "Source")
TILE = re.compile(r"(\w+): (\w+)\[([\d, ]+)\](?: in (\w+))?")
VALUE = re.compile(r"((\w+)(?:\[.*?\])?) == (.*)")
CASES = [(generation, name) for generation, examples in EXAMPLES_OF.items() for name in examples]

# Functions that have a sentence and their parameters' kinds only; all others have every part.
SHORT = {
    BETA: {"get_nc_version", "range_select", "tensor_copy_dynamic_dst", "tensor_copy_dynamic_src"},
    CURRENT: {"core_barrier", "get_nc_sub_version", "get_nc_version", "nc_matmul_mx",
              "quantize_mx", "rand2", "rand_get_state", "rand_set_state", "register_alloc", "register_load",
              "register_move", "register_store", "rng", "sendrecv", "set_rng_seed", "tensor_copy_dynamic_dst",
              "tensor_copy_dynamic_src", "topk"}}
# What pages call errors, on tiles x, y [128, 64] and z [64, 32] in SBUF, p in PSUM, i of integers, r [128, 1].
VIOLATIONS = {
    "nisa.activation(dst=y, op=nl.add, data=x)": "is not an activation function",
    "nisa.activation(dst=y, op=nl.exp, data=x, scale=x)": "scale has shape",
    "nisa.tensor_tensor(dst=y, data1=x, data2=z, op=nl.add)": "64 partitions, dst has 128",
    "nisa.tensor_tensor(dst=y, data1=p, data2=p, op=nl.add)": "at most one of lhs and rhs",
    "nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=x)": "operand0 has shape",
    "nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0, operand1=2.0)": "operand1 is given without op1",
    "nisa.tensor_reduce(dst=r, op=nl.add, data=x, axis=0)": "the partition axis cannot be reduced",
    "nisa.tensor_copy(dst=y, src=x_in)": "Expected operand 'src'",
    "nisa.tensor_copy(dst=y, src=p, engine=nisa.engine.gpsimd)": "Expected operand 'src'",
    "nisa.tensor_copy_predicated(dst=y, src=x, predicate=x)": "predicate must be uint8, uint16 or uint32",
    "nisa.memset(dst=i, value=float('inf'))": "takes a finite number",
    "nisa.nc_stream_shuffle(dst=i, src=x, shuffle_mask=[0] * 32)": "they must be equal",
    "nisa.nc_matmul(dst=y, stationary=x, moving=x)": "dst must be in PSUM",
    "nisa.nc_matmul(dst=p, stationary=z, moving=x)": "contracts the partitions",
    "nisa.nc_matmul(dst=p, stationary=i, moving=i)": "cannot be int32",
    "nisa.iota(dst=i, pattern=[[1, 3]])": "has 3 elements, dst 64 per partition",
    "nisa.dma_copy(dst=y, src=z)": "moves 2048 elements",
    "nisa.tensor_scalar_reduce(dst=y, data=x, op0=nl.add, operand0=1.0, reduce_op=nl.subtract)": "is not add, multiply",
    "nisa.tensor_scalar_cumulative(dst=y, src=i, op0=nl.add, op1=nl.add, imm0=1.0)": "cannot be int32",
    "nisa.select_reduce(dst=y, predicate=x, on_true=x, on_false=0.0)": "predicate must be an integer of 8 or 16 bits",
    "nisa.dropout(dst=y, data=x, prob=2.0)": "is no probability",
    "nisa.nc_n_gather(dst=y, data=x, indices=i)": "indices must be uint32",
    "nisa.exponential(dst=y, src=x, reduce_init=1.0)": "an initial value only with reduce_cmd load_reduce",
    "nisa.dma_compute(dst=y, srcs=[x, x], reduce_op=nl.maximum)": "reduce_op",
}


def function(generation, name):
    return getattr(importlib.import_module(f"nki_mlir.language.{generation}.isa"), name)


@pytest.mark.parametrize("generation, name", CASES)
def test_help__has_every_part(generation, name):
    said = inspect.getdoc(function(generation, name))
    sentence, *paragraphs = re.split(rf"\n\n(?=(?:{'|'.join(PARTS)}):\n)", said)
    assert sentence and [p.split(":")[0] for p in paragraphs] == list(PARTS)
    assert all(p.split("\n")[1].strip() for p in paragraphs)
    arguments = re.findall(r"^    (\w+): \S", paragraphs[0], re.MULTILINE)
    wanted = list(inspect.signature(function(generation, name)).parameters)
    assert arguments == wanted
    assert f"nki.isa.{name}" in paragraphs[-1]


@pytest.mark.parametrize("generation", EXAMPLES_OF)
def test_help__is_whole_but_for_these(generation):
    module = importlib.import_module(f"nki_mlir.language.{generation}.isa")
    public = {n for n, value in vars(module).items() if hasattr(value, "record")}
    whole = set(EXAMPLES_OF[generation])
    assert public - whole == SHORT[generation] and whole <= INSTRUCTIONS.keys()


def parts(text):
    """The tiles of an example, its code, and what its results are."""
    tiles, code, values = {}, [], []
    for line in textwrap.dedent(text).strip().splitlines():
        if found := TILE.fullmatch(line):
            label, dtype, shape, space = found.groups()
            tiles[label] = dtype, tuple(int(n) for n in shape.split(",")), space or "sbuf"
        elif found := VALUE.fullmatch(line):
            values.append(found.groups())
        else:
            code.append(line)
    return tiles, code, values


def kernel(generation, tiles, code, results, path):
    """A kernel of the example: tiles are loaded in front of it, and results stored behind."""
    current, body = generation == CURRENT, []
    given = [t for t, (_, _, space) in tiles.items() if space != "psum"]
    for label, (dtype, shape, space) in tiles.items():
        if space == "hbm":
            body.append(f"{label} = {label}_in")
        elif not current and space == "sbuf":
            body.append(f"{label} = nl.load({label}_in)")
        elif current:
            body.append(f"{label} = nl.ndarray({shape}, dtype=nl.{dtype}, buffer=nl.{space})")
            body += [f"nisa.dma_copy(dst={label}, src={label}_in)"] if space == "sbuf" else []
    body += code
    for label in results:
        dtype, shape, space = tiles[label]
        body.append(f"{label}_out = nl.ndarray({shape}, dtype=nl.{dtype}, buffer=nl.shared_hbm)")
        if not current:
            body.append(f"nl.store({label}_out, {label})")
            continue
        if space == "psum":
            body += [f"{label}_held = nl.ndarray({shape}, dtype=nl.{dtype}, buffer=nl.sbuf)",
                     f"nisa.tensor_copy(dst={label}_held, src={label})"]
        body.append(f"nisa.dma_copy(dst={label}_out, src={label}{'_held' if space == 'psum' else ''})")
    body.append(f"return {', '.join(f'{label}_out' for label in results)}")
    return source(generation, given, body, path), given


def source(generation, given, body, path):
    """The module that has the kernel; an operation's line is its own."""
    lines = [f"from nki_mlir.language.{generation} import isa as nisa, language as nl, nki", "", "",
             f"def example({', '.join(f'{t}_in' for t in given)}):", textwrap.indent("\n".join(body), "    ")]
    (path / "example.py").write_text("\n".join(lines) + "\n")
    spec = importlib.util.spec_from_file_location("example", path / "example.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("generation, name", CASES)
def test_example__computes_what_it_says(generation, name, tmp_path):
    tiles, code, values = parts(EXAMPLES_OF[generation][name])
    assert any(f"nisa.{name}(" in line for line in code) and values
    results = list(dict.fromkeys(label for _, label, _ in values))
    module, given = kernel(generation, tiles, code, results, tmp_path)
    random = np.random.default_rng(1)
    held = {t: (random.standard_normal(shape) if dtype.startswith("float") else random.integers(0, 8, shape)
                ).astype(dtype) for t, (dtype, shape, _) in tiles.items()}
    target = "trn3" if any(REGISTRY[f"nisa.{op}"].since > 3 for op in INSTRUCTIONS[name].ops) else "trn2"
    options = {"platform_target": target} if generation == CURRENT else {}
    made = module.nki.jit(module.example, mode="simulation", **options)(*(held[t] for t in given))
    made = dict(zip(results, made if isinstance(made, (tuple, list)) else [made]))
    for left, _, expression in values:
        got = eval(left, {}, {t: np.asarray(v) for t, v in made.items()})
        expected = eval(expression, {"np": np}, held)
        assert np.shape(got) == np.shape(expected)
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("call", VIOLATIONS)
def test_error__is_one_as_the_page_says(call, tmp_path):
    spaces = {"x": "[128, 64] sbuf float32", "y": "[128, 64] sbuf float32", "z": "[64, 32] sbuf float32",
              "p": "[128, 64] psum float32", "i": "[128, 64] sbuf int32", "r": "[128, 1] sbuf float32"}
    body = []
    for label, text in spaces.items():
        shape, space, dtype = text.rsplit(" ", 2)
        body += [f"{label} = nl.ndarray({shape}, dtype=nl.{dtype}, buffer=nl.{space})",
                 f"nisa.memset(dst={label}, value=0)"]
    module = source(CURRENT, ["x"], [*body, call, "return x_in"], tmp_path)
    with pytest.raises(NkiValidationError) as caught:
        module.nki.jit(module.example, mode="simulation")(np.ones((128, 64), np.float32))
    assert VIOLATIONS[call] in str(caught.value) and call in str(caught.value)


def test_documentation__is_read_when_it_is_asked_for():
    code = ("import sys, nki_mlir.language.current.isa as i\n"
            "assert not [m for m in sys.modules if m.startswith('nki_mlir.language.documentation')]\n"
            "assert 'Example:' in __import__('inspect').getdoc(i.activation)")
    subprocess.run([sys.executable, "-c", code], check=True)
