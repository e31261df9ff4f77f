# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites a file of the beta generation: its imports, decorators, launches and kernels."""

import ast
from collections.abc import Mapping, Sequence

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from nki_mlir.migration import names as text_names
from nki_mlir.migration import terms
from nki_mlir.migration.added_functions import with_added_functions
from nki_mlir.migration.argument_facts import is_index
from nki_mlir.migration.benchmarks import benchmarks, of_kernel, reads_results, with_classes, with_measured_kernels
from nki_mlir.migration.beta_forms import functions_in_beta_form
from nki_mlir.migration.expressions import MODULE
from nki_mlir.migration.facts import Fact, TileClass
from nki_mlir.migration.framework_calls import without_nki_calls
from nki_mlir.migration.host_methods import host_methods
from nki_mlir.migration.kernel_aliases import UNCLEAR_LAUNCH, WRAPPERS, kernel_aliases, kernel_groups, wrapper_of
from nki_mlir.migration.kernel_decorators import report_written_files, why_replaced
from nki_mlir.migration.kernels import Kernels
from nki_mlir.migration.launch_grids import GridAxes, array_of_type, grid_kind, launches
from nki_mlir.migration.named_options import with_named_options
from nki_mlir.migration.names import Aliases, Names, NodesByClass, children_of, is_table, nodes_of, read_without_import
from nki_mlir.migration.parameters import bound_in_calls, constants, literals, numbers_of, tree_of
from nki_mlir.migration.program_arguments import EQUAL, with_program_arguments
from nki_mlir.migration.python_trees import python_tree, walked
from nki_mlir.migration.record_classes import record_classes
from nki_mlir.migration.remaining_reads import reads
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.spare_addresses import allocators
from nki_mlir.migration.spare_imports import first_import, insert_import, without_spare_imports
from nki_mlir.migration.tile_classes import calls_language, is_tile_class, rewritable_classes, why_left

MODULES = {"neuronxcc.nki": "nki", "neuronxcc.nki.language": "nki.language", "neuronxcc.nki.isa": "nki.isa",
           "neuronxcc.nki.typing": "nki.typing", "neuronxcc.nki.isa.constants": "nki.isa",
           "neuronxcc.nki.isa.neuron_isa": "nki.isa"}
IMPORTED = {*MODULES, *MODULES.values()}


def rewritten(text: str, report: MigrationReport, gridded: Mapping[str, int] | None = None) -> str:
    """Return the text in the current generation. ``gridded``: kernels of other files whose grid is an argument now."""
    module = SourceModule(text, report, gridded or {})
    module.prepare()
    module.rewrite_kernels()
    module.rewrite_others()
    return module.text()


class SourceModule:
    """A source file, which ``text`` returns rewritten."""

    def __init__(self, text: str, report: MigrationReport, imported: Mapping[str, int]) -> None:
        self.writes_files = report_written_files(text, report)
        beta_form = functions_in_beta_form(text)            # empty for a file that imports the beta generation
        text, without_calls = without_nki_calls(text, report)
        text, with_kernels = with_measured_kernels(text, report)
        text, with_options = with_named_options(text, report)
        text = with_program_arguments(text, report)
        self.names, self.report, self.host = Names(text), report, python_tree(text)
        self.is_measuring, self.benchmarks = reads_results(text), benchmarks(text, self.names)
        wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        self.tree, self.nodes = wrapper.module, NodesByClass(wrapper.module)
        positions = wrapper.resolve(PositionProvider)
        self.line_of = {id(n): without_calls(with_kernels(with_options(p.start.line))) for n, p in positions.items()}
        self.functions: dict[str, cst.FunctionDef] = {}
        self.shared: dict[str, list[tuple[SourceModule, str]]] = {}     # function -> (file that imports it, name there)
        self.handed_on: dict[str, tuple[SourceModule, str]] = {}        # names that an __init__.py re-exports
        self.classes: dict[str, cst.ClassDef] = {}              # classes whose methods compute on tiles
        self.around: dict[int, dict[str, Fact]] = {}
        self._collect(self.tree)
        device_functions = {n: f for n, f in self.functions.items() if self.is_device(f)}
        self.current_functions: dict[str, cst.FunctionDef] = {}     # functions that stay, beside others in beta form
        if beta_form:
            self.classes = {n: c for n, c in self.classes.items() if n in beta_form}
            self.current_functions = {n: f for n, f in device_functions.items() if n not in beta_form}
            device_functions = {n: f for n, f in device_functions.items() if n in beta_form}
        for name, function in device_functions.items():
            if function.asynchronous is not None:
                self.report.add_manual(self.line_of.get(id(function), 0),
                                       f"{name} is asynchronous: write a plain function")
        self.entries = self._entries(device_functions)
        self.kernels = Kernels(self.names, report, device_functions, self.line_of)
        self.kernels.around, self.kernels.allocators = self.around, allocators(self.tree, self.names)
        self.kernels.host_functions = {n: f for n, f in self.functions.items() if n not in device_functions
                                       and n not in self.current_functions and f.asynchronous is None}
        self.kernels.parameters.functions |= {n: tree_of(f) for n, f in self.kernels.host_functions.items()}
        self.kernels.literals, self.kernels.constants = literals(self.host), constants(self.host)
        self.kernels.globals = {**numbers_of(self.host), **record_classes(self.host), **{
            name: TileClass(name) for name in self.classes}}
        self.kernels.add_classes(rewritable_classes(self.tree, self.nodes, self.classes, self.names))
        self.kernels.host_methods = host_methods(self.nodes, self.kernels.literals)
        self.kernels.all_names = {n.id for n in walked(self.host) if isinstance(n, ast.Name)}
        self.gridded, self.are_noted = dict(imported), False    # the attributes of classes
        self.aliases = kernel_aliases(text, self.names, device_functions.keys(), WRAPPERS)
        self.launches = launches(self.nodes.of(cst.Subscript), self.names, self.functions.keys(), self.aliases)

    def _collect(self, node: cst.CSTNode) -> None:
        """Collect, by name, functions outside of device functions, and classes whose methods compute on tiles."""
        for child in children_of(node):
            if isinstance(child, cst.ClassDef) and is_tile_class(child, self.names, self.classes):
                self.classes[child.name.value] = child
                continue
            if isinstance(child, cst.FunctionDef):
                self.functions.setdefault(child.name.value, child)
                if self.is_device(child):
                    continue
                inner = [n for n in nodes_of(child, cst.FunctionDef) if n is not child]
                facts = bound_in_calls(tree_of(child), self.host, self.names) if inner else {}
                self.around |= {id(n): {**self.around.get(id(n), {}), **facts} for n in inner}
            self._collect(child)

    def is_device(self, function: cst.FunctionDef) -> bool:
        """Return whether a function itself calls operations of a kernel."""
        return calls_language(function.body, self.names) or any(self.wrapper(d) for d in function.decorators)

    def wrapper(self, decorator: cst.Decorator) -> str:
        """Return the public name of a kernel decorator, or "" for other decorators."""
        node = decorator.decorator
        meaning = self.names.meaning(node.func if isinstance(node, cst.Call) else node)
        return meaning if meaning in WRAPPERS or meaning.startswith("ncc.") else ""

    def _entries(self, device_functions: dict[str, cst.FunctionDef]) -> dict[str, str]:
        """Return the kernels that are launched, with the mode that their decorator names."""
        modes: dict[str, str] = {}
        for name, function in device_functions.items():
            for decorator in function.decorators:
                if self.wrapper(decorator):
                    simulated = "simulation" in MODULE.code_for_node(decorator)
                    modes[name] = "simulation" if simulated else modes.get(name, "")
        for call in self.nodes.of(cst.Call):
            meaning = self.names.meaning(call.func)
            if wrapper_of(call, self.names) or meaning in ("nki.simulate_kernel", "nki.nki_call"):
                node = call.args[0].value if call.args else None
                while isinstance(node, cst.Subscript):
                    node = node.value
                if isinstance(node, cst.Name) and node.value in device_functions:
                    modes.setdefault(node.value, "")
        inside = [NodesByClass(f) for f in device_functions.values()]
        called = {c.func.value for nodes in inside for c in nodes.of(cst.Call) if isinstance(c.func, cst.Name)}
        device = {id(n) for nodes in inside for n in nodes.of(cst.Name)}
        called -= {n.value for n in self.nodes.of(cst.Name) if id(n) not in device}
        return {n: mode for n, mode in modes.items() if n not in called}

    def _index_vectors(self) -> None:
        """Bind index vectors, masks and tables of functions at the top of the file, which its kernels see."""
        for statement in self.tree.body:
            for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
                if isinstance(small, cst.Assign) and (is_table(small.value) or any(
                        self.names.meaning(n) in ("nl.arange", "nl.mgrid")
                        for n in [*nodes_of(small, cst.Attribute), *nodes_of(small, cst.Name)])):
                    target = small.targets[0].target
                    self.kernels.bind_target(target, self.kernels.fact(self.kernels.rewritten(small.value)))
        self.kernels.globals |= self.kernels.scope.facts

    # -- the text ------------------------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Note the index vectors of the file that kernels read, and the kernels that have a grid as an argument."""
        self._index_vectors()
        self.find_grids()
        for name, node in self.classes.items():
            if name not in self.kernels.tile_classes:
                self.report.add_manual(self.line_of.get(id(node), 0), why_left(name))

    def rewrite_kernels(self) -> None:
        """Rewrite the kernels, and the functions that they call."""
        if self.kernels.tile_classes and not self.are_noted:
            self.note_attributes()
            self.kernels.forget_rewrites()
        self._rewrite_entries()

    def note_attributes(self) -> None:
        """Rewrite once for the facts that the attributes of all objects of a class share."""
        self.report.muted += 1
        self._rewrite_entries()
        self.report.muted -= 1
        self.are_noted = True

    def _rewrite_entries(self) -> None:
        for name, kernels in ((name, self.kernels) for name in self.entries):
            facts = kernels.parameters.facts(kernels.trees[name], True)
            if name not in kernels.rewrites:
                kernels.rewrite(name, facts, True)

    def rewrite_others(self) -> None:
        """Rewrite the functions that no kernel calls."""
        kernels = self.kernels
        for name in reversed(list(kernels.functions)):          # callers first: what they inline may not be needed
            if name not in kernels.rewrites:
                is_removed = self.is_removed(name)          # a report would name lines that the new text lacks
                self.report.muted += is_removed
                kernels.rewrite(name, kernels.inferred(name), False)
                self.report.muted -= is_removed

    def text(self) -> str:
        """Return the file's text in the current generation, once its functions are rewritten."""
        tree = self.tree.visit(Host(self))
        renamed = {short: alias for short in ("nl", "nisa") if (alias := self.names.alias(short)) != short
                   and short not in self.names.paths}
        absent = {alias for alias, (source, name) in self.handed_on.items() if source.is_removed(name)}
        of_nki = (n for n in self.kernels.all_names if self.names.paths.get(n, "").rpartition(".")[0] in IMPORTED)
        text = without_spare_imports((tree.visit(Aliases(renamed)) if renamed else tree).code, self.host,
                                     absent.union(self.kernels.borrowed, of_nki), absent.union(self.functions))
        return with_added_functions(self.kernels.lifted(with_classes(text) if self.is_measuring else text))

    def is_read(self, name: str, but: str = "") -> bool:
        """Return whether the new text reads a name other than in the function ``but``."""
        rewritten = {f: self.functions[f] for f in self.kernels.functions if f in self.functions}
        return reads(name, self.tree, rewritten, self.kernels.rewrites, but)

    def is_needed(self, name: str) -> bool:
        """Return whether the new text of any file calls a function of this file."""
        lent = self.kernels.lent.get(name, set())
        return self.is_read(name, name) or any(module.is_read(alias) or (
            "." not in alias and id(module.kernels) not in lent) for module, alias in self.shared.get(name, ()))

    def is_removed(self, name: str) -> bool:
        """Return whether the new text lacks a function, because its body has replaced all calls."""
        kernels = self.kernels
        return (name in kernels.lent or any(name == callee for _, callee in kernels.inlined)) and (
            not self.is_needed(name))

    def find_grids(self) -> None:
        """Note which kernels run on the cores that their launches name, and whose grid becomes an argument."""
        kernels = self.kernels
        for name in self.entries:
            axes = kernels.program_axes(name)
            grids = self.launches.get(name, [])
            if axes == {0} and grids and all(terms.number(g) in (1, 2) for g in grids) and not kernels.reduces(name):
                kernels.on_cores.add(name)
            elif axes:
                self.gridded |= {n: max(axes) + 1 for n in (name, *(a for a, k in self.aliases.items() if k == name))}
        groups = kernel_groups(self.host, self.names, {*kernels.functions, *self.gridded}, WRAPPERS)
        for node in groups.unclear_launches(self.nodes.of(cst.Subscript), self.gridded):
            self.report.add_manual(self.line_of.get(id(node), 0), UNCLEAR_LAUNCH)
        self.gridded |= groups.on_grids(self.gridded)


class Host(GridAxes):
    """Rewrites everything outside of kernels, and replaces kernels by their new text."""

    def __init__(self, module: SourceModule) -> None:
        super().__init__(module.names)
        self.module, self.report = module, module.report
        self.nki = self.names.alias("nki")
        self.methods = {id(node): name for name, node in module.kernels.methods.items()}
        self.called: set[cst.CSTNode] = set()
        self.factories: set[cst.CSTNode] = set()

    def line(self, node: cst.CSTNode) -> int:
        """Return the line of a node in the old text."""
        return self.module.line_of.get(id(node), 0)

    # -- functions -----------------------------------------------------------------------------------------------------
    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        """Skip kernels and methods, which have been rewritten, and functions that stay."""
        if id(node) in self.methods or self.module.current_functions.get(node.name.value) is node:
            return False
        return self.module.functions.get(node.name.value) is not node or not self.belongs_to_a_kernel(node)

    def belongs_to_a_kernel(self, node: cst.FunctionDef) -> bool:
        """Return whether a function is rewritten as part of a kernel."""
        return node.name.value in self.module.kernels.functions

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
                          ) -> "cst.FunctionDef | cst.RemovalSentinel":
        """Rewrite a kernel for the current generation; remove a function of index vectors that nothing calls."""
        if id(original_node) in self.methods:
            return self.module.kernels.rewrites[self.methods[id(original_node)]]
        name = original_node.name.value
        if self.module.functions.get(name) is not original_node or not self.belongs_to_a_kernel(original_node):
            return updated_node
        kernels = self.module.kernels
        if self.module.is_removed(name):
            return cst.RemoveFromParent()
        if is_index(kernels.returns.get(name, Fact())):
            self.report.add_manual(self.line(original_node), f"{name} returns index vectors or masks: let it return "
                                                             "starts and sizes instead")
        function = kernels.rewrites[name]
        decorators = [d for d in original_node.decorators if not self.module.wrapper(d)]
        for decorator in original_node.decorators:
            reason = why_replaced(decorator, self.module.wrapper(decorator), name in self.module.entries)
            if reason:
                self.report.changed(self.line(decorator) or self.line(original_node), reason)
        if name in self.module.entries:
            decorators.append(cst.Decorator(cst.parse_expression(f"{self.nki}.jit")))
        return function.with_changes(decorators=decorators)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        """Extend the class of objects that kernels have, which the vendor's parser reads."""
        if self.module.kernels.tile_classes.get(original_node.name.value) is not original_node or any(
                MODULE.code_for_node(base.value).endswith("NKIObject") for base in original_node.bases):
            return updated_node
        self.report.changed(self.line(original_node), "the class extends nl.NKIObject, as classes of kernels do")
        base = cst.Arg(cst.parse_expression(f"{self.names.alias('nl')}.NKIObject"))
        return updated_node.with_changes(bases=[base], lpar=cst.LeftParen(), rpar=cst.RightParen())

    # -- imports -------------------------------------------------------------------------------------------------------
    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> "cst.Import | cst.RemovalSentinel":
        """Import ``nki`` instead of ``neuronxcc.nki``."""
        items = []
        for item in updated_node.names:
            path = MODULE.code_for_node(item.name)
            if path == "neuronxcc.nki.compiler":
                self.report.changed(self.line(original_node), f"{path} has no counterpart")
                continue
            new = MODULES.get(path)
            if new is None and path.startswith("neuronxcc.nki"):
                self.report.add_manual(self.line(original_node), f"{path} has no counterpart")
            if new is not None:
                self.report.changed(self.line(original_node), f"{path} becomes {new}")
                name = cst.parse_expression(new)
                assert isinstance(name, (cst.Name, cst.Attribute))
                alias = item.asname
                if alias is not None and MODULE.code_for_node(alias.name).strip() == new:
                    alias = None
                item = item.with_changes(name=name, asname=alias)
            items.append(item)
        if not items:
            return cst.RemoveFromParent()
        return updated_node.with_changes(names=[*items[:-1], items[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)])

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> (
            "cst.BaseSmallStatement | cst.FlattenSentinel[cst.BaseSmallStatement] | cst.RemovalSentinel"):
        """Rewrite an import of the beta package, or of a decorator."""
        path = MODULE.code_for_node(updated_node.module) if updated_node.module is not None else ""
        if updated_node.relative or isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        line, names = self.line(original_node), list(updated_node.names)
        if path in ("torch_neuronx", "torch_neuronx.xla_impl.ops", "jax_neuronx", "jax_neuronx.core"):
            kept_names = [n for n in names if MODULE.code_for_node(n.name) != "nki_jit"]
            if len(kept_names) == len(names):
                return updated_node
            self.report.changed(line, "the decorator becomes nki.jit, which serves every framework")
            if "nki" in map(self.names.meaning, map(cst.Name, self.names.paths)):       # the file imports nki elsewhere
                return updated_node.with_changes(names=[*kept_names[:-1], kept_names[-1].with_changes(
                    comma=cst.MaybeSentinel.DEFAULT)]) if kept_names else cst.RemoveFromParent()
            return self._first(kept_names, updated_node, "import nki")
        if path == "neuronxcc":
            other_names = [n for n in names if MODULE.code_for_node(n.name) != "nki"]
            alias = next((n.asname for n in names if MODULE.code_for_node(n.name) == "nki" and n.asname), None)
            as_name = f" as {MODULE.code_for_node(alias.name).strip()}" if alias is not None else ""
            self.report.changed(line, "neuronxcc.nki becomes nki")
            return self._first(other_names, updated_node, f"import nki{as_name}")
        if path not in MODULES and not path.startswith("neuronxcc.nki"):
            return updated_node
        if path == "neuronxcc.nki.typing":
            names = [n for n in names if MODULE.code_for_node(n.name) not in ("mutable_tensor", "mutable", "scalar")
                     and MODULE.code_for_node(n.asname.name if n.asname else n.name).strip()
                     in self.module.kernels.all_names]
            for name in names:
                if MODULE.code_for_node(name.name) != "tensor":
                    self.report.add_manual(line, f"{MODULE.code_for_node(name.name)} of {path} has no counterpart")
        names = [n for n in names if path != "neuronxcc.nki.compiler" and MODULE.code_for_node(n.name) not in (
            "trace", "baremetal", "benchmark", "profile", "simulate_kernel", "compiler", "par_dim", "affine_range",
            "sequential_range", "static_range", *text_names.only_of_beta(path))]
        if path not in MODULES:
            (self.report.add_manual if names else self.report.changed)(line, f"{path} has no counterpart")
            return updated_node if names else cst.RemoveFromParent()
        self.report.changed(line, f"{path} becomes {MODULES[path]}")
        if not names:
            return cst.RemoveFromParent()
        module = cst.parse_expression(MODULES[path])
        assert isinstance(module, (cst.Name, cst.Attribute))
        names[-1] = names[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(module=module, names=names)

    def _first(self, names: list[cst.ImportAlias], node: cst.ImportFrom, text: str
               ) -> "cst.FlattenSentinel[cst.BaseSmallStatement] | cst.Import":
        statement = cst.parse_statement(text)
        assert isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Import)
        if not names:
            return statement.body[0]
        names[-1] = names[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return cst.FlattenSentinel([statement.body[0], node.with_changes(names=names)])

    # -- launches ------------------------------------------------------------------------------------------------------
    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        """Bind the grid as an argument if a kernel on a grid is not called here; create an array for a tensor type."""
        if (array := array_of_type(updated_node, self.names)) is not None:
            return array
        if original_node in self.called or not self._is_gridded(original_node.value):
            return updated_node
        name = MODULE.code_for_node(updated_node.value)
        if self.module.is_measuring and name in self.module.benchmarks:
            return updated_node
        return cst.parse_expression(f"functools.partial({name}, grid={self._grid(updated_node)})")

    def visit_Call(self, node: cst.Call) -> None:
        """Note the subscripts and the factories of wrappers that are called."""
        if isinstance(node.func, cst.Subscript):
            self.called.add(node.func)
        if wrapper_of(node, self.names):
            self.factories.add(node.func)

    def visit_Decorator(self, node: cst.Decorator) -> None:
        """Note a factory that decorates a function."""
        self.factories.add(node.decorator)

    def _is_gridded(self, node: cst.BaseExpression) -> bool:
        return isinstance(node, cst.Name) and node.value in self.module.gridded

    def _grid(self, node: cst.Subscript) -> str:
        items = [MODULE.code_for_node(e.slice) for e in node.slice]
        if len(items) > 1:
            return f"({', '.join(items)})"
        rank = self.module.gridded.get(MODULE.code_for_node(node.value), 1)
        if rank > 1 or items[0].startswith("("):
            return items[0]
        match grid_kind(ast.parse(items[0], mode="eval").body, self.module.host):
            case "sizes":
                return items[0]
            case "size":
                return f"({items[0]},)"
        return f"{items[0]} if isinstance({items[0]}, tuple) else ({items[0]},)"

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Rewrite launches, and functions that create kernels."""
        meaning, line = self.names.meaning(original_node.func), self.line(original_node)
        if meaning == "nl.static_cast" and len(updated_node.args) == 2:
            self.report.changed(line, "nl.static_cast becomes astype")
            array, dtype = (MODULE.code_for_node(a.value) for a in updated_node.args)
            return cst.parse_expression(f"{terms.factor(array)}.astype({dtype})")
        if meaning == "nki.simulate_kernel" and updated_node.args:
            self.report.changed(line, "nki.simulate_kernel becomes nki.simulate")
            return self._launched(updated_node.args[0].value, updated_node.args[1:], True)
        if wrapper := wrapper_of(original_node, self.names):
            name, old = MODULE.code_for_node(updated_node.args[0].value), MODULE.code_for_node(original_node)
            if wrapper == "nki.benchmark" and self.module.is_measuring:
                self.report.changed(line, "nki.benchmark becomes the class Benchmark, which the new text defines")
                return of_kernel(updated_node, name, self.module.writes_files)
            new = name if name in self.module.entries and "simulation" not in old else (
                f"{self.nki}.{'simulate' if name in self.module.entries else 'jit'}({name})")
            if new != old:
                self.report.changed(line, f"{old} becomes {new}")
            return cst.parse_expression(new)
        if meaning == "nki.benchmark" and self.module.is_measuring and original_node not in self.factories:
            self.report.changed(line, "nki.benchmark becomes the class Benchmark, which the new text defines")
            return of_kernel(updated_node, "", self.module.writes_files)
        if meaning in WRAPPERS and original_node not in self.factories:
            self.report.add_manual(line,
                                   f"{meaning} without a kernel: decorate kernels with nki.jit, which has no options")
            return original_node
        if isinstance(updated_node.func, cst.Subscript) and self._is_gridded(updated_node.func.value):
            self.report.changed(line, "the launch grid becomes an argument of the kernel")
            return self._launched(updated_node.func, updated_node.args, self._simulated(updated_node.func.value))
        if isinstance(original_node.func, cst.Name) and self._simulated(original_node.func):
            self.report.changed(line, 'mode="simulation" becomes nki.simulate')
            return self._launched(updated_node.func, updated_node.args, True)
        if meaning == "nki.nki_call":
            self.report.add_manual(line, "nki_call: call the kernel, which creates and returns its results")
        if meaning in ("nl.nc", "nl.spmd_dim"):
            self.report.changed(line, f"{meaning} becomes the number of programs")
        return super().leave_Call(original_node, updated_node)

    def _simulated(self, node: cst.BaseExpression) -> bool:
        return isinstance(node, cst.Name) and self.module.entries.get(node.value) == "simulation"

    def _launched(self, kernel: cst.BaseExpression, arguments: Sequence[cst.Arg], simulated: bool
                  ) -> cst.BaseExpression:
        call_arguments = list(arguments)
        if isinstance(kernel, cst.Call) and MODULE.code_for_node(kernel.func) == "functools.partial":
            call_arguments = [*call_arguments, kernel.args[1]]
            kernel = kernel.args[0].value
        if isinstance(kernel, cst.Subscript) and self._is_gridded(kernel.value):
            grid = cst.Arg(cst.parse_expression(self._grid(kernel)), keyword=cst.Name("grid"), equal=EQUAL)
            call_arguments, kernel = [*call_arguments, grid], kernel.value
        function = kernel
        if simulated:
            function = cst.Call(cst.parse_expression(f"{self.nki}.simulate"), [cst.Arg(kernel)])
        return cst.Call(function, [a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in call_arguments])

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        """Rewrite a kernel decorator; report a kernel's ``benchmark_result``."""
        if self.names.meaning(original_node) in WRAPPERS:
            return cst.parse_expression(f"{self.nki}.jit")
        if original_node.attr.value == "benchmark_result" and not self.module.is_measuring:
            self.report.add_manual(self.line(original_node), "benchmark_result has no counterpart: capture the "
                                   "compiled kernel with neuron-explorer, whose summary has the latency")
        return updated_node

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        """Add the imports that new text needs."""
        missing = []
        read = read_without_import(ast.parse(updated_node.code))
        for alias, path in (("functools", "functools"), ("math", "math"), ("np", "numpy"), ("nki", "nki"),
                            ("nisa", "nki.isa"), ("nl", "nki.language")):
            if (name := self.names.alias(alias)) in read:
                missing.append(f"import {path}" if path == name else f"import {path} as {name}")
        if not missing:
            return updated_node
        at, body = first_import(updated_node.body), list(updated_node.body)
        for text in reversed(missing):
            insert_import(text, body, at)
        return updated_node.with_changes(body=body)
