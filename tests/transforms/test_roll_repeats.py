# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""roll-repeats: what repeats is a loop again, with the same values; what does not repeat stays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_mlir.analysis.repeats import _Level
from nki_mlir.bindings import cloned, ir, operations_of
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import loop_span, shared_context
from nki_mlir.language.beta import language as nl
from nki_mlir.language.kernel import Kernel, describe_array, is_array
from nki_mlir.passes.pass_manager import pass_named, run_passes
from nki_mlir.passes.safety import UnsafeInput, check_safe
from nki_mlir.targets.cpu.kernel import NativeKernel
from nki_mlir.targets.interpreter.module import compile_function, run_grid

X = np.arange(4096, dtype=np.float32).reshape(8, 512) % 251


def rolled(function, *inputs, least=1, pairs=False):
    """The loops that the pass makes, as (iterations, operations in one), after the values have been compared."""
    spec = specialized(function, inputs)
    module = cloned(spec.modules[0])
    run_passes(module, [pass_named("roll-repeats", f"least={least} pairs={str(pairs).lower()}")])
    assert module.operation.verify()
    np.testing.assert_array_equal(result(module, spec, inputs), result(spec.modules[0], spec, inputs))
    loops = operations_of(module, lambda name: name == "scf.for")
    return [(len(loop_span(loop)), len(loop.regions[0].blocks[0].operations) - 1) for loop in loops]


def specialized(function, inputs):
    kernel = Kernel(function)
    return kernel.specialize(kernel.bind(inputs, {}, is_array, describe_array))


def result(module, spec, inputs):
    shared = [np.full(s.shape, 77, s.dtype.numpy) for s in spec.shared]
    program = compile_function(the_kernel(module))
    run_grid(lambda point: program, spec.grid, inputs, shared)
    return shared[0]


def test_one_place_written_in_turn():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in nl.static_range(20):
            tile[:, i % 4:i % 4 + 8] = nl.add(tile[:, i % 4:i % 4 + 8], 1.0)
        nl.store(out, tile)
        return out
    assert rolled(kernel, X, least=4) == [(5, 4)]
    assert rolled(kernel, X, least=16) == [(5, 4)]
    assert rolled(kernel, X, least=17) == []


def test_places_that_move_and_buffers_of_each_repetition():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.static_range(8):
            tile = nl.load(x[:, i * 64:i * 64 + 64])
            nl.store(out[:, 448 - i * 64:512 - i * 64], nl.multiply(tile, 2.0))
        return out
    assert rolled(kernel, X) == [(8, 5)]


def test_the_last_repetition_stays_where_its_buffer_is_used_later():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.static_range(8):
            tile = nl.load(x)
            nl.store(out[:, i * 64:i * 64 + 64], tile[:, 64:128])
        nl.store(out[:, 0:8], tile[:, 8:16])
        return out
    assert rolled(kernel, X) == [(7, 3)]


def test_loops_in_loops():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in nl.static_range(3):
            kept = nl.ndarray((8, 16), x.dtype)
            for j in nl.static_range(4):
                for k in nl.static_range(2):
                    tile[:, i * 100 + j * 20 + k * 9:i * 100 + j * 20 + k * 9 + 4] = nl.add(tile[:, k * 4:k * 4 + 4], 1.0)
                kept[:, j * 4:j * 4 + 4] = nl.multiply(tile[:, 500:504], 2.0)
            nl.store(out[:, i * 16:i * 16 + 16], kept)
        nl.store(out[:, 48:512], tile[:, 0:464])
        return out
    assert rolled(kernel, X, pairs=True) == [(3, 3), (4, 2), (2, 1)]
    assert [count for count, _ in rolled(kernel, X)] == [3, 3]       # columns one by one


def test_rows_that_move_over_the_partitions():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 512), x.dtype)
        for i in nl.static_range(4):
            tile[i * 32:i * 32 + 8, :] = nl.load(x)
        for i in nl.static_range(4):
            nl.store(out[0:8, i * 128:i * 128 + 128], tile[i * 32:i * 32 + 8, i * 128:i * 128 + 128])
        return out
    assert rolled(kernel, X, pairs=True) == [(4, 1), (4, 1)]


def test_what_a_repetition_takes_from_the_one_before_stays():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for _ in nl.static_range(8):
            tile = nl.add(tile, 1.0)
        nl.store(out, tile)
        return out
    assert rolled(kernel, X) == []


def test_what_only_the_first_repetition_made_stays_outside():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.static_range(8):
            if i == 0:
                tile = nl.load(x)
            nl.store(out[:, i * 64:i * 64 + 64], tile[:, i * 64:i * 64 + 64])
        return out
    assert rolled(kernel, X) == [(8, 1)]


def test_unequal_steps_and_other_numbers_stay():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in nl.static_range(8):
            tile[:, i * i:i * i + 8] = nl.add(tile[:, i * i:i * i + 8], 1.0)
        for i in nl.static_range(8):
            tile[:, 0:8] = nl.add(tile[:, 0:8], float(i))
        nl.store(out, tile)
        return out
    assert rolled(kernel, X, least=2) == []


def test_in_a_loop_that_is_rolled_already():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for n in nl.affine_range(4):
            tile = nl.load(x[:, n * 128:n * 128 + 128])
            for i in nl.static_range(8):
                tile[:, i * 16:i * 16 + 8] = nl.add(tile[:, i * 16 + 8:i * 16 + 16], 1.0)
            nl.store(out[:, n * 128:n * 128 + 128], tile)
        return out
    assert rolled(kernel, X) == [(4, 7), (8, 1)]


def test_operations_in_no_order_stay_and_are_compared_with_few_others(monkeypatch):
    order = np.random.default_rng(0).integers(0, 64, 2000).tolist()

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for at in order:
            tile[:, at:at + 8] = nl.add(tile[:, at:at + 8], 1.0)
        nl.store(out, tile)
        return out
    compared, fits = [], _Level.fits
    monkeypatch.setattr(_Level, "fits", lambda self, *pair: compared.append(pair) or fits(*pair))
    assert rolled(kernel, X, least=512) == []
    assert len(compared) < 4 * len(order)


def test_operations_of_several_lines_are_never_one():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        tile[:, 0:8] = nl.add(tile[:, 0:8], 1.0)
        tile[:, 8:16] = nl.add(tile[:, 8:16], 1.0)
        tile[:, 16:24] = nl.add(tile[:, 16:24], 1.0)
        nl.store(out, tile)
        return out
    assert rolled(kernel, X) == []


def test_fresh_memory_is_zero_in_each_iteration():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.static_range(8):
            scratch = nl.ndarray((8, 64), x.dtype, buffer=nl.private_hbm)
            nl.store(out[:, i * 64:i * 64 + 64], nl.load(scratch))
            nl.store(scratch, nl.load(x[:, i * 64:i * 64 + 64]))
        return out
    spec = specialized(kernel, [X])
    module = cloned(spec.modules[0])
    run_passes(module, [pass_named("roll-repeats", "least=1")])
    spec.captured.variants[()].partial_module = module
    shared = [np.full(X.shape, 77, np.float32)]
    NativeKernel(spec.captured, spec.grid)([X], shared)
    assert (shared[0] == 0).all() and len(operations_of(module, lambda name: name == "scf.for")) == 1


def loops_of(plan, tile, depth=0, base=0):
    """Python's loops as the plan says: (count, step, body), each body of such, or of operations."""
    for item in plan:
        if len(item) == 3:
            count, step, body = item
            for i in range(count):
                loops_of(body, tile, depth + 1, base + i * step)
        else:
            to, frm = (base + item[0]) % 500, (base + item[1]) % 500
            if item[1] % 2:
                tile[:, to:to + 4] = nl.add(tile[:, frm:frm + 4], 3.0)
            else:
                part = nl.multiply(tile[:, frm:frm + 4], 0.5)
                tile[:, to:to + 4] = nl.subtract(part, tile[:, to:to + 4])


operation = st.tuples(st.integers(0, 40), st.integers(0, 40))
plans = st.lists(st.recursive(operation, lambda inner: st.tuples(
    st.integers(1, 5), st.integers(-3, 8), st.lists(inner, min_size=1, max_size=3)), max_leaves=6), min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(plans)
def test_random_loops_keep_their_values(plan):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        loops_of(plan, tile)
        nl.store(out, tile)
        return out
    rolled(kernel, X)
    rolled(kernel, X, pairs=True)


def test_a_location_among_the_attributes_is_left_to_the_check_of_what_is_safe():
    """The bindings do not read those."""
    with shared_context():
        module = ir.Module.parse("""func.func @f(%x: memref<4x4xf32, "hbm">) {
          %a = arith.constant {at = loc("a":1:1)} 0 : index
          %b = arith.constant {at = loc("a":1:1)} 0 : index
          return
        }""")
    run_passes(module, [pass_named("roll-repeats", "least=1")])
    with pytest.raises(UnsafeInput, match="location"):
        check_safe(module)


def test_large_kernels_on_the_cpu_have_the_values_of_the_interpreter():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        for i in nl.static_range(1500):
            at = i * 7 % 96
            tile[:, at:at + 8] = nl.add(tile[:, at + 3:at + 11], 1.0)
        nl.store(out, tile)
        return out
    on = {name: Kernel(kernel).on(name)(X) for name in ("interpreter", "jit")}
    np.testing.assert_array_equal(on["jit"], on["interpreter"])

