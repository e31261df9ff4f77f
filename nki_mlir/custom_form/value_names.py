# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of values as the source has them: ``nki.name`` of buffers and arguments, name locations of other values.

MLIR takes names from locations, makes them unique and keeps scopes apart. So a copy of the module gets the names as
locations. The names in the copy's text then replace, one after the other, the names in the text of the module itself,
which keeps its locations.
"""

import re

from nki_mlir.bindings import Module, Operation, Value, cloned, ir, operations_of
from nki_mlir.custom_form.lexing import STRING, VALUE
from nki_mlir.dialects.source_locations import ORIGIN

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
NUMBERED = re.compile(r"(?:.*_\d+|arg\d+)")
COUNTERS = "ijklmn"                     # names of loop counters, from the outermost in
NAMES = re.compile(STRING + r"|//[^\n]*|" + VALUE.pattern)


def named_text(module: Module, text: str) -> str:
    """Return the module's text with the names of the source."""
    copy = cloned(module)
    with copy.context, ir.Location.unknown() as unknown:
        for op in operations_of(copy, lambda name: True):
            name = result_name(op)
            _name_arguments(op, unknown)
            op.location = unknown if name is None else ir.Location.name(name, unknown)
        names = iter([m[0] for m in NAMES.finditer(copy.operation.get_asm(use_name_loc_as_prefix=True))
                      if m[0].startswith("%")])
    tokens = [m for m in NAMES.finditer(text) if m[0].startswith("%")]
    parts, at = [], 0
    for token, new in zip(tokens, names):
        # The number of a result stays: "%2#1" is result 1 of %2.
        parts += [text[at:token.start()], new]
        at = token.end()
    return "".join([*parts, text[at:]])


def result_name(op: Operation) -> str | None:
    """Return the name of an operation's result, or None if MLIR chooses it."""
    if not len(op.results):
        return None
    location = op.location
    if isinstance(location, ir.NameLoc) and not location.name_str.startswith(ORIGIN):
        return _usable(location.name_str)
    if op.name == "memref.alloc":
        return _attribute(op.attributes)
    if op.name == "nki.view":
        return _owner_name(op.operands[0])
    return None


def _owner_name(value: Value) -> str | None:
    """Return the name of the buffer that a view shows."""
    if isinstance(value, ir.BlockArgument):
        function = value.owner.owner.operation
        if function.name != "func.func" or "arg_attrs" not in function.attributes:
            return None
        return _attribute(function.attributes["arg_attrs"][value.arg_number])
    owner = value.owner
    return None if isinstance(owner, ir.Block) else result_name(owner.operation)    # the bindings may give its OpView


def _attribute(attributes: "ir.OpAttributeMap | ir.DictAttr") -> str | None:
    """Return the name in an operation's attributes."""
    if "nki.name" not in attributes or not isinstance(attributes["nki.name"], ir.StringAttr):
        return None
    return _usable(attributes["nki.name"].value)


def is_hbm_buffer(type_text: str) -> bool:
    return type_text.startswith("memref<") and type_text.endswith('"hbm">')


def argument_name(value: str) -> str | None:
    """Return the name that an argument's value, ``%x``, gives its buffer; None for a value that MLIR named."""
    return _usable(value[1:])


def _usable(name: str) -> str | None:
    """Return the name if MLIR prints it unchanged. A name that ends with a number could be another value's."""
    return name if IDENTIFIER.fullmatch(name) and not NUMBERED.fullmatch(name) else None


def _name_arguments(op: Operation, unknown: ir.Location) -> None:
    """Name arguments of functions, and counters of loops i, j, k from the outermost in."""
    marks = op.attributes["arg_attrs"] if op.name == "func.func" and "arg_attrs" in op.attributes else None
    for region in op.regions:
        for block in region.blocks:
            for number, argument in enumerate(block.arguments):
                mark = marks[number] if marks is not None and number < len(marks) else None
                name = _argument_name(op, argument, mark)
                argument.set_location(unknown if name is None else ir.Location.name(name, unknown))


def _argument_name(op: Operation, argument: ir.BlockArgument, mark: "ir.DictAttr | None") -> str | None:
    """Return the name of a block's argument; ``mark``: its attributes, if the block is of a function. An HBM buffer
    among a function's arguments gets only the name in its attributes, because the reader names the buffer after the
    value."""
    location, number = argument.location, argument.arg_number
    if op.name == "func.func" and is_hbm_buffer(str(argument.type)):
        return None if mark is None else _attribute(mark)
    if isinstance(location, ir.NameLoc) and not location.name_str.startswith(ORIGIN):
        return _usable(location.name_str)
    if mark is not None:
        return _attribute(mark)
    depth = _depth(op) if op.name == "scf.for" and number == 0 else len(COUNTERS)
    return COUNTERS[depth] if depth < len(COUNTERS) else None


def _depth(op: Operation) -> int:
    """Return how many loops contain an operation."""
    depth, above = 0, op.parent
    while above is not None:
        depth += above.operation.name == "scf.for"
        above = above.operation.parent
    return depth
