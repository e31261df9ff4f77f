# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites the expressions of a kernel bottom up, as Python evaluates them, and notes facts about each value.

A call that becomes a statement in the current generation (an instruction with a destination) is a ``Result``, for which
the text has a mark: the statement around it decides whether the result is written into its target, or into a new tile
before the statement.
"""

import re
from dataclasses import dataclass, field, replace
from typing import NoReturn

import libcst as cst

from nki_mlir.language.python_subset import PARSER, PythonRule
from nki_mlir.migration import terms
from nki_mlir.migration.facts import (
    HBM,
    PSUM,
    SBUF,
    Axis,
    BufferFact,
    Dtype,
    Fact,
    IndexFact,
    Items,
    LambdaFact,
    Many,
    MaskFact,
    NoneFact,
    NumberFact,
    SelectedVector,
    ShapeOf,
    Span,
    TensorFact,
    TileObject,
    Unknown,
    element_at,
    function_fact,
    part_of,
)
from nki_mlir.migration.names import RENAMED, Names, limit_of
from nki_mlir.migration.operation_text import LATER_ROWS, OperationText, hint_of, name_of_result, tile_name
from nki_mlir.migration.parameters import ReadParts
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.selected_vectors import SELECTED
from nki_mlir.migration.tree_transformer import TreeTransformer
from nki_mlir.migration.views import Integer, Item, NamedView, NotAView, Part, RowNumbers, SubscriptText, masked, render

MARK = re.compile(r"__nki_result_(\d+)__")
PROGRAM = re.compile(r"program_\d+|\w+\.program_id\(.*\)")         # the text of a program's number
COMPUTED = re.compile(r"\w+(\.\w+)*\(")              # a text that begins with a call, not with a name
MODULE = cst.Module([])
DTYPES = {"float32", "float16", "bfloat16", "int8", "int16", "int32", "uint8", "uint16", "uint32", "bool_", "tfloat32",
          "float8_e4m3", "float8_e5m2", "float8_e4m3fn"}
BUFFERS = {"nl.sbuf": SBUF, "nl.psum": PSUM, "nl.hbm": HBM, "nl.private_hbm": HBM, "nl.shared_hbm": HBM}


class LeftForAPerson(Exception):
    """The rewriter cannot write some code; the error's text has the code and the reason."""


@dataclass
class FunctionScope:
    """The state of the rewriter within one function."""

    facts: dict[str, Fact] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    unstable: frozenset[str] = frozenset()
    parts: ReadParts = field(default_factory=ReadParts)         # names by the parts that the function reads
    transposed: dict[str, str] = field(default_factory=dict)    # tiles with the dtype of the tensor that is transposed
    used_names: set[str] = field(default_factory=set)
    absent: frozenset[str] = frozenset()                        # parameters that no call passes, of default None
    counts: dict[str, str] = field(default_factory=dict)        # texts of counts that a statement has named
    views: dict[str, NamedView] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)         # `x.shape[1]` where a statement has named it
    cut_sizes: set[str] = field(default_factory=set)            # sizes of parameters that a mask of the caller has cut
    tensor_names: set[str] = field(default_factory=set)         # arguments `name=` of tensors
    repeats: int = 0                # number of loops around, including loops over programs and one for a helper's calls


class Expressions(TreeTransformer):
    """Rewrites one expression with ``rewritten``. The subclass ``Calls`` rewrites calls."""

    target = ""                 # the name that a conditional expression is assigned to, if it does not read the name
    assigned = ""               # the name that the statement assigns
    loop_starts: dict[str, str] = {}
    loop_stops: dict[str, str] = {}
    inline = 0                      # number of conditions, lambdas or tests of loops around: they admit no statement

    def __init__(self, names: Names, report: MigrationReport) -> None:
        super().__init__()
        self.names, self.report, self.scope = names, report, FunctionScope()
        self.facts: dict[int, Fact] = {}
        self.nodes: list[cst.CSTNode] = []
        self.prelude: list[list[str]] = [[]]
        self.results: dict[str, OperationText] = {}
        self.views: dict[int, SubscriptText] = {}
        self.repeated_views: dict[int, cst.BaseExpression] = {}     # the views that `.broadcast_to` repeats
        self.conditions: dict[int, str] = {}
        self.loops: dict[int, str] = {}                             # calls that are loops of the current generation
        self.owners: dict[int, cst.BaseExpression] = {}             # attribute -> the tensor or object before the dot
        self.vectors: set[str] = set()              # index vectors and counts, left out where nothing reads them
        self.replaced_methods: set[str] = set()     # methods whose values have replaced calls
        self.removals: dict[str, set[int]] = {}     # the lines of index vectors and masks that the report calls removed
        self.program_names: set[str] = set()             # variables that are the number of a program
        self.added_conditions: set[str] = set()
        self.shorter: dict[tuple[str, ...], str] = {}               # statements -> the equivalent assignment
        self.line = 0
        self.nl, self.nisa = names.alias("nl"), names.alias("nisa")

    # -- texts and facts -----------------------------------------------------------------------------------------------
    def reject(self, text: str) -> NoReturn:
        """End the statement: a person must rewrite it."""
        raise LeftForAPerson(text)

    def report_refused_python(self, rule: PythonRule) -> None:
        """Report Python that stays, although the vendor's parser in most releases does not read it."""
        self.report.changed(self.line, f"{rule.construct} stays, which {PARSER} refuses: {rule.instead}")

    def code(self, node: cst.CSTNode) -> str:
        """Return the text of a node, with its marks."""
        return MODULE.code_for_node(node).strip()

    def text(self, node: cst.CSTNode) -> str:
        """Return the text of a node in which expressions, or names of new tiles, replace the marks of results."""
        if id(node) in self.views:
            return self.viewed(node)[0]
        return self.without_marks(self.code(node))

    def without_marks(self, text: str) -> str:
        """Return a text in which expressions, or names of new tiles, replace all marks."""
        return MARK.sub(lambda match: self.forced(match.group(0)), text)

    def forced(self, mark: str) -> str:
        """Return the text of a result as an expression; allocate a tile for the result if no expression computes it."""
        result = self.results[mark]
        if result.expression and not result.condition and not result.part:
            return self.without_marks(result.expression)
        name = self.fresh_name(hint_of(result, self.assigned, self.scope.used_names))
        self.prelude[-1] += self.allocated(name, result)
        result.expression, result.condition, result.part_items = name, "", ()
        return name

    def allocated(self, name: str, result: OperationText) -> list[str]:
        """Return the statements that create a tile for a result and write it, under the condition of the result."""
        memory, dtype = "psum" if result.fact.memory == PSUM else "sbuf", result.dtype
        if result.starts_later or not (dtype.strip() and result.shape) or not (result.write_to or result.fact.shape):
            self.reject(LATER_ROWS if result.starts_later else "a tile that is computed under a condition")
        texts = [*map(self.without_marks, result.write_to(name + result.part, result.fact) if result.write_to else ())]
        shape = self.without_marks(result.shape)
        for operand in (self.without_marks(text) for text in result.operands):
            if COMPUTED.match(operand) and operand in shape:        # name it, since the shape reads it, too
                named = self.named(operand, "loaded" if operand.startswith(f"{self.nl}.load") else "operand")
                shape, dtype, *texts = (text.replace(operand, named) for text in (shape, dtype, *texts))
        if not result.write_to:
            dtype = f"{self.nl}.{dtype[3:]}" if dtype.startswith("nl.") else dtype
            texts = [f"{self.nisa}.tensor_copy(dst={name}{result.part}, src={self.without_marks(result.expression)})"]
        create = f"{name} = {self.nl}.ndarray({shape}, dtype={dtype}, buffer={self.nl}.{memory})"
        if result.expression and not result.part and len(texts) == 1:
            self.shorter[create, texts[0]] = f"{name} = {self.without_marks(result.expression)}"
        return [create, *self.run_if(result.condition, texts)]

    def run_if(self, condition: str, texts: list[str]) -> list[str]:
        """Return statements that run only if a condition of the host holds."""
        if condition == "False":
            return []
        if not condition:
            return texts
        self.added_conditions.add(condition)
        body = "\n".join("    " + line for text in texts for line in text.splitlines())
        return [f"if {condition}:\n{body}"]

    def named(self, text: str, hint: str) -> str:
        """Return a text that may be written twice: the text itself if it is simple, else a name that a statement
        before assigns. A tile that a function computes is named after the function."""
        if terms.SIMPLE.match(text):
            return text
        name = self.fresh_name(name_of_result(text, self.nl, self.scope.used_names) if hint == "tile" else hint)
        self.prelude[-1].append(f"{name} = {text}")
        return name

    def fresh_name(self, hint: str) -> str:
        """Return a name that the function does not use."""
        name, count = (hint := tile_name(hint)), 1
        while name in self.scope.used_names:
            count += 1
            name = f"{hint}_{count}"
        self.scope.used_names.add(name)
        return name

    def fact(self, node: cst.CSTNode) -> Fact:
        """Return the facts about the value of a rewritten node."""
        if isinstance(node, cst.Name) and node.value in self.results:
            return self.results[node.value].fact
        return self.facts.get(id(node), Fact())

    def new(self, text: str, fact: Fact) -> cst.BaseExpression:
        """Return a node for a text, and note the facts about its value."""
        return self.with_fact(cst.parse_expression(text), fact)

    def with_fact(self, node: cst.BaseExpression, fact: Fact) -> cst.BaseExpression:
        """Note the facts about the value of a node, and return the node."""
        if isinstance(fact, TensorFact) and fact.shape is not None and self.scope.sizes:
            fact = replace(fact, shape=tuple(self.scope.sizes.get(size, size) for size in fact.shape))
        self.facts[id(node)] = fact
        self.nodes.append(node)
        return node

    def deferred(self, result: OperationText) -> cst.BaseExpression:
        """Return a node that stands for a result."""
        mark = f"__nki_result_{len(self.results)}__"
        self.results[mark] = result
        return self.with_fact(cst.Name(mark), result.fact)

    def result(self, node: cst.CSTNode) -> OperationText | None:
        """Return the result that a node stands for, or None."""
        return self.results.get(node.value) if isinstance(node, cst.Name) else None

    def rewritten(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Rewrite an expression for the current generation."""
        expression = node.visit(self)
        assert isinstance(expression, cst.BaseExpression)
        return expression

    def bind(self, name: str, fact: Fact) -> None:
        """Record the value of a name from here on."""
        self.scope.versions[name] = self.scope.versions.get(name, 0) + 1
        self.scope.facts[name] = fact
        self.scope.counts = {t: n for t, n in self.scope.counts.items() if name not in terms.names(t) and n != name}

    def stable(self, text: str) -> bool:
        """Return whether a text has the same value everywhere in the function."""
        return text == "?" or not terms.names(text) & self.scope.unstable

    def without_loop_sizes(self, tensor: TensorFact) -> TensorFact:
        """Return the fact of a tensor without sizes that another iteration may change."""
        if tensor.shape is None or all(self.stable(t) for t in tensor.shape):
            return tensor
        return replace(tensor, shape=tuple(t if self.stable(t) else "?" for t in tensor.shape))

    def received(self, name: str, fact: Fact) -> Fact:
        """Return the fact of a name to which a result is assigned: sizes that are not numbers become
        ``name.shape[k]``."""
        if isinstance(fact, TensorFact) and fact.shape is not None and "?" in fact.shape:
            shape = tuple(f"{name}.shape[{k}]" if s == "?" else s for k, s in enumerate(fact.shape))
            return self.without_loop_sizes(replace(fact, shape=shape, dtype=fact.dtype or f"{name}.dtype"))
        return self.without_loop_sizes(fact) if isinstance(fact, TensorFact) else fact

    # -- names and attributes ------------------------------------------------------------------------------------------
    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        """Note the facts about a variable, or rewrite a public name."""
        fact = self.scope.facts.get(updated_node.value)
        if updated_node.value == "None":
            return self.with_fact(updated_node, NoneFact())
        if updated_node.value in ("True", "False"):
            return self.with_fact(updated_node, NumberFact("bool"))
        if fact is None:
            meaning = self.names.meaning(updated_node)
            return self._public(updated_node, meaning) if meaning else updated_node
        return self.with_fact(updated_node.with_changes(), fact)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        """Visit only the owner of an attribute: it is the expression."""
        return False

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        """Rewrite attributes of tensors, and public names."""
        meaning = self.names.meaning(original_node)
        if meaning:
            return self._public(original_node, meaning)
        limit = limit_of(original_node, self.names)
        if limit is not None:
            return self.new(repr(limit), NumberFact("float"))
        owner, name = self.rewritten(original_node.value), original_node.attr.value
        fact = self.fact(owner)
        if isinstance(fact, TileObject):
            return self.object_attribute(original_node, owner, fact)
        text = f"{self.text(owner)}.{name}" if owner is not original_node.value else ""
        node = self.new(text, Fact()) if text and text != self.code(original_node) else original_node.with_changes()
        self.owners[id(node)] = owner
        if isinstance(fact, TensorFact) and name in ("shape", "dtype", "ndim"):
            if name == "shape" and fact.blocks:
                self.reject("the shape of a tensor with block dimensions")
            return self.with_fact(node, {"shape": ShapeOf(fact.shape), "dtype": Dtype(fact.dtype or self.code(node)),
                                         "ndim": NumberFact("int")}[name])
        if isinstance(fact, Items) and name in fact.fields:
            return self.with_fact(node, self.received(self.code(node), fact.items[fact.fields.index(name)]))
        if isinstance(fact, Unknown) and name == "shape":
            return self.with_fact(node, ShapeOf(None))
        return self.with_fact(node, Unknown() if isinstance(fact, (TensorFact, Unknown)) else Fact())

    def object_attribute(self, node: cst.Attribute, owner: cst.BaseExpression, kind: TileObject) -> cst.BaseExpression:
        """Return an attribute of an object whose class computes on tiles. Subclasses know the attributes."""
        self.reject(f"{self.code(node)}: its value depends on the class {kind.name}")

    def _public(self, node: cst.Name | cst.Attribute, meaning: str) -> cst.BaseExpression:
        package, _, name = meaning.partition(".")
        if meaning in BUFFERS:
            return self.new(f"{self.nl}.{name}", BufferFact(BUFFERS[meaning]))
        if package in ("nl", "np") and name in DTYPES:
            return self.new(f"{self.nl}.{name}", Dtype(f"nl.{name}"))
        if meaning in ("nl.fp32.min", "nisa.fp32.min"):
            return self.new("-3.4028234663852886e38", NumberFact("float"))
        if package == "nl" and (name in RENAMED or name.startswith("tile_size.")):
            return self.new(f"{self.nl}.{RENAMED.get(name, name)}", NumberFact("int") if "." in name else Fact())
        return self.with_fact(node.with_changes(), function_fact(meaning))

    def leave_Lambda(self, original_node: cst.Lambda, updated_node: cst.Lambda) -> cst.BaseExpression:
        """Note the facts about a lambda's result that hold for all arguments."""
        self.inline += 1
        result = self.fact(self.rewritten(original_node.body))
        self.inline -= 1
        return self.with_fact(updated_node, LambdaFact(result))

    # -- subscripts ----------------------------------------------------------------------------------------------------
    def visit_Subscript(self, node: cst.Subscript) -> bool:
        """Skip public names: they have no parts to rewrite."""
        return False

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        """Rewrite views of tensors, elements of lists, and index vectors with inserted axes."""
        meaning = self.names.meaning(original_node.value)
        if meaning == "nl.mgrid":
            return self.with_fact(original_node, self._mesh(original_node))
        if (size := self._size_of_blocks(original_node)) is not None:
            return size
        owner = self.rewritten(original_node.value)
        fact = self.fact(owner)
        if isinstance(fact, IndexFact):
            return self._spread(original_node, fact)
        if isinstance(fact, TensorFact):
            return self._view(owner, fact, original_node)
        changed = original_node.with_changes(
            value=owner, slice=[element.with_changes(slice=self._rewritten_slice(element.slice))
                                for element in original_node.slice])
        if isinstance(fact, ShapeOf):
            is_part = isinstance(changed.slice[0].slice, cst.Slice)
            return self.with_fact(changed, ShapeOf(None) if is_part else NumberFact("int"))
        if isinstance(fact, (Items, Many)):
            text = self.text(changed.slice[0].slice)
            if isinstance(changed.slice[0].slice, cst.Slice):
                return self.with_fact(changed, part_of(fact, terms.bounds(text)))
            if (element := element_at(fact, terms.number(text) if len(changed.slice) == 1 else None)) is not None:
                return self.with_fact(changed, element)
        indices = [self.fact(e.slice.value) for e in changed.slice if isinstance(e.slice, cst.Index)]
        if any(isinstance(index, IndexFact) and index.is_vector for index in indices):
            self.reject("index vectors of a value that may or may not be a tensor: the text does not show it")
        return self.with_fact(changed, Unknown() if isinstance(fact, Unknown) else Fact())

    def _rewritten_slice(self, item: cst.BaseSlice) -> cst.BaseSlice:
        if isinstance(item, cst.Index):
            return item.with_changes(value=self.rewritten(item.value))
        assert isinstance(item, cst.Slice)
        parts = {k: self.rewritten(v) for k in ("lower", "upper", "step") if (v := getattr(item, k)) is not None}
        return item.with_changes(**parts)

    def _size_of_blocks(self, node: cst.Subscript) -> cst.BaseExpression | None:
        """Return a size of a tensor with block dimensions, whose partition axis is now the first; None for other
        sizes."""
        match node:
            case cst.Subscript(value=cst.Attribute(value=tensor, attr=cst.Name(value="shape")),
                               slice=[cst.SubscriptElement(slice=cst.Index(value=index))]):
                owner, position = self.rewritten(tensor), terms.number(self.code(index))
                fact = self.fact(owner)
                if not isinstance(fact, TensorFact) or not fact.blocks or position is None or position < 0:
                    return None
                self.report.changed(self.line, "the shape begins with the partition axis")
                position = 0 if position == fact.blocks else position + (position < fact.blocks)
                return self.new(f"{self.text(owner)}.shape[{position}]", NumberFact("int"))
        return None

    def _mesh(self, node: cst.Subscript) -> Fact:
        axes: list[tuple[str, str]] = []
        for item in [element.slice for element in node.slice]:
            if not isinstance(item, cst.Slice) or item.upper is None or item.step is not None:
                self.reject("an nl.mgrid without stops, or with steps")
            lower = self.text(self.rewritten(item.lower)) if item.lower is not None else "0"
            upper = self.text(self.rewritten(item.upper))
            axes.append((lower, terms.difference(upper, lower) or terms.subtract(upper, lower)))
        indices = (IndexFact(start, tuple(Axis(extent, "1") if k == position else Axis("1", "0")
                                          for k in range(len(axes)))) for position, (start, extent) in enumerate(axes))
        return Items(tuple(indices), tuple("pxyzw"[:len(axes)]))

    def _spread(self, node: cst.Subscript, index: IndexFact) -> cst.BaseExpression:
        """Rewrite ``nl.arange(n)[:, None]``, which inserts axes, and ``i_p[:, 0:1]``, which takes a part of one."""
        base, axes, unused_axes = index.base, list[Axis](), list(index.axes)
        for item in [element.slice for element in node.slice]:
            if isinstance(item, cst.Index) and self.code(item.value) == "None":
                axes.append(Axis("1", "0"))
            elif isinstance(item, cst.Slice) and unused_axes:
                parts = [part and self.rewritten(part) for part in (item.lower, item.upper, item.step)]
                start, axis = unused_axes.pop(0).part(*[self.text(part) if part else "" for part in parts])
                base, axes = terms.add(base, start), [*axes, axis]
            else:
                self.reject("this subscript of an index vector")
        return self.with_fact(node, IndexFact(base, (*axes, *unused_axes), index.moved))

    def items(self, node: cst.Subscript, tensor: TensorFact) -> list[Item]:
        """Return the items of a subscript."""
        items: list[Item] = []
        for element in node.slice:
            item = element.slice
            if isinstance(item, cst.Slice):
                items.append(self._slice(item))
                continue
            assert isinstance(item, cst.Index)
            if isinstance(item.value, cst.Ellipsis):
                rank = tensor.rank
                if len(node.slice) == 1:
                    continue
                if rank is None:
                    self.reject("an ellipsis in a subscript of a tensor whose rank is unknown")
                items += [Part(":")] * (rank - len(node.slice) + 1)
                continue
            value = self.rewritten(item.value)
            fact = self.fact(value)
            if isinstance(fact, IndexFact):
                items.append(fact)
            elif isinstance(fact, Span):
                items.append(Part(self.text(value), fact.size))
            elif isinstance(fact, TensorFact):
                text = self.text(value)         # written twice where its rows have to be counted
                is_counted = fact.shape is not None and fact.shape[0] != "?"
                items.append(RowNumbers(text if is_counted else self.named(text, "rows"), fact.shape))
            elif isinstance(fact, MaskFact | SelectedVector):
                self.reject("a mask is an index" if isinstance(fact, MaskFact) else SELECTED)
            elif isinstance(fact, Items) and len(node.slice) == 1:
                items += self._items_of(self.text(value), fact)
            else:
                items.append(Integer(self.text(value)))
        return items

    def _items_of(self, text: str, sequence: Items) -> list[Item]:
        """Return the items of a subscript that is a variable: a tuple of slices, index vectors and integers."""
        items: list[Item] = []
        for k, fact in enumerate(sequence.items):
            if isinstance(fact, SelectedVector):
                self.reject(SELECTED)
            if isinstance(fact, Span):
                is_known = fact.start and fact.size and all(map(self.stable, (fact.start, fact.size)))
                view = f"{self.nl}.ds({fact.start}, {fact.size})" if is_known else f"{text}[{k}]"
                items.append(Part(view, fact.size))
            else:
                items.append(fact if isinstance(fact, IndexFact) else Integer(f"{text}[{k}]"))
        return items

    def _slice(self, item: cst.Slice) -> Part:
        lower, upper, step = (None if v is None else terms.without_parentheses(self.text(self.rewritten(v)))
                              for v in (item.lower, item.upper, item.step))
        if lower is None and upper is None and step is None:
            return Part(":")
        text = f"{lower or ''}:{upper or ''}" + (f":{step}" if step else "")
        size = ""
        if upper is not None and step in (None, "1") and not upper.startswith("-"):
            size = terms.difference(upper, lower or "0") or ""
            if size and not self.stable(size):
                size = ""
        if size and lower and lower != "0" and terms.number(lower) is None and size != "0":
            text = f"nl.ds({lower}, {size})"
        return Part(text.replace("nl.ds(", f"{self.nl}.ds("), size)

    def _view(self, owner: cst.BaseExpression, tensor: TensorFact, node: cst.Subscript) -> cst.BaseExpression:
        outer = self.views.get(id(owner))
        if outer is not None and outer.tensor.blocks and all(isinstance(i, Integer) for i in outer.items) and len(
                outer.items) == outer.tensor.blocks:
            inner = self.items(node, tensor)                    # t[k][...] of a tensor with block dimensions
            return self._with_view(SubscriptText(outer.text, outer.tensor, (*outer.items, *inner)), node)
        if not (items := tuple(self.items(node, tensor))):          # all of the owner's view
            expression = self.new(self.text(owner), tensor)
            self.views |= {id(expression): outer} if outer is not None else {}
            return expression
        counts = frozenset(self.scope.counts.values())
        return self._with_view(SubscriptText(self.text(owner), tensor, items, counts), node)

    def _with_view(self, view: SubscriptText, node: cst.Subscript) -> cst.BaseExpression:
        try:
            text, fact = render(view)
        except NotAView as error:
            self.reject(str(error))
        expression = self.new(text.replace("nl.ds(", f"{self.nl}.ds("), self.without_loop_sizes(fact))
        self.views[id(expression)] = view
        if text != self.code(node).replace(" ", "") and any(isinstance(i, IndexFact) for i in view.items):
            self.report.changed(self.line, "index vectors become a slice or an access pattern")
        return expression

    def viewed(self, node: cst.CSTNode, mask: MaskFact | None = None) -> tuple[str, TensorFact]:
        """Return the text and the fact of an operand under a mask."""
        view, fact = self.views.get(id(node)), self.fact(node)
        result = self.result(node)
        if result is not None:
            return masked(self.without_marks(self.code(node)), result.fact, mask)
        assert isinstance(fact, TensorFact)
        try:
            if view is not None and mask is not None and any(isinstance(i, IndexFact) for i in view.items):
                return render(view, mask)
            integers = {name for name, other in self.scope.facts.items() if other == NumberFact("int")}
            return masked(self.without_marks(self.code(node)), fact, mask, integers)
        except NotAView as error:
            self.reject(str(error))
