# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Facts about arguments, in texts that the called function can read.

    acc = nl.zeros((128, d), acc_dtype)         acc: (128, acc.shape[1]), acc.dtype
    total = nl.zeros((128, 1), acc_dtype)       total: (128, 1), acc.dtype
    add_block(acc, total)
"""

import ast
from collections.abc import Mapping
from dataclasses import replace

from nki_mlir.migration import terms
from nki_mlir.migration.facts import Dtype, Fact, Span, TensorFact, join
from nki_mlir.migration.parameters import bound_names


def without_local_texts(fact: Fact) -> Fact:
    """Return the fact of a slice without texts that only one function can read."""
    if isinstance(fact, Span):
        return Span("", fact.size if terms.number(fact.size) is not None else "")
    return fact


def passed(facts: Mapping[str, Fact], tree: ast.FunctionDef) -> dict[str, Fact]:
    """Return the facts of parameters, from the facts of their arguments. A size that is not a number becomes
    ``name.shape[k]``, a dtype ``name.dtype``, of the first parameter whose argument has the same text: equal sizes have
    equal texts."""
    assigned = bound_names(tree)
    sizes: dict[str, str] = {}
    dtypes: dict[str, str] = {}
    result: dict[str, Fact] = {}
    for name, fact in facts.items():
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


def _text(texts: dict[str, str], outside: str, inside: str, is_assigned: bool) -> str:
    """Return the text of a value in the called function: the first parameter that has the same value."""
    if outside.strip() in ("", "?") or is_assigned:
        return inside
    return texts.setdefault(outside, inside)


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
