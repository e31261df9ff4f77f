# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A module as text that reads like code.

MLIR prints the module, upstream operations in their own forms. Then values get the names of the source, operations of
our dialects get their custom form, bodies of one operation move to one line, and repeated types and attributes get an
alias.
"""

import re

from nki_mlir.bindings import Module, operations_of
from nki_mlir.custom_form.aliases import shortened
from nki_mlir.custom_form.diagonals import with_diagonal
from nki_mlir.custom_form.lexing import VALUE, Cursor
from nki_mlir.custom_form.operation_fields import BUFFER, DIALECTS
from nki_mlir.custom_form.operation_printer import OperationPrinter
from nki_mlir.custom_form.operation_reader import source_name
from nki_mlir.custom_form.reader import has_custom_form
from nki_mlir.custom_form.stream_printer import StreamPrinter, in_order
from nki_mlir.custom_form.value_names import argument_name, named_text
from nki_mlir.custom_form.value_types import TOKEN, ValueTypes

WIDTH = 120
ON_TILES = tuple(f"{dialect}." for dialect in DIALECTS if dialect != "isa")
OURS = re.compile(r'(\s*)((%[\w$.-]+) = )?"((?:' + "|".join(DIALECTS) + r')\.\w+)"\(([^()]*)\)')
LOCATION = re.compile(r" loc\((?:[^()\"]|\"(?:[^\"\\]|\\.)*\"|\((?:[^()\"]|\"(?:[^\"\\]|\\.)*\"|\([^()]*\))*\))*\)$")
FUNCTION = re.compile(r"\s*func\.func ")
HBM_ARGUMENT = re.compile(r'(%[\w$.-]+)(: memref<[^%{}]*"hbm">) \{([^{}]*)\}')
# A string, or an integer, which is i64 without a type, too
INTEGER = re.compile(r'("(?:[^"\\]|\\.)*")|(\bnki\.\w+ = -?\d+) : i64(?=[,}])')
ALLOCATION = re.compile(r'(\s*)(%[\w$.-]+) = memref\.alloc\(\) \{(.*)\} : (.*)')
BODY = re.compile(r"(\s*)(.*linalg\.generic.*) \{")
ARGUMENTS = re.compile(r"\s*\^bb0\((.*)\):")
YIELD = re.compile(r"\s*linalg\.yield (%[\w$.-]+) : (.*)")


def custom_text(module: Module, with_locations: bool = False, with_aliases: bool = True) -> str:
    """Return the module's text; without aliases each line has the types and attributes in full."""
    text: str = module.operation.get_asm(enable_debug_info=with_locations, use_local_scope=not with_aliases)
    lines = ModulePrinter(module).run(named_text(module, text).split("\n"))
    if has_custom_form("\n".join(lines)):           # the reader names the arguments of no other text
        lines = [_short_header(line) if FUNCTION.match(line) else with_diagonal(line) for line in lines]
    if not with_locations:
        lines = with_short_bodies(lines)
    text = "\n".join(lines)
    return shortened(text) if with_aliases else text


class ModulePrinter:
    """Goes through the lines of the text, on which the operations are in their order."""

    def __init__(self, module: Module) -> None:
        self.operations = iter(operations_of(module, lambda name: name.startswith(ON_TILES)))
        self.of_streams = in_order(module.operation)
        self.printer = OperationPrinter()
        self.types = ValueTypes()
        self.streams = StreamPrinter(self.types)
        self.regions: list[str] = []            # the text after the regions around a line, the innermost last

    def run(self, lines: list[str]) -> list[str]:
        result = []
        for line in lines:
            match = OURS.match(line)
            if match is not None and match[4].startswith("isa."):
                result.append(self.of_stream(line, match))
            elif self.regions and line.startswith(self.regions[-1]):
                location = LOCATION.search(line)
                result.append(self.regions.pop()[:-1] + (location[0] if location else ""))
            elif match is not None:
                result.append(self.operation(line, match))
            else:
                result.append(self.line(line))
                self.record_types(result[-1])
        return result

    def line(self, line: str) -> str:
        """Return a line of an operation of an upstream dialect."""
        allocation = ALLOCATION.fullmatch(line)
        if allocation is not None:
            attributes = other_attributes(allocation[3], source_name(allocation[2]))
            if attributes is not None:
                return f"{allocation[1]}{allocation[2]} = {BUFFER}{attributes} : {allocation[4]}"
        return line

    def operation(self, line: str, match: "re.Match[str]") -> str:
        """Return the line of an operation of our dialects."""
        op = next(self.operations)
        assert op.name == match[4]
        text = self.printer.text(op, VALUE.findall(match[5]), self.types)
        if match[3]:
            self.types.define(match[3], str(op.results[0].type) if len(op.results) == 1 else None)
        if text is None:
            return line
        location = LOCATION.search(line)
        return f"{match[1]}{match[2] or ''}{text}{location[0] if location else ''}"

    def of_stream(self, line: str, match: "re.Match[str]") -> str:
        """Return the line of an operation of the ``isa`` level."""
        op = next(self.of_streams)
        assert op.name == match[4]
        text = self.streams.text(op, line)
        if text is None:
            return line
        if len(op.regions):
            self.regions.append(match[1] + "})")
            return match[1] + text
        location = LOCATION.search(line)
        return f"{match[1]}{text}{location[0] if location else ''}"

    def record_types(self, line: str) -> None:
        """Record the types in a line, as the reader does."""
        for token in TOKEN.finditer(line):
            following = TOKEN.match(line, token.end()) if token.lastgroup == "result" else None
            if following is not None and following.lastgroup == "operation":
                if following[0] == BUFFER:
                    self.types.define(token["result_name"], Cursor(line, line.rindex(" : ") + 3).type())
                continue
            self.types.define_token(line, token)


def _short_header(line: str) -> str:
    """Return the header of a function without the names of its arguments and the types of its integers."""
    return INTEGER.sub(lambda match: match[1] or match[2], HBM_ARGUMENT.sub(_without_name, line))


def _without_name(argument: "re.Match[str]") -> str:
    """Return the text of an argument without the name that its value has."""
    name = argument_name(argument[1])
    attributes = None if name is None else other_attributes(argument[3], name)
    return argument[0] if attributes is None else f"{argument[1]}{argument[2]}{attributes}"


def other_attributes(text: str, name: str) -> str | None:
    """Return the text of a value's attributes, in braces, without its ``name``; None if they do not have this name
    once."""
    mark = f'nki.name = "{name}"'
    if text.count(mark) != 1:
        return None
    attributes = text.replace(f", {mark}", "").replace(f"{mark}, ", "").replace(mark, "")
    return f" {{{attributes}}}" if attributes else ""


def with_short_bodies(lines: list[str]) -> list[str]:
    """Put bodies of one operation on the line of the operation that contains them."""
    result: list[str] = []
    at = 0
    while at < len(lines):
        short, count = _one_line(lines, at)
        result.append(short)
        at += count
    return result


def _one_line(lines: list[str], at: int) -> tuple[str, int]:
    """Return the text that replaces a line, and how many lines it replaces."""
    line = lines[at]
    if not line.endswith("{"):
        return line, 1
    body = BODY.fullmatch(line)
    if body is not None:
        return _short_nest(lines, at, body[1] + body[2])
    if at + 2 < len(lines) and lines[at + 2].strip().startswith("}") and not lines[at + 1].endswith(("{", ":")):
        joined = f"{line} {lines[at + 1].strip()} {lines[at + 2].strip()}"
        if len(joined) <= WIDTH and not lines[at + 2].endswith("{"):
            return joined, 3
    return line, 1


def _short_nest(lines: list[str], at: int, head: str) -> tuple[str, int]:
    """Return a ``linalg.generic`` on one line: the arguments between bars, then the yielded value or operation."""
    arguments = ARGUMENTS.fullmatch(lines[at + 1])
    if arguments is not None:
        for count in (0, 1):
            inner = lines[at + 2:at + 2 + count]
            yielded, end = YIELD.fullmatch(lines[at + 2 + count]), lines[at + 3 + count].strip()
            if yielded is None or not end.startswith("}"):
                continue
            text = _yielded(inner[0].strip(), yielded) if count else yielded[1]
            if text is not None and (count or f"{yielded[1]}: {yielded[2]}" in arguments[1].split(", ")):
                return f"{head} {{ |{arguments[1]}| {text} {end}", count + 4
    return lines[at], 1


def _yielded(line: str, yielded: "re.Match[str]") -> str | None:
    """Return the only operation of a body if the body yields its result and the reader can infer its type."""
    value = yielded[1]
    if not line.startswith(f"{value} = ") or line.endswith("{"):
        return None
    operation = line.removeprefix(f"{value} = ")
    if TOKEN.match(operation) is None or TOKEN.match(operation).lastgroup != "operation":   # type: ignore[union-attr]
        return operation if ValueTypes().result(operation, 0) == yielded[2] else None
    return operation
