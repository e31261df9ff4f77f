# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.isa`` (``nisa``): one function per engine instruction, returning new tiles."""

from typing import Any

from nki_mlir.capture.builder import current
from nki_mlir.dialects.op import Op
from nki_mlir.language import generated_functions
from nki_mlir.language import operations as ops
from nki_mlir.language.beta import enums, isa_compute
from nki_mlir.language.beta.calls import BETA, bind_module, missing_from
from nki_mlir.language.beta.enums import nc_version
from nki_mlir.language.beta.isa_compute import tensor_scalar_cumulative
from nki_mlir.language.creation import as_operand
from nki_mlir.language.entries.entry import Regular
from nki_mlir.language.functions import dropout
from nki_mlir.language.functions import fp32 as fp32
from nki_mlir.language.instructions import (
    check_destination,
    command_name,
    note_registers,
    operand,
    registers,
    require_from_first,
)
from nki_mlir.language.signatures.binding import Contents
from nki_mlir.language.signatures.table import listing, published
from nki_mlir.machine import DEFAULT_TARGET, machine_named
from nki_mlir.scalar.dtypes import promote
from nki_mlir.scalar.tokens import alu_token


def get_nc_version() -> nc_version:
    """Return the generation of the kernel's target."""
    builder = current.get()
    return nc_version(machine_named(builder.target if builder is not None else DEFAULT_TARGET).generation)


def computing(name: str, cls: type[Op], entry: Regular) -> object:
    """Return the function that emits an instruction, which writes a new tile, or ``dst`` if the call has one."""
    scalars = [(p, tile, number) for p, (tile, number) in entry.scalars.items()]
    accumulates = any(field.name == "accumulator" for field in cls.tiles)

    def compute(arguments: dict[str, Any], attributes: dict[str, Any]) -> object:
        dst, mask, explicit_dtype = arguments.get("dst"), arguments.get("mask"), arguments.get("dtype")
        tiles = {tile: as_operand(arguments[p]) for p, tile in entry.tiles.items()}
        first_tile = next(iter(tiles.values()))
        if entry.positions and (entry.positions == "dst" or arguments[entry.positions] is not None):
            require_from_first(name, mask, first_tile.shape, *range(1, first_tile.ndim))
        shape: tuple[int, ...] = first_tile.shape
        kind = entry.dtype or first_tile.dtype
        if dst is not None:
            check_destination(name, dst, explicit_dtype)
        elif entry.shape is not None:
            shape = entry.shape([t.shape for t in tiles.values()], attributes)
        else:
            for tile, view in tiles.items():
                kind = promote(kind, view.dtype) if view is not first_tile else kind
                tiles[tile] = view if cls.broadcasts else view.broadcast_to(shape)
        views = tiles | {tile: arguments[p] for p, tile in entry.rows.items()}
        for parameter, tile, number in scalars:
            views[tile], attributes[number] = operand(arguments[parameter])
        if accumulates:
            engine, reduce_res = cls.engines[0].value, arguments["reduce_res"]
            note_registers(engine, attributes["reduce_cmd"], reduce_res)
            views |= {"accumulator": registers(engine, shape[0]), "reduce_res": reduce_res}
        if explicit_dtype is None and (entry.dtype is not None or "dtype" not in arguments):
            explicit_dtype = kind                        # nothing else changes the result's dtype
        return ops.compute(cls, shape, kind, views, mask, explicit_dtype=explicit_dtype, destination=dst, **attributes)
    return compute


TEXTS: dict[str, generated_functions.Convert] = {"operator": lambda token, *_: alu_token(token).name,
                                     "reduce_cmd": lambda command, *_: command_name(command)}
BETA.values.enumerations |= {e: getattr(enums, e) for e in ("engine", "reduce_cmd", "dge_mode", "oob_mode")}
BETA.names |= {**BETA.values.enumerations, "fp32": fp32}
BETA.values.numbers["engine", 4] = "sync"             # ``dma`` of release 2.22
globals().update(published("nki.isa", BETA.name, enums, isa_compute))
globals().update(generated_functions.functions(BETA, TEXTS, computing, globals()))
bind_module(globals(), "nki.isa")
__doc__ = Contents(__doc__ or "", "nki.isa", BETA.name)
__dir__ = listing(globals(), "nki.isa", BETA.name)
__getattr__ = missing_from("module 'neuronxcc.nki.isa'", globals())
