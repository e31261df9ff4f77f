# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites the statements of a function: instructions write assigned tiles."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import libcst as cst

from nki_mlir.language.python_subset import RAISE, WALRUS
from nki_mlir.migration import terms
from nki_mlir.migration.asserted_shapes import asserted_shapes
from nki_mlir.migration.assertions import negated, raises_alone, text_of
from nki_mlir.migration.beta_forms import with_named_arguments
from nki_mlir.migration.engine_rows import is_between
from nki_mlir.migration.expressions import MARK, PROGRAM, LeftForAPerson
from nki_mlir.migration.facts import (
    HBM,
    SBUF,
    Fact,
    IndexFact,
    Items,
    Many,
    MaskFact,
    NumberFact,
    Span,
    TensorFact,
    TileClass,
    TileObject,
    Unknown,
    join,
)
from nki_mlir.migration.functions import shape_names, size_name, sizes_of_blocks
from nki_mlir.migration.inner_comments import inner_comments, lines_above
from nki_mlir.migration.names import parsed
from nki_mlir.migration.operation_text import OperationText, is_repeated
from nki_mlir.migration.parameters import bound_names, names_read
from nki_mlir.migration.selected_masks import with_mask_branches
from nki_mlir.migration.spare_vectors import read_names
from nki_mlir.migration.tile_classes import is_tile_class, why_left
from nki_mlir.migration.unpacked_loops import unpacked
from nki_mlir.migration.updates import TileUpdates

REMOVED = "removed: subscripts become slices"
LastPart = TypeVar("LastPart", cst.Else | None, cst.Finally | None)


def is_constant(node: cst.BaseExpression) -> bool:
    """Return whether an expression is a literal, or a name such as None."""
    return isinstance(node, cst.Name | cst.BaseNumber | cst.SimpleString)


class Statements(TileUpdates):
    """Rewrites blocks. ``line_of`` has the old line of each statement."""

    line_of: dict[int, int] = {}
    tries = 0                       # number of enclosing ``try`` statements
    returned: list[Fact]

    # -- blocks --------------------------------------------------------------------------------------------------------
    def block(self, body: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        """Return the statements of a block, rewritten."""
        statements: list[cst.BaseStatement] = []
        orphans: list[cst.EmptyLine] | None = None          # the lines above removed statements
        body = with_mask_branches(body, lambda name: isinstance(self.scope.facts.get(name), IndexFact), self.replaced)
        for statement in body:
            line = self.line = self.line_of.get(id(statement), self.line)
            self.prelude.append([])
            self.inline = 0
            try:
                after = self.statement(statement)
            except LeftForAPerson as error:
                self.report.remove_changes(line)
                self.report.add_manual(self.line, str(error))
                after = [statement]
            except (SyntaxError, cst.ParserSyntaxError):
                self.report.remove_changes(line)
                self.report.add_manual(self.line, "a statement whose new text does not parse")
                after = [statement]
            before = [s for text in self.prelude.pop() for s in parsed(text)]
            if before:
                lines = getattr(after[0] if after else statement, "leading_lines", ())
                before[0] = before[0].with_changes(leading_lines=lines)
                after = [*before, *(s.with_changes(leading_lines=()) for s in after[:1]), *after[1:]]
            if not after:
                orphans = lines_above(orphans or [], getattr(statement, "leading_lines", ()), False)
            elif orphans is not None and hasattr(after[0], "leading_lines"):
                lines = lines_above(orphans, after[0].leading_lines, not statements)
                after[0] = after[0].with_changes(leading_lines=lines)
                orphans = None
            statements += after
        self.orphans = [line for line in orphans or () if line.comment]
        return statements

    orphans: list[cst.EmptyLine] = []                       # the comments at the end of the last block

    def suite(self, body: cst.BaseSuite) -> cst.BaseSuite:
        """Return the body of a compound statement, rewritten."""
        if isinstance(body, cst.SimpleStatementSuite):
            body = cst.IndentedBlock([cst.SimpleStatementLine(body.body)])
        assert isinstance(body, cst.IndentedBlock)
        sizes_before = dict(self.scope.sizes)
        statements = self.block(body.body)
        self.scope.sizes = sizes_before
        return body.with_changes(body=statements or parsed("pass"), footer=[*self.orphans, *body.footer])

    def replaced(self, old: cst.CSTNode, new: cst.CSTNode) -> None:
        """Note that a node stands at the line of another one."""
        if id(old) in self.line_of:
            self.line_of[id(new)] = self.line_of[id(old)]
            self.nodes.append(new)

    def statement(self, node: cst.BaseStatement) -> list[cst.BaseStatement]:
        """Return the statements that replace one statement."""
        match node:
            case cst.SimpleStatementLine():
                return self._line(node)
            case cst.For():
                return [self._for(node)]
            case cst.While():
                self.inline += 1
                test = self.settled_node(self.rewritten(node.test))
                self.inline -= 1
                return [node.with_changes(test=test, body=self._loop_body(node.body),
                                          orelse=self.last_part(node.orelse))]
            case cst.With():
                items = [i.with_changes(item=self.settled_node(self.rewritten(i.item))) for i in node.items]
                return [node.with_changes(items=items, body=self.suite(node.body))]
            case cst.FunctionDef():
                return [self.nested(node)]
            case cst.ClassDef() if is_tile_class(node, self.names, {
                    name for name, fact in self.scope.facts.items() if isinstance(fact, TileClass)}):
                self.scope.facts[node.name.value] = TileClass(node.name.value)
                self.reject(why_left(node.name.value))
        return [node]

    def nested(self, node: cst.FunctionDef) -> cst.BaseStatement:
        """Return a function within a function. Subclasses rewrite it."""
        return node

    def settled_node(self, node: cst.BaseExpression) -> cst.BaseExpression:
        text = self.code(node)
        return cst.parse_expression(self.without_marks(text)) if MARK.search(text) else node

    # -- loops and branches --------------------------------------------------------------------------------------------
    def _for(self, node: cst.For) -> cst.BaseStatement:
        iterated = self.rewritten(node.iter)
        if isinstance(node.target, cst.Name) and isinstance(iterated, cst.Call) and self.code(iterated.func) == "range":
            values = [self.text(a.value) for a in iterated.args]
            self.loop_starts = {**self.loop_starts, node.target.value: values[0] if len(values) > 1 else "0"}
            self.loop_stops = {**self.loop_stops, node.target.value: values[0] if len(values) == 1 else ""}
        element = self.element(self.fact(iterated))
        iterated = self.settled_node(iterated)
        self.bind_target(node.target, element)
        return node.with_changes(iter=iterated, body=self._loop_body(node.body), orelse=self.last_part(node.orelse))

    def _loop_body(self, body: cst.BaseSuite) -> cst.BaseSuite:
        """Rewrite a loop's body with the facts that hold in the first and in later iterations."""
        self.scope.repeats += 1
        before = dict(self.scope.facts)
        names = bound_names(ast.parse(self._source(body)))
        lasting = {text: name for text, name in self.scope.counts.items()
                   if {name, *terms.names(text)}.isdisjoint(names)}
        if any(isinstance(before.get(n), TensorFact) for n in names):
            names_before = set(self.scope.used_names)
            self.report.muted += 1
            self.suite(body)
            self.report.muted -= 1
            self.scope.used_names, self.orphans = names_before, []
            self.scope.facts = {**before, **{n: join(f, self.scope.facts.get(n, f)) for n, f in before.items()}}
        self.scope.counts = {**lasting}
        suite = self.suite(body)
        self.scope.repeats -= 1
        self.scope.counts = lasting
        self.scope.facts = {**self.scope.facts, **{n: join(f, self.scope.facts.get(n, f)) for n, f in before.items()}}
        return suite

    def _source(self, body: cst.BaseSuite) -> str:
        return "if True:" + cst.Module([]).code_for_node(body)

    def last_part(self, node: LastPart) -> LastPart:
        """Rewrite the last part of a compound statement."""
        return node.with_changes(body=self.suite(node.body)) if node is not None else None

    # -- simple statements ---------------------------------------------------------------------------------------------
    def _line(self, node: cst.SimpleStatementLine) -> list[cst.BaseStatement]:
        texts: list[str] = []
        for small in node.body:
            self.prelude += [[]] if len(node.body) > 1 else []      # its prelude follows the earlier statements
            replaced = self.small(small)
            texts += [*(self.prelude.pop() if len(node.body) > 1 else ()), *(
                replaced if replaced is not None else [self.code(small)])]
        if texts == [self.code(s) for s in node.body]:
            return [node]
        statements = [s for text in texts for s in parsed(text)]
        if statements:
            comments = [cst.EmptyLine(comment=c) for c in inner_comments(node) if not any(c.value in t for t in texts)]
            statements[0] = statements[0].with_changes(leading_lines=[*node.leading_lines, *comments])
            last = statements[-1]
            if isinstance(last, cst.SimpleStatementLine):
                statements[-1] = last.with_changes(trailing_whitespace=node.trailing_whitespace)
        return list(statements)

    def small(self, node: cst.BaseSmallStatement) -> list[str] | None:
        """Return the statements that replace a small statement, or None if it stays."""
        match node:
            case cst.Expr():
                if isinstance(node.value, (cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis)):
                    return [] if isinstance(node.value, cst.Ellipsis) else None
                value = self.rewritten(with_named_arguments(node.value, self.names) if isinstance(
                    node.value, cst.Call) else node.value)
                condition, text = self.conditions.get(id(value), ""), self.loops.get(id(value), "") or self.text(value)
                is_ignored = isinstance(node.value, cst.Call) and text.isidentifier()   # a result that has a name now
                return [] if is_ignored and not condition else self.run_if(condition, [text])
            case cst.Assign():
                targets = [t.target for t in node.targets]
                return self.assign(targets[0], node.value, targets[1:])
            case cst.AnnAssign():
                if node.value is None:
                    return None
                self.report.changed(self.line, "the annotation is removed: a shape cannot annotate a variable")
                texts = self.assign(node.target, node.value, [])
                self.annotated(node)
                return texts
            case cst.AugAssign():
                return self.augmented(node)
            case cst.Return():
                if node.value is None:
                    return None
                value = self.rewritten(node.value)
                self.returned.append(self.fact(value))
                return [f"return {self.text(value)}"]
            case cst.Import() | cst.ImportFrom():
                return None
            case cst.Raise():
                return self.raised(node)
        statement = node.visit(self)
        assert isinstance(statement, cst.BaseSmallStatement)
        if isinstance(node, cst.Assert):
            self._name_shapes(asserted_shapes(node.test, self))
        return [self.without_marks(self.code(statement))]

    def leave_NamedExpr(self, original_node: cst.NamedExpr, updated_node: cst.NamedExpr) -> cst.BaseExpression:
        """Assign before the statement; within a condition, the expression stays."""
        fact = self.fact(updated_node.value)
        if self.inline or not isinstance(updated_node.target, cst.Name):
            self.report_refused_python(WALRUS)
            return self.with_fact(updated_node, fact)
        name = updated_node.target.value
        self.prelude[-1] += self._name(name, updated_node.value, fact)
        self.report.changed(self.line, "the assignment within an expression becomes a statement in front")
        return self.new(name, self.scope.facts.get(name, fact))

    def asserted(self, node: cst.If) -> list[cst.BaseStatement]:
        """Return the assertion that an ``if`` around a ``raise`` becomes, or [] for another ``if``."""
        alone = raises_alone(node)
        if alone is None or self.tries or text_of(alone[0]) is None:
            return []
        raised, comments = alone
        test = negated(self.settled_node(self.rewritten(node.test)))
        texts = self.raised(raised, self.code(test)) or []
        return [s.with_changes(leading_lines=[*node.leading_lines, *comments]) for s in parsed(*texts)]

    def raised(self, node: cst.Raise, test: str = "False") -> list[str] | None:
        """Return the assertion that raises instead, or None if the exception stays."""
        text = None if self.tries else text_of(node)
        if text is None:
            self.report_refused_python(RAISE)
            return None
        self.report.changed(self.line, "the exception becomes an assertion, which the vendor's parser reads")
        return [f"assert {test}, {self.text(self.rewritten(text))}"]

    def annotated(self, node: cst.AnnAssign) -> None:
        """Note the shape in ``name: tensor[rows, columns]`` if nothing else states the shape."""
        written, target = node.annotation.annotation, node.target
        if not isinstance(written, cst.Subscript) or not isinstance(target, cst.Name):
            return
        fact = self.scope.facts.get(target.value)
        shape = tuple(self.code(e.slice) for e in written.slice)
        if isinstance(fact, TensorFact) and fact.shape is None and all(self.stable(t) for t in shape):
            self.scope.facts[target.value] = replace(fact, shape=shape)

    def assign(self, target: cst.BaseExpression, value: cst.BaseExpression,
               other_targets: list[cst.BaseAssignTargetExpression]) -> list[str] | None:
        """Rewrite ``target = value``."""
        if not other_targets and (text := sizes_of_blocks(target, value, self)):
            return [text]
        elements = unpacked(target, value)
        pairs = self._pairs(target, elements or value)
        if pairs is not None and not other_targets:
            return self._assign_each(pairs, elements is not None)
        shapes = shape_names(target, value, self)
        sizes = size_name(target, value, self)
        self.scope.sizes |= sizes
        self.scope.cut_sizes |= {name for size, name in sizes.items() if size in self.scope.cut_sizes}
        if isinstance(target, cst.Name) and isinstance(value, cst.IfExp | cst.ListComp | cst.DictComp) and (
                not other_targets and target.value not in terms.names(self.code(value))):
            self.target = target.value
        self.assigned = target.value if isinstance(target, cst.Name) else ""
        expression = self.rewritten(value)
        self.note_sources(self.assigned, value)
        fact, is_assigned = self.fact(expression), self.target and self.code(expression) == self.target
        self.target = self.assigned = ""
        if is_assigned:                 # the statements in front have assigned it
            self.bind_target(target, fact)
            return []
        self._name_shapes(shapes)
        copies = [f"{self.code(other)} = {self.code(target)}" for other in other_targets]
        for other_target in other_targets:
            self.bind_target(other_target, fact)
        if isinstance(target, cst.Name):
            if isinstance(fact, Items) and fact.items and all(isinstance(f, (Span, IndexFact)) for f in fact.items):
                self.vectors.add(target.value)              # a tuple of slices, which may replace each reading
            return [*(self._name(target.value, expression, fact) or self._vector(target, value)), *copies]
        if isinstance(target, cst.Attribute) and isinstance(target.value, cst.Name) and isinstance(
                self.scope.facts.get(target.value.value), TileObject):
            return [*self._name(self.code(target), expression, fact), *copies]
        if isinstance(target, cst.Subscript):
            return [*self._element(target, expression, fact), *copies]
        if self._is_index(fact) and isinstance(target, (cst.Tuple, cst.List)):
            self.bind_target(target, fact)
            self.removals |= {name: {*self.removals.get(name, ()), self.line} for name in bound_names(
                ast.parse(f"{self.code(target)} = 0"))}
            self.report.changed(self.line, f"index vectors are {REMOVED}")
            return [*self._vector(target, value), *copies]
        text = f"{self.code(target)} = {self.text(expression)}"
        self.bind_target(target, fact)
        return [text, *copies]

    def _name_shapes(self, shapes: Mapping[str, tuple[str, ...]]) -> None:
        """Note the names that a statement gives the sizes of tensors; a name of a cut size is cut, too."""
        for name, shape in shapes.items():
            fact_before = self.scope.facts[name]
            assert isinstance(fact_before, TensorFact)
            cut_sizes = self.scope.cut_sizes
            cut_sizes |= {new for old, new in zip(fact_before.shape or (), shape) if old in cut_sizes}
            self.scope.facts[name] = replace(fact_before, shape=shape)

    def _vector(self, target: cst.BaseExpression, value: cst.BaseExpression) -> list[str]:
        """Rewrite the assignment of an index vector, which stays if a statement that is not rewritten reads it."""
        self.vectors |= set(bound_names(ast.parse(f"{self.code(target)} = 0")))
        return [f"{self.code(target)} = {self.code(value)}"]

    def _assign_each(self, pairs: list[tuple[cst.BaseExpression, cst.BaseExpression]], unrolls: bool
                     ) -> list[str] | None:
        """Rewrite ``a, b = x, y`` as single assignments, or return None if nothing changes. It ``unrolls`` a
        comprehension, which the values come from."""
        if unrolls:
            self.report.changed(self.line, "each name gets an assignment, because kernels have no comprehensions")
        is_flat = not unrolls and not any(isinstance(left, cst.Tuple) for left, _ in pairs)
        bound = [(left.with_changes(lpar=[], rpar=[]) if isinstance(left, cst.Tuple) else left, right)
                 for left, right in pairs if not (self.code(left) == "_" and is_constant(right))]
        old_texts = [[" = ".join(map(self.code, pair))] for pair in bound]
        new_texts = [old if (texts := self.assign(*pair, [])) is None else texts for pair, old in zip(bound, old_texts)]
        if is_flat and len(bound) == len(pairs) and new_texts == old_texts and not self.prelude[-1]:
            return None
        return [text for texts in new_texts for text in texts]

    def retract_removals(self, body: Sequence[cst.BaseStatement]) -> None:
        """Retract from the report that a function loses vectors and masks that its new body reads."""
        for name in read_names(body) & self.removals.keys():
            for line in self.removals[name]:
                self.report.remove_changes(line, REMOVED)
        self.removals = {}

    def _is_index(self, fact: Fact) -> bool:
        return isinstance(fact, (IndexFact, MaskFact)) or (isinstance(fact, Items) and bool(fact.items) and all(
            self._is_index(f) for f in fact.items))

    def _pairs(self, target: cst.BaseExpression, value: cst.BaseExpression
               ) -> list[tuple[cst.BaseExpression, cst.BaseExpression]] | None:
        """Return ``a, b = x, y`` as single assignments if it contains kernel operations or views, and the order does
        not matter."""
        if not (isinstance(target, (cst.Tuple, cst.List)) and isinstance(value, cst.Tuple)
                and len(target.elements) == len(value.elements)):
            return None
        if not re.search(r"\(", self.code(value)) and not self.has_views(value):
            return None
        pairs = [(t.value, v.value) for t, v in zip(target.elements, value.elements)]
        for k, (left, _) in enumerate(pairs):
            names = set(bound_names(ast.parse(f"{self.code(left)} = 0"))) or {self.code(left)}
            if any(names & terms.names(self.code(right)) for _, right in pairs[k + 1:]):
                return None
        return pairs

    def _name(self, name: str, value: cst.BaseExpression, fact: Fact) -> list[str]:
        result = self.result(value)
        if self._is_index(fact) and not (isinstance(fact, MaskFact) and fact.is_known and not fact.depends_on_index):
            self.bind(name, fact)
            self.removals[name] = {*self.removals.get(name, ()), self.line}
            self.report.changed(self.line, f"the {'mask' if isinstance(fact, MaskFact) else 'index vector'} {name} is "
                                           f"{REMOVED}")
            return []
        if result is None:
            text = self.text(value)
            self.program_names |= {name} if PROGRAM.fullmatch(text) else set()
            self.bind(name, self.received(name, fact))
            if isinstance(fact, TensorFact):
                self.scope.cut_sizes |= {f"{name}.shape[{axis}]" for axis in fact.cut}
            self.name_view(name, value, text)
            return [f"{name} = {text}"]
        self.uncut_part(name, result)
        if result.expression and not result.condition and not result.part:
            texts = [f"{name} = {self.without_marks(result.expression)}"]
        else:
            target = self.fresh_name(result.name) if name == "_" else name
            result.is_assigned = True
            if any(target in names_read(text) for text in self._texts_of(result)):
                target = self.fresh_name(name)
            texts = [self.without_marks(text) for text in self.allocated(target, result)]
            if result.first:
                create, written = texts
                texts = [written.replace(":\n", f":\n    {create}\n", 1)]
            if target != name != "_":
                texts.append(f"{name} = {target}")
            self.report.changed(self.line, "the tile is allocated first, because an instruction writes a destination")
        self.bind(name, self.received(name, self.selection(result)))
        return texts

    def _texts_of(self, result: OperationText) -> list[str]:
        names_before = set(self.scope.used_names)
        written = result.write_to("_", result.fact) if result.write_to else [result.expression]
        self.scope.used_names = names_before
        return [*written, result.shape, result.dtype]

    def _element(self, target: cst.Subscript, value: cst.BaseExpression, fact: Fact) -> list[str]:
        """Rewrite ``t[...] = value``. The assignment to an item of a list or dictionary stays."""
        owner = self.rewritten(target.value) if isinstance(target.value, (cst.Name, cst.Attribute)) else target.value
        if isinstance(self.fact(owner), (Items, Many)):
            text = self.text(value)
            self.extended(owner, Many(self.without_loop_sizes(fact) if isinstance(fact, TensorFact) else fact))
            parts = [e.with_changes(slice=self._rewritten_slice(e.slice)) for e in target.slice]
            return [f"{self.code(target.with_changes(slice=parts))} = {text}"]
        subscript = self.rewritten(target)
        dst_fact = self.fact(subscript)
        if isinstance(dst_fact, TensorFact) and isinstance(fact, Unknown):
            self.reject("a value that may or may not be a tile: the text does not show it")
        if not isinstance(dst_fact, TensorFact) or (not (
                isinstance(fact, (TensorFact, NumberFact)) or self.result(value)) and not dst_fact.on_chip):
            return [f"{self.code(subscript)} = {self.text(value)}"]
        result = self.result(value)
        value, mask, condition = (value, result.mask, result.condition) if result is not None else (
            self.selected_part(value))
        fact = self.fact(value)
        self.keep_written(subscript, dst_fact, result.computed if result is not None else fact)
        self.note_write(self.code(owner))
        dst, dst_fact = self.viewed(subscript, mask)
        self.report.changed(self.line, "the assignment becomes an instruction that writes the tile")
        source = result.fact if result is not None else fact
        if isinstance(source, TensorFact) and source.shape and dst_fact.shape and (
                len(source.shape) == len(dst_fact.shape)):
            dst, dst_fact = self.shortened(dst, dst_fact, result.computed if result else source)    # cut by masks
        if predicate := self.predicate_of(result, dst_fact, mask):
            return self.run_if(condition, self.written_where(predicate, dst, dst_fact, lambda to, target: [
                self.without_marks(t) for t in self._store_statements(to, target, value, source)],
                result.name if result is not None else "selected"))
        return self.run_if(condition, self.destination(dst, dst_fact, lambda to: self.via_new_tile(
            to, dst_fact, lambda at: [
                self.without_marks(t) for t in self._store_statements(at, dst_fact, value, source)])))

    def _store_statements(self, dst: str, dst_fact: TensorFact, value: cst.BaseExpression, fact: Fact) -> list[str]:
        """Return the statements that write a value to a view."""
        result = self.result(value)
        if result is not None:
            if result.write_to is None:
                return self.of_expression(dst, dst_fact, self.without_marks(result.expression), result.fact.dtype)
            texts = result.write_to(dst, dst_fact)
            if is_repeated(result.fact, dst_fact):
                return self.repeated(dst, dst_fact, result, texts, lambda: self.text(value))
            if result.expression and self.may_start_between(texts):
                return self.of_expression(dst, dst_fact, self.without_marks(result.expression), result.fact.dtype)
            return texts
        text = self.text(value)
        if not isinstance(fact, TensorFact):
            if dst_fact.memory == SBUF and dst_fact.shape is not None and self.may_start_between([dst]):
                full = f"{self.nl}.full({self.shape_text(dst_fact, dst)}, {text}, dtype={dst.partition('[')[0]}.dtype)"
                return self.of_expression(dst, dst_fact, full, dst_fact.dtype)
            return [f"{self.nisa}.memset(dst={dst}, value={text})"]
        if HBM in (dst_fact.memory, fact.memory) or (fact.memory == SBUF and (
                is_between(dst, dst_fact) or self.may_start_between([dst, text]))):
            return [f"{self.nisa}.dma_copy(dst={dst}, src={text})"]
        text, _ = self.operand(text, fact)
        if dst_fact.shape is not None and fact.shape is not None and len(dst_fact.shape) == len(fact.shape):
            text = self.stretched(text, fact, dst_fact.shape, dst)
        return [f"{self.nisa}.tensor_copy(dst={dst}, src={text})"]
