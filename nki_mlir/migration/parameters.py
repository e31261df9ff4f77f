# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Infers facts about the parameters of a function from their uses in its body, and lists the names it binds."""

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from nki_mlir.language.functions import UNARY
from nki_mlir.migration.facts import HBM, SBUF, Fact, NumberFact, TensorFact, function_fact
from nki_mlir.migration.names import Names, dotted
from nki_mlir.migration.python_trees import parameters_of, python_tree, walked

TENSOR_ATTRIBUTES = {"shape", "dtype", "ndim"}
TENSOR_MEMBERS = {*TENSOR_ATTRIBUTES, "itemsize", "astype", "view", "reshape", "broadcast_to", "expand_dims",
                  "assert_shape", "as_tile"}
GRID_MEMBERS = {"p", "x", "y", "z", "w"}        # of nl.mgrid
COMPUTING = {*UNARY, "add", "subtract", "multiply", "divide", "maximum", "minimum", "power"}       # functions of nl
FROM_HBM = {"nl.load", "nl.store", "nl.load_transpose2d", "nl.atomic_rmw", "nisa.dma_copy"}


def tree_of_statements(statements: Sequence[cst.BaseStatement]) -> ast.FunctionDef:
    """Return statements as Python's own tree, in a function."""
    block = cst.IndentedBlock(statements or [cst.SimpleStatementLine([cst.Pass()])])
    return tree_of(cst.FunctionDef(cst.Name("f"), cst.Parameters(), block))


def tree_of(node: cst.FunctionDef) -> ast.FunctionDef:
    """Return a function as Python's own tree."""
    function = ast.parse(cst.Module([]).code_for_node(node.with_changes(leading_lines=(), asynchronous=None))).body[0]
    assert isinstance(function, ast.FunctionDef)
    return function


def bound_names(node: ast.AST) -> Counter[str]:
    """Return how often each name is bound."""
    counts: Counter[str] = Counter()
    for inner in walked(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            counts[inner.id] += 1
        elif isinstance(inner, (ast.FunctionDef, ast.ClassDef)) and inner is not node:
            counts[inner.name] += 1
    return counts


def single_elements(node: ast.AST) -> frozenset[str]:
    """Return the names for which a function reads only the first element: ``name[0, 0]``."""
    first: set[int] = set()
    for inner in walked(node):
        if isinstance(inner, ast.Subscript) and isinstance(inner.ctx, ast.Load):
            index = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
            if all(isinstance(i, ast.Constant) and i.value == 0 for i in index):
                first.add(id(inner.value))
    reads = [n for n in walked(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return frozenset({n.id for n in reads if id(n) in first} - {n.id for n in reads if id(n) not in first})


def first_columns(node: ast.AST) -> frozenset[str]:
    """Return the names of which a function reads only the first column: ``name[rows, 0]``, ``name[:, 0:1]``."""
    columns: dict[str, bool] = {}
    for inner in walked(node):
        match inner:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[*rows, column])):
                is_first = len(rows) == 1 and ast.unparse(column) in {"0", "0:1", ":1"}
                columns[name] = is_first and columns.get(name, True)
    return frozenset(name for name, is_first in columns.items() if is_first)


def only_row_subscripts(node: ast.AST) -> frozenset[str]:
    """Return the names that a function uses only as ``name[rows]``, ``name.shape[0]`` and ``name.dtype``, which shows
    nothing of further dimensions."""
    rows: set[str] = set()
    shown: set[int] = set()
    for inner in walked(node):
        match inner:
            case ast.Attribute(value=value, attr="dtype"):
                shown.add(id(value))
            case ast.Subscript(value=ast.Attribute(value=value, attr="shape"), slice=ast.Constant(value=0)):
                shown.add(id(value))
            case ast.Subscript(value=ast.Name(id=name) as value, slice=index) if not isinstance(index, ast.Tuple):
                shown.add(id(value))
                rows.add(name)
    names = [n for n in walked(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return frozenset(rows - {n.id for n in names if id(n) not in shown})


@dataclass(frozen=True)
class ReadParts:
    """Names by the parts of their values that a function reads."""

    single_elements: frozenset[str] = frozenset()
    first_columns: frozenset[str] = frozenset()
    only_rows: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tree: ast.FunctionDef) -> "ReadParts":
        """Return the names of a function."""
        return cls(single_elements(tree), first_columns(tree), only_row_subscripts(tree))


def unstable(node: ast.FunctionDef) -> frozenset[str]:
    """Return the names that are bound at several lines, so that their meaning depends on the line."""
    counts = bound_names(node)
    return frozenset(name for name, count in counts.items() if count > 1)


def root(node: ast.expr) -> str:
    """Return the name that a subscript or attribute chain begins with."""
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return root(node.func.value)
    return node.id if isinstance(node, ast.Name) else ""


def returns_slice(tree: ast.FunctionDef) -> bool:
    """Return whether a function returns ``slice(...)``."""
    return any(isinstance(node, ast.Return) and isinstance(node.value, ast.Call) and isinstance(
        node.value.func, ast.Name) and node.value.func.id == "slice" for node in walked(tree))


def defaults_of(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return the defaults of a function's parameters."""
    positional = [*function.args.posonlyargs, *function.args.args]
    pairs = [*zip(positional[::-1], function.args.defaults[::-1]),
             *zip(function.args.kwonlyargs, function.args.kw_defaults)]
    return {argument.arg: value for argument, value in pairs if value is not None}


def kind_of(default: ast.expr | None) -> Fact:
    """Return the fact about a number, with a sign or without; another expression has none."""
    match default:
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            return kind_of(operand)
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return NumberFact("float" if isinstance(number, float) else "int")
    return Fact()


def number_defaults(function: ast.FunctionDef) -> dict[str, Fact]:
    """Return the facts about defaults that are numbers: about the parameters that a call does not pass."""
    facts = {name: kind_of(default) for name, default in defaults_of(function).items()}
    return {name: fact for name, fact in facts.items() if isinstance(fact, NumberFact)}


class Parameters:
    """Looks at the functions of a module."""

    def __init__(self, names: Names, functions: Mapping[str, ast.FunctionDef]) -> None:
        self.names, self.functions = names, dict(functions)
        self.imported: dict[str, tuple[Parameters, str]] = {}       # functions imported from other files

    def meaning(self, node: ast.expr) -> str:
        """Return the public name that a name or attribute refers to, or ""."""
        return self.names.meaning(node)

    def facts(self, function: ast.FunctionDef, is_kernel: bool) -> dict[str, Fact]:
        """Return the fact about each parameter. A default does not show the kind of the number that a caller passes."""
        arguments = parameters_of(function.args)
        defaults = defaults_of(function)
        facts: dict[str, Fact] = {}
        for argument in arguments:
            name = argument.arg
            default = defaults.get(name)
            annotation = ast.unparse(argument.annotation) if argument.annotation else ""
            if isinstance(kind_of(default), NumberFact):    # a caller may pass a float for an integer
                facts[name] = NumberFact(annotation if annotation in ("int", "float") else "")
            elif default is not None and (function_default := function_fact(self.meaning(default))) != Fact():
                facts[name] = function_default
            elif isinstance(default, ast.Call):                 # an object of the host, which may have a ``shape``
                facts[name] = Fact()
            elif annotation in ("int", "float", "bool", "str"):
                facts[name] = NumberFact(annotation if annotation in ("int", "float") else "")
            else:
                facts[name] = self._used(function, name, is_kernel)
        return facts

    def _used(self, function: ast.FunctionDef, name: str, is_kernel: bool) -> Fact:
        dtype = f"{name}.dtype"
        tile, hbm = TensorFact(SBUF, None, dtype), TensorFact(HBM, None, dtype, base=True, parameter=True)
        if any(isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name) and n.value.id == name
               and _counts_from_the_end(n.slice) for n in walked(function)):      # a list: no tensor has such indices
            return Fact()
        kinds = self._kinds(function, name, is_kernel, frozenset())
        if is_kernel:                   # its tensors are in HBM, which no operation computes with
            if kinds == {"tensor"} and self._is_operand(function, name):
                return Fact()
            return hbm if kinds & {"hbm", "tensor"} else NumberFact()
        if "hbm" in kinds:
            return hbm
        return tile if kinds & {"tile", "tensor"} else NumberFact()

    def _is_operand(self, function: ast.FunctionDef, name: str) -> bool:
        """Return whether an operation computes with an element of a parameter, ``tile * weights[k]``, and nothing reads
        its attributes."""
        operands: list[ast.expr] = []
        for node in walked(function):
            match node:
                case ast.Attribute(value=ast.Name(id=owner)) if owner == name:
                    return False
                case ast.BinOp(left=left, right=right):
                    operands += [left, right]
                case ast.AugAssign(value=right):
                    operands.append(right)
                case ast.Call(func=ast.Name() | ast.Attribute() as function_node, args=arguments) if self.meaning(
                        function_node).removeprefix("nl.") in COMPUTING:
                    operands += arguments
        return any(isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name) and n.value.id == name
                   and not isinstance(n.slice, ast.Slice | ast.Tuple) for n in operands)

    def _kinds(self, function: ast.FunctionDef, name: str, is_kernel: bool, callers: frozenset[str]) -> set[str]:
        """Return what the uses of a parameter, here and in functions that get it, show that it is: a tensor in HBM, a
        tile, or a tensor in either memory."""
        kinds: set[str] = set()
        names, defaults = {name, *_other_names(function, name)}, defaults_of(function)
        shown = TENSOR_ATTRIBUTES - {"dtype"} if has_options(function, name) else TENSOR_ATTRIBUTES
        for node in walked(function):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
                if node.attr in shown or node.attr in ("reshape", "broadcast_to", "astype"):
                    kinds.add("tensor")
            elif isinstance(node, (ast.Subscript, ast.AugAssign)):
                owner = node.value if isinstance(node, ast.Subscript) else node.target
                if isinstance(owner, ast.Name) and owner.id in names and not (is_kernel and _is_item(node)):
                    kinds.add("tensor" if isinstance(node, ast.Subscript) else "")
            elif isinstance(node, ast.Call):
                default = defaults.get(node.func.id) if isinstance(node.func, ast.Name) else None
                if default is not None and function_fact(self.meaning(default)) != Fact():      # act=nl.silu
                    kinds |= {"tile" for v in node.args if isinstance(v, ast.Name | ast.Subscript) and root(v) in names}
                for alias in names:
                    self._in_call(node, alias, kinds, callers | {function.name})
        return kinds

    def _in_call(self, node: ast.Call, name: str, kinds: set[str], callers: frozenset[str]) -> None:
        values = [*node.args, *(k.value for k in node.keywords)]
        if not any(root(v) == name for v in values):
            return
        meaning = self.meaning(node.func)
        if meaning in FROM_HBM:
            named = [k.value for k in node.keywords if k.arg in ("src", "dst")]
            first = next(iter([*named, *node.args]), None)
            is_first = meaning == "nisa.dma_copy" or (first is not None and root(first) == name)
            kinds.add("hbm" if is_first and meaning != "nisa.dma_copy" else "tile" if not is_first else "tensor")
        elif meaning.startswith("nisa.") or (meaning.startswith("nl.") and meaning[3:] in (
                "exp", "copy", "matmul", "add", "multiply", "subtract", "divide", "sum", "max", "transpose")):
            direct = [v for v in values[:2] if isinstance(v, (ast.Name, ast.Subscript)) and root(v) == name]
            if direct:
                kinds.add("tile")
        elif (name_of_callee := dotted(node.func)) is not None and name_of_callee not in callers:
            owner, function = self.imported.get(name_of_callee, (self, name_of_callee))
            callee = owner.functions.get(function)
            if callee is None:
                return
            passed = [*zip((a.arg for a in callee.args.args), node.args), *((k.arg, k.value) for k in node.keywords)]
            for parameter, value in passed:
                if parameter is not None and isinstance(value, ast.Name) and value.id == name:
                    kinds |= owner._kinds(callee, parameter, False, callers)


def has_options(function: ast.FunctionDef, name: str) -> bool:
    """Return whether a function reads attributes of a parameter that no tensor has, and takes no part of them:
    ``cfg.rows`` with ``cfg.dtype`` shows an object of the host."""
    nodes = list(walked(function))
    attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
                  and n.value.id == name}
    parts = any(isinstance(n, ast.Subscript) and isinstance(n.value, ast.Attribute) and root(n.value) == name
                for n in nodes)
    return not parts and bool(attributes - TENSOR_MEMBERS - GRID_MEMBERS)


def _other_names(function: ast.FunctionDef, name: str) -> set[str]:
    """Return the variables that are ``name`` as well: loop variables over tuples or lists with ``name`` in them, and
    variables to which nothing but ``name`` is assigned."""
    names, assigned = set[str](), bound_names(function)
    displays = {target.id: node.value for node in walked(function) if isinstance(node, ast.Assign)
                for target in node.targets if isinstance(target, ast.Name) and assigned[target.id] == 1}
    for node in walked(function):
        match node:
            case ast.For(target=target, iter=iterated) | ast.comprehension(target=target, iter=iterated):
                for item in _items(iterated, displays):
                    names |= {alias for alias, value in _bound(target, item) if value == name}
            case ast.Assign(targets=[ast.Name(id=alias)], value=ast.Name(id=value)) if value == name != alias:
                names |= {alias} if assigned[alias] == 1 else set()
    return names


def _items(iterated: ast.expr, displays: Mapping[str, ast.expr]) -> list[ast.expr]:
    """Return the items of a tuple or a list, of a variable that is one, and of these in ``zip`` and ``enumerate``."""
    match iterated:
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return items
        case ast.Name(id=name) if isinstance(displays.get(name), ast.Tuple | ast.List):
            return _items(displays[name], {})
        case ast.Call(func=ast.Name(id="zip"), args=arguments):
            return [ast.Tuple(list(parts), ast.Load()) for parts in zip(*(_items(a, displays) for a in arguments))]
        case ast.Call(func=ast.Name(id="enumerate"), args=[first, *_]):
            return [ast.Tuple([ast.Constant(0), item], ast.Load()) for item in _items(first, displays)]
    return []


def _bound(target: ast.expr, item: ast.expr) -> list[tuple[str, str]]:
    """Return (variable, name) of each variable of a loop's target that is a name of the item."""
    match target, item:
        case ast.Name(id=variable), ast.Name(id=name):
            return [(variable, name)]
        case (ast.Tuple() | ast.List()), (ast.Tuple() | ast.List()):
            return [pair for part, inner in zip(target.elts, item.elts) for pair in _bound(part, inner)]
    return []


def _counts_from_the_end(index: ast.expr) -> bool:
    """Return whether an index is a negative number, or a slice with one as a bound."""
    bounds = [index.lower, index.upper] if isinstance(index, ast.Slice) else [index]
    return any(isinstance(bound, ast.UnaryOp) and isinstance(bound.op, ast.USub) and isinstance(
        bound.operand, ast.Constant) for bound in bounds)


def _is_item(node: ast.AST) -> bool:
    """Return whether a node is ``x[0]``, which may be an item of a tuple as well as a row of a tensor."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)


def bound_in_calls(function: ast.FunctionDef, module: ast.Module, names: Names) -> dict[str, Fact]:
    """Return the parameters of a function of the host that are functions of tiles, or numbers, in all of its calls in a
    file: ``make(nl.gelu, 0.5)``."""
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    facts: dict[str, set[Fact]] = {}
    for call in walked(module):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == function.name:
            passed = {**dict(zip(parameters, call.args)), **{k.arg or "": k.value for k in call.keywords}}
            is_unpacked = "" in passed or any(isinstance(value, ast.Starred) for value in call.args)
            unpassed = dict.fromkeys(parameters, ast.Tuple([], ast.Load())) if is_unpacked else defaults_of(function)
            for name, value in {**unpassed, **passed}.items():
                facts.setdefault(name, set()).add(_of_argument(value, names))
    assigned = bound_names(function)
    return {name: fact for name, facts_of_name in facts.items() if len(facts_of_name) == 1 and not assigned[name]
            for fact in facts_of_name if type(fact) is not Fact}


def _of_argument(value: ast.expr, names: Names) -> Fact:
    match value:
        case ast.Constant(value=bool()):
            return NumberFact()
        case ast.Constant(value=int()):
            return NumberFact("int")
        case ast.Constant(value=float()):
            return NumberFact("float")
        case ast.Name() | ast.Attribute():
            return function_fact(names.meaning(value))
    return Fact()


def names_read(text: str) -> set[str]:
    """Return the names that statements or an expression read."""
    return {n.id for n in walked(python_tree(text)) if isinstance(n, ast.Name)}


def numbers_of(tree: ast.Module) -> dict[str, Fact]:
    """Return the names of numbers that the top level of a file assigns."""
    facts: dict[str, Fact] = {}
    for name, value in _assignments(tree):
        if isinstance(number := kind_of(value), NumberFact):
            facts[name] = number
        if isinstance(value, ast.Constant) and isinstance(value.value, (int, float)):
            facts.setdefault(name, NumberFact("int"))             # True and False are instances of int
    return facts


def literals(tree: ast.Module) -> dict[str, str]:
    """Return the texts of the numbers that the top level of a file gives names to."""
    return {name: repr(value.value) for name, value in _assignments(tree)
            if isinstance(value, ast.Constant) and isinstance(value.value, (int, float))}


def unique_numbers(tree: ast.Module) -> dict[str, str]:
    """Return the texts of the numbers of a file whose names nothing in the file binds again."""
    counts = bound_names(tree)
    parameters = {node.arg for node in walked(tree) if isinstance(node, ast.arg)}
    return {name: text for name, text in literals(tree).items() if counts[name] == 1 and name not in parameters}


def constants(tree: ast.Module) -> set[str]:
    """Return the names that the top level of a file binds once, by an assignment or an import, and nothing else."""
    counts: Counter[str] = Counter()
    names = {name for name, _ in _assignments(tree)}
    for node in walked(tree):
        if isinstance(node, ast.Global):
            counts.update(node.names)
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported = [(alias.asname or alias.name).partition(".")[0] for alias in node.names]
            names |= {*imported}
            counts.update({*imported})
        elif not isinstance(node, ast.FunctionDef | ast.ClassDef):
            counts.update(bound_names(node))
    return {name for name in names if counts[name] == 1}


def _assignments(tree: ast.Module) -> list[tuple[str, ast.expr]]:
    return [(node.targets[0].id, node.value) for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)]
