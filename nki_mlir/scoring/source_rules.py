# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check the text of a candidate: the modules that it imports, and the names that give access to Python's internals.

No kernel needs anything that is refused here. The check reads the text before any of it runs, so a candidate cannot
change what judges it; ``sandbox`` also monitors the running candidate.
"""

import ast
from collections.abc import Iterator

from nki_mlir.diagnostics import Location
from nki_mlir.scoring.errors import BadCandidate, ForbiddenAct

MODULES = frozenset((
    "__future__", "abc", "collections", "contextlib", "copy", "dataclasses", "enum", "functools", "itertools",
    "logging", "math", "ml_dtypes", "neuronxcc", "nki", "nkilib", "numbers", "numpy", "operator", "random", "re",
    "string", "textwrap", "time", "types", "typing", "typing_extensions", "warnings"))
# Packages all of whose modules may be imported; of other packages only those above and these.
PACKAGES = frozenset(("ml_dtypes", "neuronxcc", "nki", "nkilib", "numpy"))
SUBMODULES = frozenset(("collections.abc", "logging.handlers"))
FUNCTIONS = frozenset(("__import__", "breakpoint", "compile", "delattr", "eval", "exec", "globals", "input", "locals",
                       "memoryview", "open", "vars", "__builtins__", "__loader__", "__spec__"))
# Attributes that lead from an object to its module, frames, or the interpreter.
ATTRIBUTES = frozenset((
    "ag_frame", "builtins", "cr_frame", "ctypeslib", "f_back", "f_builtins", "f_globals", "f_locals", "gc",
    "gi_frame", "importlib", "inspect", "modules", "os", "sys", "tb_frame", "tb_next", "subprocess", "ctypes",
    "pathlib", "attrgetter", "methodcaller", "f2py", "testing", "fromfile", "load", "loadtxt", "memmap", "genfromtxt",
    "tofile", "save", "savez",
    # these turn text into objects: they evaluate annotations, or follow attributes in format strings
    "get_type_hints", "ForwardRef", "evaluate_forward_ref", "singledispatch", "singledispatchmethod", "get_field",
    "Formatter", "CodeType", "FunctionType", "LambdaType",
    # these change attributes of their arguments
    "update_wrapper", "global_enum", "redirect_stdout", "redirect_stderr"))
# Names of NumPy that read files, evaluate text, or access memory beyond an array's.
OF_NUMPY = frozenset(("lib", "core", "_core", "distutils", "cffi", "DataSource", "fromregex", "bmat", "info", "source",
                      "lookfor", "dump", "as_strided"))
OF_LANGUAGE = frozenset(("load", "save"))           # kernels need nl.load
DUNDERS = frozenset(("__name__", "__doc__", "__version__", "__annotations__", "__init__", "__post_init__", "__call__",
                     "__getitem__", "__setitem__", "__len__", "__iter__", "__enter__", "__exit__", "__repr__",
                     "__str__", "__eq__", "__hash__"))
TEXT_BYTES = 1 << 20


def check_source(text: str, file: str) -> None:
    """Raise ``BadCandidate`` if the text is not Python, and ``ForbiddenAct`` for the first forbidden act."""
    if len(text) > TEXT_BYTES:
        raise BadCandidate(what=f"the candidate has {len(text):,} characters", fix=f"give at most {TEXT_BYTES:,}")
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        at = Location(file, error.lineno or 1, max(0, (error.offset or 1) - 1))
        raise BadCandidate(what=f"the candidate is not Python: {error.msg}", fix="correct it").located(at) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadCandidate(what=f"the candidate is not Python: {error}", fix="correct it") from None
    try:
        modules = module_names(tree)
        for node, act in acts(tree.body, modules):
            raise ForbiddenAct(act=act).located(Location(file, node.lineno, node.col_offset))
    except RecursionError:
        raise BadCandidate(what="the candidate is nested too deeply", fix="write it with fewer levels") from None


def module_names(tree: ast.Module) -> dict[str, str]:
    """Return the names that denote modules in the candidate, with the imported module of each."""
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                modules[alias.asname or alias.name.partition(".")[0]] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module in ("neuronxcc", "neuronxcc.nki", "nki"):
            modules |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
                      if alias.name in ("nki", "language", "isa", "typing", "collectives")}
    return modules


def is_main_block(node: ast.stmt) -> bool:
    """Return whether a statement is ``if __name__ == "__main__":``, whose body does not run."""
    return (isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.left, ast.Name)
            and node.test.left.id == "__name__" and ast.unparse(node.test) == "__name__ == '__main__'"
            and not node.orelse)


def acts(body: list[ast.stmt], modules: dict[str, str]) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield the forbidden acts of a candidate, each with its node."""
    for statement in body:
        if is_main_block(statement):
            continue
        for node in ast.walk(statement):
            match node:
                case ast.Import():
                    for alias in node.names:
                        if not may_import(alias.name):
                            yield node, f"imports {alias.name}"
                case ast.ImportFrom():
                    if node.level or not may_import(node.module or ""):
                        yield node, f"imports {'.' * node.level}{node.module or ''}"
                    for alias in node.names:
                        if is_hidden(alias.name) or not may_name(alias.name, node.module or ""):
                            yield node, f"imports {alias.name} from {node.module}"
                case ast.Name(id=name) if name in FUNCTIONS:
                    yield node, f"uses {name}"
                case ast.Attribute(attr=name, value=value) if is_private(name, value, modules):
                    yield node, f"uses .{name}"
                case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr" as name), args=[_, which, *_]):
                    if not isinstance(which, ast.Constant):
                        yield node, f"calls {name} with a name that is computed"
                    elif name == "setattr" or is_hidden(str(which.value)) or which.value in ATTRIBUTES - OF_LANGUAGE:
                        yield node, f"calls {name} with the name {which.value!r}"
                case ast.Name(id="getattr" | "setattr" as name) if not is_called(node, statement):
                    yield node, f"uses {name}"
                case ast.Attribute(ctx=ast.Store() | ast.Del(), value=ast.expr() as value):
                    if (changed := root_of(value)) in modules:
                        yield node, f"changes {modules[changed]}"
                case ast.Subscript(ctx=ast.Store() | ast.Del(), value=ast.Attribute(attr="__dict__")):
                    yield node, "changes a namespace"


def may_import(module: str) -> bool:
    """Return whether a candidate may import a module."""
    root, *parts = module.split(".")
    if root not in PACKAGES:
        return module in MODULES or module in SUBMODULES
    return all(may_name(part, root) for part in parts)


def may_name(name: str, module: str) -> bool:
    """Return whether a candidate may use a name of a module."""
    if module.partition(".")[0] == "numpy":
        return name not in ATTRIBUTES | OF_NUMPY
    return name not in ATTRIBUTES - OF_LANGUAGE


def is_called(name: ast.Name, statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) and node.func is name for node in ast.walk(statement))


def root_of(value: ast.expr) -> str:
    """Return the first name in a chain of attributes, or ""."""
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""


def is_hidden(name: str) -> bool:
    """Return whether a name is one of Python's internal names, between double underscores."""
    return name.startswith("__") and name.endswith("__") and name not in DUNDERS


def is_private(name: str, value: ast.expr, modules: dict[str, str]) -> bool:
    module = modules.get(root_of(value), "")
    if is_hidden(name) or (module and name.startswith("_") and name not in DUNDERS):
        return True
    if module:
        return not may_name(name, module)
    return name in ATTRIBUTES - OF_LANGUAGE
