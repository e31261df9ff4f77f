# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The custom call in graphs: documented form, attributes, what XLA and the handler make of a wrong one."""

import base64
import json
import re

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from nki_mlir.frameworks.jax_primitive import registered_handler  # noqa: E402
from nki_mlir.graph.custom_call import TARGET, read_record  # noqa: E402

from . import kernels  # noqa: E402
from .versions import JAX, hlo_text  # noqa: E402

pytestmark = pytest.mark.jax

A = np.arange(512, dtype=np.float32).reshape(32, 16)


def program(a, b):
    return a * b * kernels.add[2](a, b)


def test_compiled_graph__shows_the_custom_call():
    text = jax.jit(jax.jit(program)).lower(A, A).compile().runtime_executable().hlo_modules()[0].to_string()
    assert f'custom_call_target="{TARGET}"' in text and "kernel_key" in text
    named = "nki_call" if JAX >= (0, 7) else "custom-call"
    assert re.search(rf"%{named}\S* = f32\[32,16\]", text)


def test_neuron_graph__has_the_documented_form():
    lowered = jax.jit(program).trace(A, A).lower(lowering_platforms=("neuron",))
    text = hlo_text(lowered)
    assert f'custom_call_target="{TARGET}", api_version=API_VERSION_STATUS_RETURNING, backend_config="' in text
    assert text.count("custom_call_target=") == 1
    config = re.search(r'backend_config="([^"]*)"', text)[1]
    fields = json.loads(base64.b64decode(config))
    assert fields["func_name"] == "add" and fields["grid"] == [2] and fields["input_names"] == ["a", "b"]
    assert fields["kernel_version"] == 1 and fields["has_collectives"] is False
    assert {"binary": "", "input_names": ["a", "b"], "output_names": ["out"]}.items() <= fields["klir_binary"].items()
    assert read_record(config).form.operands == (0, 1)
    assert "api_version = 2 : i32" in lowered.as_text()


def test_neuron_graph__updated_operand_is_aliased():
    text = jax.jit(kernels.add_rows).trace(A, A[:8]).lower(lowering_platforms=("neuron",)).as_text()
    assert "output_operand_aliases" in text and "operand_index = 0" in text


def test_graph__two_platforms_in_one_module():
    text = jax.jit(program).trace(A, A).lower(lowering_platforms=("cpu", "neuron")).as_text()
    assert text.count(TARGET) == 2 and "kernel_id" in text and "api_version = 2" in text


def test_graph__names_a_kernel_by_its_content():
    texts = {jax.jit(lambda a, b: kernels.add[2](a, b)).lower(A, A).as_text() for _ in range(2)}
    assert len(texts) == 1
    assert [s.key in text for text in texts for s in kernels.add.specializations.values()].count(True) == 1


def test_jaxpr__shows_the_kernel():
    assert "func=add" in str(jax.make_jaxpr(program)(A, A)) and "grid=(2,)" in str(jax.make_jaxpr(program)(A, A))


# -- calls that are not ours -------------------------------------------------------------------------------------------
def call(*operands, result=((32, 16), jnp.float32), **attributes):
    registered_handler()
    kind = jax.ShapeDtypeStruct(*result)
    return jax.jit(lambda *a: jax.ffi.ffi_call(TARGET, kind)(*a, **attributes))(*operands).block_until_ready()


def attributes_of(kernel, *arguments):
    text = jax.jit(kernel).lower(*arguments).as_text()
    attributes = dict(re.findall(r'(kernel_\w+) = "([^"]*)"', text))
    return attributes | {"kernel_id": np.int64(re.search(r"kernel_id = (\d+)", text)[1])}


def test_handler__runs_a_call_that_was_made_by_hand():
    np.testing.assert_array_equal(call(A, A, **attributes_of(kernels.add[2], A, A)), A + A)


@pytest.mark.parametrize("attributes, says", [
    ({}, "it carries no kernel_record"),
    ({"kernel_id": np.int64(7)}, "it carries no kernel_record"),
    ({"kernel_id": np.int64(7), "kernel_key": "x" * 64, "kernel_record": "?"}, "it is not base64 of JSON"),
    ({"kernel_id": 1.5, "kernel_key": 3}, "it carries no kernel_record")])
def test_handler__refuses_a_call_without_a_kernel(attributes, says):
    with pytest.raises(jax.errors.JaxRuntimeError, match=says):
        call(A, A, **attributes)


@pytest.mark.parametrize("wrong", [{"kernel_key": "0" * 64}, {"kernel_id": np.int64(7)}, {"kernel_id": np.int64(0)}])
def test_handler__refuses_a_key_or_number_that_is_not_the_kernels(wrong):
    attributes = attributes_of(kernels.add[2], A, A) | wrong
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"{next(iter(wrong))} does not belong to its kernel_record"):
        call(A, A, **attributes)


@pytest.mark.parametrize("operands, result", [
    ((A,), ((32, 16), jnp.float32)), ((A, A, A), ((32, 16), jnp.float32)), ((A[:16], A), ((32, 16), jnp.float32)),
    ((A, A.astype(np.int32)), ((32, 16), jnp.float32)), ((A, A), ((32, 8), jnp.float32)),
    ((A, A), ((32, 16), jnp.bfloat16))])
def test_handler__refuses_buffers_that_are_not_the_kernels(operands, result):
    attributes = attributes_of(kernels.add[2], A, A)
    with pytest.raises(jax.errors.JaxRuntimeError, match="operands or results are not those of its kernel"):
        call(*operands, result=result, **attributes)
