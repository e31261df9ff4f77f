# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Read the configs of kernels from HLO modules (text or protobuf), and write the module of a single call.

The protobuf is read and written by its wire format, so neither a framework nor a protobuf library is needed. The field
numbers are those of ``xla/service/hlo.proto`` and ``xla/xla_data.proto``.
"""

import re
from collections.abc import Iterator
from typing import Any

from nki_mlir.dialects.kernel_function import ArgumentSpec
from nki_mlir.frameworks.xla_handler import DATA_TYPE
from nki_mlir.graph.custom_call import TARGET, BadConfig, KernelRecord

TUPLE = 13                                  # the number in PrimitiveType
STATUS_RETURNING = 2                        # the number in CustomCallApiVersion

Field = tuple[int, int | bytes]


# -- the wire format ---------------------------------------------------------------------------------------------------
def fields(data: bytes) -> Iterator[Field]:
    """Yield the fields of a protobuf message as (field number, value): varints as ints, all else as bytes. Raise
    ``BadConfig`` if the bytes are not a message."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise BadConfig(what="the HLO module is not protobuf")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
    while at < len(data):
        tag = number()
        match tag & 7:
            case 0:
                yield tag >> 3, number()
                continue
            case 1 | 5 as fixed:
                size = 8 if fixed == 1 else 4
            case 2:
                size = number()
            case _:
                raise BadConfig(what="the HLO module is not protobuf")
        if at + size > len(data):
            raise BadConfig(what="the HLO module ends in the middle of a field")
        at += size
        yield tag >> 3, data[at - size:at]


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(*parts: tuple[int, Any]) -> bytes:
    """Encode a message of fields whose values are ints, text, other messages, or lists of ints (packed)."""
    out = b""
    for number, value in parts:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value)
            continue
        data = value.encode() if isinstance(value, str) else value
        data = b"".join(map(varint, data)) if isinstance(data, (list, tuple)) else data
        out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


# -- reading -----------------------------------------------------------------------------------------------------------
def configs_of_proto(data: bytes) -> list[str]:
    """Return the configs of all kernels that an ``HloModuleProto`` calls, in the order of the calls."""
    configs = []
    for number, computation in fields(data):
        for inner, instruction in fields(computation) if number == 3 and isinstance(computation, bytes) else ():
            if inner == 2 and isinstance(instruction, bytes):
                values = dict(fields(instruction))
                if values.get(28) == TARGET.encode():
                    config = values.get(43, b"")
                    configs.append(config_in(config.decode() if isinstance(config, bytes) else ""))
    return configs


def configs_of_text(text: str) -> list[str]:
    """Return the configs of all kernels that HLO text calls, in the order of the calls."""
    called = [line for line in text.splitlines() if f'custom_call_target="{TARGET}"' in line]
    return [config_in(line.rpartition("backend_config=")[2]) for line in called]


def config_in(text: str) -> str:
    """Extract the config from a ``backend_config``, which is the documented string or the attributes of a typed call.
    """
    match = re.search(r'kernel_record = "([A-Za-z0-9+/=]+)"', text) or re.match(r'"?([A-Za-z0-9+/=]+)"?', text)
    if not match:
        raise BadConfig(what="it has no kernel in its backend_config")
    return match[1]


# -- the module of one call --------------------------------------------------------------------------------------------
def module_of(record: KernelRecord) -> bytes:
    """Return an ``HloModuleProto`` whose program is a single call of the kernel."""
    operands, results = list(map(shape_of, record.operands)), list(map(shape_of, record.results))
    tuple_shape = message((2, TUPLE), *((4, r) for r in results))
    call = results[0] if len(results) == 1 else tuple_shape
    aliases = [(74, message(*([(1, [n])] if len(results) > 1 else []), (2, k)))
               for k, n in record.form.aliases.items()]
    last = len(operands) + 1                            # ids count from 1
    instructions = [message((1, f"{s.name}.{k}"), (2, "parameter"), (3, shape), (9, k), (35, k + 1))
                    for k, (s, shape) in enumerate(zip(record.operands, operands))]
    instructions.append(message(
        (1, f"nki_call.{last}"), (2, "custom-call"), (3, call), (7, message((2, f"nki_call/{record.name}"))),
        (28, TARGET), (35, last), *([(36, list(range(1, last)))] if operands else []), (43, record.config), *aliases,
        (77, STATUS_RETURNING)))
    program = message(*((1, shape) for shape in operands), (2, call), *((3, s.name) for s in record.operands))
    entry = message((1, "main"), *((2, i) for i in instructions), (4, program), (5, 1), (6, last))
    return message((1, record.name), (2, "main"), (3, entry), (4, program), (5, 1), (6, 1))


def text_of(record: KernelRecord) -> str:
    """Return the module of ``module_of`` as HLO text."""
    types = [type_of(r) for r in record.results]
    call = types[0] if len(types) == 1 else f"({', '.join(types)})"
    names = [f"{s.name}.{k}" for k, s in enumerate(record.operands)]
    aliases = ", ".join(f"{{{n if len(types) > 1 else ''}}}: ({k}, {{}})" for k, n in record.form.aliases.items())
    aliasing = f"output_to_operand_aliasing={{{aliases}}}, " if aliases else ""
    lines = [f"  {name} = {type_of(s)} parameter({k})" for k, (name, s) in enumerate(zip(names, record.operands))]
    parameters = ", ".join(map(type_of, record.operands))
    return "\n".join([
        f"HloModule {record.name}, entry_computation_layout={{({parameters})->{call}}}", "", "ENTRY main {", *lines,
        f"  ROOT nki_call.{len(names) + 1} = {call} custom-call({', '.join(names)}), custom_call_target=\"{TARGET}\", "
        f'{aliasing}api_version=API_VERSION_STATUS_RETURNING, metadata={{op_name="nki_call/{record.name}"}}, '
        f'backend_config="{record.config}"', "}", ""])


def shape_of(spec: ArgumentSpec) -> bytes:
    """Encode a buffer's shape as a row-major ``ShapeProto``."""
    assert spec.dtype is not None
    order = list(reversed(range(len(spec.shape))))
    dims = [(3, list(spec.shape)), (6, [0] * len(spec.shape))] if spec.shape else []
    return message((2, DATA_TYPE[spec.dtype]), *dims, (5, message(*([(1, order)] if order else []))))


def type_of(spec: ArgumentSpec) -> str:
    """Return a buffer's type as in HLO text: ``f32[32,16]{1,0}``."""
    assert spec.dtype is not None
    element = {"i1": "pred", "tf32": "f32"}.get(spec.dtype.mlir, spec.dtype.mlir.lower())
    name = re.sub(r"^(u?)i(\d+)$", lambda m: f"{m[1] or 's'}{m[2]}", element)
    order = ",".join(map(str, reversed(range(len(spec.shape)))))
    return f"{name}[{','.join(map(str, spec.shape))}]{{{order}}}"
