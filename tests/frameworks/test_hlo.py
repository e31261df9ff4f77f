# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""HLO modules by their wire format: messages after a round trip, damaged bytes, and the modules of single calls."""

import random
import re

import numpy as np
import pytest

from nki_mlir.dialects.kernel_function import ArgumentSpec
from nki_mlir.frameworks import hlo
from nki_mlir.graph.custom_call import TARGET, BadConfig
from nki_mlir.language.lowered import zeros_of
from nki_mlir.scalar.dtypes import dtype_of

from . import kernels
from .test_custom_call import record


def drawn(rng, depth=2):
    """A message as fields, and what a reader finds in it."""
    parts, read = [], []
    for _ in range(rng.randint(0, 4)):
        number, kind = rng.choice([1, 2, 15, 16, 43, 2047, 1 << 20]), rng.randrange(5 if depth else 4)
        if kind == 0:
            value = rng.choice([0, 1, 127, 128, 300, 1 << 32, (1 << 64) - 1, rng.randrange(1 << 40)])
            parts.append((number, value))
            read.append((number, value))
        elif kind == 1:
            text = rng.choice(["", "name", "größe", "x" * 200])
            parts.append((number, text))
            read.append((number, text.encode()))
        elif kind == 2:
            data = bytes(rng.randrange(256) for _ in range(rng.randint(0, 9)))
            parts.append((number, data))
            read.append((number, data))
        elif kind == 3:
            values = [rng.choice([0, 5, 127, 128, 1 << 20]) for _ in range(rng.randint(0, 4))]
            parts.append((number, values))
            read.append((number, b"".join(map(hlo.varint, values))))
        else:
            inner, _ = drawn(rng, depth - 1)
            parts.append((number, hlo.message(*inner)))
            read.append((number, hlo.message(*inner)))
    return parts, read


def test_messages__are_read_as_they_were_written():
    rng = random.Random(1)
    for _ in range(200):
        parts, read = drawn(rng)
        data = hlo.message(*parts)
        assert list(hlo.fields(data)) == read
        for end in range(len(data)):
            try:
                assert list(hlo.fields(data[:end])) == read[:len(list(hlo.fields(data[:end])))]
            except BadConfig as error:
                assert "HLO module" in str(error)


@pytest.mark.parametrize("data, fields", [
    (b"\x08\x96\x01", [(1, 150)]), (b"\x12\x07testing", [(2, b"testing")]), (b"\x0d\x01\x02\x03\x04", [(1, b"\1\2\3\4")]),
    (b"\x09\1\2\3\4\5\6\7\x08", [(1, b"\1\2\3\4\5\6\7\x08")]), (b"", []), (b"\x22\x00\x08\x01", [(4, b""), (1, 1)])])
def test_the_wire_format(data, fields):
    assert list(hlo.fields(data)) == fields


@pytest.mark.parametrize("data, message", [
    (b"\x08", "not protobuf"), (b"\x08\x80", "not protobuf"), (b"\x0b", "not protobuf"), (b"\x0f", "not protobuf"),
    (b"\x08" + b"\x80" * 10 + b"\x01", "not protobuf"), (b"\x12\x08testing", "ends in the middle"),
    (b"\x0d\x01\x02\x03", "ends in the middle"), (b"\x09" + b"\1" * 7, "ends in the middle")])
def test_bytes_that_are_no_message__are_an_error(data, message):
    with pytest.raises(BadConfig, match=message):
        list(hlo.fields(data))


def computation(*instructions):
    return hlo.message((1, "main"), *((2, hlo.message(*i)) for i in instructions))


def test_configs_of_modules():
    calls = [[(1, "a"), (28, TARGET), (43, "QUJD")], [(28, "other"), (43, "WFla")], [(2, "add")],
             [(28, TARGET), (43, '{kernel_record = "REVG"}')]]
    data = hlo.message((1, "module"), (3, computation(*calls[:2])), (2, "main"), (3, computation(*calls[2:])), (5, 7),
                       (4, computation([(28, TARGET), (43, "R0hJ")])), (3, 5))
    assert hlo.configs_of_proto(data) == ["QUJD", "REVG"]
    assert hlo.configs_of_proto(hlo.message((3, hlo.message((2, 5), (1, "x"))))) == []
    text = "\n".join(f'  x.{k} = f32[2] custom-call(), custom_call_target="{target}", backend_config={config}'
                     for k, (target, config) in enumerate([(TARGET, '"QUJD"'), ("other", '"WFla"'), (TARGET, "REVG="),
                                                           (TARGET, '{kernel_record = "R0hJ"}')]))
    assert hlo.configs_of_text(text) == ["QUJD", "REVG=", "R0hJ"]
    with pytest.raises(BadConfig, match="no kernel in its backend_config"):
        hlo.config_in("{}")


def shape_fields(data):
    """The element type and the dimensions of a ``ShapeProto``; its layout must be row-major."""
    values = dict(hlo.fields(data))
    dims = [*values.get(3, b"")]
    assert [*dict(hlo.fields(values[5])).get(1, b"")] == [*range(len(dims))][::-1] and len(values.get(6, b"")) == len(dims)
    return values[2], dims


@pytest.mark.parametrize("shape, dtype, element, name", [((8, 4), "float32", 11, "f32"), ((8, 24), "bfloat16", 16, "bf16"),
                                                         ((8, 4), "int32", 4, "s32"), ((16, 4), "float16", 10, "f16")])
def test_modules_of_single_calls(shape, dtype, element, name):
    """The protobuf and the text have the config, and the shapes of operands and results."""
    call = record(kernels.scaled, zeros_of(shape, dtype_of(dtype)), 2)
    data, text = hlo.module_of(call), hlo.text_of(call)
    assert hlo.configs_of_proto(data) == hlo.configs_of_text(text) == [call.config]
    module = dict(hlo.fields(data))
    instructions = [dict(hlo.fields(value)) for number, value in hlo.fields(module[3]) if number == 2]
    *parameters, last = instructions
    assert [shape_fields(p[3]) for p in parameters] == [(element, [*shape])] == [shape_fields(last[3])]
    assert [p[2] for p in instructions] == [b"parameter"] * len(parameters) + [b"custom-call"]
    assert [p.get(9) for p in parameters] == [*range(len(parameters))]
    assert [i[35] for i in instructions] == [*range(1, len(instructions) + 1)] and [*last[36]] == [p[35] for p in parameters]
    assert dict(hlo.fields(module[3]))[6] == last[35] and module[1] == call.name.encode() and last[77] == 2
    kind = f"{name}[{','.join(map(str, shape))}]{{{','.join(map(str, reversed(range(len(shape)))))}}}"
    assert f"entry_computation_layout={{({kind})->{kind}}}" in text and f"= {kind} parameter(0)" in text
    assert re.search(rf"ROOT nki_call.2 = {re.escape(kind)} custom-call\(\w+\.0\)", text)
    program = dict(hlo.fields(module[4]))
    assert shape_fields(program[1]) == shape_fields(program[2]) == (element, [*shape])


def test_varints():
    for value in (0, 1, 127, 128, 16383, 16384, (1 << 64) - 1, *np.random.default_rng(0).integers(0, 1 << 62, 20).tolist()):
        data = hlo.varint(value)
        assert sum((byte & 0x7F) << 7 * k for k, byte in enumerate(data)) == value
        assert all(byte & 0x80 for byte in data[:-1]) and not data[-1] & 0x80


def test_modules_of_calls_with_several_results():
    """The result is a tuple; an operand that the kernel updates is an alias of its result."""
    x = np.zeros((32, 16), np.float32)
    call = record(kernels.sum_and_difference, x, x)
    text, module = hlo.text_of(call), dict(hlo.fields(hlo.module_of(call)))
    kind = "f32[32,16]{1,0}"
    assert f"({kind}, {kind})->({kind}, {kind})}}" in text and f"ROOT nki_call.3 = ({kind}, {kind}) custom-call(" in text
    last = dict(hlo.fields([value for number, value in hlo.fields(module[3]) if number == 2][-1]))
    result = list(hlo.fields(last[3]))
    assert result[0] == (2, hlo.TUPLE) and [shape_fields(v) for n, v in result[1:]] == [(11, [32, 16])] * 2
    assert "output_to_operand_aliasing" not in text and 74 not in last
    updating = record(kernels.add_rows, x, x)
    text, module = hlo.text_of(updating), dict(hlo.fields(hlo.module_of(updating)))
    last = dict(hlo.fields([value for number, value in hlo.fields(module[3]) if number == 2][-1]))
    assert updating.form.aliases == {0: 0} and "output_to_operand_aliasing={{}: (0, {})}, " in text
    assert list(hlo.fields(last[74])) == [(2, 0)]


@pytest.mark.parametrize("dtype, name", [("bool", "pred"), ("tfloat32", "f32"), ("uint8", "u8"), ("int16", "s16"),
                                         ("float8_e5m2", "f8e5m2"), ("float32", "f32"), ("uint32", "u32")])
def test_types_in_text(dtype, name):
    spec = ArgumentSpec("input", 0, "x", (2, 3), dtype_of(dtype))
    assert hlo.type_of(spec) == f"{name}[2,3]{{1,0}}"
    assert hlo.type_of(ArgumentSpec("input", 0, "x", (), dtype_of(dtype))) == f"{name}[]{{}}"
    assert dict(hlo.fields(hlo.shape_of(ArgumentSpec("input", 0, "x", (), dtype_of("int32"))))) == {2: 4, 5: b""}
