# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Graphs with their kernels as one program: instruction streams on the simulator, fused loops on the CPU, against JAX."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from nki_mlir.bindings import ir  # noqa: E402
from nki_mlir.conversion.stablehlo_to_linalg import StablehloToLinalg  # noqa: E402
from nki_mlir.diagnostics import Unsupported  # noqa: E402
from nki_mlir.frameworks.stablehlo import LinkedProgram, run_linked, simulate_linked  # noqa: E402
from nki_mlir.graph.upstream import graph_context  # noqa: E402
from nki_mlir.transforms.fuse_graph import FuseGraph  # noqa: E402
from nki_mlir.transforms.fuse_tiles import FuseTiles  # noqa: E402

from ..random_graphs import kernels as random_kernels  # noqa: E402
from . import kernels  # noqa: E402
from .versions import enable_x64  # noqa: E402

pytestmark = pytest.mark.jax

A = np.random.default_rng(0).standard_normal((32, 16)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((32, 16)).astype(np.float32)
C = np.random.default_rng(2).standard_normal((200, 300)).astype(np.float32)


def part(rows, columns, first=0):
    return np.ascontiguousarray(C[first:first + rows, :columns])


def lowered(function, *arguments):
    return jax.jit(function).lower(*arguments).as_text()


def same(got, expected, tolerance):
    assert len(got) == len(expected)
    for one, other in zip(got, expected):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one.astype(np.float64), np.asarray(other).astype(np.float64), rtol=tolerance,
                                   atol=tolerance)


def agrees(function, *arguments, tolerance=1e-4):
    """Both programs give what JAX gives."""
    expected = jax.tree_util.tree_leaves(jax.jit(function)(*arguments))
    text, arrays = lowered(function, *arguments), [np.asarray(a) for a in jax.tree_util.tree_leaves(arguments)]
    same(simulate_linked(text, arrays), expected, tolerance)
    program = LinkedProgram(text)
    assert program.is_one_program
    same(program(*arrays), expected, tolerance)


def test_an_output_that_no_iteration_writes():
    from nki_mlir.dialects.nisa.require_written import OutputNotWritten
    none, one = (np.array([[n]], np.int32) for n in (0, 1))
    graph = jax.jit(lambda a, n: kernels.copied_times(a, n) + 1)
    np.testing.assert_array_equal(graph(A, one), A + 1)
    with pytest.raises(Exception, match="the output out is never written: no iteration of the loop"):
        jax.block_until_ready(graph(A, none))
    for on in ("", "isa"):
        program = LinkedProgram(graph.lower(A, none).as_text(), on)
        assert program.is_one_program
        np.testing.assert_array_equal(program(A, one)[0], A + 1)
        with pytest.raises(OutputNotWritten, match="the output out is never written: no iteration of the loop"):
            program(A, none)


EDGES = np.float32([[0, 1, -1, 0.5, -2.5, 3.7, 0.49999997, np.inf, -np.inf, np.nan, 1e30, 8388609]])


@pytest.mark.share(4)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["sign", "is_finite", "abs", "floor", "ceil", "round", "eq", "ne", "lt", "le", "gt", "ge"])
def test_edge_values(name, dtype):
    """Compares of every kind: ordered, unordered, negated."""
    function, a = getattr(jax.lax, name), EDGES.astype(jnp.dtype(dtype))
    agrees(function, *((a,) if name in ("sign", "is_finite", "abs", "floor", "ceil", "round")
                       else map(np.ascontiguousarray, np.broadcast_arrays(a, a.T))), tolerance=0)


@pytest.mark.share(4)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int16", "uint16", "int8", "uint8"])
@pytest.mark.parametrize("of", ["float32", "bfloat16", "float16"])
def test_conversions_to_integers_saturate(of, dtype):
    values = [0, -0.7, 126.6, 127.5, 128, -128.9, -129, 255.9, 256, 300, -300, 70000, -70000, 2147483648., -2147483904.,
              3e9, 4.2e9, 5e9, -1, 1e30, -1e30, np.inf, -np.inf, np.nan]
    a = np.array([values], np.float32).astype(jnp.dtype(of))
    agrees(lambda a: a.astype(dtype), a, tolerance=0)
    program = LinkedProgram(lowered(lambda a: (a.astype(dtype), jnp.sort(a, 1)), a))
    assert not program.is_one_program
    np.testing.assert_array_equal(program(a)[0], jax.jit(lambda a: a.astype(dtype))(a))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_around_calls__are_rounded_once(dtype):
    """Products, convolutions and sums of integers, whose float32 sums are exact, in a graph that calls its kernels."""
    kind, rng = jnp.dtype(dtype), np.random.default_rng(5)
    a, b = (rng.integers(-9, 10, shape).astype(kind) for shape in ((17, 3, 200), (17, 200, 6)))

    def graph(a, b):
        window = jax.lax.conv_general_dilated(a, b[:3, :, :3].transpose(0, 2, 1)[:, :, :5], (1,), "SAME")
        return jnp.einsum("bik,bkj->bij", a, b), jax.lax.reduce(a, kind.type(0), jax.lax.add, (2,)), window, jnp.sort(a[0, 0])
    program = LinkedProgram(lowered(graph, a, b))
    assert not program.is_one_program
    product, total, window, _ = program(a, b)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_array_equal(product, np.einsum("bik,bkj->bij", wide_a, wide_b).astype(kind))
    np.testing.assert_array_equal(total, wide_a.sum(2).astype(kind))
    exact = jax.lax.conv_general_dilated(a.astype(np.float32), b[:3, :, :3].transpose(0, 2, 1)[:, :, :5].astype(np.float32),
                                         (1,), "SAME")
    np.testing.assert_array_equal(window, np.asarray(exact).astype(kind))


def test_bfloat16_around_calls__rounds_as_numpy_on_every_host():
    """The graph that calls its kernels: neither a function of the host nor its instruction rounds, which flushes denormals."""
    bits = np.random.default_rng(3).integers(0, 2**32, 4096, np.uint64).astype(np.uint32)
    bits[:12] = [0, 1, 0x8000, 0x18000, 0x7F800000, 0x7FC00001, 0x7F7FFFFF, 0xFF7F8000, 0x3F808000, 0x3F818000, 0x80000001, 0x807FFFFF]
    x, bfloat16 = bits.view(np.float32), jnp.bfloat16
    integers = np.arange(-2**31, 2**31, 2**20 + 77, np.int64).astype(np.int32)

    def graph(x, n, yes):
        narrow = x.astype(bfloat16)
        finite = jnp.where(jnp.abs(narrow) < 1e6, narrow, bfloat16(1))
        return (narrow, narrow.astype(jnp.float32), jnp.where(yes, narrow, -narrow), n.astype(bfloat16), jnp.sort(x),
                narrow.reshape(64, 64).T, jnp.pad(narrow, (3, 5)), jnp.max(jnp.where(narrow == narrow, narrow, 0)),
                jnp.sqrt(jnp.abs(finite)), jnp.floor(finite), finite + finite[::-1], jnp.exp(-jnp.abs(finite)))
    yes = np.arange(4096) % 3 == 0
    program = LinkedProgram(lowered(graph, x, integers, yes))
    assert not program.is_one_program
    got = program(x, integers, yes)
    with np.errstate(all="ignore"):
        narrow = x.astype(bfloat16)
        finite = np.where(np.abs(narrow) < 1e6, narrow, np.array(1, bfloat16))
        expected = [narrow, narrow.astype(np.float32), np.where(yes, narrow, -narrow), integers.astype(np.float32).astype(bfloat16),
                    np.sort(x), narrow.reshape(64, 64).T, np.pad(narrow, (3, 5)),
                    np.max(np.where(narrow == narrow, narrow, np.array(0, bfloat16))),
                    np.sqrt(np.abs(finite)), np.floor(finite), finite + finite[::-1]]
    for one, other in zip(got, expected):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.astype(np.float64), other.astype(np.float64))
    # of bfloat16, which is rounded once
    np.testing.assert_allclose(got[-1].astype(np.float32), np.exp(-np.abs(finite.astype(np.float32))), rtol=2**-8, atol=1e-38)


@pytest.mark.parametrize("count", [1, 2, 130])
def test_rows_that_are_taken_by_computed_numbers(count):
    """With the rule that rows out of bounds are NaN: the numbers are read by what tests them and by the gather."""
    numbers = np.arange(count, dtype=np.int32) * 5 % 11 - 3
    program = LinkedProgram(lowered(lambda a, n: jnp.take(a, jnp.abs(n) % 7, axis=0), A, numbers), "isa")
    same(program(A, numbers), [A[np.abs(numbers) % 7]], 0)


@pytest.mark.parametrize("on", ["cpu", "isa"])
def test_expressions_that_are_deep_and_use_values_twice(on):
    """As trees they have 2^100 operations."""
    def graph(a, numbers):
        for level in range(100):
            a, numbers = 0.5 * jnp.maximum(a * a, 0.5 - a), (numbers + (numbers ^ level)) & 1023
        return a, numbers
    numbers = np.arange(-48, 48, dtype=np.int32).reshape(8, 12)
    part_of_a = np.clip(part(8, 12), -1, 1)
    wanted, wanted_numbers = part_of_a, numbers
    for level in range(100):
        wanted = np.float32(0.5) * np.maximum(wanted * wanted, np.float32(0.5) - wanted)
        wanted_numbers = (wanted_numbers + (wanted_numbers ^ level)) & 1023
    program = LinkedProgram(lowered(graph, part_of_a, numbers), on)
    same(program(part_of_a, numbers), [wanted, wanted_numbers], 0)


def test_functions_of_functions_are_deep():
    """250 functions one of the other, in a value and below a sum."""
    def graph(a, b):
        value = scaled = a
        for _ in range(250):
            value, scaled = jnp.tanh(value), jnp.tanh(scaled) * b
        return value + b, scaled.sum(1)
    agrees(graph, part(8, 12), part(8, 12, 8), tolerance=1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_products_and_sums_of_16_bits__are_rounded_once(dtype):
    """Sums that are rounded after each addition miss by 5% of the largest element here."""
    numbers = np.random.default_rng(7).standard_normal((16, 512), np.float32).astype(dtype)
    a, b, ones = numbers[:5], np.ascontiguousarray(numbers[5:12].T), np.ones((2, 512), np.float32).astype(dtype)
    a[1, 3], a[2, 5], a[3] = np.inf, np.nan, np.array(-0.0, dtype)
    sharding = {} if jax.__version_info__ < (0, 7) else {"out_sharding": None}      # JAX for Python 3.10 has none
    def graph(a, b, ones):
        convolved = jax.lax.conv(a[None], ones[:, :5, None].repeat(4, 2), (1,), "VALID")
        return a @ b, jax.lax.reduce_sum_p.bind(a, axes=(1,), **sharding), ones @ ones.T, convolved
    program = LinkedProgram(lowered(graph, a, b, ones))
    assert program.is_one_program
    wide, sums = a.astype(np.float64), a.astype(np.float64).sum(0)
    with np.errstate(invalid="ignore"):
        exact = wide @ b.astype(np.float64), wide.sum(1), np.full((2, 2), 512.0), np.broadcast_to(
            sums[:-3] + sums[1:-2] + sums[2:-1] + sums[3:], (1, 2, 509))
    for got, expected in zip(program(a, b, ones), exact):
        assert got.dtype == dtype
        np.testing.assert_allclose(got.astype(np.float64), expected, rtol=1.001 * float(jnp.finfo(dtype).eps) / 2, atol=1e-5)


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint16", "uint8"])
def test_quotients_and_remainders(dtype):
    limits = np.iinfo(dtype)
    a = np.array([0, 1, 2, 3, 7, 100, limits.max, limits.max - 1, limits.min], dtype)
    b = np.array([1, 2, 3, 7, limits.max], dtype)[:, None] + 0 * a
    agrees(lambda a, b: (a // b, a % b, jax.lax.div(a, b), jax.lax.rem(a, b)), np.ascontiguousarray(0 * b + a), b,
           tolerance=0)


def test_logarithms_and_exponentials__are_accurate_near_zero():
    x = np.float32([1e-10, -3e-8, 1e-5, 0.3, -0.0, 88, np.inf])
    program = LinkedProgram(jax.jit(lambda x: (jnp.log1p(x), jnp.expm1(x))).lower(x).as_text())
    assert program.is_one_program
    for got, wanted in zip(program(x), (np.log1p, np.expm1)):
        np.testing.assert_allclose(got, wanted(x.astype(np.float64)).astype(np.float32), rtol=5e-7)
        assert np.signbit(got[4]) and got[4] == 0


def test_functions_of_graphs__are_accurate_on_instruction_streams():
    x = np.float32([1e-10, -3e-8, 1e-5, 0.3, -0.4, -0.9, 1.09, 30, 2.0**22 + 0.5, 2.0**22 + 1.5, -2.5, 2.0**30])
    program = LinkedProgram(jax.jit(lambda x: (jnp.log1p(jnp.maximum(x, -0.95)), jnp.expm1(jnp.minimum(x, 80)), jnp.round(x))).lower(x).as_text(), "isa")
    exact = np.log1p(np.maximum(x, -0.95).astype(np.float64)), np.expm1(np.minimum(x, 80).astype(np.float64)), np.rint(x)
    for got, wanted in zip(program(x), exact):
        np.testing.assert_allclose(got, wanted, rtol=5e-7)


def test_kernels_read_what_was_there_when_they_are_called():
    """Not what the graph later makes in the same buffer."""
    @jax.custom_vjp
    def product(a, b):
        return random_kernels.matmul(a, b)

    product.defvjp(lambda a, b: (product(a, b), (a, b)), lambda kept, d: (product(d, kept[1].T), product(kept[0].T, d)))

    def updated(a):
        doubled = random_kernels.doubled_plus(a, a)
        return jax.lax.dynamic_update_slice(doubled, 0 * a[:2, :4], (0, 0)), random_kernels.halves_swapped(doubled)
    agrees(updated, part(8, 16))
    agrees(jax.grad(lambda a: ((product(a, a.T) @ a) ** 2).sum()), part(33, 4) * 0.3)


def test_graphs_without_operations():
    agrees(lambda a, b: (b, a), A, B[:3])


@pytest.mark.parametrize("function", [
    lambda x: x + 1, lambda x: x.sum(1), lambda x: jnp.concatenate([x, jnp.ones((4, 2))], 1), lambda x: x.T,
    lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y * 2, x)], ids=["sum", "fold", "join", "transpose", "loop"])
def test_float64_without_elements(function):
    """These run around calls of kernels, in functions whose arguments have a dim of 0 behind another one."""
    x = np.zeros((4, 0))
    with enable_x64(True):
        expected, (result,) = np.asarray(function(x)), LinkedProgram(jax.jit(function).lower(x).as_text())(x)
    assert result.dtype == expected.dtype == np.float64 and result.shape == expected.shape
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("function, arguments", [
    (lambda a, b: a @ b.T, (part(7, 1), part(16, 1, 7))), (lambda a: jnp.max(a, 1), (part(12, 5).reshape(12, 1, 5),)),
    (lambda a: a.sum(1), (part(4, 1),)), (lambda a: jnp.min(a, (0, 2)), (part(1, 5).reshape(1, 5, 1),)),
    (lambda a: jnp.max(a, 1), (part(2, 2).astype(jnp.bfloat16),)),
    (lambda a: jnp.argmin(a, 0).astype(jnp.int32), (part(1, 40)[0].astype(jnp.bfloat16),))],
    ids=["product", "max", "sum", "min", "max in bfloat16", "argmin in bfloat16"])
def test_folds_of_one_element_and_folds_that_convert(function, arguments):
    agrees(function, *arguments)


@pytest.mark.parametrize("run", [lambda text, *arrays: LinkedProgram(text)(*arrays),
                                 lambda text, *arrays: simulate_linked(text, list(arrays))], ids=["cpu", "streams"])
def test_folds_of_constants(run):
    """A fold whose extent only its operand gives, where that is the same number everywhere."""
    x = np.arange(15, dtype=np.int32).reshape(5, 3)
    got = run(lowered(lambda x: (jnp.max(jnp.clip(x ^ x, 2, 4), axis=0), jnp.sum(x ^ x) + 1), x), x)
    assert got[0].tolist() == [2, 2, 2] and got[1] == 1


def test_equal_results__around_calls_of_kernels():
    """Sorting has no form of ours, so that upstream passes compile what is around the kernel."""
    def graph(a):
        doubled = kernels.scaled(a, 2.0)
        return doubled[:, 0:1], jnp.sort(doubled, 1), doubled[:, 0:1] + 0, doubled + 1, 1 + doubled
    program = LinkedProgram(lowered(graph, A))
    assert not program.is_one_program
    same(program(A), [A[:, :1] * 2, np.sort(A * 2, 1), A[:, :1] * 2, A * 2 + 1, A * 2 + 1], 0)


def attention(x, wq, wk, wv):
    q, k, v = [(x @ w).reshape(32, 4, 16).transpose(1, 0, 2) for w in (wq, wk, wv)]
    scores = jnp.where(jnp.tril(jnp.ones((32, 32), bool)), jnp.einsum("hqd,hkd->hqk", q, k) / 4, -1e9)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores), v).transpose(1, 0, 2).reshape(32, 64)


def loss(w1, w2, x, y):
    return jnp.mean((jax.nn.gelu(x @ w1) @ w2 - y) ** 2)


@pytest.mark.share(3)
@pytest.mark.parametrize("function, arguments", [
    (lambda a, b: a * b * kernels.add[2](a, b), (A, B)),
    (lambda a, b: kernels.sum_and_difference(a * 2, b), (A, B)),
    (lambda a: jax.nn.softmax(kernels.scaled(jnp.tanh(a), 3.0)).sum(), (A,)),
    (lambda a, b: kernels.add_rows(a, b) + a, (A, B[:8])),
    (lambda a: kernels.lower_triangle(a[:16]), (A,)),
    (lambda a: kernels.first_program_doubles[2](a).T, (A,)),
    (lambda a: kernels.scaled(a.astype(jnp.bfloat16), 2.0) * 3, (A,)),
    (lambda a: kernels.scaled((a * 10).astype(jnp.int32), 2), (A,)),
    (lambda a: kernels.scaled((abs(a) * 10).astype(jnp.uint8), 2) + 1, (A,)),
    (lambda a, b: kernels.product(a @ b, b.T) + 1, (part(32, 40), part(40, 64, 40))),
    (attention, (part(32, 64), *(part(64, 64, 20 + 40 * k) / 8 for k in range(3)))),
    (jax.grad(loss, argnums=(0, 1)), (part(64, 150), part(150, 20), part(33, 64), part(33, 20))),
    (lambda a, b: jax.lax.fori_loop(0, 3, lambda i, x: kernels.add[2](x, b) * i, a), (A, B)),
    (lambda a, b: jax.lax.fori_loop(0, 5, lambda i, x: (x[1], kernels.add[2](x[0], x[1])), (a, b)), (A, B)),
    (lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"),
     (part(16, 256).reshape(1, 4, 32, 32), part(8, 36).reshape(8, 4, 3, 3))),
], ids=lambda value: "" if not callable(value) else str(getattr(value, "__code__", None)
                                                        and value.__code__.co_firstlineno))
def test_graph_and_kernels__are_one_program(function, arguments):
    agrees(function, *arguments)


WIDE = np.random.default_rng(3).standard_normal((130, 2100)).astype(np.float32)


@pytest.mark.share(3)
@pytest.mark.parametrize("function", [
    lambda a: jax.nn.softmax(jnp.tanh(a) * 2), lambda a: jax.nn.softmax(a, 0) + a.sum(1, keepdims=True),
    lambda a: (a - a.mean(1, keepdims=True)) / jnp.sqrt((a * a).mean(1, keepdims=True)) * a[::-1],
    lambda a: jax.lax.fori_loop(0, 2, lambda i, x: x * 0.5 + x.sum(0) * 0.01 + x[::-1, ::-1] * i, a),
    lambda a: jax.lax.dynamic_update_slice(a * 2, (a * 2)[:, 500:1600] + (a * 2)[:, :1100], (0, 700)) * 3 + a,
    lambda a: jax.lax.fori_loop(0, 3, lambda i, x: jax.lax.dynamic_update_slice(
        x, x[3:70] + x.max(), (i * 20 + 1, 0)) + kernels.scaled(x[:100, :900], 2.0)[i, i], a),
    lambda a: (a[:, :130] + a[:, :130].T).sum(1) + a[:, :130] @ jnp.ones(130, np.float32)],
    ids=lambda value: str(value.__code__.co_firstlineno))
def test_tiles_that_stay_on_chip(function):
    """Boxes in rows and columns, in several orders of walking, and buffers that are written again."""
    agrees(function, WIDE)


def fused_text(function, *arguments):
    with graph_context(), ir.Location.unknown():
        module = ir.Module.parse(lowered(function, *arguments))
        StablehloToLinalg().run(module)
        FuseGraph().run(module)
        FuseTiles().run(module)
        assert module.operation.verify()
        return str(module)


def test_fusion__graph_around_a_kernel_is_in_its_loops():
    text = fused_text(lambda a, b: a * b * kernels.add[2](a * 2, b), A, B)
    assert text.count("linalg.generic") == 1 and text.count("scf.for") == 1 and "memref.copy" not in text
    agrees(lambda a, b: a * b * kernels.add[2](a * 2, b), A, B)


def test_fusion__not_where_a_kernel_stores_only_a_part():
    function = lambda a: kernels.lower_triangle(a[:16]) * 2
    assert fused_text(function, A).count("linalg.generic") > 1
    agrees(function, A)


def test_fusion__not_where_the_result_is_needed_twice():
    def function(a, b):
        total = kernels.add[2](a, b)
        return total * 2, total
    agrees(function, A, B)


def test_fusion__not_through_a_result_that_the_kernel_reads():
    agrees(lambda a, b: kernels.add[2](kernels.add[2](a, b) * a, a + b), A, B)


def test_fusion__of_a_number_that_fills_a_tensor():
    """A product without summed elements is a fill, which what reads it takes as a number."""
    left, right = np.zeros((32, 0), np.float32), np.zeros((0, 16), np.float32)
    agrees(lambda x, y: x @ y + 1, left, right)
    for function in (lambda x, y, b: kernels.add[2](x @ y, b), lambda x, y, b: x @ y + b):
        agrees(function, left, right, B)


def test_inputs__are_not_written():
    """Also where the result is an input with a part changed."""
    for executor in ("", "isa"):
        copy_of_a = A.copy()
        (got,) = LinkedProgram(lowered(lambda a: jax.lax.dynamic_update_slice(a, a[:2] * 2, (3, 0)), A), executor)(copy_of_a)
        np.testing.assert_array_equal(copy_of_a, A)
        np.testing.assert_array_equal(got[3:5], A[:2] * 2)


def test_inputs__are_not_written_around_calls_of_kernels():
    copy_of_a = A.copy()
    program = LinkedProgram(lowered(lambda a: a.at[jnp.array([1, 2])].add(1.0), A))
    (got,) = program(copy_of_a)
    assert not program.is_one_program
    np.testing.assert_array_equal(copy_of_a, A)
    np.testing.assert_array_equal(got[1:3], A[1:3] + 1)


def test_native_code__names_a_dtype_that_llvm_lacks():
    text = lowered(lambda a: a.astype(jnp.float8_e4m3b11fnuz).astype(jnp.float32), A)
    with pytest.raises(Unsupported, match=r"'arith.truncf' of f32 to f8E4M3B11FNUZ in a graph on the CPU"):
        LinkedProgram(text)


def test_instruction_streams__name_what_they_cannot_do():
    with pytest.raises(Unsupported, match=r":\d+:\d+: error: a scatter that combines values"):
        simulate_linked(lowered(lambda a: a.at[jnp.array([1, 2])].apply(jnp.sin), A), [A])


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_sums_and_products_of_narrow_integers__wrap(dtype):
    """Exactly, beyond the dtype and beyond 32 bits."""
    random, limits = np.random.default_rng(7), np.iinfo(dtype)
    a, b = (random.integers(limits.min, limits.max, shape, dtype, endpoint=True) for shape in ((6, 40), (40, 5)))
    agrees(lambda a, b: (jnp.sum(a, 1, dtype=dtype), jnp.prod(a, 0, dtype=dtype), jnp.prod(a | 1, 1, dtype=dtype), a @ b,
                         jnp.cumsum(a, 1, dtype=dtype)), a, b, tolerance=0)


UNSIGNED = np.array([[1 << 31, 5, (1 << 32) - 1], [7, 0, 3]], np.uint32)


@pytest.mark.share(3)
@pytest.mark.parametrize("function, argument", [
    (lambda a: [jnp.max(a > 0.9, 1), jnp.min(a > -2, 0), jnp.maximum(a > 0, a > 1), jnp.argmax(a > 0.9, 1),
                jnp.argmin(a > 0.9, 0), jnp.argmax(a > 99, 1)], A),
    (lambda a: [a.max(1), a.min(), jnp.argmax(a, 1), a.view(np.int32).max(0), a.astype(np.uint8).max(0),
                jnp.argmin(a.astype(np.uint16), 1), jax.lax.cummax(a, 1)], UNSIGNED),
    (lambda a: [count(x) for count in (jax.lax.population_count, jax.lax.clz) for x in (
        a, a.view(np.int32), a.view(np.uint8), a.view(np.int8), a.view(np.uint16))], UNSIGNED),
    # a scatter runs outside of the single program, which lowers in another way
    (lambda a: [a.at[jnp.array([1, 2])].add(1.0), jnp.max(a > 1), jax.lax.optimization_barrier(a) + 1], A)])
def test_functions_of_integers_and_truths(function, argument):
    text, expected = lowered(function, argument), jax.jit(function)(argument)
    for results in (run_linked(text, [argument]), simulate_linked(text, [argument])):
        for got, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(got, wanted, strict=True)


@pytest.mark.parametrize("function, arguments", [
    (lambda a: jax.lax.fori_loop(0, 3, lambda i, x: x.at[i].set(1.0), a), (A,)),
    (lambda a, i: a[:, i], (A, np.array([1, 5], np.int32)))])
def test_instruction_streams__scatter_rows_in_loops_and_gather_columns(function, arguments):
    (got,) = simulate_linked(lowered(function, *arguments), list(arguments))
    np.testing.assert_array_equal(got, function(*map(jnp.asarray, arguments)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_constants__of_low_precision(dtype):
    """One number, a few, and so many that the module has their bytes; not-a-number and infinity among them."""
    kind = np.dtype(getattr(jnp, dtype))
    few = np.array([[1.5, np.nan], [-np.inf, 2.0 ** -6]]).astype(kind)
    many = (np.arange(400).reshape(20, 20) % 7 - 3).astype(kind)

    def f(x):
        return kernels.scaled(jnp.full((4, 4), 1.5, kind), 2.0), few, x * many
    x = np.full((20, 20), 2, kind)
    for got, expected in zip(LinkedProgram(lowered(f, x))(x), f(x)):
        assert got.dtype == kind
        np.testing.assert_array_equal(got.astype(np.float32), np.asarray(expected).astype(np.float32))


def test_results__the_same_value_several_times():
    a, b, c = LinkedProgram(lowered(lambda x: [kernels.scaled(x, 2.0)] * 2 + [x], A))(A)
    for got, expected in ((a, A * 2), (b, A * 2), (c, A)):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype, digits", [("float16", 11), ("bfloat16", 8)])
def test_float64__is_rounded_once(dtype, digits):
    """Numbers just above the middle of two results are not rounded to float32 before."""
    middle = 1 + 2.0 ** -digits
    x = np.array([middle, middle + 2.0 ** -40, middle - 2.0 ** -40, 65519.99999, np.inf, np.nan, -0.0, 1e-40])
    kind = f"tensor<8x{dtype.replace('float', 'f')}>"
    text = f"""func.func @main(%x: tensor<8xf64>) -> {kind} {{
  %0 = stablehlo.convert %x : (tensor<8xf64>) -> {kind}
  return %0 : {kind}
}}"""
    got, = LinkedProgram(text)(x)
    large, denormal = (65504.0, 0.0) if dtype == "float16" else (65536.0, float(jnp.bfloat16(1e-40)))
    np.testing.assert_array_equal(got.astype(np.float64), [1, middle + 2.0 ** -digits, 1, large, np.inf, np.nan, 0,
                                                           denormal])
    assert np.signbit(got[6])


def test_float64__arguments_and_results_around_the_kernels():
    with enable_x64(True):
        text = lowered(lambda a, s: (kernels.scaled(a, 2.0) * s.astype(jnp.float32), s * 0.5), A, np.float64(3))
    program = LinkedProgram(text)
    scaled, half = program(A, np.float64(3))
    assert not program.is_one_program and half.dtype == np.float64 and half == 1.5
    np.testing.assert_allclose(scaled, A * 6, rtol=1e-6)


def test_programs_that_meet__are_called_from_the_graph():
    def graph(a):
        return kernels.summed_over_programs[2](a * 2) + 1
    text, expected = lowered(graph, A), np.tile(2 * (A[:16] + A[16:]) + 1, (2, 1))
    same([jax.jit(graph)(A)], [expected], 1e-6)
    program = LinkedProgram(text)
    assert not program.is_one_program
    same(program(A), [expected], 1e-6)
    with pytest.raises(Unsupported, match="a kernel whose programs wait for each other, in a program with a graph"):
        simulate_linked(text, [A])
