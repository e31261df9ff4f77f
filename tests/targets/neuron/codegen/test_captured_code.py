# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The records that are read from a capture equal those that are read from the captured module."""

import re
from dataclasses import fields

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.late_operations import LateOperations
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.codegen.captured_code import DelayedKernel, StraightKernel, lowered_variant
from nki_mlir.targets.neuron.codegen.lowered_kernel import LoweredKernel, at_nisa
from nki_mlir.targets.neuron.codegen.records import InstructionStep
from nki_mlir.targets.neuron.codegen.repeated_records import NoTemplate, Templates
from tests.examples import cases


def rows_of(code):
    """The records as plain values, with numbers in place of buffers."""
    buffers = [*code.globals, *code.body.buffers]
    number = {buffer: k for k, buffer in enumerate(buffers)}
    rows = [(code.name, code.machine, code.grid),
            *[(*[getattr(b, f.name) for f in fields(b) if f.init and f.name != "attributes"], str(b.attributes))
              for b in buffers]]
    for step in code.body.nodes:
        assert type(step) is InstructionStep
        op = step.op
        tiles = [None if (t := getattr(op, f.name)) is None else
                 (number[t.handle], t.space, t.base_shape, t.base_dtype, t.access, t.label) for f in op.tiles]
        values = [(name, type(v := getattr(op, name)), repr(v)) for name in REGISTRY[op.full_name()].attributes]
        rows.append((type(op), op.kind(), tiles, values, op.mask, op.limits, op.symbols, op.extra, step.location))
    return rows


def captured(kernel, *arrays):
    return kernel.specialize(kernel.bind(arrays, {}, is_array, describe_array)).captured


EXAMPLES = "average_pool2d", "cumulative_sum", "matmul", "normalization", "tensor_add", "transpose2d"


@pytest.mark.usefixtures("example_modules")
def test_examples(monkeypatch):
    straight = set()
    for name in EXAMPLES:
        for kernel, arrays, *_ in cases(f"current_{name}", monkeypatch):
            for variant in captured(kernel.uncached(), *arrays).variants.values():       # other tests read its modules
                lowered = lowered_variant(variant)
                if isinstance(lowered, StraightKernel):
                    straight.add(name)
                    from_capture = rows_of(lowered.code())
                    assert from_capture == rows_of(LoweredKernel(variant.module).code()), name
    assert straight == set(EXAMPLES)


@nki.jit
def stored(x):
    """With a tile at an address, numbers that attributes hold as floats, and the mark of an engine."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, address=(0, 1024))
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2, engine=nisa.vector_engine)
    nisa.dma_copy(dst=out, src=tile)
    return out


X = np.ones((64, 32), np.float32)


def test_module_is_complete_when_it_is_read():
    (variant,) = captured(stored, X).variants.values()
    lowered = lowered_variant(variant)
    assert variant.late is not None and isinstance(lowered, StraightKernel)
    text = str(variant.module)
    assert variant.late is None
    assert re.findall(r'memref.alloc|"nisa.\w+"|return', text) == [
        "memref.alloc", '"nisa.dma_copy"', '"nisa.tensor_scalar"', '"nisa.dma_copy"', "return"]
    assert 'nki.name = "tile"' in text and "nki.address" in text
    assert rows_of(lowered.code()) == rows_of(LoweredKernel(variant.module).code())
    (again,) = captured(stored, X).variants.values()
    assert again is variant and isinstance(lowered_variant(again), LoweredKernel)


def test_module_is_complete_after_an_interrupt(monkeypatch):
    (variant,) = captured(stored.uncached(), X).variants.values()
    (expected,) = captured(stored.uncached(), X).variants.values()
    write, calls = LateOperations.write_operation, []

    def interrupted(late, entry):
        calls.append(entry)
        write(late, entry)
        if len(calls) == 2:
            raise KeyboardInterrupt("between two operations")
    with monkeypatch.context() as patch:
        patch.setattr(LateOperations, "write_operation", interrupted)
        with pytest.raises(KeyboardInterrupt, match="between two operations"):
            variant.module  # noqa: B018
    assert str(variant.module) == str(expected.module)


@nki.jit
def divided(x, scale):
    """Operations that repeat others in other buffers and at other starts, folds with temporaries, parts of tiles."""
    out = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    factor = nl.load(scale)
    for k in range(x.shape[0] // 128):
        rows = nl.load(x[k * 128:k * 128 + 128, :])
        powers = nl.exp(nl.subtract(rows, nl.max(rows, axis=1, keepdims=True)))
        total = nl.sum(powers[:, k * 8:k * 8 + 16], axis=1, keepdims=True)
        result = nl.multiply(nl.divide(powers, total), factor, dtype=nl.bfloat16)
        nl.store(out[k * 128:k * 128 + 128, :], result)
    return out


def test_operations_that_repeat_others_are_not_mlir():
    (variant,) = captured(divided, np.ones((512, 64), np.float32), np.ones((128, 1), np.float32)).variants.values()
    lowered = lowered_variant(variant)
    assert isinstance(lowered, DelayedKernel) and variant.late is not None
    records = rows_of(lowered.code())
    other = LoweredKernel(variant.module)
    assert records == rows_of(other.code()) == rows_of(LoweredKernel(at_nisa(variant.module), is_lowered=True).code())
    assert len(lowered.repeats.repeated) == len(other.repeats.repeated) >= 15


def test_operations_without_a_template_become_mlir(monkeypatch):
    (variant,) = captured(divided.uncached(), np.ones((256, 64), np.float32), np.ones((128, 1), np.float32)
                          ).variants.values()
    lowered = lowered_variant(variant)
    expected = rows_of(lowered.code())

    def refuse(*arguments):
        raise NoTemplate
    monkeypatch.setattr(Templates, "note_instruction", refuse)
    assert rows_of(lowered.code()) == expected
    assert variant.late is None and lowered.repeats is None


def test_without_rules_the_module_is_verified(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "off")

    @nki.jit
    def lanes(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_copy(dst=tile[5:9], src=tile[5:9])
        nisa.dma_copy(dst=out, src=tile)
        return out
    with pytest.raises(NkiMlirError, match="partition 5"):
        neuron.lowered(captured(lanes, X))
