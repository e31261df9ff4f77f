# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Generates the functions of instructions that consist only of their operation, in both generations.

The table of instructions maps their parameters to the operation's class: in beta they return a new tile, in the current
generation they write ``dst``.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from nki_mlir.dialects.catalog import load
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.language.entries import REGULAR
from nki_mlir.language.entries.entry import Regular
from nki_mlir.language.instructions import engine_name
from nki_mlir.language.signatures.binding import Generation
from nki_mlir.language.signatures.table import signatures

Convert: TypeAlias = Callable[[Any, str, str], object]                     # arguments: value, instruction, parameter


load()


def functions(generation: Generation, texts: dict[str, Convert], maker: Callable[..., object],
              defined: dict[str, object],
              not_given: str = "") -> dict[str, Callable[..., object]]:
    """Generate the functions of a generation for the entries that are not ``defined``.

    ``texts`` convert the values of attributes that are names: ``operator``, or by attribute. ``maker(name, class,
    entry)`` returns the function to call with the values of all parameters and the operation's attributes.
    """
    return {name: function(name, entry, generation, texts, maker, not_given) for name, entry in REGULAR.items()
            if name not in defined and signatures(f"nki.isa.{name}", generation.name)}


def _converter(cls: type[Op], attribute: str, texts: dict[str, Convert]) -> Convert:
    kind = cls.attributes[attribute]
    if kind is str:
        return texts.get(attribute, texts["operator"])
    if kind is tuple:
        return lambda value, *_: tuple([int(n) for n in value])
    return lambda value, *_: kind(value)


def function(name: str, entry: Regular, generation: Generation, texts: dict[str, Convert], maker: Callable[..., Any],
             not_given: str = "") -> Callable[..., object]:
    """Generate the function of one entry, whose signatures the table has."""
    signature = generation.signature_of(signatures(f"nki.isa.{name}", generation.name)[0], without=not_given)
    names = [n for n, p in signature.parameters.items() if p.kind is not p.KEYWORD_ONLY]
    cls = REGISTRY[f"nisa.{entry.op or name}"]
    defaults = {n: p.default for n, p in signature.parameters.items() if p.default is not p.empty}
    texts = {"engine": lambda value, *_: engine_name(value), **texts}
    attributes = [(n, attribute_values, _converter(cls, attribute_values, texts)) for n in signature.parameters
                  if (attribute_values := entry.named.get(n, n)) in cls.attributes and n not in entry.scalars]
    run = maker(name, cls, entry)

    def call(*values: object, **named: object) -> object:
        arguments = defaults | named
        arguments.update(zip(names, values))
        attribute_values = {attribute: convert(value, name, parameter) for parameter, attribute, convert in attributes
                if (value := arguments[parameter]) is not None or attribute not in cls.defaults}
        return run(arguments, attribute_values)
    call.__name__ = call.__qualname__ = name
    call.__doc__, call.__signature__ = entry.does, signature        # type: ignore[attr-defined]
    return call
