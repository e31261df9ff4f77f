# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Resolves names in a module's text: imports of the vendor's packages, and operators of NumPy."""

import ast
import builtins
import functools
import re
import symtable
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import TypeVar, cast

import libcst as cst

from nki_mlir.language.beta import isa, language, nki
from nki_mlir.language.current import isa as current_isa
from nki_mlir.language.current import language as current_language
from nki_mlir.language.functions import finfo
from nki_mlir.migration.python_trees import python_tree, tree_names, walked
from nki_mlir.migration.tree_transformer import TreeTransformer
from nki_mlir.scalar.dtypes import BY_NAME
from nki_mlir.scalar.tokens import ALIASES

N = TypeVar("N", bound=cst.CSTNode)
# Packages within others come first.
PACKAGES = {"neuronxcc.nki.language": "nl", "neuronxcc.nki.isa": "nisa", "neuronxcc.nki.compiler": "ncc",
            "neuronxcc.nki.typing": "nt", "neuronxcc.nki": "nki", "numpy": "np", "torch_neuronx.nki_jit": "nki.jit",
            "torch_neuronx.xla_impl.ops.nki_jit": "nki.jit", "jax_neuronx.nki_call": "nki.nki_call",
            "jax_neuronx.core.nki_call": "nki.nki_call",
            "nki.language": "nl", "nki.isa": "nisa", "nki.typing": "nt", "nki.collectives": "nccl", "nki": "nki"}

# Names of nl that newer releases replaced
RENAMED = {"Tensor": "NkiTensor", "tile_size.psum_fmax": "tile_size.psum_bank_fmax",
           "tile_size.psum_fmax_bytes": "tile_size.psum_bank_fmax_bytes",
           "tile_size.total_available_sbuf_size": "tile_size.sbuf_fmax_bytes"}


def dotted(node: cst.BaseExpression | ast.expr) -> str | None:
    """Return ``a.b.c`` for a name or for attributes of one, in a tree of either kind."""
    match node:
        case cst.Name(value=name) | ast.Name(id=name):
            return name
        case cst.Attribute(value=owner, attr=cst.Name(value=attribute)) | ast.Attribute(value=owner, attr=attribute):
            path = dotted(owner)
            return None if path is None else f"{path}.{attribute}"
    return None


def shortened(path: str) -> str:
    """Return a public path by its usual alias, ``nl.load`` for ``neuronxcc.nki.language.load``, or an empty text for
    any other path."""
    for package, alias in PACKAGES.items():
        if path == package:
            return alias
        if path.startswith(package + "."):
            short = f"{alias}.{path[len(package) + 1:]}"
            return short.replace("nisa.constants.", "nisa.").replace("nisa.neuron_isa.", "nisa.")
    return ""


@functools.lru_cache(256)
def imported_words(text: str) -> frozenset[str]:
    """Return the words of all paths that a module imports from, and of the names that it imports."""
    nodes = [n for n in walked(python_tree(text)) if isinstance(n, ast.Import | ast.ImportFrom)]
    paths = [path for n in nodes for path in (getattr(n, "module", None), *(item.name for item in n.names)) if path]
    return frozenset(word for path in paths for word in path.split("."))


@functools.lru_cache(256)
def _imports(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return what each imported name of a module refers to, without and with relative imports."""
    paths: dict[str, str] = {}
    imports: dict[str, str] = {}
    for node in walked(python_tree(text)):
        if isinstance(node, ast.Import):
            for item in node.names:
                paths[item.asname or item.name.split(".")[0]] = item.name if item.asname else item.name.split(".")[0]
                imports[item.asname or item.name] = item.name
        elif isinstance(node, ast.ImportFrom):
            for item in node.names:
                path = f"{node.module}.{item.name}" if node.module else item.name
                imports[item.asname or item.name] = path
                if not node.level:
                    paths[item.asname or item.name] = path
    return paths, imports


class Names:
    """The imports of a module. Names of one text share their tables, which nothing changes."""

    def __init__(self, text: str) -> None:
        self.paths: Mapping[str, str]
        self.imports: Mapping[str, str]             # relative paths, too, without their dots
        self.paths, self.imports = _imports(text)
        self.starred = [node.module for node in walked(python_tree(text)) if isinstance(node, ast.ImportFrom)
                        and node.module and node.names[0].name == "*"]              # modules of which it imports all
        self.is_beta = any(path.startswith(("neuronxcc.nki", "neuronxcc")) or (shortened(path) in (
            "nki.jit", "nki.nki_call") and not path.startswith("nki")) for path in self.paths.values())

    @property
    def imports_nki(self) -> bool:
        """Return whether the module imports ``nki`` or a part of it."""
        return any(path == "nki" or path.startswith("nki.") for path in self.paths.values())

    def alias(self, short: str) -> str:
        """Return how the module writes ``nl``, ``nisa`` or ``nki``, or the usual alias if it imports none."""
        for name, path in self.paths.items():
            if shortened(path) == short:
                return name
        return short

    def are_packages(self, imported: Iterable[tuple[str, str | None]]) -> bool:
        """Return whether all that an import names, each with its alias, are packages of the beta generation under the
        module's aliases."""
        shorts = [(shortened(path), alias) for path, alias in imported]
        return all(short in ("nki", "nl", "nisa") and alias == self.alias(short) for short, alias in shorts)

    def meaning(self, node: cst.BaseExpression | ast.expr) -> str:
        """Return the public name, such as ``nl.load``, that a node refers to, or an empty text."""
        path = dotted(node)
        if path is None:
            return ""
        head, _, attributes = path.partition(".")
        if head not in self.paths:
            return ""
        full = self.paths[head] + (f".{attributes}" if attributes else "")
        return shortened(full)


# Functions of the compiler's package that tests of kernels import, and other packages that have them
ELSEWHERE = {"neuronxcc.starfish.support.util": ("allclose", "numpy"),
             "neuronxcc.starfish.support.dtype": ("static_cast", "neuronxcc.nki.language")}


def with_named_imports(text: str) -> str:
    """Return a module's text in which ``from neuronxcc.nki.language import *`` lists the names that the module uses,
    and functions of the compiler's package come from another one."""
    tree, lines = python_tree(text), text.splitlines(keepends=True)
    used = {node.id for node in walked(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    for node in walked(tree):
        match node:
            case ast.ImportFrom(module="neuronxcc.nki", names=[ast.alias(name="*")], lineno=line):
                names = sorted(used.intersection(dir(nki)))
                named = f"from neuronxcc.nki import {', '.join(names)}" if names else "pass" * bool(node.col_offset)
                lines[line - 1] = lines[line - 1].replace("from neuronxcc.nki import *", named)
            case ast.ImportFrom(module=str(path), names=[ast.alias(name=name)], lineno=line) if (
                    name == ELSEWHERE.get(path, ("", ""))[0]):
                lines[line - 1] = lines[line - 1].replace(path, ELSEWHERE[path][1])
            case ast.Call(func=ast.Name(id="allclose"), keywords=[*_, ast.keyword(arg="verbose", value=value)]) if (
                    "neuronxcc.starfish.support.util" in text):
                line = (value.end_lineno or 1) - 1          # numpy's function has no such parameter
                lines[line] = re.sub(r",\s*verbose=[^,)]*", "", lines[line])
            case ast.ImportFrom(module=("neuronxcc.nki.language" | "neuronxcc.nki.isa") as path,
                                names=[ast.alias(name="*")], lineno=line):
                names = sorted(used.intersection(dir(language if path.endswith("language") else isa)) - {"range"})
                if names:
                    lines[line - 1] = lines[line - 1].replace("import *", f"import {', '.join(names)}")
                else:                       # the line stays, because the report numbers lines
                    lines[line - 1] = lines[line - 1].replace(f"from {path} import *", f"import {path}")
    return "".join(lines)


def only_of_beta(path: str) -> set[str]:
    """Return the names of a module of the beta generation that its counterpart lacks: the new text has other forms."""
    match path:
        case "neuronxcc.nki.language":
            return {*dir(language)} - {*dir(current_language)}
        case "neuronxcc.nki.isa":
            return {*dir(isa)} - {*dir(current_isa)}
        case "neuronxcc.nki.language.constants":
            return {"sizeinbytes"}
    return set()


def unresolved(text: str) -> list[tuple[int, str]]:
    """Return (line, name) of the first use of each name that no scope around it defines, in order."""
    return sorted((min(lines), name) for name, lines in lines_of_unresolved(text).items())


def lines_of_unresolved(text: str) -> dict[str, list[int]]:
    """Return the lines that read each name that no scope around them defines."""
    tree = python_tree(text)
    if any(isinstance(node, ast.alias) and node.name == "*" for node in walked(tree)):
        return {}
    module = symtable.symtable(text, "<text>", "exec")
    scopes = [module]
    for scope in scopes:
        scopes += scope.get_children()              # while the loop reads the list
    defined = {*dir(builtins), "__file__", *(
        symbol.get_name() for scope in scopes for symbol in scope.get_symbols()
        if symbol.is_declared_global() or (scope is module and (symbol.is_assigned() or symbol.is_imported())))}
    names = {symbol.get_name() for scope in scopes for symbol in scope.get_symbols()
             if symbol.is_referenced() and symbol.get_name() not in defined and (
                 scope is module or (symbol.is_global() and not symbol.is_local()))}    # is both in a function "top"
    free, read = list(_free_reads(tree, frozenset())), [n for n in walked(tree) if isinstance(n, ast.Name)]
    lines = {name: [n.lineno for n in free if n.id == name] for name in names}
    return {name: free_lines or [n.lineno for n in read if n.id == name] for name, free_lines in lines.items()}


def _free_reads(node: ast.AST, local: frozenset[str]) -> Iterator[ast.Name]:
    """Yield the names that a tree reads and that no function or comprehension around them binds. A default with the
    name of its parameter counts as bound."""
    match node:
        case ast.Name(ctx=ast.Load()) if node.id not in local:
            yield node
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            local |= {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
            local |= tree_names(node, context=ast.Store)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            local |= tree_names(node, context=ast.Store)
    of_class = frozenset(tree_names(node, context=ast.Store)) if isinstance(node, ast.ClassDef) else frozenset[str]()
    for child in ast.iter_child_nodes(node):                # methods do not see the names of their class
        yield from _free_reads(child, local if isinstance(child, ast.FunctionDef) else local | of_class)


def read_without_import(module: ast.Module) -> set[str]:
    """Return the names that a module reads and imports neither at its top nor in the function that reads them."""
    imported = [{a.asname or a.name.split(".")[0] for n in walked(statement)
                 if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names} for statement in module.body]
    read = {n.id for statement, names in zip(module.body, imported) for n in walked(statement)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id not in names}
    return read.difference(*(names for statement, names in zip(module.body, imported)
                             if not isinstance(statement, ast.FunctionDef | ast.ClassDef)))


def operator(meaning: str) -> str:
    """Return the name in ``nl`` of an operation that has a name in NumPy or ``nl``, or an empty text."""
    package, _, name = meaning.partition(".")
    if package not in ("np", "nl"):
        return ""
    return ALIASES.get(name, name)


def limit_of(node: cst.Attribute, names: Names) -> float | None:
    """Return the number of ``nl.finfo(nl.bfloat16).max``. Return None for other attributes, or if the text does not
    state the dtype."""
    match node:
        case cst.Attribute(value=cst.Call(func=function, args=[cst.Arg(value=dtype)]), attr=cst.Name(value=name)):
            package, _, kind = names.meaning(dtype).partition(".")
            is_float_type = package in ("nl", "np") and kind in BY_NAME and BY_NAME[kind].is_float
            if names.meaning(function) == "nl.finfo" and is_float_type:
                return getattr(finfo(BY_NAME[kind]), name, None)
    return None


def is_table(node: cst.BaseExpression) -> bool:
    """Return whether a value is a dictionary whose values are names, for example of functions."""
    return isinstance(node, cst.Dict) and all(isinstance(e, cst.DictElement) and isinstance(
        e.value, (cst.Name, cst.Attribute)) for e in node.elements)


@functools.cache
def _fields_of(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def children_of(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield the children of a node, in the order of its fields: ``children`` of libcst copies a node to list them."""
    for name in _fields_of(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from value


class NodesByClass:
    """The nodes of a tree by class, from one traversal."""

    def __init__(self, tree: cst.CSTNode) -> None:
        self._nodes: dict[type[cst.CSTNode], list[cst.CSTNode]] = {}
        pending: list[cst.CSTNode] = [tree]
        while pending:
            node = pending.pop()
            self._nodes.setdefault(type(node), []).append(node)
            pending += children_of(node)

    def of(self, kind: type[N]) -> list[N]:
        """Return all nodes of a class, which has no subclass."""
        return cast(list[N], self._nodes.get(kind, []))


def parsed(text: str) -> list[cst.SimpleStatementLine | cst.BaseCompoundStatement]:
    """Return the statements of a text."""
    return [s for s in cst.parse_module(text + "\n").body]


def nodes_of(tree: cst.CSTNode, kind: type[N]) -> list[N]:
    """Return all nodes of a class in a tree."""
    return NodesByClass(tree).of(kind)


class Aliases(TreeTransformer):
    """Replaces names of packages in new statements by the names under which the module imports them."""

    def __init__(self, alias_of: dict[str, str]) -> None:
        super().__init__()
        self.alias_of = alias_of

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        """Write ``nl.ds`` with the name under which the module imports ``nl``."""
        owner = updated_node.value
        if isinstance(owner, cst.Name) and owner.value in self.alias_of:
            return updated_node.with_changes(value=cst.Name(self.alias_of[owner.value]))
        return updated_node


class Substitution(TreeTransformer):
    """Replaces variables."""

    def __init__(self, names: Mapping[str, cst.BaseExpression]) -> None:
        super().__init__()
        self.names = names

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        """Keep the name after the dot."""
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        """Keep the name of an argument."""
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        """Replace a variable; its parentheses stay."""
        value = self.names.get(original_node.value)
        return updated_node if value is None else value.deep_clone().with_changes(
            lpar=[*updated_node.lpar, *value.lpar], rpar=[*value.rpar, *updated_node.rpar])
