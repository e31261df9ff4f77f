# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replaces calls of host methods that compute index vectors or masks by the expressions that they return.

    mask = tiles.row_mask(i, ip)        mask = i * tiles.size + ip < tiles.rows
"""

import builtins
from collections.abc import Collection, Iterable, Mapping

import libcst as cst

from nki_mlir.migration.names import Names, NodesByClass, Substitution, nodes_of
from nki_mlir.migration.tile_classes import PROPERTY, STATIC, kind_of


class HostMethods(dict[str, cst.FunctionDef]):
    """Methods of classes by name, and the constants of the file, which they may read."""

    constants: frozenset[str] = frozenset()
    classes: Mapping[str, cst.ClassDef] = {}            # the classes of the file, by name

    def without(self, name: str) -> "HostMethods":
        """Return the other methods."""
        methods = HostMethods({n: method for n, method in self.items() if n != name})
        methods.constants = self.constants
        return methods

    def add(self, imported: cst.ClassDef, constants: Mapping[str, str], readable: Collection[str]) -> None:
        """Add the methods of a class of another file that read its constants, whose numbers replace them, and names
        among ``readable``. A method with the name of another one has no value."""
        numbers = {name: cst.parse_expression(text) for name, text in constants.items() if name not in readable}
        for method in imported.body.body:
            if not isinstance(method, cst.FunctionDef) or kind_of(method) is None:
                continue
            parameters = {p.name.value for p in method.params.params}
            body = method.body.visit(Substitution({n: v for n, v in numbers.items() if n not in parameters}))
            other_body = cst.IndentedBlock([cst.SimpleStatementLine([cst.Pass()])])
            self[method.name.value] = method.with_changes(body=other_body if method.name.value in self else body)


def host_methods(nodes: NodesByClass, constants: Iterable[str] = ()) -> HostMethods:
    """Return the methods whose body is one ``return`` after assignments, by name, if no other function of the file has
    the name. Static methods, methods of the class and properties are such methods, too. They may read constants of the
    file, which no other statement binds."""
    functions = nodes.of(cst.FunctionDef)
    methods = [f for c in nodes.of(cst.ClassDef) for f in c.body.body if isinstance(f, cst.FunctionDef)]
    count: dict[str, int] = {}
    for function in functions:
        count[function.name.value] = count.get(function.name.value, 0) + 1
    table = HostMethods({m.name.value: m for m in methods if count[m.name.value] == 1 and kind_of(m) is not None})
    bound = [t.target.value for t in nodes.of(cst.AssignTarget) if isinstance(t.target, cst.Name)]
    bound += [p.name.value for p in nodes.of(cst.Param)]
    table.classes = {node.name.value: node for node in nodes.of(cst.ClassDef)}
    table.constants = frozenset(name for name in constants if bound.count(name) == 1 and name.isupper())
    return table


def returned(method: cst.FunctionDef, methods: HostMethods | None = None, names: Names | None = None
             ) -> cst.BaseExpression | None:
    """Return the value after the docstring and assignments of names, which it replaces by their values; None for a
    method with other statements. With ``methods``, values of such methods replace their calls."""
    statements = [s for line in method.body.body for s in (line.body if isinstance(line, cst.SimpleStatementLine)
                                                           else [line])]
    if statements and isinstance(statements[0], cst.Expr) and isinstance(statements[0].value, cst.SimpleString):
        statements = statements[1:]
    values: dict[str, cst.BaseExpression] = {}
    parameters = {p.name.value for p in method.params.params}
    for statement in statements[:-1]:
        match statement:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))], value=value):
                pairs = [(name, value)]
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Tuple(elements=targets))], value=value):
                if methods is not None and names is not None:
                    value = value_of_method(value, methods, names) or value
                if isinstance(value, cst.Subscript) and names is not None and names.meaning(value.value) == "nl.mgrid":
                    value = cst.Tuple([cst.Element(_element(value, k)) for k in range(len(value.slice))])
                if not isinstance(value, cst.Tuple) or len(value.elements) != len(targets):
                    return None
                if not all(isinstance(t.value, cst.Name) for t in targets):
                    return None
                pairs = [(cst.ensure_type(t.value, cst.Name).value, v.value) for t, v in zip(targets, value.elements)]
            case _:
                return None
        if any(name in values or name in parameters for name, _ in pairs):
            return None
        values |= {name: _in_parentheses(_with_values(value, values)) for name, value in pairs}
    match statements[-1:]:
        case [cst.Return(value=cst.BaseExpression() as value)]:
            return _with_values(value, values)
    return None


def _element(values: cst.BaseExpression, position: int) -> cst.Subscript:
    return cst.Subscript(values, [cst.SubscriptElement(cst.Index(cst.Integer(str(position))))])


def _with_values(node: cst.BaseExpression, values: Mapping[str, cst.BaseExpression]) -> cst.BaseExpression:
    """Return an expression in which values replace names."""
    expression = node.visit(Substitution(values))
    assert isinstance(expression, cst.BaseExpression)
    return expression


def value_of_method(node: cst.BaseExpression, methods: HostMethods, names: Names
                    ) -> cst.BaseExpression | None:
    """Return the expression that a call of such a method, or a property, computes; None for other expressions."""
    if isinstance(node, cst.Call):
        return value_of_call(node, methods, names)
    if not isinstance(node, cst.Attribute) or (method := methods.get(node.attr.value)) is None or (
            kind_of(method) != PROPERTY):
        return None
    return _value(cst.Call(node), method, methods, names)


def value_of_call(call: cst.Call, methods: HostMethods, names: Names) -> cst.BaseExpression | None:
    """Return the expression that a call of such a method computes; None for other calls, and for those whose method
    reads variables of its file."""
    method = methods.get(call.func.attr.value) if isinstance(call.func, cst.Attribute) else None
    return None if method is None or kind_of(method) == PROPERTY else _value(call, method, methods, names)


def _value(call: cst.Call, method: cst.FunctionDef, methods: HostMethods, names: Names
           ) -> cst.BaseExpression | None:
    callees = methods.without(method.name.value)
    value, bound = returned(method, callees, names), _bound_arguments(method, call)
    if value is None or bound is None:
        return None
    parameters = [p.name.value for p in method.params.params]
    read = {n.value for n in nodes_of(cst.Expr(value), cst.Name)} - {
        n.attr.value for n in nodes_of(cst.Expr(value), cst.Attribute)} - {
        a.keyword.value for a in nodes_of(cst.Expr(value), cst.Arg) if a.keyword is not None}
    if not read <= {*parameters, *names.paths, *dir(builtins), *methods.constants}:
        return None
    return _with_values(value, {name: _in_parentheses(argument) for name, argument in bound.items()})


def _bound_arguments(method: cst.FunctionDef, call: cst.Call) -> dict[str, cst.BaseExpression] | None:
    """Return the arguments of a call of a method by parameter, its object and defaults that are constants among them;
    None if they are not as many, or unpacked."""
    assert isinstance(call.func, cst.Attribute)
    parameters = method.params
    if isinstance(parameters.star_arg, cst.Param) or any((
            parameters.star_kwarg, parameters.kwonly_params, parameters.posonly_params, *(a.star for a in call.args))):
        return None
    names = [p.name.value for p in parameters.params]
    receiver = [] if kind_of(method) == STATIC else [call.func.value]
    positional = [*receiver, *(a.value for a in call.args if a.keyword is None)]
    bound: dict[str, cst.BaseExpression] = {
        p.name.value: p.default for p in parameters.params if isinstance(p.default, cst.Integer | cst.SimpleString) or (
            isinstance(p.default, cst.Name) and p.default.value in ("None", "True", "False"))}
    by_keyword = {a.keyword.value: a.value for a in call.args if a.keyword is not None}
    if len(positional) > len(names) or not by_keyword.keys() <= {*names[len(positional):]}:
        return None
    bound |= dict(zip(names, positional)) | by_keyword
    return {name: bound[name] for name in names} if bound.keys() == {*names} else None


def has_vectors(value: cst.BaseExpression, methods: HostMethods, names: Names) -> bool:
    """Return whether a value is computed from new index vectors, also by other such methods, and from no tile."""
    has_new = any(names.meaning(node.value) == "nl.mgrid" for node in nodes_of(cst.Expr(value), cst.Subscript))
    for call in nodes_of(cst.Expr(value), cst.Call):
        meaning = names.meaning(call.func)
        if meaning == "nl.arange":
            has_new = True
        elif meaning.startswith(("nl.", "nisa.")):
            return False
        elif isinstance(call.func, cst.Attribute) and call.func.attr.value in methods:
            inner = value_of_call(call, methods, names)
            if inner is None:
                return False
            has_new = has_vectors(inner, methods.without(call.func.attr.value), names) or has_new
    for node in nodes_of(cst.Expr(value), cst.Attribute):
        if not has_new and (inner := value_of_method(node, methods, names)) is not None:
            has_new = has_vectors(inner, methods.without(node.attr.value), names)
    return has_new


def _in_parentheses(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return an argument as an operand of any operator."""
    if isinstance(node, cst.Name | cst.Attribute | cst.Integer | cst.Call | cst.Subscript) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
