# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An operation of our dialects in its custom form.

``operation_reader`` reads the text again, and the printer compares the result with the operation. An attribute that
differs is written in MLIR's own form; an operation that still differs stays in the generic form.
"""

from collections.abc import Mapping, Sequence

from nki_mlir.bindings import Attribute, Operation, ir
from nki_mlir.custom_form.attribute_values import float_text
from nki_mlir.custom_form.lexing import NAME, VALUE, Cursor, MalformedForm
from nki_mlir.custom_form.linear_text import exact_constraints, named, named_constraints
from nki_mlir.custom_form.operation_fields import DENSE, VIEW, PlainForm, TileForm, form_of
from nki_mlir.custom_form.operation_reader import FormReader
from nki_mlir.custom_form.subscripts import buffer_of, subscripts
from nki_mlir.custom_form.value_types import ValueTypes
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.attributes import MalformedAttribute, read_access
from nki_mlir.dialects.mlir_ops import STRUCTURAL, recognize
from nki_mlir.dialects.op import Op
from nki_mlir.dialects.operation_kind import same_value

ALL = "every attribute"
RAW = "as MLIR's attribute: "           # prefix; a mask also has a form between custom and MLIR's


class OperationPrinter:
    """Prints operations. Operations that differ only in their operands are compared once."""

    def __init__(self) -> None:
        self.raw: dict[object, frozenset[str] | None] = {}

    def text(self, op: Operation, names: Sequence[str], types: ValueTypes) -> str | None:
        """Return the custom form with these names of operands, or None if the operation stays in the generic form."""
        form = form_of(op.name)
        operands = list(op.operands)
        if form is None or len(op.regions) or len(op.successors) or len(op.results) > 1 or len(names) != len(operands):
            return None
        tiles = self.tiles_of(op, form)
        if tiles is None or len(set(names[tiles:])) < len(names[tiles:]):
            return None
        kinds = [str(value.type) for value in operands]
        if any(kind != "index" for kind in kinds[tiles:]):
            return None
        key = (op.name, *kinds, *(str(r.type) for r in op.results), *op.attributes.items())
        if key not in self.raw:
            self.raw[key] = self.compared(op, form, kinds, tiles)
        raw = self.raw[key]
        if raw is None:
            return None
        shown = [name if types.of(name) == kind else f"({name} : {kind})" for name, kind in zip(names[:tiles], kinds)]
        return self.form_text(op, form, [*shown, *names[tiles:]], kinds, tiles, raw)

    @staticmethod
    def tiles_of(op: Operation, form: TileForm | PlainForm) -> int | None:
        """Return the number of operands that are not symbols, or None if the operation lacks an operand that its class
        declares."""
        if isinstance(form, PlainForm):
            return 1 if op.name == VIEW else len(op.operands)
        try:
            return len(recognize(op)[0].op.operands())
        except (MalformedAttribute, KeyError):
            return None

    def compared(self, op: Operation, form: TileForm | PlainForm, kinds: Sequence[str], tiles: int
                 ) -> frozenset[str] | None:
        """Return the attributes that must be written in MLIR's form, or None if not even that text would be read back
        unchanged."""
        names = [f"%v{k}" for k in range(len(kinds))]
        types = ValueTypes()
        for name, kind in zip(names, kinds):
            types.define(name, kind)
        raw: frozenset[str] = frozenset()
        for _ in range(3):
            differing = self.differing(op, self.form_text(op, form, names, kinds, tiles, raw), types, names)
            if not differing:
                return raw
            raw |= {RAW + name if name in raw else name for name in differing}
        return None

    @staticmethod
    def differing(op: Operation, text: str, types: ValueTypes, names: Sequence[str]) -> frozenset[str]:
        """Return the attributes that are not read back unchanged."""
        cursor = Cursor(text, len(op.name))
        try:
            generic = FormReader(types).read(cursor, op.name, None).text
        except MalformedForm:
            return frozenset({ALL})
        if cursor.skip() != len(text) or VALUE.findall(generic.partition(")")[0]) != list(names):
            return frozenset({ALL})
        attributes, result = _parts(generic)
        try:
            reread = ir.DictAttr(Attribute.parse(attributes, op.context))
            if len(op.results) and ir.Type.parse(result, op.context) != op.results[0].type:
                return frozenset({"->", ALL})
        except ir.MLIRError:
            return frozenset({ALL})
        actual = dict(op.attributes.items())
        names_found = {named.name for named in reread}
        wrong = {n for n in actual if n not in names_found or reread[n] != actual[n]} | (names_found - actual.keys())
        if "access" in wrong and isinstance(form_of(op.name), TileForm):
            wrong = wrong - {"access"} | {f"access {k}" for k, (old, new) in enumerate(zip(
                actual["access"], reread["access"])) if old != new}
        return frozenset(wrong)

    def form_text(self, op: Operation, form: TileForm | PlainForm, names: Sequence[str], kinds: Sequence[str],
                  tiles: int, raw: frozenset[str]) -> str:
        if isinstance(form, TileForm):
            return self.tile_operation(op, form, names, kinds, tiles, raw | (STRUCTURES if ALL in raw else frozenset()))
        attributes = {n: str(a) for n, a in op.attributes.items()}
        words = [op.name]
        if form.function is not None and form.function in attributes:
            words.append(unquoted(attributes.pop(form.function)))
        if op.name == VIEW:
            attributes.pop("access", None)
            if "dims" in attributes and "dims" not in raw:
                attributes["dims"] = DENSE.sub(r"[\1]", attributes["dims"])
            words += self.view_operand(op, names, kinds, raw)
            has_type = bool({"access", "->", ALL} & raw)
        else:
            words += [", ".join(names)] * bool(names)
            has_type = bool(len(op.results)) and (not kinds or str(op.results[0].type) != kinds[0])
        words += attribute_dictionary({n: attributes[n] for n in (*form.attributes, *attributes) if n in attributes})
        if has_type:
            words.append(f"-> {op.results[0].type}")
        return " ".join(words)

    @staticmethod
    def view_operand(op: Operation, names: Sequence[str], kinds: Sequence[str], raw: frozenset[str]) -> list[str]:
        """Return the source of a view with its pattern, and the symbols if the pattern does not have them in order."""
        behind = None
        if not raw & {"access", ALL}:
            buffer = buffer_of(kinds[0])
            try:
                behind = None if buffer is None else subscripts(read_access(op.attributes["access"]), buffer, names[1:])
            except MalformedAttribute:
                pass
        text = f"[{op.attributes['access']}]" if behind is None else behind
        return [names[0] + text, *symbols_clause(text, names[1:])]

    @staticmethod
    def tile_operation(op: Operation, form: TileForm, names: Sequence[str], kinds: Sequence[str], tiles: int,
                       raw: frozenset[str]) -> str:
        tile_op: Op = recognize(op)[0].op
        symbols = names[tiles:]
        attributes = dict(op.attributes.items())
        patterns = [str(a) for a in attributes["access"]]
        operands = {}
        for k, (field, tile) in enumerate(tile_op.operands()):
            buffer = buffer_of(kinds[k])
            is_raw = "access" in raw or f"access {k}" in raw
            behind = None if is_raw or buffer is None else subscripts(tile.access, buffer, symbols)
            label = f"{field.name}: " if field.optional else ""
            operands[field.name] = label + names[k] + (f"[{patterns[k]}]" if behind is None else behind)
        words = [op.name]
        if form.function is not None:
            words.append(unquoted(str(attributes[form.function])))
        sides = [", ".join(operands[f.name] for f in side if f.name in operands)
                 for side in (form.targets, form.sources)]
        words.append(" = ".join(side for side in sides if side))
        clauses = []
        for word, key, mask in ("where", "mask", tile_op.mask), ("limits", "nki.limits", tile_op.limits):
            if mask and RAW + key not in raw:
                clauses.append(f"{word} " + (exact_constraints(str(attributes[key]), symbols) if key in raw
                                             else named_constraints(mask, symbols)))
        listed = {}
        for name in form.listed:
            value = getattr(tile_op, name)
            if name in raw:
                listed[name] = str(attributes[name])
            elif not is_default(form.defaults, name, value):
                listed[name] = value_text(value, str(attributes[name]), symbols)
        for name in ("mask", "nki.limits"):
            if RAW + name in raw and name in attributes:
                listed[name] = str(attributes[name])
        listed |= {n: str(a) for n, a in attributes.items() if n not in STRUCTURAL and n not in tile_op.attributes}
        shown = symbols_clause(" ".join([*words, *clauses, *listed.values()]), symbols)
        return " ".join([*words, *clauses, *shown, *attribute_dictionary(listed)])


STRUCTURES = frozenset({"access", RAW + "mask", RAW + "nki.limits"})


def _parts(generic: str) -> tuple[str, str]:
    """Return the attributes of a generic form as a dictionary, and the type of its result."""
    _, _, behind = generic.partition(") {")
    if not behind:
        return "{}", generic.rpartition("-> ")[2]
    end = _closing_of(behind)
    return "{" + behind[:end] + "}", behind[end:].rpartition("-> ")[2]


def _closing_of(text: str) -> int:
    from_start = Cursor(text)
    while True:
        from_start.raw()
        if not from_start.accept(","):
            return from_start.at


def symbols_clause(text: str, symbols: Sequence[str]) -> list[str]:
    """Return the text that lists the symbols, if they are not in their order."""
    used_symbols = [name for name in dict.fromkeys(VALUE.findall(text)) if name in symbols]
    return [] if used_symbols == list(symbols) else [f"symbols({', '.join(symbols)})"]


def is_default(defaults: Mapping[str, object], name: str, value: object) -> bool:
    """Return whether a field has its default value, which the text omits."""
    return name in defaults and same_value(defaults[name]) == same_value(value)


def value_text(value: object, text: str, symbols: Sequence[str]) -> str:
    """Return the text of a field's value, in ``symbols`` if it is affine. ``text`` is MLIR's form, which is longer for
    some plain values than Python's."""
    match value:
        case Linear():
            return named(value, symbols)
        case bool():
            return "true" if value else "false"
        case str():
            return unquoted(text)
        case int():
            return str(value)
        case float():
            return float_text(value)
    return text


def unquoted(text: str) -> str:
    """Return a string without quotes if it is a name."""
    return text[1:-1] if text.startswith('"') and NAME.fullmatch(text[1:-1]) else text


def attribute_dictionary(attributes: dict[str, str]) -> list[str]:
    """Return the attributes in braces; a unit attribute is only its name."""
    if not attributes:
        return []
    listed = [name if text == "unit" else f"{name} = {text}" for name, text in attributes.items()]
    return ["{" + ", ".join(listed) + "}"]
