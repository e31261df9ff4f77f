# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that are no more than their operation (``language/regular.py``) write ``dst``; their rules."""

from collections.abc import Callable
from typing import Any

from nki_mlir.dialects.nisa.accumulating import EXACT
from nki_mlir.dialects.op import Op
from nki_mlir.language import regular
from nki_mlir.language.creation import emit
from nki_mlir.language.current import lowering as low
from nki_mlir.language.current.errors import older, require, warn
from nki_mlir.language.current.instruction import activation_name, alu
from nki_mlir.language.current.isa_accumulate import accumulated, command_of, loaded
from nki_mlir.language.current.isa_elementwise import unary_operand
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.scalar.dtypes import INT32, TFLOAT32, UINT32

FP32_MIN = -3.4028235e38
TEXTS: dict[str, regular.Convert] = {
    "operator": lambda token, name, parameter: alu(token, f"{name} {parameter}"),
    "fn": lambda token, name, parameter: activation_name(token, f"{name} {parameter}"),
    "reduce_cmd": lambda command, name, parameter: command_of(name, command)}


def writing(name: str, cls: type[Op], entry: regular.Regular) -> object:
    """Write ``dst``: tiles of one shape are paired with it, others are rows of any lengths."""
    flat, rule = entry.shape is not None, RULES.get(name)
    reads = any(tile.name == "dst" and tile.reads for tile in cls.tiles)
    accumulates = any(tile.name == "accumulator" for tile in cls.tiles)
    paired, rows = ({}, entry.tiles | entry.rows) if flat else (entry.tiles, entry.rows)
    scalars = [(p, tile, number) for p, (tile, number) in entry.scalars.items()]

    def write(given: dict[str, Any], attributes: dict[str, Any]) -> None:
        if rule is not None:
            rule(given, attributes)
        with low.writing(given["dst"], name, reads=reads, flat=flat, scratch=accumulates) as out:
            if flat:
                views = {"dst": low.flat_view(out)}
            else:
                views = dict(zip(("dst", *paired.values()),
                                 low.paired(name, dst=out, **{p: given[p] for p in paired})))
            views |= {tile: low.flat_tile(name, p, given[p]) for p, tile in rows.items()}
            for parameter, tile, number in scalars:
                value = 0.0 if given[parameter] is None else given[parameter]
                views[tile], attributes[number] = low.number_and_tile(name, parameter, value, views["dst"])
            if not accumulates:
                emit(cls, views, **attributes)
                return
            command = attributes.pop("reduce_cmd")
            if entry.initial in given:
                command = loaded(name, command, given[entry.initial], out.shape[0])
            accumulated(name, cls, views.pop("dst"), views, cls.engines[0].value, given.get("reduce_res"), command,
                        **attributes)
    return write


# -- rules of this generation ------------------------------------------------------------------------------------------
def activate2(given: dict[str, object], attributes: dict[str, object]) -> None:
    for label, token in (("imm0", "op0"), ("imm1", "op1")):
        require(given[label] is not None or attributes[token] == "bypass", f"activate2 {label} is missing")


def nc_n_gather(given: dict[str, object], attributes: dict[str, object]) -> None:
    op = "nc_n_gather"
    low.in_sbuf(op, **given)
    dst, data, indices = (low.is_tensor(given[label], op, label) for label in ("dst", "data", "indices"))
    require(indices.dtype is UINT32, f"{op} indices must be uint32")
    require(data.dtype is dst.dtype, f"{op} dst is {dst.dtype}, data is {data.dtype}; they must be equal")


def tensor_scalar_reduce(given: dict[str, object], attributes: dict[str, Any]) -> None:
    op, reduce_op = "tensor_scalar_reduce", attributes["reduce_op"]
    given["operand0"] = unary_operand(op, attributes["op0"], given["operand0"], "operand0")
    require(reduce_op in ("add", "multiply", "maximum", "minimum"),
            f"{op} reduce_op {reduce_op} is not add, multiply, max or min")


def tensor_scalar_cumulative(given: dict[str, object], attributes: dict[str, object]) -> None:
    op = "tensor_scalar_cumulative"
    for label in ("dst", "src"):
        kind = low.is_tensor(given[label], op, label).dtype
        require(not kind.is_integer or kind.itemsize < 4, f"{op} {label} cannot be {kind}")


def range_select(given: dict[str, Any], attributes: dict[str, object]) -> None:
    op, tile, start = "range_select", given["on_true_tile"], given["range_start"]
    if given["on_false_value"] != FP32_MIN:
        warn(f"range_select on_false_value is always {FP32_MIN}; {given['on_false_value']} has no effect")
    attributes["fill"] = FP32_MIN
    require(attributes["reduce_op"] == "maximum", f"{op} reduce_op is maximum")
    kind = low.is_tensor(tile, op, "on_true_tile").dtype
    require(kind.is_float, f"{op} on_true_tile must be a float type, it is {kind}")
    last = start + tile.size // tile.shape[0]
    require(abs(start) < EXACT and last < EXACT, f"{op} counts from {start} to {last}, beyond 2**24")
    if attributes["reduce_cmd"] == "idle" and given["reduce_res"] is not None:  # the first release's default, replaced
        older("range_select(reduce_res=) with reduce_cmd idle is now range_select(reduce_cmd=reduce_cmd.reset_reduce)")
        attributes["reduce_cmd"] = "reset_reduce"


def select_reduce(given: dict[str, object], attributes: dict[str, object]) -> None:
    op, predicate, reduce_res = "select_reduce", given["predicate"], given["reduce_res"]
    require(attributes["reduce_op"] == "maximum", f"{op} reduce_op is maximum")
    require(isinstance(predicate, NkiTensor) and predicate.dtype.is_integer and predicate.itemsize <= 2,
            f"{op} predicate must be an integer of 8 or 16 bits")
    kind = low.is_tensor(given["on_true"], op, "on_true").dtype
    require(kind not in (INT32, UINT32, TFLOAT32), f"{op} on_true cannot be {kind}")
    require(not isinstance(reduce_res, NkiTensor) or reduce_res.dtype.is_float, f"{op} reduce_res must be a float type")


RULES: dict[str, Callable[[dict[str, object], dict[str, object]], None]] = {
    rule.__name__: rule for rule in (activate2, nc_n_gather, tensor_scalar_reduce, tensor_scalar_cumulative,
                                     range_select, select_reduce)}
