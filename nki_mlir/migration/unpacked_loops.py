# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes comprehensions whose elements get a name each as one assignment for each name.

before:  first, second = [nl.load(x) for x in (a, b)]       after:  first = nl.load(a)
                                                                    second = nl.load(b)
"""

from collections.abc import Sequence

import libcst as cst
import libcst.matchers as m

from nki_mlir.migration.names import Substitution

SIMPLE = m.Name() | m.Integer() | m.Attribute(value=m.Name())
MOST = 64                       # names that a target may have
BINDS = m.Lambda() | m.NamedExpr() | m.CompFor()


def unpacked(target: cst.BaseExpression, value: cst.BaseExpression) -> cst.Tuple | None:
    """Return the elements of a comprehension that a target of as many names unpacks; None for other values."""
    if not isinstance(target, cst.Tuple | cst.List) or not isinstance(value, cst.ListComp | cst.GeneratorExp):
        return None
    loop = value.for_in
    if not isinstance(loop.target, cst.Name) or loop.ifs or loop.inner_for_in or m.findall(value.elt, BINDS):
        return None
    variable = m.Name(loop.target.value)
    terms = m.findall(value.elt, m.BinaryOperation())
    items = _items(loop.iter, is_in_terms=any(m.findall(term, variable) for term in terms))
    if items is None or len(items) != len(target.elements) or not all(m.matches(item, SIMPLE) for item in items):
        return None
    if not all(m.matches(element, m.Element(value=m.Name())) for element in target.elements):
        return None
    texts = [value.elt.visit(Substitution({loop.target.value: item})) for item in items]
    return cst.Tuple([cst.Element(text) for text in texts if isinstance(text, cst.BaseExpression)])


def _items(iterated: cst.BaseExpression, is_in_terms: bool) -> Sequence[cst.BaseExpression] | None:
    """Return the values of the loop's variable, None if the text does not show them. Numbers within terms would not
    read well."""
    if isinstance(iterated, cst.Tuple | cst.List):
        return [element.value for element in iterated.elements if isinstance(element, cst.Element)]
    if not is_in_terms and isinstance(iterated, cst.Call) and m.matches(
            iterated, m.Call(func=m.Name("range"), args=[m.Arg(value=m.Integer())])):
        count = int(cst.ensure_type(iterated.args[0].value, cst.Integer).value, 0)
        return [cst.Integer(str(k)) for k in range(min(count, MOST))]
    return None
