# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Translates facts about arguments and results into texts that the called function or the caller can read.

    acc = nl.zeros((128, d), acc_dtype)         acc: (128, acc.shape[1]), acc.dtype
    total = nl.zeros((128, 1), acc_dtype)       total: (128, 1), acc.dtype
    add_block(acc, total)

The sizes of a result are those of parameters, such as ``acc.shape[1]``, which the caller knows as ``d``.
"""

import ast
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from nki_mlir.migration import terms
from nki_mlir.migration.facts import Dtype, Fact, IndexFact, Items, Many, MaskFact, NumberFact, Span, TensorFact, join
from nki_mlir.migration.parameters import bound_names, defaults_of, number_defaults
from nki_mlir.migration.python_trees import parameters_of


def without_local_texts(fact: Fact) -> Fact:
    """Return the fact about a slice without the texts of its start and size, which name variables of one function."""
    if isinstance(fact, Span):
        return Span("", fact.size if terms.number(fact.size) is not None else "")
    return fact


class NeedsArguments(Exception):
    """Ends the rewriting of a function that passes a tile to an inner function whose body does not show that its
    parameter is a tile."""


@dataclass
class InnerFunction:
    """A function within a kernel, with facts about its parameters and its result. ``of_body`` are the facts that its
    body shows about its parameters, ``facts`` those that its calls show as well."""

    tree: ast.FunctionDef
    of_body: dict[str, Fact]
    facts: dict[str, Fact]
    returned: Fact

    def shown(self, arguments: Mapping[str, Fact], before: Mapping[str, Fact]) -> dict[str, Fact]:
        """Return the facts that a call, and the calls ``before``, show about parameters that the body does not
        show."""
        facts = dict(before)
        tiles = {name: fact for name, fact in self.of_body.items() if isinstance(fact, TensorFact)}
        if any(not isinstance(fact, TensorFact) for name, fact in arguments.items() if name in tiles):
            facts |= tiles                  # a tile in some calls and another value in others: no call shows a shape
        for name, fact in passed(arguments, self.tree).items():
            if name in tiles and facts.get(name) == tiles[name]:
                continue
            if isinstance(before.get(name), TensorFact):
                facts[name] = joined(name, before[name], fact)
            elif name not in facts and isinstance(fact, TensorFact) and (
                    self.of_body.get(name) == NumberFact() or (name in tiles and (fact.blocks or fact.shape))):
                facts[name] = fact
        return facts

    def differs_in_blocks(self, arguments: Mapping[str, Fact]) -> bool:
        """Return whether a call passes a tensor that has other block dimensions than the function was rewritten for."""
        pairs = [(self.facts.get(name), fact) for name, fact in arguments.items()]
        return any(isinstance(inside, TensorFact) and isinstance(fact, TensorFact) and inside.blocks != fact.blocks
                   for inside, fact in pairs)


def passed(facts: Mapping[str, Fact], tree: ast.FunctionDef, is_complete: bool = False) -> dict[str, Fact]:
    """Return the facts of parameters, from the facts of their arguments. A size that is not a number becomes
    ``name.shape[k]``, and a dtype becomes the parameter that is the dtype or ``name.dtype``; ``name`` is the first
    parameter whose argument has the same text. ``is_complete``: the call passes no other parameters, and those whose
    defaults are numbers have their defaults."""
    facts = {**number_defaults(tree), **facts} if is_complete else facts
    assigned = bound_names(tree)
    sizes: dict[str, str] = {}
    dtypes: dict[str, str] = {}
    result: dict[str, Fact] = {}
    for name, fact in sorted(facts.items(), key=lambda item: not isinstance(item[1], Dtype)):
        if isinstance(fact, Dtype):
            if not fact.text.startswith("nl."):
                fact = Dtype(_text(dtypes, fact.text, name, bool(assigned[name])))
        elif isinstance(fact, TensorFact):
            shape = fact.shape if fact.shape is None else tuple(
                size if terms.number(size) is not None else _text(sizes, size, f"{name}.shape[{k}]",
                                                                  bool(assigned[name]))
                for k, size in enumerate(fact.shape))
            dtype = fact.dtype if fact.dtype.startswith("nl.") else _text(dtypes, fact.dtype, f"{name}.dtype",
                                                                          bool(assigned[name]))
            fact = TensorFact(fact.memory, shape, dtype, fact.blocks, fact.base and shape is not None)
        result[name] = without_local_texts(fact)
    return result


def counted(arguments: Mapping[str, Fact], facts: Mapping[str, Fact], counts: Collection[str]) -> frozenset[str]:
    """Return, in texts of the called function, the sizes of parameters that are among the caller's ``counts``, the
    numbers of elements that masks select."""
    sizes = set()
    for name, fact in arguments.items():
        inside = facts.get(name)
        if isinstance(fact, TensorFact) and isinstance(inside, TensorFact) and fact.shape and inside.shape:
            sizes |= {text for size, text in zip(fact.shape, inside.shape) if size in counts}
    return frozenset(sizes)


def _text(texts: dict[str, str], outside: str, inside: str, is_assigned: bool) -> str:
    """Return the text of a value in the called function: the first parameter that has the same value."""
    if outside.strip() in ("", "?") or is_assigned:
        return inside
    return texts.setdefault(outside, inside)


def has_tensor(fact: Fact) -> bool:
    """Return whether an argument is, or may contain, a tensor or an index vector."""
    match fact:
        case Many():
            return has_tensor(fact.element)
        case Items():
            return any(map(has_tensor, fact.items))
    return isinstance(fact, TensorFact) or is_index(fact)


def joined(name: str, before: Fact, fact: Fact) -> Fact:
    """Return the fact of a parameter that is true for the arguments of all calls."""
    result = join(before, fact)
    if isinstance(before, TensorFact) and isinstance(fact, TensorFact) and isinstance(result, TensorFact):
        shape = result.shape
        if before.shape is not None and fact.shape is not None and len(before.shape) == len(fact.shape):
            sizes = enumerate(zip(before.shape, fact.shape))
            shape = tuple(x if x == y else f"{name}.shape[{k}]" for k, (x, y) in sizes)
        return replace(result, shape=shape, dtype=result.dtype or f"{name}.dtype")
    if isinstance(before, Dtype) and isinstance(fact, Dtype):
        return before if before == fact else Dtype(name)
    return result


def unpassed_defaults(tree: ast.FunctionDef, passed_names: Collection[str] | None) -> dict[str, ast.expr]:
    """Return the defaults of a function's parameters that no call passes; none if nothing calls the function."""
    if passed_names is None:
        return {}
    assigned = bound_names(tree)
    return {name: default for name, default in defaults_of(tree).items() if name not in passed_names
            and not assigned[name]}


def absent_parameters(tree: ast.FunctionDef, passed_names: Collection[str] | None) -> frozenset[str]:
    """Return the parameters that no call passes and whose default is None, also those that the function assigns."""
    return frozenset(name for name, default in defaults_of(tree).items() if passed_names is not None
                     and name not in passed_names and isinstance(default, ast.Constant) and default.value is None)


SIZE = re.compile(r"(\w+)\.shape\[(\d+)\]")
DTYPE = re.compile(r"(\w+)\.dtype")


def parameter_sizes(tree: ast.FunctionDef, facts: Mapping[str, Fact]) -> dict[str, str]:
    """Return the sizes and dtypes of a function's parameters by their texts in its body: ``rows, columns = x.shape``
    names those of ``x``."""
    texts: dict[str, str] = {}
    assigned = bound_names(tree)
    for argument in parameters_of(tree.args):
        name, fact = argument.arg, facts.get(argument.arg)
        if isinstance(fact, TensorFact) and not assigned[name]:
            texts[f"{name}.dtype"] = f"{name}.dtype"
            for k, size in enumerate(fact.shape or ()):
                if not SIZE.fullmatch(size) or size.startswith(f"{name}."):
                    texts.setdefault(size, f"{name}.shape[{k}]")
    return {text: size for text, size in texts.items() if assigned[text] < 2}


def returned_fact(fact: Fact, sizes: Mapping[str, str], counts: Collection[str], readable: Collection[str]) -> Fact:
    """Return the fact of a result without texts that only the called function can read, but for ``sizes``, and those of
    ``readable`` names: parameters that it does not assign, and names around it. ``counts`` are the sizes that masks
    have cut."""
    if isinstance(fact, Items):
        return replace(fact, items=tuple(returned_fact(item, sizes, counts, readable) for item in fact.items))
    if isinstance(fact, Dtype) and not fact.text.startswith("nl."):
        return Fact()
    if not isinstance(fact, TensorFact):
        return without_local_texts(fact)
    shape, cut = fact.shape, tuple(k for k, size in enumerate(fact.shape or ()) if size in counts)
    if shape is not None:
        shape = tuple(s if "?" not in s and terms.names(s) <= {*readable} - {*counts} and not SIZE.fullmatch(s)
                      else sizes.get(s, "?") for s in shape)
    dtype = fact.dtype if fact.dtype.startswith("nl.") else sizes.get(fact.dtype, "")
    return TensorFact(fact.memory, shape, dtype, fact.blocks, cut=cut)


@dataclass(frozen=True)
class HelperCall:
    """What a call passes to the function ``tree``: facts of arguments by parameter, and texts of numbers by position or
    name. ``outside`` says for a name that is no parameter how the caller reads it; None if it cannot."""

    tree: ast.FunctionDef
    facts: Mapping[str, Fact]
    texts: Mapping[int | str, str]
    outside: Callable[[str], str | None]

    def text(self, name: str) -> str | None:
        """Return how the caller reads a name of the function: an argument, the name that is its default, or a name
        around the function."""
        parameters = [a.arg for a in parameters_of(self.tree.args)]
        if name not in parameters:
            return self.outside(name)
        if name in self.facts:
            return self.texts.get(name, self.texts.get(parameters.index(name)))
        default = defaults_of(self.tree).get(name)      # a number would only hide in the caller what it counts
        return self.outside(default.id) if isinstance(default, ast.Name) else None

    def result(self, fact: Fact) -> Fact:
        """Return the fact of a result in texts of the caller: a size of a parameter is the one of its argument."""
        if isinstance(fact, Items):
            return replace(fact, items=tuple(map(self.result, fact.items)))
        if not isinstance(fact, TensorFact):
            return fact
        shape, dtype = fact.shape, fact.dtype
        if shape is not None:
            shape = tuple(map(self._size, shape))
        if match := DTYPE.fullmatch(dtype):
            argument = self.facts.get(match[1])
            dtype = argument.dtype if isinstance(argument, TensorFact) else ""
        return replace(fact, shape=shape, dtype=dtype)

    def _size(self, text: str) -> str:
        """Return a size in a text of the caller; "?" if it has none."""
        if match := SIZE.fullmatch(text):
            argument, axis = self.facts.get(match[1]), int(match[2])
            if isinstance(argument, TensorFact) and argument.shape is not None and axis < len(argument.shape):
                return argument.shape[axis]
            return "?"
        if "?" in text:
            return "?"
        names = terms.names(text)
        values = {name: value for name in names if (value := self.text(name)) is not None}
        size = terms.with_names(text, values) if len(values) == len(names) else "?"
        return size if "(" not in size else "?"         # ``tile.shape[1]`` reads better


def is_index(fact: Fact) -> bool:
    """Return whether a value has index vectors or masks of them, which the new text does not have."""
    if isinstance(fact, MaskFact):
        return fact.depends_on_index
    return isinstance(fact, IndexFact) or (isinstance(fact, Items) and any(map(is_index, fact.items)))
