# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites calls of functions of the file, of methods of tensors, and of Python's own functions."""

import re
from collections.abc import Mapping, Sequence
from functools import reduce

import libcst as cst

from nki_mlir.language.functions import UNARY
from nki_mlir.language.python_subset import DECORATOR
from nki_mlir.migration import terms
from nki_mlir.migration.calls import BINARY, Calls
from nki_mlir.migration.creation_calls import LANGUAGE, shape_items
from nki_mlir.migration.facts import (
    HBM,
    BufferFact,
    ComputedPart,
    Dtype,
    Fact,
    IndexFact,
    Items,
    LambdaFact,
    Many,
    MaskFact,
    NoneFact,
    NumberFact,
    RecordClass,
    ShapeOf,
    Span,
    TensorFact,
    TileClass,
    TileFunction,
    TileObject,
    Unknown,
    as_many,
    contains_tiles,
    depends_on_index,
    function_fact,
    join,
    may_have_tiles,
)
from nki_mlir.migration.host_methods import HostMethods, has_vectors, value_of_call, value_of_method
from nki_mlir.migration.instruction_calls import INSTRUCTIONS
from nki_mlir.migration.language_calls import broadcast
from nki_mlir.migration.names import dotted, nodes_of, operator
from nki_mlir.migration.program_reductions import REDUCTIONS
from nki_mlir.migration.record_classes import record
from nki_mlir.migration.transfer_calls import TRANSFERS, repeated_in_hbm

INTEGER_RESULTS = {"ceil", "comb", "factorial", "floor", "gcd", "isqrt", "lcm", "perm", "prod", "trunc"}   # in math
NUMBER = re.compile(r"\w+|[\w +*/()-]+|\w+\.shape\[\d+\]")       # a text of names and numbers, or a size
CONTAINERS = {"collections.deque", "functools.reduce"}      # functions of other modules whose results have tiles


class FunctionCalls(Calls):
    """The part of the rewriter for calls of functions and methods; ``helper`` returns the facts about the result of a
    function of the file."""

    imported: dict[str, tuple["FunctionCalls", str]]           # functions of other files by their names in this file
    recipes = {**LANGUAGE, **TRANSFERS, **REDUCTIONS, **INSTRUCTIONS}
    host_methods: HostMethods                   # methods of the file's classes whose values may replace calls

    vector_attributes: set[str]                 # attributes of the file's objects that are index vectors

    def is_function(self, name: str) -> bool:
        """Return whether a name is a function that is rewritten for the arguments of its calls."""
        return False

    def allocates(self, node: cst.BaseExpression) -> bool:
        """Return whether a call chooses the addresses of a tensor."""
        return False

    def helper(self, name: str, positional: list[Fact], keywords: dict[str, Fact],
               texts: Mapping[int | str, str] | None = None) -> Fact | None:
        """Return the facts about a call of a function of the file, or None if the file has no function with that
        name. ``texts``: the numbers among the arguments, by position or name."""
        return None

    def other_call(self, original: cst.Call, updated: cst.Call, meaning: str) -> cst.BaseExpression:
        """Rewrite a call of a function that is not public. It may write its arguments."""
        for argument in updated.args:
            self.note_write(self.code(argument.value), ComputedPart())
        if meaning == "ncc.no_reorder":
            return self.new(f"{self.nl}.no_reorder()", Fact())
        if self.allocates(original):
            memory, text = self.allocation(original)
            return self.new(text, BufferFact(memory))
        if meaning == "np.dtype" and len(updated.args) == 1 and isinstance(self.fact(updated.args[0].value), Dtype):
            return updated.args[0].value
        owner = self.owners.get(id(updated.func))
        if owner is not None and isinstance(updated.func, cst.Attribute):
            fact = self.fact(owner)
            is_object = isinstance(fact, TileObject | TileClass) or fact == Fact()
            if is_object and (value := self.vectors_of(original)) is not None:
                return value
            if isinstance(fact, TileObject | TileClass):
                returned = self.method_call(fact, updated.func.attr.value, *self._arguments(updated))
                return self.with_fact(updated, Fact() if returned is None else returned)
            if isinstance(fact, TensorFact):
                return self._method(self.text(owner), fact, updated.func.attr.value, updated)
            if updated.func.attr.value in ("append", "insert") and updated.args:
                added = self.fact(updated.args[-1].value)
                self.extended(owner, Many(self.without_loop_sizes(added) if isinstance(added, TensorFact) else added))
            if isinstance(fact, (Items, Many)):
                return self.with_fact(updated, self._of_elements(fact, updated.func.attr.value))
        name = dotted(original.func)
        updated = self.without_mask(updated, name or "")
        if name is not None and self.is_function(name):
            updated = updated.with_changes(args=[self._with_operator(a) for a in updated.args])
        if isinstance(original.func, cst.Name) or name in self.imported or name in CONTAINERS:
            return self.with_fact(updated, self._named(name or "", updated))
        if owner is not None and isinstance(kind := self.fact(owner), RecordClass) and (
                original.func.attr.value in kind.factories if isinstance(original.func, cst.Attribute) else False):
            self.report_refused_python(DECORATOR)
            return self.with_fact(updated, Items(kind.declared, kind.fields))
        has_tiles = any(may_have_tiles(self.fact(a.value)) for a in updated.args) or (
            owner is not None and isinstance(self.fact(owner), Unknown))
        facts = [self.fact(a.value) for a in updated.args]
        if owner is not None and any(isinstance(f, IndexFact | MaskFact) for f in facts) and (
                value := value_of_call(original, self.host_methods, self.names)) is not None:
            return self._in_place(original, value)
        self.without_vectors(name or self.code(original.func), facts)
        if isinstance(self.fact(updated.func), TileFunction) and (computed := self.of_tile(updated)) is not None:
            return self.with_fact(updated, computed)
        if not has_tiles and owner is not None:
            computed_value = value_of_call(original, self.host_methods, self.names)
            if computed_value is not None and (slices := self._slices(computed_value)) is not None:
                return self.with_fact(updated, slices)
        return self.with_fact(updated, Unknown() if has_tiles else self.of_math(name or ""))

    def _slices(self, value: cst.BaseExpression) -> Span | Items | None:
        """Return the fact about a slice that a method returns, or about several; None for other values."""
        match value:
            case cst.Call(func=function) if self.names.meaning(function) == "nl.ds" or dotted(function) == "slice":
                return Span("", "")
            case cst.Tuple(elements=elements) if elements:
                facts = [self._slices(e.value) for e in elements]
                return Items(tuple(f or Fact() for f in facts)) if any(facts) else None
        return None

    def vectors_of(self, node: cst.Call | cst.Attribute) -> cst.BaseExpression | None:
        """Return the rewritten value of a method or property that returns new index vectors; None for others."""
        value = value_of_method(node, self.host_methods, self.names)
        if value is None or not (has_vectors(value, self.host_methods, self.names) or any(
                n.attr.value in self.vector_attributes for n in nodes_of(cst.Expr(value), cst.Attribute))):
            return None
        return self._in_place(node, value)

    def _in_place(self, node: cst.Call | cst.Attribute, value: cst.BaseExpression) -> cst.BaseExpression:
        """Return the rewritten value that a method computes, which replaces a call."""
        text = self.code(node.func if isinstance(node, cst.Call) else node)
        self.replaced_methods.add(text.rpartition(".")[2])
        self.report.changed(self.line, f"the value of {text} replaces its call, because no value of "
                                       "the new text is an index vector or a mask")
        return self.rewritten(value)

    def of_math(self, name: str) -> Fact:
        """Return the fact about the result of a function of Python's ``math``; that of other functions is unknown."""
        head, _, function = name.rpartition(".")
        package = self.names.paths.get(head or name, "")
        if package not in ("math", f"math.{function or name}"):
            return Fact()
        return NumberFact("int" if (function or name) in INTEGER_RESULTS else "float")

    def _of_elements(self, values: Items | Many, method: str) -> Fact:
        """Return the fact about the result of a method of a list or dictionary."""
        element = values.element if isinstance(values, Many) else self.element(values)
        match method:
            case "items":
                return Many(Items((Fact(), element)))
            case "values":
                return Many(element)
            case "copy":
                return values
            case "pop" | "get" | "setdefault" | "popleft":
                return element
        return Fact()

    def extended(self, owner: cst.BaseExpression, elements: Many) -> None:
        """Note elements that a statement adds to a list or dictionary, which is a variable or an attribute of one."""
        before = self.fact(owner) if isinstance(owner, cst.Attribute) else self.scope.facts.get(self.code(owner))
        if isinstance(before, Items):
            before = Many(self.element(before))
        if isinstance(before, Many) and isinstance(owner, (cst.Name, cst.Attribute)):
            self.scope.facts[self.code(owner)] = join(before, elements)

    def _with_operator(self, argument: cst.Arg) -> cst.Arg:
        """Return an argument of a function of the file; a function of NumPy becomes the one of ``nl``."""
        meaning = self.names.meaning(argument.value) if isinstance(argument.value, (cst.Name, cst.Attribute)) else ""
        name = operator(meaning) if meaning.startswith("np.") else ""
        if name not in {*BINARY, *UNARY}:
            return argument
        return argument.with_changes(value=self.new(f"{self.nl}.{name}", function_fact(name)))

    def constructed(self, name: str, positional: Sequence[Fact], keywords: Mapping[str, Fact]) -> Fact:
        """Return the object that a call of a class creates."""
        return TileObject(name)

    def method_call(self, kind: TileObject | TileClass, name: str, positional: Sequence[Fact],
                    keywords: Mapping[str, Fact]) -> Fact | None:
        """Return the fact about the result of a method; None if the method computes on the host."""
        return None

    def _arguments(self, node: cst.Call) -> tuple[list[Fact], dict[str, Fact]]:
        """Return the facts of arguments by position and by name; "" is a name if the call unpacks others, ``*args``."""
        facts = [NoneFact() if self.is_none(a.value) else self.fact(a.value) for a in node.args]
        return ([f for f, a in zip(facts, node.args) if a.keyword is None and not a.star],
                {a.keyword.value if a.keyword is not None else "": f if a.keyword is not None else Fact()
                 for f, a in zip(facts, node.args) if a.keyword is not None or a.star})

    def _numbers(self, node: cst.Call) -> dict[int | str, str]:
        """Return the texts of arguments that may be numbers and mean the same in all of the function, by position or
        name. Attributes of objects may change."""
        texts: dict[int | str, str] = {}
        for k, argument in enumerate(node.args):
            text, fact = self.code(argument.value), self.fact(argument.value)
            is_name = isinstance(argument.value, cst.Name) and type(fact) is Fact       # of ``config.rows``, perhaps
            if (is_name or isinstance(fact, NumberFact)) and NUMBER.fullmatch(text) and self.stable(text):
                texts[argument.keyword.value if argument.keyword is not None else k] = text
        return texts

    def _named(self, name: str, node: cst.Call) -> Fact:
        facts = [self.fact(a.value) for a in node.args]
        positional, keywords = self._arguments(node)
        returned = self.helper(name, positional, keywords, self._numbers(node))
        if returned is not None:
            return returned
        fact = self.scope.facts.get(name)
        if isinstance(fact, LambdaFact):
            return fact.result
        if isinstance(fact, TileClass):
            return self.constructed(fact.name, positional, keywords)
        if isinstance(fact, RecordClass):
            return record(fact, positional, keywords) if not any(a.star for a in node.args) else Fact()
        if isinstance(fact, TileFunction) and (computed := self.of_tile(node)) is not None:
            return computed
        match name:
            case "range" | "len" | "int" | "round":
                return Many(NumberFact("int")) if name == "range" else NumberFact("int")
            case "float":
                return NumberFact("float")
            case "min" | "max" | "abs" | "sum" if any(map(contains_tiles, facts)):
                self.reject(f"Python's {name} of tiles: call functions of nl on them, in a loop over a list")
            case "min" | "max" | "abs" | "sum" if facts:
                kinds = {f.kind for f in facts if isinstance(f, NumberFact)}
                return NumberFact(kinds.pop() if len(kinds) == 1 else "")
            case "tuple" | "list" if len(facts) == 1:
                return facts[0]
            case "reversed" if len(facts) == 1:
                return Items(facts[0].items[::-1]) if isinstance(facts[0], Items) else facts[0]
            case "sorted" | "deque" | "collections.deque" if positional and isinstance(positional[0], Items | Many):
                return as_many(positional[0])
            case "dict" if keywords and not positional and not any(a.star for a in node.args):
                return Many(reduce(join, keywords.values()), True)
            case "reduce" | "functools.reduce" if len(positional) > 1 and isinstance(positional[0], TileFunction):
                return self.element(positional[1])
            case "slice" if len(node.args) == 2:
                start, stop = (self.text(a.value) for a in node.args)
                size = terms.difference(stop, start) or ""
                return Span(start, size if self.stable(size or "?") else "")
            case "slice":
                return Span("", "")
            case "enumerate" if facts:
                return Many(Items((NumberFact("int"), self.element(facts[0]))))
            case "zip":
                return Many(Items(tuple(self.element(f) for f in facts)))
        self.without_vectors(name, facts)
        return Unknown() if any(map(may_have_tiles, facts)) else Fact()

    def without_vectors(self, name: str, facts: Sequence[Fact]) -> None:
        """Leave a call that gets an index vector or a mask: no text shows how the callee uses it."""
        if any(isinstance(f, MaskFact) or depends_on_index(f) for f in facts):
            self.reject(f"an index vector or a mask that {name} gets, a function that the text does not show")

    def without_mask(self, node: cst.Call, name: str) -> cst.Call:
        """Return a call ``function(tile, mask=mask)`` of a variable that is a function of ``nl``, on the part of the
        tile that the mask selects; other calls stay."""
        masks = {k: self.fact(a.value) for k, a in enumerate(node.args) if a.keyword is not None
                 and a.keyword.value == "mask"}
        at, mask = next(iter(masks.items()), (0, None))
        if not at or not isinstance(mask, MaskFact) or self.is_function(name):
            return node
        kind = self.scope.facts.get(name, Fact()) if isinstance(node.func, cst.Name) else self.fact(node.func)
        if not isinstance(kind, TileFunction) or not mask.is_known or mask.conditions or mask.selects_no_box:
            self.reject(f"a mask of {self.code(node.func)}, of which the text does not show what it computes")
        if not isinstance(self.fact(node.args[0].value), TensorFact) and self.result(node.args[0].value) is None:
            self.reject(f"a mask of {self.code(node.func)}, whose operand may or may not be a tile")
        tiles = [k for k, a in enumerate(node.args[:kind.operands]) if k == 0 or (
            a.keyword is None and isinstance(self.fact(a.value), TensorFact))]
        cut = {k: cst.Arg(self.new(*self.viewed(node.args[k].value, mask))) for k in tiles}
        self.report.changed(self.line, f"{self.code(node.func)} has no mask: its operands become slices")
        return node.with_changes(args=[cut.get(k, a) for k, a in enumerate(node.args) if k != at])

    def of_tile(self, node: cst.Call) -> TensorFact | None:
        """Return the result of a function that computes each element of a tile, or of two tiles in the same shape, with
        or without a dtype; None for other arguments."""
        operands = [a.value for a in node.args if a.keyword is None]
        if len(operands) == 2 and self.fact(node.func) == TileFunction(2):
            first, second = (self.fact(operand) for operand in operands)
            if isinstance(first, TensorFact) and isinstance(second, TensorFact) and (
                    first.shape == second.shape or "1" not in (*(first.shape or ()), *(second.shape or ()))):
                fact = join(first, second)
                return self.on_chip(fact) if isinstance(fact, TensorFact) else None
        match node.args:
            case [cst.Arg(value=tile, keyword=None), *by_name] if isinstance(tensor := self.fact(tile), TensorFact):
                dtypes = [self.fact(a.value) for a in by_name if a.keyword is not None and a.keyword.value == "dtype"]
                if len(dtypes) == len(by_name):
                    return self.on_chip(tensor.like(tensor.shape, *(getattr(d, "text", " ") for d in dtypes)))
        return None

    def _method(self, text: str, tensor: TensorFact, name: str, node: cst.Call) -> cst.BaseExpression:
        """Rewrite a call of a tensor's method."""
        values = [a.value for a in node.args]
        shown = ", ".join(self.text(v) for v in values)
        nl, base = self.nl, terms.factor(text)
        match name:
            case "broadcast_to":
                shape = values[0] if len(values) == 1 else cst.Tuple([cst.Element(v) for v in values])
                if tensor.memory == HBM:
                    return self.new(*repeated_in_hbm(self, text, tensor, shape))
                repeated = broadcast(self, text, tensor, shape)
                owner = self.owners.get(id(node.func))
                if id(owner) in self.views and owner is not None:
                    self.repeated_views[id(repeated)] = owner
                return repeated
            case "astype":
                self.report.changed(self.line, "a copy to another dtype becomes nl.copy")
                fact = self.fact(values[0])
                kind = getattr(fact, "text", shown)
                return self.new(f"{nl}.copy({text}, dtype={shown})", self.on_chip(tensor.like(tensor.shape, kind)))
            case "reshape":
                return self._reshaped(base, tensor, values)
            case "view":
                kind = getattr(self.fact(values[0]), "text", shown) if values else shown
                return self.new(f"{base}.view({shown})", tensor.like(None, kind))
            case "expand_dims":
                axis = terms.number(shown)
                shape_after = None
                if tensor.shape is not None and axis is not None:
                    at = axis + len(tensor.shape) + 1 if axis < 0 else axis
                    shape_after = (*tensor.shape[:at], "1", *tensor.shape[at:])
                return self.new(f"{nl}.expand_dims({text}, {shown})", tensor.like(shape_after))
            case "assert_shape" | "as_tile":
                return self.new(text, tensor)
        return self.with_fact(node, Unknown())

    def _reshaped(self, text: str, tensor: TensorFact, values: list[cst.BaseExpression]) -> cst.BaseExpression:
        """Rewrite a reshape, without ``par_dim``."""
        if len(values) == 1:
            items, blocks, shown = shape_items(self, values[0])
        else:
            items, blocks, shown = [self.text(v) for v in values], 0, ""
        if blocks and tensor.memory != HBM:
            self.reject("a reshape to block dimensions")
        if tensor.on_chip and items and tensor.shape and tensor.shape[0] in self.counts() - {items[0]}:
            items, shown = [tensor.shape[0], *items[1:]], ""           # no reshape of a tile changes its rows
        shape = tuple(items) if items is not None and all(self.stable(t) for t in items) else None
        text_of_shape = shown or f"({', '.join(items or [])}{',' if items and len(items) == 1 else ''})"
        fact = tensor.like(shape)
        if tensor.base:
            fact = TensorFact(tensor.memory, shape, tensor.dtype, 0, shape is not None)
        return self.new(f"{text}.reshape({text_of_shape})", fact)


def shape_names(target: cst.BaseExpression, value: cst.BaseExpression, calls: Calls) -> dict[str, tuple[str, ...]]:
    """Return the shapes that ``rows, columns = x.shape`` names, by the tensor's name."""
    if isinstance(target, (cst.Tuple, cst.List)) and isinstance(value, cst.Tuple) and len(target.elements) == len(
            value.elements):
        shapes: dict[str, tuple[str, ...]] = {}
        for left, right in zip(target.elements, value.elements):
            shapes |= shape_names(left.value, right.value, calls)
        return shapes
    if not (isinstance(target, (cst.Tuple, cst.List)) and isinstance(value, cst.Attribute)
            and value.attr.value == "shape" and isinstance(value.value, cst.Name)):
        return {}
    name = value.value.value
    if any(isinstance(e, cst.StarredElement) for e in target.elements):
        return {}
    items = [e.value.value if isinstance(e.value, cst.Name) else "" for e in target.elements]
    shape = named_shape(name, ["" if n in ("_", "") or not calls.stable(n) else n for n in items], calls)
    return {} if shape is None else {name: shape}


def named_shape(name: str, sizes: Sequence[str], calls: Calls) -> tuple[str, ...] | None:
    """Return the shape of a tensor of the kernel with the texts that a statement gives its sizes; "" or "?" for one
    without a text. Return None for a value that is no tensor, or has another number of dimensions."""
    fact = calls.scope.facts.get(name)
    shape = tuple(f"{name}.shape[{k}]" if size in ("", "?") else size for k, size in enumerate(sizes))
    if not isinstance(fact, TensorFact) or (fact.shape is not None and (len(fact.shape) != len(shape) or fact.blocks)):
        return None
    if fact.shape is None:
        return shape
    return tuple(named if size == f"{name}.shape[{k}]" or (terms.number(size) or 0) > 1 else size
                 for k, (size, named) in enumerate(zip(fact.shape, shape)))


def sizes_of_blocks(target: cst.BaseExpression, value: cst.BaseExpression, calls: Calls) -> str | None:
    """Return ``rows, blocks = tile.shape`` in the order of the new shape, whose first axis is the partition axis; None
    unless it unpacks the shape of a tensor with block dimensions."""
    match target, value:
        case cst.Tuple(elements=elements), cst.Attribute(
                value=cst.Name(value=tensor), attr=cst.Name(value="shape")) if not any(
                isinstance(e, cst.StarredElement) for e in elements):
            fact, names = calls.scope.facts.get(tensor), [calls.code(e.value) for e in elements]
            if isinstance(fact, TensorFact) and 0 < fact.blocks < len(names):
                calls.report.changed(calls.line, "the shape begins with the partition axis")
                calls.bind_target(target, ShapeOf(None))
                names.insert(0, names.pop(fact.blocks))
                return f"{', '.join(names)} = {tensor}.shape"
    return None


def size_name(target: cst.BaseExpression, value: cst.BaseExpression, calls: Calls) -> dict[str, str]:
    """Return the name that ``columns = x.shape[1]`` gives to the size of a tensor, by the text of the size."""
    match target, value:
        case cst.Name(value=name), cst.Subscript(
                value=cst.Attribute(value=cst.Name(value=tensor), attr=cst.Name(value="shape")),
                slice=[cst.SubscriptElement(slice=cst.Index(value=cst.Integer(value=position)))]) if (
                    calls.stable(name) and calls.stable(tensor)):
            fact = calls.scope.facts.get(tensor)
            if isinstance(fact, TensorFact) and not fact.blocks:
                return {f"{tensor}.shape[{position}]": name}
    return {}
