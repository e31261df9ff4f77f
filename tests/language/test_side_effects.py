# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What code may change besides its local variables, by the statements that it has."""

import pytest

from nki_mlir.language.side_effects import Stores, stores_of


def stores(statement: str) -> Stores:
    """What the statement may change in a function with the cell ``c`` and the global ``g``."""
    text = f"def outer(o, x):\n    c = 0\n    def inner():\n        global g\n        nonlocal c\n        {statement}\n    return inner"
    namespace: dict = {}
    exec(text, namespace)
    return stores_of([namespace["outer"](None, None).__code__])


@pytest.mark.parametrize(("statement", "expected"), [
    ("y = c + o.a + x[0] + g", Stores()),
    ("c = 1", Stores(cells={"c"})), ("c += 1", Stores(cells={"c"}, items=True)), ("del c", Stores(cells={"c"})),
    ("g = 1", Stores(scopes={"g"})), ("del g", Stores(scopes={"g"})),
    ("o.a = 1", Stores(attributes={"a"})), ("del o.a", Stores(attributes={"a"})),
    ("o.a.b = c", Stores(attributes={"b"})), ("o.a, g = 1, 2", Stores(attributes={"a"}, scopes={"g"})),
    ("x[0] = 1", Stores(items=True)), ("del x[0]", Stores(items=True)), ("x[0:2] = o", Stores(items=True)),
    ("x.append(1)", Stores(items=True)), ("x.count(1)", Stores()), ("y = x; y += [1]", Stores(items=True)),
    ("f = lambda: x.append(1)", Stores(items=True)), ("return [o.pop() for _ in x]", Stores(items=True)),
    ("exec('x = 1')", Stores(anything=True)), ("setattr(o, 'a', 1)", Stores(anything=True)),
    ("globals()['g'] = 1", Stores(anything=True, items=True)), ("return o.__dict__", Stores(anything=True)),
])
def test_stores_of_a_statement(statement: str, expected: Stores) -> None:
    assert stores(statement) == expected


def test_stores_of_several_codes__are_those_of_each() -> None:
    def first(o: object) -> None:
        o.a = 1     # type: ignore[attr-defined]

    def second(o: list) -> None:
        def inner() -> None:
            o[0].b = 2
        inner()
    assert stores_of([first.__code__, second.__code__]) == Stores(attributes={"a", "b"})
    assert stores_of([]) == Stores()
