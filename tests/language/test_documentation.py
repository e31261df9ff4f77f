# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``help()`` of functions says all of them, and its examples compute what NumPy does beside them."""

import importlib
import inspect
import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from scipy import special

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.documentation.page import (
    EXAMPLES,
    LANGUAGE,
    PAGES,
    TENSOR,
    argument,
    example,
    sentence,
    values,
)
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.language.signatures.table import BETA, CURRENT, names_of

from ..conversion.nisa_level import instructions, lower
from .example_kernels import HOMES, example_of, home_of, public, source

PARTS = ("Arguments", "Result", "Errors", "Engine", "Cost", "Example", "Source")
FUNCTIONS = {"erf": special.erf, "expit": special.expit, "ndtr": special.ndtr}


CASES = [(generation, module, name) for module, generation in EXAMPLES for name in public(module, generation)
         if example(module, name, generation)]
OF_MODULES = [(module, generation) for module, generation in EXAMPLES if module != TENSOR]
VALUES = [(generation, module, name) for module, generation in OF_MODULES for name in values(module, generation)]

# What pages call errors, on tiles x, y [128, 64] and z [64, 32] in SBUF, p in PSUM, i of integers, r [128, 1].
VIOLATIONS = {
    "nisa.activation(dst=y, op=nl.add, data=x)": "is not an activation function",
    "nisa.activation(dst=y, op=nl.exp, data=x, scale=x)": "the scale of an activation has shape",
    "nisa.tensor_tensor(dst=y, data1=x, data2=z, op=nl.add)": "64 partitions, dst has 128",
    "nisa.tensor_tensor(dst=y, data1=p, data2=p, op=nl.add)": "at most one of data1 and data2",
    "nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=x)": "64 values in each partition",
    "nisa.tensor_scalar(dst=y, data=x, op0=nl.add, operand0=1.0, operand1=2.0)": "has no op1",
    "nisa.tensor_reduce(dst=r, op=nl.add, data=x, axis=0)": "axis 0 is the partition axis",
    "nisa.tensor_copy(dst=y, src=x_in)": "Expected operand 'src'",
    "nisa.tensor_copy(dst=y, src=p, engine=nisa.engine.gpsimd)": "Expected operand 'src'",
    "nisa.tensor_copy_predicated(dst=y, src=x, predicate=x)": "it must have uint8, uint16, uint32",
    "nisa.memset(dst=i, value=float('inf'))": "takes a finite number",
    "nisa.nc_stream_shuffle(dst=i, src=x, shuffle_mask=[0] * 32)": "have the same dtype and free shape",
    "nisa.nc_matmul(dst=y, stationary=x, moving=x)": "address space 'psum', but got a tile in 'sbuf'",
    "nisa.nc_matmul(dst=p, stationary=z, moving=x)": "contracts axis 0 of both operands, got [64, 32] and [128, 64]",
    "nisa.nc_matmul(dst=p[0:64], stationary=i, moving=i)": "has dtype int32, which must be a float type",
    "nisa.iota(dst=i, pattern=[[1, 3]])": "has 3 elements, dst 64 per partition",
    "nisa.dma_copy(dst=y, src=z)": "moves 2048 elements",
    "nisa.tensor_scalar_reduce(dst=y, data=x, op0=nl.add, operand0=1.0, reduce_op=nl.subtract)": "reduces by add, multiply, maximum, minimum, got subtract",
    "nisa.tensor_scalar_cumulative(dst=y, src=i, op0=nl.add, op1=nl.add, imm0=1.0)": "cannot be int32",
    "nisa.select_reduce(dst=y, predicate=x, on_true=x, on_false=0.0)": "it must have int8, uint8, int16, uint16, bool",
    "nisa.dropout(dst=y, data=x, prob=2.0)": "the probability of dropout must be from 0 to 1, got 2.0",
    "nisa.nc_n_gather(dst=y, data=x, indices=i)": "has dtype int32, which must be uint32",
    "nisa.exponential(dst=y, src=x, reduce_init=1.0)": "an initial value only with reduce_cmd load_reduce",
    "nisa.dma_compute(dst=y, srcs=[x, x], reduce_op=nl.maximum)": "reduce_op",
    "nisa.core_barrier(data=o, cores=(0, 1))": "the launch has 1",
    "nisa.sendrecv(src=x, dst=z, send_to_rank=0, recv_from_rank=0, pipe_id=0)": "sendrecv src has 128 partitions, dst has ",
    "nisa.sendrecv(src=x, dst=y, send_to_rank=1, recv_from_rank=1, pipe_id=0)": "needs a launch of 2 cores",
    "nisa.quantize_mx(dst=x, src=x, dst_scale=i)": "must be a packed type",
    "nisa.nc_matmul_mx(dst=p, stationary=x, moving=x, stationary_scale=i, moving_scale=i)": "must be a packed type",
    "nisa.topk(val_dst=x, idx_dst=i, src=x, n=64)": "must be bfloat16",
    "nisa.rng(dst=y)": "must be an integer type", "nisa.rand2(dst=y, min=1.0, max=0.0)": "min < max",
    "nisa.set_rng_seed(src_seeds=x)": "the seed must be a single value",
    "nisa.rand_get_state(dst=i)": "it must have uint32", "nisa.rand_set_state(src_seeds=i)": "it must have uint32",
    "nisa.register_alloc(x)": "must be one element", "nisa.register_move(3, 4)": "expecting 'register'",
    "nisa.register_load(nisa.register_alloc(), x)": "must be one element",
    "nisa.register_store(r[0:1, 0:1], 3)": "expecting 'register'",
}
# The same of views, and of collectives.
GROUP = "ncc.ReplicaGroup([[0]])"
VIOLATIONS |= {
    "x.slice(1, 0, 65)": "out of range", "x.slice(1, 4, 4)": "out of range", "x.select(1, 64)": "out of range",
    "x.vector_select(0, i)": "needs a tensor in HBM", "x_in.vector_select(1, i)": "takes dimension 0",
    "x.permute((1, 0))": "moves the partition", "x.permute((0, 0))": "is not a permutation", "x.broadcast(1, 4)": "does not broadcast",
    "x[0:1, :].broadcast(0, 4)": "cannot be broadcast", "x.expand_dim(0)": "is the partition",
    "x.squeeze_dim(1)": "more than one element", "x.reshape_dim(1, (3, 4))": "does not split", "x.flatten_dims(0, 1)": "is the partition",
    "x.reshape_dim(0, (2, 64))": "is the partition", "t[:, :, 0:2].flatten_dims(1, 2)": "are not contiguous",
    "x_in.reshape((128, 63))": "elements", "t[:, :, 0:2].reshape((128, 8))": "needs a copy",
    "x.reshape((128, 65))": "elements", "x.rearrange(('p', 'a'), ('p', 'b'))": "does not name the dimensions",
    "x[:, 0:3].view(nl.uint8)[:, 0:6].view(nl.float32)": "cannot be read as float32",
    "x.view(nl.uint8)[:, 2:6].view(nl.float32)": "are not aligned for float32",
    "nl.copy(x.ap([[64, 128], [1, 65]], offset=8))": "index overflow", "x_in.indirect(i)": "needs a tensor on chip",
    "x.ap([[64, 128], [1, 4]], scalar_offset=r[0:1, 0:1], vector_offset=i)": "only one of",
    "ncc.all_reduce([x], [y], None, nl.add)": "expecting 'ReplicaGroup'",
    f"ncc.all_reduce([x], [y, p], {GROUP}, nl.add)": "has 1 srcs and 2 dsts",
    f"ncc.all_reduce([x], [y], {GROUP}, nl.multiply)": "'multiply', which must be one of add, minimum, maximum",
    "ncc.collective_permute([x], [y], [(0, 0)])": "tensors in HBM",
    f"ncc.all_gather_v([x], [y], {GROUP}, i)": "tensors in HBM", f"ncc.all_to_all([x], [y], {GROUP}, 0)": "tensors in HBM",
    f"ncc.collective_permute_implicit_current_processing_rank_id(1, {GROUP}, 7)": "is none of",
}
# The same of the language, of the beta and of the current generation; "": no error.
SHAPES, HBM = ("does not broadcast to", "does not broadcast to"), ("Expected operand", "Expected operand")
LANGUAGE_VIOLATIONS = {
    "nl.add(x, z)": ("add: shapes", "takes tiles of the same shape"), "nl.add(x_in, x)": HBM, "nl.exp(x_in)": HBM,
    "nl.where(x, z, y)": ("where: shapes", "where: shapes"), "nl.copy(x_in)": HBM,
    **dict.fromkeys(["nl.bitwise_and(x, i)", "nl.invert(x)"], ("must be an integer type", "must be an integer type")),
    **{f"nl.{n}(x, axis=0)": ("axis 0 is the partition axis", "axis 0 is the partition axis")
       for n in ("sum", "mean", "var", "all", "softmax")},
    "nl.sum(t, axis=1)": ("", "the last contiguous free axes"),
    "nl.rms_norm(x, y, axis=0, n=64)": ("axis 0 is the partition axis", "axis 0 is the partition axis"),
    "nl.dropout(x, 2.0)": ("the probability of dropout must be from 0 to 1, got 2.0", "the probability of dropout must be from 0 to 1, got 2.0"),
    "nl.gather_flattened(x_in, i)": ("Expected operand", "Expected operand"),
    "nl.gather_flattened(x, x)": ("must be uint32 or int32", "must be uint32 or int32"),
    "nl.matmul(x, y)": ("contracts axis 1 of x with axis 0 of y",) * 2,
    "nl.transpose(t)": ("at most 2 dimensions", "at most 2 dimensions"),
    "nl.load(x)": HBM, "nl.store(x, x)": HBM,
    "nl.store(o, z)": ("the destination of 'store' has shape", "moves 2048 elements"),
    "nl.load(nl.ndarray((256, 4), dtype=nl.float32, buffer=nl.private_hbm))": ("number of partitions 256", "256 exceeds"),
    "nl.load_transpose2d(x)": HBM,
    "nl.broadcast_to(x, shape=(128, 32))": SHAPES, "nl.broadcast_to(r, shape=(128, 2, 32))": SHAPES,
    "nl.expand_dims(x, 5)": ("axis 5", "dimension 5"), "nl.expand_dims(x, 0)": ("", "is the partition"),
    **{f"nl.{n}((0, 4), dtype=nl.float32)": ("an empty dimension", "an empty dimension")
       for n in ("ndarray", "zeros", "ones")},
    "nl.ndarray((256, 4), dtype=nl.float32)": ("number of partitions 256", ""),
    "nl.rand((1.5, 4), dtype=nl.float32)": ("which must be an integer", "expecting 'integer'"),
    "nl.zeros((128, 4), dtype=nl.float32, buffer=nl.hbm)": ("created with an initial value", ""),
    "nl.full((128, 4), 1.0, dtype=nl.float32, buffer=nl.hbm)": ("created with an initial value", ""),
    "nl.zeros_like(x, buffer=nl.hbm)": ("created with an initial value", ""),
    "nl.empty_like(x, buffer='no')": ("is not a buffer", "expecting 'buffer type'"),
    "nl.random_seed(x)": ("the seed must be a single value", "the seed must be a single value"),
    "nl.shared_constant(x)": ("takes an array of numbers", "takes an array of the host"),
    "nl.shared_identity_matrix(0)": ("takes a positive integer", "has 1 to 128 rows"),
    "nl.copy(x[:, nl.ds(60, 16)])": ("Out-of-bound access", "out of range"),
    **{f"list(nl.{n}(2.5))": ("is a bound of a loop", "expecting 'integer'")
       for n in ("affine_range", "sequential_range", "static_range")},
    **{f"list(nl.{n}(0, 4, 0))": ("the step of a loop cannot be 0", "step cannot be zero")
       for n in ("affine_range", "sequential_range", "static_range")},
    "nl.arange()": ("without bounds", ""), "nl.fori_loop(0, 4, lambda i: 3)": ("", "must return None"),
    "nl.while_loop(nisa.register_alloc(1), lambda i: 3)": ("", "must return the next condition"),
    "nl.program_id(1)": ("has no axis 1", ""), "nl.num_programs(1)": ("has no axis 1", ""),
    "nl.device_print(3, x)": ("takes a string", "expecting 'string'"),
    "nl.is_sbuf('no')": ("", "expecting 'buffer type'"), "nl.arange(1, 2, 3)": ("takes no step", ""),
    "nl.static_cast(1, 'no')": ("is not an element type", ""), "nl.loop_reduce(x, 3, [])": ("is not an ALU operator", ""),
    "nl.atomic_rmw(o, x, op=np.add)": ("indexed by a tile", ""),
    "nl.all_reduce(x, op=nl.add, program_axes=[0])": ("has no axis 0", ""),
}


@pytest.mark.parametrize("generation, module, name", CASES)
def test_help__has_every_part(generation, module, name):
    function, ops = public(module, generation)[name], PAGES[module, generation][name].ops
    sentence, *paragraphs = re.split(rf"\n\n(?=(?:{'|'.join(PARTS)}):\n)", inspect.getdoc(function))
    assert sentence and [p.split(":")[0] for p in paragraphs] == [
        p for p in PARTS if ops or p not in ("Engine", "Cost")]
    assert all(p.split("\n")[1].strip() for p in paragraphs)
    arguments = re.findall(r"^    (\w+): \S", paragraphs[0], re.MULTILINE)
    assert arguments == [n for n in inspect.signature(function).parameters if n != "self"]
    assert f"{function.record.name}, NKI API reference, releases 2." in paragraphs[-1]
    costs = "".join(p for p in paragraphs if p.startswith("Cost:"))
    assert bool(ops) == bool(costs) and not re.search(r"Work\(|self|return|raise| = |None", costs)


def test_help__has_the_laws_that_work_chooses_from():
    costs = inspect.getdoc(public("nki.isa", "current")["tensor_scalar"]).partition("Cost:\n")[2].splitlines()
    assert costs[0] == ("    The engine takes time for each element of dst, which depends on the dtypes and memories of the "
                        "tiles; the operators nl.rsqrt and nl.power are slower.")
    assert [line.partition(",")[0] for line in costs[1:4]] == [
        "    roots on vector", "    roots on gpsimd", "    tensor_scalar on vector"]


def test_help__leaves_out_laws_of_operators_that_the_function_does_not_have():
    negative, power = (inspect.getdoc(public("nki.language", "current")[name]) for name in ("negative", "power"))
    assert "roots on" not in negative and "tensor_scalar on vector, cycles" in negative
    assert "roots on vector, cycles" in power


def test_help__has_the_law_whose_name_work_builds():
    lines = inspect.getdoc(public("nki.isa", "current")["activation"]).partition("Cost:\n")[2].splitlines()
    assert any(line.startswith("    activation on scalar, ") for line in lines)


@pytest.mark.parametrize("module, generation", EXAMPLES)
def test_help__is_whole_for_every_function(module, generation):
    names = {n for g, m, n in CASES if (m, g) == (module, generation)}
    assert public(module, generation).keys() == names <= PAGES[module, generation].keys()


@pytest.mark.parametrize("module, generation", OF_MODULES)
def test_dir__has_the_public_names_alone(module, generation):
    home = home_of(module, generation)
    assert {*names_of(module, generation)} & vars(home).keys() <= {*dir(home)}
    assert not [n for n in dir(home) if n.startswith("_") or inspect.ismodule(getattr(home, n))]


@pytest.mark.parametrize("generation, module, name", VALUES)
def test_help_of_a_module__has_a_sentence_about_every_other_name(generation, module, name):
    home = home_of(module, generation)
    text = sentence(name, getattr(home, name))
    assert len(text.split()) > 1 or text.startswith(("nisa.", "nl."))
    assert f"    {name}: {text}\n" in inspect.getdoc(home)
    assert textwrap.indent(example(module, name, generation).split("\n")[0], "    ") in inspect.getdoc(home)


@pytest.mark.parametrize("generation, module, name", CASES + VALUES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_example__computes_what_it_says(generation, module, name):
    shown = example_of(module, name, generation)
    assert shown.values and re.search(rf"\b({'|'.join(HOMES)}|x|\))\.{name}\b", example(module, name, generation))
    got = shown.run("eager")
    got = {t: np.stack([g[t] for g in got]) if shown.ranks else got[0][t] for t in shown.results}
    for part, _, expression in shown.values:
        value, expected = eval(part, shown.contents, got), eval(expression, {"np": np, **FUNCTIONS, **shown.contents})
        assert np.shape(value) == np.shape(expected)
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)
    page = PAGES[module, generation].get(name)
    if page and page.ops:
        kernel = shown.kernel()
        spec = kernel.specialize(kernel.bind(shown.arrays, {}, is_array, describe_array))
        emitted = {op.name.removeprefix("nisa.") for op in instructions(lower(spec.modules[0]))}
        called = re.findall(r"\b(nl|nisa|ncc)\.(\w+)\(", "\n".join(shown.code))
        pages = [PAGES.get((HOMES[m], generation), {}).get(n) for m, n in called]
        documented = {op for called_page in pages if called_page for op in called_page.ops}
        assert emitted <= {*documented, "dma_copy", "tensor_copy", "memset"} and emitted & set(page.ops)
        if module == LANGUAGE:                                      # whose pages list no alternatives but this
            assert set(page.ops) - emitted <= {"tensor_scalar"}     # of a pair where one is a number


def violated(generation, call):
    """The error of a call in a kernel."""
    spaces = {"x": "[128, 64] sbuf float32", "y": "[128, 64] sbuf float32", "z": "[64, 32] sbuf float32",
              "p": "[128, 64] psum float32", "i": "[128, 64] sbuf int32", "r": "[128, 1] sbuf float32",
              "t": "[128, 4, 4] sbuf float32"}
    body = []
    for label, text in spaces.items():
        shape, space, dtype = text.rsplit(" ", 2)
        body.append(f"{label} = nl.zeros({shape}, dtype=nl.{dtype}, buffer=nl.{space})")
    body += ["o = nl.ndarray([128, 64], dtype=nl.float32, buffer=nl.shared_hbm)", "nl.store(o, x)", call, "return o"]
    module = source(generation, ["x"], body)
    with pytest.raises(NkiMlirError) as caught:
        module.nki.jit(module.example, mode="simulation")(np.ones((128, 64), np.float32))
    assert call in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("call", VIOLATIONS)
def test_error__is_one_as_the_page_says(call, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")           # which has all instructions
    assert VIOLATIONS[call] in violated(CURRENT, call)


@pytest.mark.parametrize("generation, at", [(BETA, 0), (CURRENT, 1)])
@pytest.mark.parametrize("call", LANGUAGE_VIOLATIONS)
def test_error_of_the_language__is_one_as_the_page_says(generation, at, call):
    text = LANGUAGE_VIOLATIONS[call][at]
    if text:
        assert text in violated(generation, call)


def test_documentation__is_read_when_it_is_asked_for():
    code = ("import sys, nki_mlir.language.current.isa as i\n"
            "assert not [m for m in sys.modules if m.startswith('nki_mlir.language.documentation')]\n"
            "assert 'Example:' in __import__('inspect').getdoc(i.activation)\n"
            "assert 'reduce_cmd: ' in __import__('inspect').getdoc(i)")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module, first", [
    ("current.language", "``nki.language`` (``nl``): tensors, dtypes, loops and functions on tiles."),
    ("current.isa", "``nki.isa`` (``nisa``): one function per engine instruction, which writes its first argument."),
    ("beta.language", "``neuronxcc.nki.language`` (``nl``): the tile language of the beta generation.")])
def test_help_of_a_module__begins_with_what_it_is_and_has_its_names(module, first):
    text = inspect.getdoc(importlib.import_module(f"nki_mlir.language.{module}"))
    assert text.startswith(first) and "Other names:" in text and "Examples:" in text


@pytest.mark.parametrize("kind, takes, phrase", [
    ("a tile", "[P, F]", "a tile [P, F]"), ("a tile", "in SBUF", "a tile in SBUF"),
    ("a tile", "a tile or a number", "a tile or a number"), ("a tile", "the operand", "a tile; the operand"),
    ("a dtype", "the dtype of the result", "the dtype of the result"), ("a dtype", "of the result", "a dtype; of the result"),
    ("True or False", "True to wait", "True to wait"), ("True or False", "whether to wait", "True or False; whether to wait"),
    ("a tuple of integers", "two integers", "two integers"), ("a tuple of integers", "the shape", "a tuple of integers; the shape"),
    ("an integer", "the axis", "an integer; the axis"), ("an integer", "an integer from 0", "an integer from 0"),
    ("an operator", "of the integers", "an operator; of the integers"), ("an operator", "", "an operator"), ("", "any", "any")])
def test_argument__names_its_kind_once(kind, takes, phrase):
    assert argument(kind, takes) == phrase
