# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Named tuples and classes of data in a file, whose objects hold tiles and numbers by name."""

import ast
from collections.abc import Mapping, Sequence

from nki_mlir.migration.facts import Fact, Items, NoneFact, NumberFact, RecordClass, Unknown

INITIALIZERS = {"__init__", "__new__", "__post_init__"}


def record_classes(module: ast.Module) -> dict[str, RecordClass]:
    """Return the classes of a file whose objects consist of their fields, by name: ``namedtuple``, ``NamedTuple``, and
    data classes that assign and compute no field."""
    classes: dict[str, RecordClass] = {}
    stored = {n.attr for n in ast.walk(module) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    for node in module.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=call, args=[_, fields], keywords=[])):
                if _last_name(call) == "namedtuple" and (names := _field_names(fields)) is not None:
                    classes[name] = RecordClass(names)
            case ast.ClassDef(name=name, bases=bases):
                is_tuple = [_last_name(base) for base in bases] == ["NamedTuple"]
                is_data = not bases and any(_last_name(d.func if isinstance(d, ast.Call) else d) == "dataclass"
                                            for d in node.decorator_list)
                annotated = [s for s in node.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]
                names = tuple(s.target.id for s in annotated if isinstance(s.target, ast.Name))
                methods = {s.name for s in node.body if isinstance(s, ast.FunctionDef)}
                if is_tuple or (is_data and methods.isdisjoint(INITIALIZERS) and stored.isdisjoint(names)):
                    defaults = tuple((s.target.id, _fact(s.value)) for s in annotated
                                     if isinstance(s.target, ast.Name) and s.value is not None)
                    factories = tuple(s.name for s in node.body if isinstance(s, ast.FunctionDef) and _creates(s, name))
                    declared = tuple(_declared(s.annotation) for s in annotated)
                    classes[name] = RecordClass(names, defaults, factories, declared)
    return classes


def record(kind: RecordClass, positional: Sequence[Fact], keywords: Mapping[str, Fact]) -> Fact:
    """Return the fact of an object for the arguments of a call of its class."""
    values = {**dict(kind.defaults), **dict(zip(kind.fields, positional)), **keywords}
    if len(positional) > len(kind.fields) or set(values) != set(kind.fields):
        return Fact()
    return Items(tuple(values[name] for name in kind.fields), kind.fields)


def _creates(function: ast.FunctionDef, kind: str) -> bool:
    """Return whether a class method returns nothing but a new object of the class."""
    if [_last_name(d) for d in function.decorator_list] != ["classmethod"]:
        return False
    names = {kind, *(a.arg for a in function.args.args[:1])}
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return)]
    return bool(returns) and all(isinstance(r.value, ast.Call) and isinstance(r.value.func, ast.Name)
                                 and r.value.func.id in names for r in returns)


def _declared(annotation: ast.expr) -> Fact:
    """Return the fact that an annotation states: a number, or nothing."""
    is_number = isinstance(annotation, ast.Name) and annotation.id in ("int", "float", "bool")
    return NumberFact() if is_number else Unknown()


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _field_names(node: ast.expr) -> tuple[str, ...] | None:
    try:
        names = ast.literal_eval(node)
    except ValueError:
        return None
    return tuple(names.replace(",", " ").split() if isinstance(names, str) else names)


def _fact(node: ast.expr) -> Fact:
    if isinstance(node, ast.Constant):
        if node.value is None:
            return NoneFact()
        if isinstance(node.value, int | float):
            return NumberFact("float" if isinstance(node.value, float) else "int")
    return Fact()
