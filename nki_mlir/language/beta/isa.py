# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.isa`` (``nisa``): one function per engine instruction, returning new tiles."""

from typing import Any

from nki_mlir.dialects.op import Op
from nki_mlir.frontend.builder import current
from nki_mlir.language import operations as ops
from nki_mlir.language import regular
from nki_mlir.language.beta import enums, isa_compute, isa_special
from nki_mlir.language.beta.calls import BETA, bind_module, missing_from
from nki_mlir.language.beta.enums import nc_version
from nki_mlir.language.beta.isa_special import tensor_scalar_cumulative
from nki_mlir.language.creation import as_operand
from nki_mlir.language.instructions import operand
from nki_mlir.language.signatures.table import published
from nki_mlir.language.special import dropout
from nki_mlir.language.tiles import fp32 as fp32
from nki_mlir.machine import machine_named
from nki_mlir.scalar.promotion import promote
from nki_mlir.scalar.tokens import alu_token


def get_nc_version() -> nc_version:
    """The generation of the kernel's target."""
    builder = current.get()
    return nc_version(machine_named(builder.target if builder is not None else "trn2").generation)


def _computing(cls: type[Op], entry: regular.Regular) -> Any:
    """A new tile, which an instruction makes of its tiles."""
    (source, place), *others = entry.tiles.items()
    scalars = [(p, tile, number) for p, (tile, number) in entry.scalars.items()]

    def compute(given: dict[str, Any], attributes: dict[str, Any]) -> Any:
        first, dtype = as_operand(given[source]), given["dtype"]
        shape, kind, views = first.shape, first.dtype, {place: first}
        for parameter, tile in others:
            views[tile] = other = as_operand(given[parameter])
            if not entry.rows:
                kind = promote(kind, other.dtype)
                if not cls.broadcasts:
                    views[tile] = other.broadcast_to(shape)
        for parameter, tile, number in scalars:
            views[tile], attributes[number] = operand(given[parameter])
        return ops.compute(cls, (shape[0], entry.rows) if entry.rows else shape, dtype or kind, views, given["mask"],
                           explicit_dtype=dtype is not None, **attributes)
    return compute


BETA.values.enumerations |= {e: getattr(enums, e) for e in ("engine", "reduce_cmd", "dge_mode", "oob_mode")}
BETA.names |= {**BETA.values.enumerations, "fp32": fp32}
BETA.values.numbers["engine", 4] = "sync"             # ``dma`` of release 2.22
globals().update(published("nki.isa", BETA.name, enums, isa_compute, isa_special))
globals().update(regular.functions(BETA, lambda token, what: alu_token(token).name, _computing, globals()))
bind_module(globals(), "nki.isa")
__getattr__ = missing_from("module 'neuronxcc.nki.isa'", globals())
