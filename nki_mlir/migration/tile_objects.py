# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites methods that compute on tiles as functions whose ``self`` has the facts of the object's attributes.

    class Accumulator:                                      class Accumulator(nl.NKIObject):
        def __init__(self, rows):                               def __init__(self, rows):
            self.total = nl.zeros((rows, 1), nl.float32)            self.total = nl.zeros((rows, 1), ...)

        def add(self, tile):                                    def add(self, tile):
            self.total[...] = nl.add(self.total, tile)              nisa.tensor_tensor(dst=self.total, ...)

``__init__`` alone assigns the attributes, each once, so that an attribute has one fact for all objects of the class.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace

import libcst as cst

from nki_mlir.language.python_subset import PythonRule
from nki_mlir.migration import terms
from nki_mlir.migration.branches import Branches
from nki_mlir.migration.facts import (
    Dtype,
    Fact,
    IndexFact,
    Items,
    Many,
    MaskFact,
    NoneFact,
    NumberFact,
    SelectedVector,
    Span,
    TensorFact,
    TileClass,
    TileFunction,
    TileObject,
    Unknown,
    join,
)
from nki_mlir.migration.parameters import Parameters, tree_of
from nki_mlir.migration.terms import number
from nki_mlir.migration.tile_classes import (
    FIRST_METHOD,
    PROPERTY,
    STATIC,
    fields_of,
    is_rewritten_method,
    kind_of,
    method_name,
)

VECTOR = "an index vector that depends on names, or a mask, as an attribute: write it in the subscripts"


class TileObjects(Branches):
    """The part of the rewriter for attributes and methods of objects; ``helper`` rewrites a method as a function of the
    file."""

    functions: dict[str, cst.FunctionDef]
    trees: dict[str, ast.FunctionDef]
    parameters: Parameters
    rewrites: dict[str, cst.FunctionDef]
    signatures: dict[str, dict[str, Fact]]
    returns: dict[str, Fact]
    inner_functions: dict[tuple[str, str], tuple[int, PythonRule]]

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)        # type: ignore[arg-type]
        self.tile_classes: dict[str, cst.ClassDef] = {}         # classes whose methods are rewritten
        self.methods: dict[str, cst.FunctionDef] = {}           # by the name ``Accumulator.add``
        self.vector_attributes = set[str]()
        self.attributes: dict[str, dict[str, Fact]] = {}        # attributes of the objects of a class
        self.imported_classes: dict[str, tuple[TileObjects, str]] = {}      # classes by their names in this file

    def add_classes(self, classes: Mapping[str, cst.ClassDef]) -> None:
        """Take the methods of classes as functions of the file."""
        self.tile_classes = dict(classes)
        for name, node in classes.items():
            methods = {method_name(name, m.name.value): m for m in node.body.body
                       if isinstance(m, cst.FunctionDef) and is_rewritten_method(m, self.names)}
            self.methods |= methods
            self.functions |= methods
            self.trees |= {key: tree_of(method) for key, method in methods.items()}
            tree = ast.parse(cst.Module([node]).code).body[0]
            if isinstance(tree, ast.ClassDef) and (function := constructor(tree)) is not None:
                self.parameters.functions[name] = function

    def constructed(self, name: str, positional: Sequence[Fact], keywords: Mapping[str, Fact]) -> Fact:
        """Return the object that a call of a class creates, and note the facts of its attributes."""
        owner, class_name = self.owner_of(name)
        if class_name in owner.tile_classes:
            first = method_name(class_name, FIRST_METHOD)
            if first in owner.methods:
                self.helper(method_name(name, FIRST_METHOD), [TileObject(class_name), *positional], dict(keywords))
            else:
                values = {**dict(zip(fields_of(owner.tile_classes[class_name]), positional)), **keywords}
                owner.note_attributes(class_name, values)
        return TileObject(name)

    def owner_of(self, name: str) -> "tuple[TileObjects, str]":
        """Return the functions of the file that defines a class, and the name there."""
        return self.imported_classes.get(name, (self, name))

    def note_object(self, facts: Mapping[str, Fact]) -> None:
        """Add what ``__init__``, whose parameters have these facts, has assigned to its object."""
        name, kind = next(iter(facts.items()), ("", None))
        if isinstance(kind, TileObject):
            self.note_attributes(kind.name, {text.partition(".")[2]: fact for text, fact in self.scope.facts.items()
                                             if text.startswith(f"{name}.")})

    def extended(self, owner: cst.BaseExpression, elements: Many) -> None:
        """Note elements of a list that is an attribute, for all methods."""
        super().extended(owner, elements)
        if isinstance(owner, cst.Attribute) and isinstance(kind := self.fact(self.owners[id(owner)]), TileObject):
            self.note_attributes(kind.name, {owner.attr.value: elements})

    def note_attributes(self, name: str, values: Mapping[str, Fact]) -> None:
        """Add facts about the attributes of a class."""
        facts = self.attributes.setdefault(name, {})
        for attribute, fact in values.items():
            lasting = self.without_texts(fact)
            facts[attribute] = _joined(facts[attribute], lasting) if attribute in facts else lasting
            self.vector_attributes |= {attribute} if isinstance(lasting, IndexFact) else set()

    def forget_rewrites(self) -> None:
        """Forget all but the attributes of classes, to rewrite once more."""
        for table in (self.rewrites, self.signatures, self.returns, self.inner_functions):
            table.clear()

    def without_texts(self, fact: Fact) -> Fact:
        """Return a fact without texts that only one function can read."""
        match fact:
            case IndexFact() if not any(terms.names(text) for text in _texts(fact)):
                return fact
            case IndexFact() | MaskFact() | SelectedVector():
                self.report.add_manual(self.line, VECTOR)
                return Unknown()
            case TensorFact():
                shape = None if fact.shape is None else tuple(s if number(s) is not None else "?" for s in fact.shape)
                dtype = fact.dtype if fact.dtype.startswith("nl.") else ""
                return TensorFact(fact.memory, shape, dtype, fact.blocks)
            case Items():
                return replace(fact, items=tuple(map(self.without_texts, fact.items)))
            case Many():
                return replace(fact, element=self.without_texts(fact.element))
            case NoneFact() | NumberFact() | TileFunction() | TileObject() | Unknown():
                return fact
            case Dtype() if fact.text.startswith("nl."):
                return fact
            case Dtype():
                return Dtype("")
            case Span():
                return Span("", fact.size if number(fact.size) is not None else "")
        return Fact()

    def object_attribute(self, node: cst.Attribute, owner: cst.BaseExpression, kind: TileObject) -> cst.BaseExpression:
        """Return an attribute of an object, with its fact, or a method."""
        text, name = f"{self.text(owner)}.{node.attr.value}", node.attr.value
        if text in self.scope.facts:                        # __init__ has assigned the attribute
            assigned = self.new(text, self.scope.facts[text])
            self.owners[id(assigned)] = owner
            return assigned
        definer, class_name = self.owner_of(kind.name)
        if class_name not in definer.tile_classes:
            return super().object_attribute(node, owner, kind)
        attributes = definer.attributes.get(class_name, {})
        if name not in attributes and (value := self.vectors_of(node)) is not None:
            return value
        method = definer.methods.get(method_name(class_name, name))
        if method is not None and kind_of(method) == PROPERTY:
            return self.new(text, self.method_call(kind, name, [], {}) or Unknown())
        fact = attributes.get(name, Fact())
        if isinstance(fact, Dtype) and not fact.text:
            fact = Dtype(text)
        elif isinstance(fact, TensorFact):
            shape = None if fact.shape is None else tuple(
                f"{text}.shape[{k}]" if size == "?" else size for k, size in enumerate(fact.shape))
            fact = self.without_loop_sizes(replace(fact, shape=shape, dtype=fact.dtype or f"{text}.dtype"))
        new = self.new(text, fact)
        self.owners[id(new)] = owner
        return new

    def method_call(self, kind: TileObject | TileClass, name: str, positional: Sequence[Fact],
                    keywords: Mapping[str, Fact]) -> Fact | None:
        """Return the fact about the result of a method, or None for one that computes on the host."""
        owner, class_name = self.owner_of(kind.name)
        method = owner.methods.get(method_name(class_name, name))
        if method is None:
            return None
        receiver = [] if kind_of(method) == STATIC else [TileObject(class_name)]
        return self.helper(method_name(kind.name, name), [*receiver, *positional], dict(keywords))


def _texts(index: IndexFact) -> list[str]:
    """Return the texts in an index vector."""
    return [index.base, index.moved or "0", *(text for axis in index.axes for text in (axis.extent, axis.step))]


def _joined(before: Fact, fact: Fact) -> Fact:
    if isinstance(before, TensorFact) and isinstance(fact, TensorFact):
        result = join(before, fact)
        if isinstance(result, TensorFact) and before.shape and fact.shape and len(before.shape) == len(fact.shape):
            return replace(result, shape=tuple(x if x == y else "?" for x, y in zip(before.shape, fact.shape)))
        return result
    if isinstance(before, Dtype) and isinstance(fact, Dtype):
        return before if before == fact else Dtype("")
    return join(before, fact)


def constructor(node: ast.ClassDef) -> ast.FunctionDef | None:
    """Return a function with the parameters of ``__init__``. Its body has the statements of all methods, but reads a
    parameter instead of the attribute that ``__init__`` sets to it: so it shows which parameters are tensors. Methods
    with a decorator, which may have no object, compute on the host."""
    methods = [m for m in node.body if isinstance(m, ast.FunctionDef) and not m.decorator_list]
    first = next((m for m in methods if m.name == FIRST_METHOD), None)
    if first is None:
        return None
    receiver = first.args.args[0].arg
    parameter_of: dict[str, str] = {}
    for statement in ast.walk(first):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], (ast.Attribute, ast.Tuple)):
            target, value = statement.targets[0], statement.value
            pairs = zip(target.elts, value.elts) if isinstance(target, ast.Tuple) and isinstance(
                value, ast.Tuple) else [(target, value)]
            parameter_of |= {t.attr: v.id for t, v in pairs if isinstance(t, ast.Attribute) and isinstance(v, ast.Name)
                             and isinstance(t.value, ast.Name) and t.value.id == receiver}
    body: list[ast.stmt] = []
    for method in methods:
        names = {a.arg for a in method.args.args} if method is not first else set()
        substitution = _Attributes(method.args.args[0].arg, {a: p for a, p in parameter_of.items() if p not in names})
        copy = ast.parse(ast.unparse(method)).body[0]
        assert isinstance(copy, ast.FunctionDef)
        body += [substitution.visit(s) for s in copy.body]
    arguments = ast.parse(f"def {node.name}({', '.join(a.arg for a in first.args.args[1:])}): pass").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    arguments.body = body
    return arguments


class _Attributes(ast.NodeTransformer):
    def __init__(self, receiver: str, parameter_of: Mapping[str, str]) -> None:
        self.receiver, self.parameter_of = receiver, parameter_of

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Return the parameter that an attribute of the object is."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == self.receiver and node.attr in self.parameter_of:
            return ast.Name(self.parameter_of[node.attr], node.ctx)
        return node
