# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels with collectives under ``jax.shard_map``: the devices of the mesh are the ranks."""

import numpy as np
import pytest

from nki_mlir.frameworks.rank_calls import RankFailed, of_ranks
from nki_mlir.frameworks.registry import callee_for, run_on_arrays
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import describe_array, is_array

pytest.importorskip("jax")

pytestmark = pytest.mark.jax

START = """
import nki_mlir.compat
nki_mlir.compat.install()
import jax, numpy as np
import nki, nki.collectives as ncc, nki.isa as nisa, nki.language as nl
from jax.sharding import Mesh, PartitionSpec as P

ALL = ncc.ReplicaGroup([[0, 1, 2, 3]])
mesh = Mesh(np.array(jax.devices()), ("x",))

@nki.jit
def softmax(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    largest, of_all, total, sums = (nl.ndarray((x.shape[0], 1), nl.float32) for _ in range(4))
    nisa.tensor_reduce(largest, nl.maximum, tile, axis=1)
    ncc.all_reduce([largest], [of_all], ALL, nl.maximum)
    nisa.tensor_scalar(of_all, of_all, nl.multiply, -1.0)
    nisa.activation_reduce(tile, nl.exp, tile, nl.add, total, bias=of_all)
    ncc.all_reduce([total], [sums], ALL, nl.add)
    nisa.reciprocal(sums, sums)
    nisa.tensor_scalar(tile, tile, nl.multiply, sums)
    nl.store(out, tile)
    return out

def divided(function, mesh=mesh, inputs=P(None, "x"), outputs=P(None, "x"), **options):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=inputs, out_specs=outputs, **options))

x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
answer = lambda x: np.asarray(jax.nn.softmax(x, axis=-1))
"""


@pytest.fixture
def on_four_devices(child):
    return lambda text: child(START + text + "\nprint('done')", XLA_FLAGS="--xla_force_host_platform_device_count=4") == "done\n"


def test_ranks_meet_on_every_executor(on_four_devices):
    assert on_four_devices("""
for on in ("jit", "interpreter", "eager", "isa"):
    for check in (True, False):
        np.testing.assert_allclose(divided(softmax.on(on), check_vma=check)(x), answer(x), atol=1e-6)
np.testing.assert_allclose(jax.shard_map(softmax, mesh=mesh, in_specs=P(None, "x"), out_specs=P(None, "x"))(x), answer(x),
                           atol=1e-6)
""")


def test_ranks_meet_in_loops_batches_and_derivatives(on_four_devices):
    assert on_four_devices("""
repeated = divided(lambda x: jax.lax.scan(lambda c, _: (softmax(c), None), x, None, length=3)[0])
np.testing.assert_allclose(repeated(x), answer(answer(answer(x))), atol=1e-6)
both = divided(jax.vmap(lambda x: softmax(x)), inputs=P(None, None, "x"), outputs=P(None, None, "x"))
np.testing.assert_allclose(both(np.stack([x, 2 * x])), answer(np.stack([x, 2 * x])), atol=1e-6)

@jax.custom_vjp
def differentiable(x):
    return softmax(x)

differentiable.defvjp(lambda x: (softmax(x),) * 2,
                      lambda y, g: (y * (g - jax.lax.psum((g * y).sum(1, keepdims=True), "x")),))
weights = np.arange(x.size, dtype=np.float32).reshape(x.shape) / x.size
gradient = jax.jit(jax.grad(lambda x: (divided(differentiable)(x) * weights).sum()))(x)
np.testing.assert_allclose(gradient, jax.grad(lambda x: (jax.nn.softmax(x, axis=-1) * weights).sum())(x), atol=1e-6)
""")


def test_the_rank_is_the_position_on_all_axes(on_four_devices):
    assert on_four_devices("""
@nki.jit
def sums_of_pairs(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    number = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm)
    tile, total, rank = nl.load(x), nl.ndarray(x.shape, x.dtype), nl.ndarray((1, 1), nl.int32)
    ncc.all_reduce([tile], [total], ncc.ReplicaGroup([[0, 1], [2, 3]]), nl.add)
    nl.store(out, total)
    nisa.register_store(rank, ncc.rank_id())
    nl.store(number, rank)
    return out, number

@nki.jit
def rank(x):
    out, tile = nl.ndarray((1, 1), nl.int32, buffer=nl.shared_hbm), nl.ndarray((1, 1), nl.int32)
    nisa.register_store(tile, ncc.rank_id())
    nl.store(out, tile)
    return out

square = Mesh(np.array(jax.devices()).reshape(2, 2), ("r", "c"))
sums, numbers = divided(sums_of_pairs, square, P("r", "c"), P("r", "c"))(x)
np.testing.assert_array_equal(sums, np.tile(x[:, :32] + x[:, 32:], 2))
assert numbers.tolist() == divided(rank, square, P("r", "c"), P("r", "c"))(x).tolist() == [[0, 1], [2, 3]]
""")


def test_arguments_of_all_dtypes_are_updated_in_place(on_four_devices):
    assert on_four_devices("""
@nki.jit
def rotated(x, state):
    nl.store(state[0:1], nl.load(x[0:1]))
    src, dst = [nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm) for _ in range(2)]
    nisa.dma_copy(src, x)
    ncc.collective_permute_implicit([src], [dst], ALL)
    nisa.dma_copy(state[1:2], dst[1:2])
    return state

import ml_dtypes
for dtype in (np.float32, ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, np.int8, np.uint16, np.int32):
    a, state = np.arange(48).reshape(8, 6).astype(dtype), np.full((16, 6), 99).astype(dtype)
    got = divided(rotated, inputs=(P("x"), P("x")), outputs=P("x"))(a, state)
    expected = state.copy()
    expected[0::4], expected[1::4] = a[0::2], np.roll(a[1::2], 1, axis=0)
    np.testing.assert_array_equal(np.asarray(got), expected)
""")


def test_every_device_raises_the_error_of_a_rank(on_four_devices):
    assert on_four_devices("""
pair = Mesh(np.array(jax.devices()[:2]), ("x",))
for call in (lambda: divided(softmax, pair)(x).block_until_ready(), lambda: softmax(x)):
    try:
        call()
    except Exception as error:
        assert "all_reduce between 4 ranks in a kernel that runs on" in str(error), error
        assert "in JAX call the kernel in jax.shard_map on as many devices" in str(error), error
    else:
        raise AssertionError
np.testing.assert_allclose(divided(softmax)(x), answer(x), atol=1e-6)
""")


def test_an_error_in_another_process_is_named():
    @nki.jit
    def kernel(x):
        nl.store(x, nl.load(x))
        return x
    x = np.zeros((2, 2), np.float32)
    together = of_ranks(callee_for(kernel, kernel.bind((x,), {}, is_array, describe_array)), 3)
    with pytest.raises(RankFailed, match="kernel kernel failed on a rank, in the process of the first device"):
        run_on_arrays(together, [np.zeros((3, 2, 2), np.float32), np.full(3, 2**30, np.int32)])


def test_an_exported_program_runs_in_another_process(child, tmp_path):
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    file = repr(str(tmp_path / "exported"))
    child(START + f"""
from jax import export
allowed = [export.DisabledSafetyCheck.custom_call("AwsNeuronCustomNativeKernel")]
open({file}, "wb").write(export.export(divided(softmax), disabled_checks=allowed)(x).serialize())
np.save({file} + ".npy", answer(x))
""", **devices)
    assert child(f"""
import nki_mlir.frameworks.jax, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
x = jax.device_put(x, NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P(None, "x")))
got = jax.jit(jax.export.deserialize(bytearray(open({file}, "rb").read())).call)(x)
np.testing.assert_allclose(got, np.load({file} + ".npy"), atol=1e-6)
print("done")
""", **devices) == "done\n"
