# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generates functions for the instructions of plugins from their op classes, for kernels of both generations."""

from collections.abc import Callable
from inspect import signature

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects import catalog
from nki_mlir.dialects.op import NisaOp, Op
from nki_mlir.language import generated_functions
from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta.calls import BETA
from nki_mlir.language.current import instruction as current_instruction
from nki_mlir.language.current import isa_compute
from nki_mlir.language.current.calls import CURRENT
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.entries.entry import Regular
from nki_mlir.language.signatures import table
from nki_mlir.language.signatures.binding import bound
from nki_mlir.language.signatures.kinds import KINDS

KIND_OF = {float: "NUMBER", int: "INTEGER", bool: "FLAG", tuple: "INTEGERS"}       # of attributes, by their type


class NotRegular(NkiMlirError):
    code = "NKI-PLUGIN-INSTRUCTION"
    message = "cannot create a function for {op}: {what}"
    why = "the class needs a tile dst that it only writes, tiles that it reads, and attributes of plain types"
    fix = "change the class"


def instruction(cls: type[Op], does: str, **parameters: str) -> Callable[..., object]:
    """Generate the function of an op class, like the functions of ``nisa``.

    In the beta generation it takes the tiles that are read, the attributes, ``mask`` and ``dtype``, and returns a tile;
    in the current one it writes ``dst``, its first argument. Parameters have the names of the class's fields.

    Arguments:
        cls: a subclass of NisaOp
        does: a sentence for ``help()``
        parameters: parameters whose name differs from their field's: parameter="field"

    Errors:
        A class without a tile ``dst`` that it only writes, without tiles that it reads, or with attributes that are
        neither numbers nor names is an error.
    """
    check_class(cls)
    names = {field: parameter for parameter, field in parameters.items()}
    sources = {names.get(tile.name, tile.name): tile.name for tile in cls.tiles if tile.name != "dst"}
    attributes = {names.get(field, field): field for field in ordered(cls)}
    shown = [*sources, *(f"{n}={default(cls, field)}" if field in cls.defaults else n
                         for n, field in attributes.items())]
    kinds = [f"TILE {n}" for n in sources if n not in KINDS]
    kinds += [f"{KIND_OF[cls.attributes[field]]} {n}" for n, field in attributes.items() if n not in KINDS]
    title = f"{cls.__module__.partition('.')[0]}.{cls.name}"
    table.add(f"nki.isa.{title}", (
        *((("kinds", ", ".join(kinds)),) if kinds else ()),
        (table.RELEASES[0], f"({', '.join(shown)}, *, mask=None, dtype=None)"),
        (table.RELEASES[table.FIRST_OF_CURRENT], f"(dst, {', '.join(shown)}, name=None)")))
    entry = Regular(does, sources, named={n: f for n, f in attributes.items() if n != f}, op=cls.name)
    beta = bound(generated_functions.function(title, entry, BETA, beta_isa.TEXTS, beta_isa.computing),
                 f"nki.isa.{title}", BETA)
    current = current_instruction.instruction(
        generated_functions.function(title, entry, CURRENT, isa_compute.TEXTS, isa_compute.writing, not_given="name"))

    def call(*values: object, **named: object) -> object:
        generation = current if any(isinstance(v, NkiTensor) for v in (*values, *named.values())) else beta
        return generation(*values, **named)
    call.__name__ = call.__qualname__ = cls.name
    call.__doc__ = f"{does}\n\nIn neuronxcc.nki: {cls.name}{signature(beta)}\nIn nki: {cls.name}{signature(current)}"
    return call


def ordered(cls: type[Op]) -> list[str]:
    """Return the attributes as parameters: first those without a default, last the engine if the class has
    several."""
    fields = sorted((f for f in cls.attributes if f != "engine"), key=lambda field: field in cls.defaults)
    return [*fields, "engine"] if len(cls.engines) > 1 else fields


def default(cls: type[Op], field: str) -> str:
    """Return a default as the table of signatures writes it."""
    return "engine.unknown" if field == "engine" else repr(cls.defaults[field])


def check_class(cls: type[Op]) -> None:
    """Raise an error if no function can be generated from the class, or if the dialect does not have it."""
    problem = ""
    if not (isinstance(cls, type) and issubclass(cls, NisaOp) and cls.name):
        raise NotRegular(op=getattr(cls, "__name__", cls), what="it is not a subclass of NisaOp with a name")
    roles = {tile.name: tile for tile in cls.tiles}
    if "dst" not in roles or roles["dst"].reads:
        problem = "it has no tile dst that is only written"
    odd = [n for n, tile in roles.items() if n != "dst" and (tile.optional or tile.writes)]
    if odd:
        problem = f"tile {odd[0]} is optional, or written"
    odd = [n for n, kind in cls.attributes.items() if kind not in KIND_OF and n not in KINDS]
    if odd:
        problem = f"attribute {odd[0]} is neither a number nor the name of an operator or engine"
    if problem:
        raise NotRegular(op=cls.full_name(), what=problem)
    if catalog.is_late(cls.full_name()):
        raise catalog.LateOperation(op=cls.full_name())
