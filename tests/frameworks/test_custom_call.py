# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels as text in a graph: what a config says, what is refused when one is read, call forms."""

import base64
import hashlib
import json

import numpy as np
import pytest

from nki_mlir.frameworks.registry import PlainResults, callee_from, record_of
from nki_mlir.graph.custom_call import BadConfig, read_record
from nki_mlir.language.current import collectives
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki
from nki_mlir.language.kernel import describe_array, is_array, unwrap
from nki_mlir.passes.levels import IllegalAtLevel
from nki_mlir.passes.safety import UnsafeInput

from . import kernels

X = np.arange(512, dtype=np.float32).reshape(32, 16)


def specialized(kernel, *arguments, grid=(), **keywords):
    chosen = unwrap(kernel)[grid] if grid else unwrap(kernel)
    return chosen.specialize(chosen.bind(arguments, keywords, is_array, describe_array))


def record(kernel, *arguments, plain=False, **keywords):
    return record_of(specialized(kernel, *arguments, **keywords), PlainResults(tuple(range(9)) if plain else ()))


def changed(config, change):
    fields = json.loads(base64.b64decode(config))
    change(fields)
    return base64.b64encode(json.dumps(fields).encode()).decode()


def test_config__has_the_documented_keys_first():
    fields = record(kernels.add, X, X, grid=2).fields()
    assert list(fields)[:6] == ["kernel_version", "func_name", "platform_target", "grid", "input_names", "output_names"]
    assert fields["kernel_version"] == 1 and fields["func_name"] == "add" and fields["grid"] == [2]
    assert fields["input_names"] == ["a", "b"] and fields["output_names"] == ["out"]
    assert fields["has_collectives"] is False and fields["operand_output_aliases"] == {}


def test_config__counts_multiply_accumulates():
    x, y = np.ones((32, 64), np.float32), np.ones((64, 48), np.float32)
    assert record(kernels.product, x, y).fields()["mac_count"] == 32 * 64 * 48


def test_config__is_the_same_text_for_the_same_kernel():
    one, other = record(kernels.scaled, X, 2.0), record(kernels.scaled, X.copy(), 2.0)
    assert one.config == other.config and one.key == other.key
    assert record(kernels.scaled, X, 3.0).key != one.key


def test_record__is_known_by_the_key_of_its_specialization():
    spec = specialized(kernels.first_program_doubles, X, grid=2)
    call = record_of(spec, PlainResults())
    assert len(call.variants) == 2
    assert call.key == spec.key == read_record(call.config).key


def test_record__reads_back_and_runs(executor):
    call = record(kernels.first_program_doubles, X, grid=2)
    callee = callee_from(call.config, executor)
    x, out = X.copy(), np.zeros_like(X)
    callee.entry([x.ctypes.data, out.ctypes.data])
    np.testing.assert_array_equal(out, np.concatenate([X[:16] * 2, X[16:]]))


# -- call forms --------------------------------------------------------------------------------------------------------
def test_form__output_parameter_that_is_never_read_can_be_a_result():
    call = record(kernels.add_into, X, X, X, plain=True)
    assert call.form.operands == (0, 1) and call.form.results == (("input", 2),) and call.form.aliases == {}
    assert record(kernels.add_into, X, X, X).form.aliases == {2: 0}


def test_form__parameter_that_is_read_stays_an_operand():
    call = record(kernels.reads_its_output, X, X, plain=True)
    assert call.form.operands == (0, 1) and call.form.aliases == {1: 0}


@pytest.mark.parametrize("kernel, arguments, zero", [
    (kernels.add, (X, X), False), (kernels.lower_triangle, (np.ones((32, 32), np.float32),), True),
    (kernels.stored_in_parts, (X, 4), False), (kernels.stored_in_parts, (X, 3), True)])
def test_outputs__start_from_zero_only_where_a_write_is_not_proved(kernel, arguments, zero):
    call = record(kernel, *arguments, grid=2 if kernel is kernels.add else ())
    assert call.starts_from_zero(("shared", 0)) == zero


def test_prints__where_the_kernel_does():
    assert record(kernels.printing, X).has_effects and not record(kernels.scaled, X, 1.0).has_effects


# -- reading -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("config, says", [
    ("", "it is not base64 of JSON"), ("no base64!", "it is not base64 of JSON"),
    (base64.b64encode(b"not JSON").decode(), "it is not base64 of JSON"),
    (base64.b64encode(b"{}").decode(), "it has no 'nki_mlir'"),
    (base64.b64encode(b"[]").decode(), "one of its fields is malformed")])
def test_read__refuses_what_is_no_config(config, says):
    with pytest.raises(BadConfig, match=f"the custom call's config cannot be used: {says}"):
        read_record(config)


def test_read__refuses_a_kernel_that_was_changed():
    config = record(kernels.scaled, X, 2.0).config

    def tamper(fields):
        module = fields["nki_mlir"]["modules"][0]
        module["text"] = module["text"].replace("2.000000e+00", "3.000000e+00")
    with pytest.raises(BadConfig) as error:
        read_record(changed(config, tamper))
    assert str(error.value) == (
        "error: the custom call's config cannot be used: its modules do not have the key it states [NKI-CONFIG]\n"
        "  fix: use a config that nki_mlir wrote, unchanged: from FrameworkKernel.dump_config, or lowered by jax.jit")


@pytest.mark.parametrize("change, says", [
    (lambda fields: fields.update(version=99), "it has version 99"),
    (lambda fields: fields.update(operands=[0, 1]), "its operands and results are not the buffers"),
    (lambda fields: fields.update(returned=[4]), "returns results that it does not have"),
    (lambda fields: fields.pop("modules"), "it has no 'modules'"),
    (lambda fields: fields.update(modules=3), "one of its fields is malformed")])
def test_read__refuses_a_form_that_does_not_fit(change, says):
    with pytest.raises(BadConfig, match=says):
        read_record(changed(record(kernels.scaled, X, 2.0).config, lambda fields: change(fields["nki_mlir"])))


def with_key(fields):
    """Give a config the key that its modules have."""
    digest = hashlib.sha256()
    for module in fields["nki_mlir"]["modules"]:
        digest.update(repr(tuple(map(tuple, module["fixed"]))).encode() + module["text"].encode())
    fields["nki_mlir"]["key"] = digest.hexdigest()


def replaced(old, new):
    return lambda modules: modules[1].update(text=modules[1]["text"].replace(old, new))


@pytest.mark.parametrize("change, says", [
    (replaced('memref<32x16xf32, "hbm">', 'memref<32x16000xf32, "hbm">'), "the arguments of its modules differ"),
    (replaced(', nki.shared = 0 : i64}', '}'), "the arguments of its modules differ"),
    (replaced("nki.grid = [2]", "nki.grid = [3]"), "its grid differs from the grid of its modules"),
    (lambda modules: modules.pop(), "a program of its grid does not have exactly one module"),
    (lambda modules: modules.append(modules[0]), "a program of its grid does not have exactly one module"),
    *[(lambda modules, fixed=fixed: modules[1].update(fixed=fixed), "a program of its grid does not have exactly one")
      for fixed in ([], [[0, 0]], [[0, 2]], [[0, -1]], [[1, 1]], [[-1, 1]], [[0, 1], [0, 1]])]])
def test_read__refuses_modules_that_do_not_fit(change, says):
    def replace(fields):
        change(fields["nki_mlir"]["modules"])
        with_key(fields)
    with pytest.raises(BadConfig, match=says):
        read_record(changed(record(kernels.first_program_doubles, X, grid=2).config, replace))


def test_read__refuses_an_operand_that_would_be_overwritten():
    def hide(fields):
        fields["nki_mlir"].update(operands=[0, 1], results=[], returned=[])
    with pytest.raises(BadConfig, match="writes an operand that is not a result"):
        read_record(changed(record(kernels.put_rows, X, X[:8]).config, hide))


@pytest.mark.parametrize("text, error, says", [
    ('func.func private @f(memref<4x4xf32, "hbm">)', UnsafeInput, "function @f has no body"),
    ('func.func @f(%x: memref<4x4xf32, "hbm">) { llvm.inline_asm "nop", "" : () -> ()\n return }',
     IllegalAtLevel, "'llvm.inline_asm' is not legal at the nki level"),
    ("func.func @f( {", BadConfig, "its module does not parse, \"-\":1:14: ")])
def test_read__takes_tile_operations_only(text, error, says):
    def replace(fields):
        fields["nki_mlir"]["modules"] = [{"fixed": [], "text": text}]
        with_key(fields)
    with pytest.raises(error, match=says):
        read_record(changed(record(kernels.scaled, X, 2.0).config, replace))


@current_nki.jit
def reduced_over_ranks(x):
    reduced, out = (current_nl.ndarray(x.shape, x.dtype, buffer=b) for b in (current_nl.hbm, current_nl.shared_hbm))
    nisa.dma_copy(reduced, x)
    collectives.all_reduce([reduced], [reduced], collectives.ReplicaGroup([[0]]), current_nl.add)
    nisa.dma_copy(out, reduced)
    return out


def test_collectives__between_ranks_are_said_to_be_there():
    """They are effects, so that calls stay in the graph; meetings of a launch's own programs are none."""
    call = record(reduced_over_ranks, X)
    assert call.has_collectives and call.has_effects and call.fields()["has_collectives"] is True
    call = record(kernels.summed_over_programs, X, grid=2)
    assert not call.has_collectives and not call.has_effects
