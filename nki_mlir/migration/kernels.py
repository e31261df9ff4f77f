# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites kernels and functions that they call: parameters, results by reference, programs of a grid as loops."""

import ast
from collections.abc import Mapping
from typing import NoReturn

import libcst as cst

from nki_mlir.language import python_subset
from nki_mlir.migration import program_loops
from nki_mlir.migration.argument_facts import (
    HelperCall,
    InnerFunction,
    NeedsArguments,
    absent_parameters,
    counted,
    has_tensor,
    is_index,
    joined,
    parameter_sizes,
    passed,
    returned_fact,
    unpassed_defaults,
)
from nki_mlir.migration.block_names import with_shared_names
from nki_mlir.migration.calls import positional_names
from nki_mlir.migration.engine_rows import values_of
from nki_mlir.migration.expressions import MODULE, FunctionScope
from nki_mlir.migration.facts import (
    PSUM,
    SBUF,
    Fact,
    LambdaFact,
    NoneFact,
    NumberFact,
    Span,
    TensorFact,
    TileObject,
    join,
)
from nki_mlir.migration.fresh_products import without_spare_arguments
from nki_mlir.migration.hoisted_counts import with_hoisted_counts
from nki_mlir.migration.indices import MaskedTiles
from nki_mlir.migration.inlined_helpers import (
    NO_VECTORS,
    NeedsInlining,
    inner_function,
    is_inlinable,
    readable_elsewhere,
    with_inlined_calls,
    without_inner_function,
)
from nki_mlir.migration.lifted_functions import definition
from nki_mlir.migration.names import Names, nodes_of, parsed
from nki_mlir.migration.parameters import (
    ReadParts,
    bound_names,
    returns_slice,
    root,
    tree_of,
    unstable,
)
from nki_mlir.migration.private_tiles import with_private_tiles
from nki_mlir.migration.python_trees import parameters_of, tree_names
from nki_mlir.migration.refused_constructs import RefusedConstructs
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.shared_conditions import with_shared_conditions
from nki_mlir.migration.spare_addresses import (
    ALLOCATING,
    address_functions_within,
    without_addresses,
    without_functions,
)
from nki_mlir.migration.spare_vectors import without_spare
from nki_mlir.migration.tile_classes import FIRST_METHOD
from nki_mlir.migration.transposed_tiles import transposed_tiles
from nki_mlir.migration.uncut_tiles import NeedsUncutTiles
from nki_mlir.migration.updates_in_place import with_updates_in_place

REMOVED_TYPES = ("nt.mutable_tensor", "nt.mutable", "nt.scalar", "nki.tensor")
STORES = {"nl.store": "dst", "nisa.dma_copy": "dst", "nl.atomic_rmw": "dst"}


class Kernels(RefusedConstructs):
    """Rewrites functions; ``functions`` has the functions of the file by name, ``globals`` the facts about its
    constants."""

    def __init__(self, names: Names, report: MigrationReport, functions: dict[str, cst.FunctionDef],
                 line_of: dict[int, int]) -> None:
        super().__init__(names, report, functions, line_of)
        self.imported = {}
        self.is_written = True  # whether the new text replaces the file; else it only shows the facts about results
        self.host_functions: dict[str, cst.FunctionDef] = {}    # functions that call no operation themselves
        self.globals: dict[str, Fact] = {}
        self.signatures: dict[str, dict[str, Fact]] = {}
        self.returns: dict[str, Fact] = {}
        self.active: set[str] = set()
        self.tile_lambdas: set[tuple[str, str]] = set()         # (outer, lambda): calls pass tiles
        self.inner_facts: dict[tuple[str, str], dict[str, Fact]] = {}      # (outer, inner): parameters that calls show
        self.all_names: set[str] = set()
        self.inlined: set[tuple[str, str]] = set()              # (caller, callee) whose body replaces the calls
        self.literals: dict[str, str] = {}      # name of a number of the file -> its text
        self.constants: set[str] = set()        # names of the file that one statement binds, also imports
        self.borrowed: dict[str, cst.FunctionDef] = {}          # functions of other files, whose bodies replace calls
        self.lent: dict[str, set[int]] = {}     # functions of this file -> ids of the files that inline them
        self.passed_parameters: dict[str, set[str]] = {}        # parameters that some call passes
        self.cut_sizes: dict[str, frozenset[str]] = {}          # sizes of parameters that a mask has cut in some call
        self.counts_elsewhere: set[str] | None = None           # names of counts in the file that calls a function
        self.addresses: set[str] = set()        # names in the allocations of the function that is being rewritten
        self.address_functions: set[str] = set()                # functions of the file that only allocations may read
        self.allocators: dict[str, str] = {}    # names of the file for functions that choose addresses
        self.around: dict[int, dict[str, Fact]] = {}            # names that enclosing host functions bind

    def allocates(self, node: cst.BaseExpression) -> bool:
        """Return whether a buffer argument chooses the addresses of a tensor."""
        return self.allocator(node).startswith(ALLOCATING)

    def allocator(self, node: cst.BaseExpression) -> str:
        """Return the public name of the function that a buffer argument names or calls."""
        function = node.func if isinstance(node, cst.Call) else node
        name = function.value if isinstance(function, cst.Name) else ""
        return self.allocators.get(name) or self.names.meaning(function)

    def allocation(self, node: cst.BaseExpression) -> tuple[str, str]:
        """Return the memory of a buffer argument. The compiler allocates tensors whose addresses the beta kernel
        chose."""
        if not self.allocates(node):
            return super().allocation(node)
        meaning = self.allocator(node)
        self.addresses |= {name.value for name in nodes_of(node, cst.Name)}
        memory = PSUM if meaning.startswith("ncc.psum") else SBUF
        if not meaning.endswith("auto_alloc"):
            self.report.changed(self.line, f"{meaning} is removed: the compiler allocates the tensor")
        return memory, f"{self.nl}.{memory}"

    # -- functions -----------------------------------------------------------------------------------------------------
    def helper(self, name: str, positional: list[Fact], keywords: dict[str, Fact],
               texts: Mapping[int | str, str] | None = None) -> Fact | None:
        """Return the fact about the result of a call of a function of the file, and note the facts of its arguments."""
        texts = texts or {}
        if name in self.local:
            return self.inner(name, positional, keywords, texts)
        if isinstance(fact := self.scope.facts.get(name), LambdaFact) and fact.result == NumberFact() and any(
                isinstance(argument, TensorFact) for argument in (*positional, *keywords.values())):
            self.tile_lambdas.add((self.callers[-1], name))
            raise NeedsArguments(name)
        if name in self.imported:
            return self.call_of_other_file(name, positional, keywords, texts)
        if name not in self.functions and not self._is_kernel_code(name, [*positional, *keywords.values()]):
            return Span("", "") if name in self.host_functions and returns_slice(tree_of(self.host_functions[name])
                                                                                   ) else None
        if any(is_index(fact) for fact in (*positional, *keywords.values())):
            self.inlined_or_left(name, f"an index vector or a mask of {name}: pass starts and sizes instead")
        if self.reduces(name):
            self.inlined_or_left(name, f"nl.all_reduce in {name}: reduce in the kernel",
                                 "the programs of the kernel become loops, between which it reduces")
        tree = self.trees[name]
        names = [a.arg for a in [*tree.args.posonlyargs, *tree.args.args]]
        is_elsewhere = self.counts_elsewhere is not None
        counts, self.counts_elsewhere = self.counts_elsewhere or self.counts(), None
        arguments = {**dict(zip(names, positional)), **{k: f for k, f in keywords.items() if k}}
        call = HelperCall(tree, arguments, texts, self.literals.get if is_elsewhere else self.constant)
        facts = passed(arguments, tree, "" not in keywords)
        cut_sizes = self.cut_sizes.get(name, frozenset()) | counted(arguments, facts, counts)
        inferred_before = self.signatures.get(name)
        facts = self.facts_of_calls(name, facts)
        set_parameters = set(names) if "" in keywords or len(positional) > len(names) else {
            n for n, fact in arguments.items() if not isinstance(fact, NoneFact)}
        is_passed_first = not set_parameters <= self.passed_parameters.setdefault(name, set())
        self.passed_parameters[name] |= set_parameters
        if name in self.active:
            return call.result(self.returns.get(name, Fact()))
        if is_passed_first or facts != inferred_before or cut_sizes != self.cut_sizes.get(name):
            self.signatures[name], self.cut_sizes[name] = facts, cut_sizes
            self.rewrite(name, facts, False)
        returned = call.result(self.returns.get(name, Fact()))
        if is_index(returned):
            self.inlined_or_left(name, f"index vectors or masks that {name} returns: let it return starts and sizes "
                                       "instead")
        return returned

    def facts_of_calls(self, name: str, facts: Mapping[str, Fact]) -> dict[str, Fact]:
        """Return what a call, which passes ``facts``, the calls before and the body of a function show about its
        parameters."""
        inferred, before = self.inferred(name), self.signatures.get(name)
        if before is None:
            return {n: facts[n] if n in facts and type(facts[n]) not in (Fact, NoneFact) else f
                    for n, f in inferred.items()}
        absent = absent_parameters(self.trees[name], self.passed_parameters.get(name, ()))
        before = {n: f for n, f in before.items() if n not in facts or n not in absent}
        return {n: joined(n, before.get(n, facts.get(n, f)), facts.get(n, before.get(n, f)))
                for n, f in inferred.items()}

    def constant(self, name: str) -> str | None:
        """Return a name of the file, unless the function that is being rewritten binds the name."""
        tree = self.trees[self.callers[-1]] if self.callers else None
        is_bound = tree is not None and (name in {a.arg for a in parameters_of(tree.args)} or bound_names(tree)[name])
        return name if name in self.constants and not is_bound else None

    def inner(self, name: str, positional: list[Fact], keywords: dict[str, Fact], texts: Mapping[int | str, str]
              ) -> Fact:
        """Return the fact about the result of a call of a function within the kernel. If the call shows that a
        parameter is a tile, and the body of the function does not, end the rewriting of the kernel, to begin anew."""
        function, key = self.local[name], (self.callers[-1], name)
        if any(is_index(fact) for fact in (*positional, *keywords.values())):
            self.inlined_or_left(name, f"an index vector or a mask of {name}: pass starts and sizes instead")
        arguments = {**dict(zip(function.facts, positional)), **keywords}
        shown = function.shown(arguments, self.inner_facts.get(key, {}))
        if shown != self.inner_facts.setdefault(key, {}):
            self.inner_facts[key] = shown
            raise NeedsArguments(name)
        if function.differs_in_blocks(arguments):
            self.reject(f"tensors of {name} that have block dimensions in some calls: give all the same dimensions")
        return HelperCall(function.tree, arguments, texts,
                    lambda name: name if self.stable(name) else None).result(function.returned)

    def inferred(self, name: str) -> dict[str, Fact]:
        """Return the facts that the body of a function shows about its parameters."""
        facts = self.parameters.facts(self.trees[name], False)
        if name in self.methods:
            facts[next(iter(facts))] = TileObject(name.partition(".")[0])
        return facts

    def inlined_or_left(self, name: str, why: str, reason: str = NO_VECTORS) -> NoReturn:
        """End the rewriting of the caller, to begin anew for that reason, if the body of the called function can
        replace the call. Else leave the statement to a person."""
        caller = self.callers[-1] if self.callers else ""
        callee = self.callee(caller, name)
        if name != caller and (caller, name) not in self.inlined and callee is not None and is_inlinable(callee):
            raise NeedsInlining(name, self.line, reason)
        self.reject(why)

    def callee(self, caller: str, name: str) -> cst.FunctionDef | None:
        """Return the function that a caller calls by a name: one within it, of another file, or of this one."""
        if name in self.local:
            return inner_function(self.functions[caller], name)
        return self.borrowed.get(name) or self.functions[name]

    def is_function(self, name: str) -> bool:
        """Return whether a name is a function of the file, of another one or of the kernel."""
        return name in self.functions or name in self.imported or name in self.local or name in self.host_functions

    def call_of_other_file(self, name: str, positional: list[Fact], keywords: dict[str, Fact],
                           texts: Mapping[int | str, str]) -> Fact | None:
        """Return the fact about the result of a function of another file, and note the facts of its arguments there."""
        other, function = self.imported[name]
        assert isinstance(other, Kernels)
        other.report.muted += self.report.muted
        other.counts_elsewhere = self.counts()
        on_grid, other.on_grid = other.on_grid, self.on_grid
        try:
            returned = other.helper(function, positional, keywords, texts)
        except NeedsInlining:
            caller = self.callers[-1] if self.callers else ""
            if caller and (caller, name) not in self.inlined and is_inlinable(other.functions[function]):
                named = {imported: alias for alias, (owner, imported) in self.imported.items() if owner is other}
                borrowed = readable_elsewhere(other.functions[function], other.names, other.literals, self.names, named,
                                              name)
                if borrowed is not None:
                    self.borrowed[name] = borrowed
                    other.lent.setdefault(function, set()).add(id(self))
                    raise NeedsInlining(name, self.line) from None
            self.reject(f"index vectors or masks that {name} of another file gets or returns: pass starts and sizes")
        finally:
            other.report.muted -= self.report.muted
            other.on_grid = on_grid
        if not (other.is_written or other.names.is_beta) and function in other.rewrites and MODULE.code_for_node(
                other.rewrites[function]) != MODULE.code_for_node(other.functions[function]):
            if any(map(has_tensor, (*positional, *keywords.values()))) or function not in other.host_functions:
                self.report.add_manual(self.line, f"{name} of another file computes on tiles: migrate the directory")
            else:
                self.report.changed(self.line, f"{name} of another file stays, of which {python_subset.PARSER} refuses "
                                    "a part: migrate the directory")
        return returned

    def _is_kernel_code(self, name: str, arguments: list[Fact]) -> bool:
        """Return whether a function of the file that calls no operation itself is rewritten, too: it gets tensors or
        index vectors, or has Python that the vendor's parser refuses."""
        function = self.host_functions.get(name)
        if function is None or not (any(map(has_tensor, arguments)) or self._reads_refused(name, set())):
            return False
        self.functions[name], self.trees[name] = function, tree_of(function)
        return True

    def _reads_refused(self, name: str, visited: set[str]) -> bool:
        """Return whether a function of the host, or one that it names, has Python that the vendor's parser refuses."""
        visited.add(name)
        tree = tree_of(self.host_functions[name])
        if any(rule is not python_subset.DECORATOR for rule, _ in python_subset.refused(tree, False)):
            return True
        return any(self._reads_refused(other, visited) for other in tree_names(tree)
                   if other in self.host_functions and other not in visited)

    def rewrite(self, name: str, facts: dict[str, Fact], is_kernel: bool) -> None:
        """Rewrite a function of the file."""
        with self.report.attempt():
            self._rewrite(name, facts, is_kernel)

    def _rewrite(self, name: str, facts: dict[str, Fact], is_kernel: bool) -> None:
        self.active.add(name)
        outside, self.masked = self.masked, MaskedTiles()
        muted = self.report.muted
        self.callers.append(name)
        if spare := address_functions_within(self.functions[name], self.allocates):
            shorter = without_functions(self.functions[name], spare)
            self.replaced(self.functions[name], shorter)
            self.functions[name], self.trees[name] = shorter, tree_of(shorter)
        while True:
            try:
                with self.report.attempt((NeedsInlining, NeedsArguments, NeedsUncutTiles)):
                    self.rewrites[name], self.returns[name] = self.function(self.functions[name], self.trees[name],
                                                                            facts, is_kernel)
                    if self.masked.exceeded != self.masked.uncut:
                        raise NeedsUncutTiles
                break
            except NeedsUncutTiles:
                self.masked.uncut = {tile: set(axes) for tile, axes in self.masked.exceeded.items()}
            except (NeedsInlining, NeedsArguments) as error:
                self.report.muted, self.inline, self.target, self.assigned = muted, 0, "", ""
                if isinstance(error, NeedsInlining):
                    self.inline_helper(name, error)
                    shown = self.parameters.facts(self.trees[name], is_kernel)
                    facts = {n: shown.get(n, f) if f in (Fact(), NumberFact()) else f for n, f in facts.items()}
        self.callers.pop()
        self.masked = outside
        self.active.discard(name)

    def inline_helper(self, name: str, error: NeedsInlining) -> None:
        """Replace the calls of a helper in a function by the helper's body."""
        helper = str(error)
        self.inlined.add((name, helper))
        self.line = error.line
        self.report.changed(self.line, f"the body of {helper} replaces its call, because {error.reason}")
        self.functions[name] = self.with_inlined(name, helper)
        self.trees[name] = tree_of(self.functions[name])

    def with_inlined(self, caller: str, name: str) -> cst.FunctionDef:
        """Return a function with the body of another one in place of its calls. A function within it goes if nothing
        else reads its name."""
        function, inner = self.functions[caller], inner_function(self.functions[caller], name)
        if inner is not None:
            shorter = with_inlined_calls(without_inner_function(function, name), name, inner, self.replaced)
            if name not in tree_names(tree_of(shorter)):
                self.inner_functions.pop((caller, name), None)
                for statement in nodes_of(inner, cst.SimpleStatementLine):
                    self.report.remove_changes(self.line_of.get(id(statement), 0))
                return shorter
        callee = inner or self.borrowed.get(name) or self.functions[name]
        return with_inlined_calls(function, name, callee, self.replaced)

    def function(self, node: cst.FunctionDef, tree: ast.FunctionDef, facts: dict[str, Fact], is_kernel: bool,
                 closure: dict[str, Fact] | None = None) -> tuple[cst.FunctionDef, Fact]:
        """Return the function in the current generation, and the fact about its result."""
        outer = (self.scope, self.prelude, self.axes, self.on_grid, self.line, self.loop_starts,
                 self.loop_stops, self.local, self.values, self.defaults)
        node = with_private_tiles(node, self.names, self.replaced)
        self.enter_scope(tree, facts, is_kernel, closure)
        self.prelude, self.local = [[]], dict(self.local) if closure is not None else {}
        vectors, self.vectors = self.vectors, set()
        addresses, self.addresses = self.addresses, set()
        returned, self.returned = getattr(self, "returned", []), []
        if is_kernel:
            self.axes = self.axes_of(tree)
            self.on_grid = bool(self.axes) and node.name.value not in self.on_cores
        elif closure is None and self.axes_of(tree) and self.on_grid:
            self.report.add_manual(self.line_of.get(id(node), 0), f"{node.name.value} calls nl.program_id, but is not "
                                   "a kernel: pass the number of the program as an argument")
        self.partition_names = frozenset()
        self.scope.repeats = int(not is_kernel or self.on_grid)
        if closure is None:
            self.report_refused(node, tree, is_kernel)
        if isinstance(node.body, cst.SimpleStatementSuite):
            node = node.with_changes(body=cst.IndentedBlock([cst.SimpleStatementLine(node.body.body)]))
        try:
            body = self.block(node.body.body if isinstance(node.body, cst.IndentedBlock) else [])
            parameters = node.params
            if is_kernel:
                body = self.returning(node, tree, body)
                if self.on_grid:
                    body, parameters = self.programs(node, tree, body)
            body = with_hoisted_counts(without_spare(body, self.vectors), self.vectors)
            body = without_addresses(body, self.addresses)
            self.retract_removals(body)
            body = self.shortened_body(body, tree)
            function = node.with_changes(body=node.body.with_changes(body=body or parsed("pass")),
                                         params=self.annotations(parameters))
            if node.returns is not None and self.names.meaning(node.returns.annotation) in REMOVED_TYPES:
                function = function.with_changes(returns=None)
        finally:
            result: Fact = Fact()
            for k, fact in enumerate(self.returned):
                result = fact if k == 0 else join(result, fact)
            result = returned_fact(result, *self.readable_outside(tree, closure))
            if node.name.value == FIRST_METHOD:
                self.note_object(facts)
            (self.scope, self.prelude, self.axes, self.on_grid, self.line, self.loop_starts,
             self.loop_stops, self.local, self.values, self.defaults) = outer
            self.address_functions |= self.addresses & {*self.functions, *self.host_functions, *self.allocators}
            self.returned, self.vectors, self.addresses = returned, vectors, addresses
        return function, result

    def shortened_body(self, body: list[cst.BaseStatement], tree: ast.FunctionDef) -> list[cst.BaseStatement]:
        """Return the new statements of a function without what a person would not write."""
        body = with_shared_conditions(body, self.added_conditions, self.shorter)
        body = with_updates_in_place(body, self.nl, self.nisa)
        if not any(isinstance(n, ast.keyword) and n.arg == "accumulate" for n in ast.walk(tree)):
            body = without_spare_arguments(body, self.nl, self.nisa)
        old_names = {*tree_names(tree), *bound_names(tree), *self.globals, *(a.arg for a in parameters_of(tree.args))}
        body, renamed = with_shared_names(body, old_names)
        self.report.rename(renamed)
        return body

    def readable_outside(self, tree: ast.FunctionDef, closure: Mapping[str, Fact] | None
                         ) -> tuple[dict[str, str], set[str], set[str]]:
        """Return the sizes that callers of a function can read, those that masks have cut, and the names that callers
        can read: parameters, names of the file, and for an inner function those of the kernel."""
        around = {a.arg for a in parameters_of(tree.args)} | self.constants | set(closure or ())
        return parameter_sizes(tree, self.scope.facts), self.counts(), around - bound_names(tree).keys()

    def enter_scope(self, tree: ast.FunctionDef, facts: dict[str, Fact], is_kernel: bool,
                    closure: dict[str, Fact] | None) -> None:
        """Begin the scope of a function, with the facts of its parameters and of the names in enclosing functions."""
        used_names = {*tree_names(tree), *bound_names(tree), *facts}
        if closure is not None:
            used_names |= self.scope.used_names
        enclosing_facts = self.around.get(id(self.functions.get(tree.name)), {})
        self.scope = FunctionScope({**self.globals, **enclosing_facts, **(closure or {}), **facts}, {}, unstable(tree),
                                   ReadParts.of(tree), transposed_tiles(tree, self.parameters.meaning), used_names)
        self.scope.cut_sizes = set() if is_kernel else {*self.cut_sizes.get(tree.name, ())}
        outside = {name: ast.parse(text, mode="eval").body for name, text in self.literals.items()}
        self.values = {**outside, **values_of(tree)}
        passed_names = None if is_kernel or closure is not None else self.passed_parameters.get(self.callers[-1])
        self.defaults = unpassed_defaults(tree, passed_names)
        self.scope.absent = absent_parameters(tree, passed_names)

    def statement(self, node: cst.BaseStatement) -> list[cst.BaseStatement]:
        """Rewrite a statement; a lambda that computes on tiles becomes a definition first."""
        function = definition(node) if isinstance(node, cst.SimpleStatementLine) else node
        if isinstance(function, cst.FunctionDef) and (self.callers[-1], function.name.value) in self.tile_lambdas:
            self.replaced(node, function)
            node = function
        return super().statement(node)

    def nested(self, node: cst.FunctionDef) -> cst.BaseStatement:
        """Rewrite a function within a kernel, which reads variables of the kernel."""
        tree = tree_of(node)
        of_body = self.parameters.facts(tree, False)
        facts = of_body | self.inner_facts.get((self.callers[-1], tree.name), {})
        function, returned = self.function(node, tree, facts, False, dict(self.scope.facts))
        self.local[tree.name] = InnerFunction(tree, of_body, facts, returned)
        return function.with_changes(decorators=[])

    def annotations(self, parameters: cst.Parameters) -> cst.Parameters:
        """Remove types without a counterpart from parameters: a kernel may write a tensor that it returns."""
        def plain(p: cst.Param) -> cst.Param:
            is_removed = p.annotation is not None and self.names.meaning(p.annotation.annotation) in REMOVED_TYPES
            return p.with_changes(annotation=None) if is_removed else p
        return parameters.with_changes(params=[plain(p) for p in parameters.params])

    # -- results -------------------------------------------------------------------------------------------------------
    def returning(self, node: cst.FunctionDef, tree: ast.FunctionDef, body: list[cst.BaseStatement]
                  ) -> list[cst.BaseStatement]:
        """Let a kernel that returns nothing return the parameters that it writes."""
        if any(statement.value is not None for statement in program_loops.returns_of(tree)):
            return body
        parameters = [a.arg for a in tree.args.args]
        written: list[str] = []
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call) or not isinstance(call.func, (ast.Name, ast.Attribute)):
                continue
            if self.parameters.meaning(call.func) in STORES:
                by_position = dict(zip(positional_names(self.parameters.meaning(call.func), len(call.args)), call.args))
                target = next((k.value for k in call.keywords if k.arg == "dst"), by_position.get("dst"))
                if target is not None and (name := root(target)) in parameters and name not in written:
                    written.append(name)
        written.sort(key=parameters.index)
        if not written:
            return body
        self.report.changed(self.line_of.get(id(node), 0),
                            f"{tree.name} also returns the parameters that it writes: {', '.join(written)}")
        return [*body, *parsed(f"return {', '.join(written)}")]
