# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels out of modules: every form of StableHLO and HLO, in a process that never saw the kernel's Python."""

import io
from functools import cache

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from jax import export  # noqa: E402
from jax.interpreters import mlir  # noqa: E402

from nki_mlir.bindings import ir  # noqa: E402
from nki_mlir.frameworks.hlo import fields, message, varint  # noqa: E402
from nki_mlir.frameworks.jax import export_checks  # noqa: E402
from nki_mlir.frameworks.recovery import kernels_in  # noqa: E402
from nki_mlir.frameworks.registry import BadArguments  # noqa: E402
from nki_mlir.graph.custom_call import BadConfig  # noqa: E402
from nki_mlir.graph.upstream import BadModule, graph_context  # noqa: E402

from . import kernels  # noqa: E402
from .versions import hlo_text  # noqa: E402

pytestmark = pytest.mark.jax

A = np.arange(512, dtype=np.float32).reshape(32, 16)
B = A[::-1].copy()


def program(a, b):
    total, difference = kernels.sum_and_difference(a, b)
    return kernels.add_rows(total * difference, b[:8]) + kernels.add[2](a, b)


@cache
def forms():
    """The program in every form that a module comes in."""
    f = jax.jit(program)
    cpu, neuron = f.lower(A, B), f.trace(A, B).lower(lowering_platforms=("neuron",))
    compiled = cpu.compile().runtime_executable().hlo_modules()[0]
    with graph_context() as context, ir.Location.unknown():
        stream = io.BytesIO()
        ir.Module.parse(cpu.as_text(), context).operation.write_bytecode(stream)
    return {
        "stablehlo text": cpu.as_text(), "stablehlo text for neuron": neuron.as_text(),
        "bytecode": stream.getvalue(), "bytecode of jaxlib": mlir.module_to_bytecode(cpu.compiler_ir("stablehlo")),
        "portable artifact": export.export(f, disabled_checks=export_checks())(A, B).mlir_module_serialized,
        "hlo text": hlo_text(cpu), "hlo text for neuron": hlo_text(neuron),
        "hlo proto": cpu.compiler_ir("hlo").as_serialized_hlo_module_proto(),
        "hlo proto for neuron": neuron.compiler_ir("hlo").as_serialized_hlo_module_proto(),
        "compiled hlo text": compiled.to_string(), "compiled hlo proto": compiled.as_serialized_hlo_module_proto()}


NAMES = ["stablehlo text", "stablehlo text for neuron", "bytecode", "bytecode of jaxlib", "portable artifact", "hlo text",
         "hlo text for neuron", "hlo proto", "hlo proto for neuron", "compiled hlo text", "compiled hlo proto"]


def check(recovered):
    named = {k.name: k for k in recovered}
    assert len(recovered) == 3 and set(named) == {"sum_and_difference", "add_rows", "add"}
    total, difference = named["sum_and_difference"](A, B)
    np.testing.assert_array_equal(total, A + B)
    np.testing.assert_array_equal(difference, A - B)
    copy_of_a = A.copy()
    np.testing.assert_array_equal(named["add_rows"](copy_of_a, B[:8]), np.concatenate([A[:8] + B[:8], A[8:]]))
    np.testing.assert_array_equal(copy_of_a, A)
    assert named["add"].grid == (2,)
    np.testing.assert_array_equal(named["add"](A, B), A + B)


@pytest.mark.parametrize("form", NAMES)
def test_kernels__of_every_form(form):
    check(kernels_in(forms()[form]))


def test_kernels__in_a_process_without_their_python(child, tmp_path):
    for k, module in enumerate(forms().values()):
        data = module.encode() if isinstance(module, str) else module
        (tmp_path / f"module{k}.{'txt' if isinstance(module, str) else 'bin'}").write_bytes(data)
    assert child("""
import sys
from pathlib import Path
import numpy as np
sys.modules["jax"] = sys.modules["torch"] = None            # no framework is needed
from nki_mlir.frameworks.recovery import kernels_in
a = np.arange(512, dtype=np.float32).reshape(32, 16)
for file in Path(".").glob("module*"):
    found = kernels_in(file.read_text() if file.suffix == ".txt" else file.read_bytes())
    add = next(k for k in found if k.name == "add")
    assert len(found) == 3 and np.array_equal(add(a, a + 1), a + a + 1), file
print(len(list(Path(".").glob("module*"))))
""", NKI_MLIR_EXECUTOR="interpreter") == f"{len(NAMES)}\n"


def test_kernels__results_in_the_kernels_structure():
    (kernel,) = kernels_in(jax.jit(lambda a, b: kernels.named_results((a, b))["product"]).lower(A, B).as_text())
    np.testing.assert_array_equal(kernel(A, B)["product"], A * B)


def test_kernels__none():
    assert kernels_in(jax.jit(lambda a: a + 1).lower(A).as_text()) == []


# -- errors ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("arguments", [(A,), (A, B, B), (A, B[:8]), (A, B.astype(np.float64))])
def test_error__arguments_that_do_not_fit(arguments):
    kernel = next(k for k in kernels_in(forms()["hlo proto"]) if k.name == "add")
    with pytest.raises(BadArguments, match="@add takes"):
        kernel(*arguments)


@pytest.mark.parametrize("module, error, says", [
    ("module {", BadModule, "it does not parse"),
    (b"ML\xefRgarbage", BadModule, "it is bytecode of another version of MLIR"),
    (b"\xff" * 20, BadConfig, "the HLO module is not protobuf"),
    (b"\x1a\x7f", BadConfig, "the HLO module ends in the middle of a field"),
    ('HloModule m\n%c = f32[] custom-call(), custom_call_target="AwsNeuronCustomNativeKernel", backend_config=""',
     BadConfig, "it has no kernel in its backend_config")])
def test_error__modules_that_cannot_be_read(module, error, says):
    with pytest.raises(error, match=says):
        kernels_in(module)


def test_error__kernel_that_was_changed():
    text = forms()["hlo text for neuron"]
    at = text.index('backend_config="') + 3000
    with pytest.raises(BadConfig, match="it is not base64 of JSON"):
        kernels_in(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1:])


# -- the wire format ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("value, encoded", [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")])
def test_varint(value, encoded):
    assert varint(value) == encoded


def test_message__reads_back():
    inner = message((1, "text"), (2, 5))
    assert list(fields(message((1, 300), (2, inner), (3, [1, 300])))) == [(1, 300), (2, inner), (3, b"\x01\xac\x02")]
    assert list(fields(b"\x09" + b"\1" * 8 + b"\x15" + b"\2" * 4)) == [(1, b"\1" * 8), (2, b"\2" * 4)]
