# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of the device: each broken once on every executor, at the kernel's line, beside a kernel that keeps it."""

import inspect
import warnings
from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.diagnostics import DeviceRuleWarning, KernelError, NkiMlirError, UnknownRulesLevel
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import is_array, unwrap

from .running import floats, run

X = floats(128, 64)
BROKEN, UNCERTAIN, KEPT = {}, {}, {}


@pytest.fixture(autouse=True)
def unset(monkeypatch):
    monkeypatch.delenv("NKI_MLIR_DEVICE_RULES", raising=False)


def case(table, name, text="", target="trn2"):
    """A kernel of ``x`` [128, 64] that breaks (or keeps) a rule at its line with the comment ``# here``."""
    def register(function):
        table[name] = function, text, target
        return function
    return register


def output(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(tile))
    return out


def kernel_for(function, target):
    return replace(unwrap(nki.jit(function)), target=target)


def line_of(function):
    lines, start = inspect.getsourcelines(function)
    return start + next(k for k, line in enumerate(lines) if "# here" in line)


@case(BROKEN, "start partition", "operand 'data' of 'activation' begins at partition 5 and has 20 partitions")
def starts_anywhere(x):
    return output(nisa.activation(np.exp, nl.load(x)[5:25, :]))                                         # here


@case(KEPT, "start partition")
def starts_at_a_quadrant(x):
    return output(nisa.activation(np.exp, nl.load(x)[32:52, :]))


@case(KEPT, "start partition of a language function")         # the compiler moves the rows
def function_starts_anywhere(x):
    return output(nl.exp(nl.load(x)[5:25, :]))


@case(BROKEN, "start partition of a loop", "operand 'data' of 'reciprocal' begins at partition")
def starts_anywhere_in_a_loop(x):
    tile, out = nl.load(x), nl.ndarray((8, 16, 64), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(8):
        nl.store(out[i], nisa.reciprocal(tile[nl.ds(i * 16, 16), :]))                                   # here
    return out


@case(KEPT, "start partition of a loop")
def starts_at_quadrants_in_a_loop(x):
    tile, out = nl.load(x), nl.ndarray((4, 32, 64), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[i], nisa.reciprocal(tile[nl.ds(i * 32, 32), :]))
    return out


@case(BROKEN, "power on the vector engine", "the vector engine has no power, which 'tensor_tensor' needs")
def power_on_vector(x):
    tile = nl.abs(nl.load(x))
    return output(nisa.tensor_tensor(tile, tile, np.power, engine=nisa.vector_engine))                  # here


@case(KEPT, "power on the vector engine")
def power_on_gpsimd(x):
    tile = nl.abs(nl.load(x))
    first = nisa.tensor_tensor(tile, tile, np.power)
    return output(nisa.tensor_tensor(first, tile, np.power, engine=nisa.gpsimd_engine))


@case(BROKEN, "power of a number on the vector engine",
      "the vector engine has no power, which 'tensor_scalar' needs")
def scalar_power_on_vector(x):
    return output(nisa.tensor_scalar(nl.abs(nl.load(x)), np.power, 2.0, engine=nisa.vector_engine))     # here


@case(KEPT, "power of a number on the vector engine")
def scalar_power(x):
    return output(nisa.tensor_scalar(nl.abs(nl.load(x)), np.power, 2.0))


@case(BROKEN, "power in PSUM", "Expected operand 'data1' of 'tensor_tensor' to be in address space 'sbuf'")
def power_in_psum(x):
    tile = nl.load(x)
    product = nl.matmul(tile, tile, transpose_x=True)
    return output(nisa.tensor_tensor(product, nl.load(x[0:64, :]), np.power))                           # here


@case(BROKEN, "product of float32 with bfloat16",
      "'nc_matmul': multiplies float32 with float32 only, got float32 and bfloat16")
def mixed_product(x):
    tile = nl.load(x)
    return output(nisa.nc_matmul(tile, nl.copy(tile, dtype=nl.bfloat16)))                               # here


@case(KEPT, "product of float32 with bfloat16")
def product_of_bfloat16(x):
    tile = nl.copy(nl.load(x), dtype=nl.bfloat16)
    return output(nisa.nc_matmul(tile, nl.copy(tile, dtype=nl.float16)))


@case(BROKEN, "activation_reduce of generation 2", "'activation_reduce' with reduce_op 'maximum' needs generation 3",
      "trn1")
def reduces_by_maximum(x):
    rows = nl.ndarray((128, 1), nl.float32)
    return output(nisa.activation_reduce(np.exp, nl.load(x), reduce_op=np.max, reduce_res=rows))        # here


@case(UNCERTAIN, "activation_reduce by another operator", "'activation_reduce': reduces by maximum")
def reduces_by_maximum_later(x):
    rows = nl.ndarray((128, 1), nl.float32)
    return output(nisa.activation_reduce(np.exp, nl.load(x), reduce_op=np.max, reduce_res=rows))        # here


@case(KEPT, "activation_reduce of generation 2", target="trn1")
def reduces_by_add(x):
    rows = nl.ndarray((128, 1), nl.float32)
    return output(nisa.activation_reduce(np.exp, nl.load(x), reduce_op=np.add, reduce_res=rows))


@case(UNCERTAIN, "a number as bias", "the bias of an activation is 1.0; it must be a float32, float16 or bfloat16 tile")
def number_as_bias(x):
    return output(nisa.activation(np.exp, nl.load(x), bias=1.0))                                        # here


@case(KEPT, "a number as bias")
def tile_as_bias(x):
    return output(nisa.activation(np.exp, nl.load(x), bias=nisa.memset((128, 1), 1.0, nl.float32)))


@case(BROKEN, "tensor_scalar on the scalar engine", "tensor_scalar of maximum and bypass on the scalar engine needs")
def maximum_on_scalar(x):
    return output(nisa.tensor_scalar(nl.load(x), np.maximum, 1.0, engine=nisa.scalar_engine))           # here


@case(BROKEN, "tensor_scalar on the scalar engine of generation 2",
      "tensor_scalar on the scalar engine needs generation 3", "trn1")
def multiply_on_scalar(x):
    return output(nisa.tensor_scalar(nl.load(x), np.multiply, 2.0, engine=nisa.scalar_engine))          # here


@case(KEPT, "tensor_scalar on the scalar engine")
def multiply_and_add_on_scalar(x):
    return output(nisa.tensor_scalar(nl.load(x), np.multiply, 2.0, op1=np.add, operand1=1.0,
                                     engine=nisa.scalar_engine))


@case(BROKEN, "range_select of generation 2", "'range_select' needs generation 3 of the core", "trn1")
def ranges(x):
    low = nisa.memset((128, 1), 1.0, nl.float32)
    return output(nisa.range_select(on_true_tile=nl.load(x), comp_op0=np.greater_equal, comp_op1=np.less,  # here
                                    bound0=low, bound1=low, on_false_value=nl.fp32.min))


@case(BROKEN, "PSUM of the GpSimd engine", "Expected operand 'src' of 'tensor_copy' to be in address space 'sbuf'")
def gpsimd_copy_of_psum(x):
    tile = nl.load(x)
    return output(nisa.tensor_copy(nl.matmul(tile, tile, transpose_x=True), engine=nisa.gpsimd_engine))  # here


@case(UNCERTAIN, "PSUM of an instruction of GpSimd", "operand 'on_true_tile' of 'affine_select' is in PSUM")
def selects_in_psum(x):
    tile = nl.load(x)
    p, f = nl.mgrid[0:64, 0:64]
    return output(nisa.affine_select(p >= f, nl.matmul(tile, tile, transpose_x=True), 0.0))              # here


@case(BROKEN, "result of a product in two banks", "the result of 'nc_matmul' takes bytes 400 to 2447")
def crosses_banks(x):
    tile, sums = nl.load(x), nl.ndarray((64, 1024), nl.float32, buffer=nl.psum)
    wide = nl.ndarray((128, 512), nl.float32)
    wide[...] = 1.0
    sums[:, 100:612] = nisa.nc_matmul(tile, wide)                                                        # here
    return output(sums)


@case(KEPT, "result of a product in two banks")
def fills_a_bank(x):
    tile, sums = nl.load(x), nl.ndarray((64, 1024), nl.float32, buffer=nl.psum)
    wide = nl.ndarray((128, 512), nl.float32)
    wide[...] = 1.0
    sums[:, 512:1024] = nisa.nc_matmul(tile, wide)
    return output(sums[:, 512:1024])


@case(BROKEN, "start partition of a destination", "operand 'dst' of 'activation' begins at partition 16")
def writes_anywhere(x):
    tile = nl.load(x)
    tile[16:48, :] = nisa.activation(np.exp, tile[64:96, :])                                             # here
    return output(tile)


@case(KEPT, "start partition of a destination")
def writes_a_quadrant(x):
    tile = nl.load(x)
    tile[32:64, :] = nisa.activation(np.exp, tile[64:96, :])
    return output(tile)


@case(BROKEN, "steps of a pattern", "operand 'dst' of 'reciprocal' steps through 5 free dims")
def five_free_dims(x):
    tile = nl.ndarray((4, 4, 4, 4, 4, 4), nl.float32)
    tile[...] = 1.0
    return output(nisa.reciprocal(tile[:, 0:3, 0:3, 0:3, 0:3, 0:3]))                                     # here


@case(BROKEN, "elements of an instruction", "has 65600 elements in each partition")
def too_many_elements(x):
    tile = nl.ndarray((4, 65600), nl.int8)
    tile[...] = 1
    return output(nisa.tensor_copy(tile))                                                                # here


@case(UNCERTAIN, "operators of GpSimd", "the gpsimd engine has no maximum, which 'tensor_tensor' needs")
def maximum_on_gpsimd(x):
    tile = nl.load(x)
    return output(nisa.tensor_tensor(tile, tile, np.maximum, engine=nisa.gpsimd_engine))                 # here


# -- on every executor -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", BROKEN)
def test_broken(on, name):
    function, text, target = BROKEN[name]
    with pytest.raises(KernelError) as error:
        run(on, kernel_for(function, target), X)
    assert text in error.value.headline
    assert error.value.at is not None and error.value.at.line == line_of(function)
    assert error.value.advice[1]


@pytest.mark.parametrize("name", KEPT)
def test_kept(on, name):
    function, _, target = KEPT[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeviceRuleWarning)
        run(on, kernel_for(function, target), X)


@pytest.mark.parametrize("name", UNCERTAIN)
def test_uncertain_rules(on, name):
    function, text, target = UNCERTAIN[name]
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", DeviceRuleWarning)
        run(on, kernel_for(function, target), X)
    warned = [w for w in shown if w.category is DeviceRuleWarning]
    assert any(text in str(w.message) and w.lineno == line_of(function) and w.filename == __file__ for w in warned)


# -- levels ------------------------------------------------------------------------------------------------------------
NOT_ON_ISA = ("eager", "interpreter", "jit")                # streams are made by the rules, whatever the level


@pytest.mark.parametrize("loop", [range, nl.affine_range, nl.sequential_range])
@pytest.mark.parametrize("first", [0, 32])
def test_loops_in_steps_of_quadrants(on, loop, first):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((64, 128), x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, nl.zeros((64, 128), x.dtype))
        for a in loop(first, 128, 32):
            for b in loop(0, 64, 32):
                block = nisa.nc_transpose(tile[a:a + 32, b:b + 32], engine=nisa.vector_engine)
                factor = a // 32 + 1
                nl.store(out[b:b + 32, a:a + 32], nisa.tensor_scalar(block, np.multiply, factor))
        return out

    factors = np.repeat(np.arange(1, 5), 32)
    expected = np.where(np.arange(128) >= first, X.T * factors, 0)
    np.testing.assert_array_equal(kernel.on(on)(X), expected.astype(np.float32))


def test_loops_in_steps_that_start_beside_quadrants(on):
    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        for a in nl.sequential_range(0, 96, 48):
            nisa.activation(nl.exp, tile[a:a + 32, :])
        return output(tile)

    with pytest.raises(NkiMlirError, match="begins at partition"):
        kernel.on(on)(X)


@pytest.mark.parametrize("executor", NOT_ON_ISA)
def test_off(executor, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "off")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeviceRuleWarning)
        np.testing.assert_allclose(run(executor, kernel_for(starts_anywhere, "trn2"), X), np.exp(X[5:25]), rtol=1e-6)
        run(executor, kernel_for(number_as_bias, "trn2"), X)


@pytest.mark.parametrize("executor", NOT_ON_ISA)
def test_warn(executor, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "warn")
    with warnings.catch_warnings():
        warnings.simplefilter("always", DeviceRuleWarning)
        with pytest.warns(DeviceRuleWarning, match="begins at partition 5 and has 20 partitions") as shown:
            result = run(executor, kernel_for(starts_anywhere, "trn2"), X)
    np.testing.assert_allclose(result, np.exp(X[5:25]), rtol=1e-6)
    assert str(shown[0].message) == (
        "operand 'data' of 'activation' begins at partition 5 and has 20 partitions [NKI-START-PARTITION]; start the tile "
        "at such a partition, or move its rows with nisa.dma_copy first")


def test_error(on, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "error")
    with pytest.raises(KernelError, match="the bias of an activation is 1"):
        run(on, kernel_for(number_as_bias, "trn2"), X)
    run(on, kernel_for(tile_as_bias, "trn2"), X)


def test_the_level_is_read_at_each_call(on, monkeypatch):
    kernel = kernel_for(number_as_bias, "trn2")
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "off")
    run(on, kernel, X)
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "error")
    with pytest.raises(KernelError, match="the bias of an activation is 1"):
        run(on, kernel, X)


def test_no_such_level(on, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "strict")
    with pytest.raises(UnknownRulesLevel) as error:
        run(on, kernel_for(tile_as_bias, "trn2"), X)
    assert str(error.value) == ("error: NKI_MLIR_DEVICE_RULES cannot be 'strict' [NKI-DEVICE-RULES]\n"
                                "  fix: set it to off, warn or error; by default a broken rule is an error, or a "
                                "warning if the documents contradict each other")
    assert isinstance(error.value, NkiMlirError)


# -- domains, which the executors that check find when they run --------------------------------------------------------
CHECKING = ("eager", "interpreter", "isa")


@pytest.mark.parametrize("executor", CHECKING)
def test_result_assigned_to_psum__is_reported_once_for_each_operand(executor):
    """The instruction runs again with the assignment's target; what it broke before is not told again."""
    def kernel(x):
        rows, columns = nl.mgrid[0:16, 0:8]
        banked = nl.zeros((16, 8), nl.float32, buffer=nl.psum)
        banked[...] = nl.copy(nl.load(x))
        banked[...] = nisa.affine_select(rows >= columns, banked, 0.0)
        return output(banked)
    x = np.ones((16, 8), np.float32)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", DeviceRuleWarning)
        np.testing.assert_array_equal(run(executor, nki.jit(kernel), x), np.tril(x))
    told = [str(w.message).split(" of ")[0] for w in shown if w.category is DeviceRuleWarning]
    assert told == ["operand 'on_true_tile'", "operand 'dst'"]


def domain_warnings(executor, body, x):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", DeviceRuleWarning)
        result = run(executor, nki.jit(lambda x: output(body(nl.load(x)))), x)
    return result, [str(w.message) for w in shown if w.category is DeviceRuleWarning]


@pytest.mark.parametrize("executor", CHECKING)
@pytest.mark.parametrize("name, inside, beyond, domain", [
    ("sin", 3.14, 3.15, "[-3.14159, 3.14159]"), ("arctan", -1.5, 1.6, "[-1.5708, 1.5708]"),
    ("log", 1.0, 0.0, "[5.42101e-20, 1.84467e+19]"), ("sqrt", 4.0, -1.0, "[1.20371e-35, 3.32307e+35]"),
    ("rsqrt", 4.0, 0.0, "[6.46235e-27, 1.58456e+29]")])
def test_domains(executor, name, inside, beyond, domain):
    x = np.full((8, 8), inside, np.float32)
    fn = getattr(nl, name)
    for body in (fn, lambda t: nisa.activation(fn, t)):
        result, messages = domain_warnings(executor, body, x)
        assert not messages
        np.testing.assert_allclose(result, getattr(np, name)(x) if name != "rsqrt" else x ** -0.5, rtol=1e-6)
    x[3, 5] = beyond
    for body in (fn, lambda t: nisa.activation(fn, t)):
        _, messages = domain_warnings(executor, body, x)
        assert messages == [f"{name} of {beyond:g}, which is outside of its domain, {domain} [NKI-DOMAIN]; bring the values "
                            "into the domain first"]


@pytest.mark.parametrize("executor", CHECKING)
def test_rows_that_a_mask_left_out_are_in_no_domain(executor):
    """The last tile of rows is loaded in part and computed with as a whole: public normalizations do it."""
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        rows, columns = nl.mgrid[0:128, 0:8]
        for k in nl.affine_range(2):
            inside = k * 128 + rows < x.shape[0]
            tile = nl.load(x[k * 128 + rows, columns], mask=inside)
            scale = nl.rsqrt(nl.sum(nl.square(tile), axis=[1]) / 8)
            nl.store(out[k * 128 + rows, columns], nl.log(tile) + nisa.activation(nl.rsqrt, tile) + scale, mask=inside)
        return out

    def said(x):
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always", DeviceRuleWarning)
            result = run(executor, nki.jit(kernel), x)
        expected = np.log(x) + x ** -0.5 + np.mean(x ** 2, axis=1, keepdims=True) ** -0.5
        np.testing.assert_allclose(result, expected, rtol=1e-5)
        return [str(w.message) for w in shown if w.category is DeviceRuleWarning]
    x = np.full((200, 8), 4.0, np.float32)
    assert not said(x)
    x[150, 3] = 1e-30
    assert [text.split(",")[0] for text in said(x)][:1] == ["log of 1e-30"]


def test_a_loop_that_leaves_elements_out_for_its_next_iteration_stays_rolled():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((512, 8), x.dtype, buffer=nl.shared_hbm)
        rows, columns = nl.mgrid[0:128, 0:8]
        before = nl.full((128, 8), 1.0, nl.float32)
        for k in nl.sequential_range(4):
            nl.store(out[k * 128 + rows, columns], nl.rsqrt(before))
            before[...] = nl.add(nl.load(x[k * 128 + rows, columns], mask=k * 128 + rows < x.shape[0]), 1.0)
        return out
    x = np.ones((500, 8), np.float32)
    chosen = unwrap(kernel)
    module, = chosen.specialize(chosen.bind((x,), {}, is_array, chosen.describe)).modules
    assert str(module).count("scf.for") == 1


@pytest.mark.parametrize("executor", CHECKING)
def test_the_domain_is_that_of_what_goes_into_the_function(executor):
    x = np.full((8, 8), 4.0, np.float32)
    assert not domain_warnings(executor, lambda t: nisa.activation(nl.sin, t, scale=0.5), x)[1]
    assert domain_warnings(executor, lambda t: nisa.activation(nl.sin, t, scale=2.0), x)[1]
    assert not domain_warnings(executor, nl.cos, x)[1]
    assert not domain_warnings(executor, nisa.reciprocal, x * 0)[1]
    assert domain_warnings(executor, lambda t: nisa.activation(nl.reciprocal, t), x * 0)[1]


@pytest.mark.parametrize("executor", CHECKING)
def test_a_domain_at_other_levels(executor, monkeypatch):
    x = np.full((8, 8), 4.0, np.float32)
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "off")
    assert not domain_warnings(executor, nl.sin, x)[1]
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "error")
    with pytest.raises(KernelError, match="sin of 4, which is outside of its domain") as error:
        domain_warnings(executor, nl.sin, x)
    assert error.value.at is not None and error.value.at.file == __file__


def test_partitions_of_a_masked_instruction_are_those_of_its_parts():
    """Of 32 partitions from the 5th on, which no instruction may have, the mask leaves 7."""
    def masked(x):
        i, j = nl.arange(32)[:, None], nl.arange(64)[None, :]
        tile = nl.load(x)
        result = nl.zeros((128, 64), x.dtype)
        result[5 + i, j] = nisa.activation(nl.exp, tile[5 + i, j], mask=i < 7)
        return output(result)
    expected = np.zeros_like(X)
    expected[5:12] = np.exp(X[5:12])
    for on in ("eager", "interpreter", "jit", "isa"):
        np.testing.assert_allclose(nki.jit(masked).on(on)(X), expected, rtol=1e-5)
