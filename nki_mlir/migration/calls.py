# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites calls, and Python's operators on tiles: binds arguments, and writes elementwise operations."""

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import libcst as cst

from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta import language as beta_language
from nki_mlir.language.entries import INSTRUCTIONS
from nki_mlir.language.functions import ARITHMETIC, BITWISE, MODULI, UNARY, VERDICTS
from nki_mlir.language.signatures.table import BETA, signatures
from nki_mlir.migration import terms
from nki_mlir.migration.added_functions import SIZE
from nki_mlir.migration.diagonals import ELEMENTWISE, is_guard
from nki_mlir.migration.elementwise import FLOAT32, ElementwiseTexts
from nki_mlir.migration.engine_rows import TRANSFERS
from nki_mlir.migration.expressions import DTYPES, LeftForAPerson
from nki_mlir.migration.facts import (
    SBUF,
    Dtype,
    Fact,
    IndexFact,
    Items,
    Many,
    MaskFact,
    NoElement,
    NoneFact,
    NumberFact,
    TensorFact,
    Unknown,
    join,
)
from nki_mlir.migration.guarded_windows import REDUCTIONS
from nki_mlir.migration.names import operator
from nki_mlir.migration.operand_masks import COMPARISONS
from nki_mlir.migration.operation_text import OperationText
from nki_mlir.migration.views import Integer, Part, render

OPERATORS = {cst.Add: "add", cst.Subtract: "subtract", cst.Multiply: "multiply", cst.Divide: "divide",
             cst.Modulo: "mod", cst.Power: "power", cst.BitAnd: "bitwise_and", cst.BitOr: "bitwise_or",
             cst.BitXor: "bitwise_xor", cst.LeftShift: "left_shift", cst.RightShift: "right_shift"}
ENUMERATIONS = {name: getattr(beta_isa, name) for name in ("dge_mode", "engine", "oob_mode", "reduce_cmd")}
BINARY = {*ARITHMETIC, *MODULI, *VERDICTS, *BITWISE}
HAVE_DESTINATION = {"nl.store", "nl.atomic_rmw", "nisa.tensor_scalar_cumulative", *(
    f"nisa.{name}" for name in INSTRUCTIONS for forms in [signatures(f"nki.isa.{name}", BETA)]
    if forms and "dst" in forms[0].names)}
DESTINATIONS = ("dst", "reduce_res", "dst_idx")              # arguments that a call writes
ROWWISE = {*ELEMENTWISE, "nl.rms_norm", *(f"nisa.{name}" for name in (
    "activation_reduce", "bn_stats", "bn_aggr", "range_select", "tensor_tensor_scan"))
    } - {"nl.load", "nl.store"}
TAKE_OPERAND_MASKS = {*ROWWISE, "nl.load", "nl.store", *(f"nl.{name}" for name in (*BINARY, *UNARY))}
PRODUCTS = {"nl.matmul", "nisa.nc_matmul"}
TRANSPOSES = {"nl.transpose", "nl.load_transpose2d", "nisa.nc_transpose", "nisa.dma_transpose"}
OTHER_COLUMNS = {*(f"nl.{n}" for n in ("sum", "prod", "max", "min", "mean", "var", "all")), *(
    f"nisa.{n}" for n in ("tensor_reduce", "bn_stats", "bn_aggr", "max8", "nc_find_index8"))
    }                                   # a mask selects other columns than those of the result


@dataclass
class Arguments:
    """The bound arguments of a call, rewritten."""

    calls: "Calls"
    function: str
    nodes: dict[str, cst.BaseExpression]
    mask: MaskFact | None = None
    condition: str = ""
    selected: MaskFact | None = None        # the mask in the source; the new text may compute more rows

    @property
    def selects_no_box(self) -> bool:
        """Return whether the call has a mask whose elements are not a box."""
        return self.mask is not None and self.mask.selects_no_box

    def __contains__(self, name: str) -> bool:
        node = self.nodes.get(name)
        return node is not None and self.calls.code(node) != "None"

    def text(self, name: str, default: str = "") -> str:
        """Return the source text of an argument without enclosing parentheses."""
        node = self.nodes.get(name)
        if node is None or name not in self:
            return default
        return self.calls.text(node.with_changes(lpar=(), rpar=()) if getattr(node, "lpar", ()) and not isinstance(
            node, (cst.Tuple, cst.GeneratorExp, cst.NamedExpr)) else node)

    def fact(self, name: str) -> Fact:
        """Return the known facts of an argument."""
        return self.calls.fact(self.nodes[name]) if name in self.nodes else Fact()

    def tensor(self, name: str) -> tuple[str, TensorFact]:
        """Return a tile under the call's mask."""
        if name not in self.nodes:
            raise LeftForAPerson(f"{self.function} without its argument {name}")
        node = self.nodes[name]
        if not isinstance(self.calls.fact(node), TensorFact):
            if isinstance(self.calls.fact(node), NumberFact):
                raise LeftForAPerson(f"{self.function} of the number {self.text(name)}")
            return self.calls.text(node), TensorFact(SBUF)
        subscript = self.calls.views.get(id(node))
        if self.mask is not None and subscript is not None and any(
                isinstance(item, IndexFact) and is_guard(item, self.mask) for item in subscript.items):
            operator_name = REDUCTIONS.get(self.function) or (
                self.token("op").rpartition(".")[2] if self.function == "nisa.tensor_reduce" else "")
            guarded = self.calls.padded(subscript, self.mask, operator_name)
            if guarded is None:
                raise LeftForAPerson("a mask on an index of several axes, which may be out of bounds without the mask")
            subscript, self.mask = guarded
            return render(subscript, self.mask)
        text, fact = self.calls.viewed(node, self.mask)
        view = terms.without_parentheses(text), fact
        writes = name in DESTINATIONS or self.function in TRANSFERS
        return view if writes else self.calls.operand(*view)

    @property
    def dtype(self) -> str:
        """The text of the dtype, empty where the call has none."""
        return self.text("dtype")

    @property
    def dtype_meaning(self) -> str:
        """The dtype in the form of facts."""
        fact = self.fact("dtype")
        return fact.text if isinstance(fact, Dtype) and "dtype" in self else self.dtype

    def passed(self, *names: str) -> str:
        """Return ``, name=value`` for each of the names that the call passes."""
        return "".join(f", {n}={self.text(n)}" for n in names if n in self)

    def token(self, name: str) -> str:
        """Return an operator as a name of ``nl``."""
        node = self.nodes[name]
        operator_name = operator(self.calls.names.meaning(node))
        return f"{self.calls.nl}.{operator_name}" if operator_name else self.calls.text(node)

    def tokens(self, *names: str) -> str:
        """Return ``, name=operator`` for each of the names that the call passes."""
        return "".join(f", {n}={self.token(n)}" for n in names if n in self)


Recipe = Callable[["Calls", Arguments], "OperationText | cst.BaseExpression"]


def positional_names(meaning: str, count: int) -> list[str]:
    """Return the parameters that arguments have by position, in the newest beta release that takes as many: the first
    ``dma_copy`` was ``(src, dst)``, later ones take only keywords."""
    package, _, name = meaning.partition(".")
    for form in signatures(f"nki.{'language' if package == 'nl' else 'isa'}.{name}", BETA):
        names = [parameter.name for parameter in form.parameters if not parameter.keyword_only]
        if len(names) >= count:
            return names
    return []


FACT = Fact()
STRUCTURAL = {"axis", "keepdims", "negate", "transpose_x"}        # parameters that say what an operation does


class Calls(ElementwiseTexts):
    """The part of the rewriter for calls and operators. ``recipes`` has the functions of ``nl`` and ``nisa`` by
    name."""

    recipes: dict[str, Recipe] = {}
    updated_tile: TensorFact | None = None         # the tile that the statement updates
    defaults: Mapping[str, ast.expr] = {}       # defaults of parameters that no call passes
    partition_names: frozenset[str] = frozenset()
    reduced: dict[str, str]         # the dtypes of the operands of reductions over programs, by the text of the call

    def allocation(self, node: cst.BaseExpression) -> tuple[str, str]:
        """Return (the memory, its text) of a buffer that the beta generation places."""
        raise LeftForAPerson("a buffer that the text does not show")

    def program(self, name: str, arguments: str) -> cst.BaseExpression:
        """Rewrite a call that returns the launch grid or the program's index."""
        return self.new(f"{self.nl}.{name}({arguments})", NumberFact("int"))

    def reduces_programs(self, axes: str) -> bool:
        """Return whether the statements around a reduction over programs let it end the loop over them. Only the
        subclass that rewrites statements can answer yes."""
        return False

    # -- operators -----------------------------------------------------------------------------------------------------
    def leave_BinaryOperation(self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
                              ) -> cst.BaseExpression:
        """Rewrite arithmetic of tiles, of indices and masks, or of the host."""
        left, right = updated_node.left, updated_node.right
        facts = self.fact(left), self.fact(right)
        name = OPERATORS.get(type(updated_node.operator), "floor_divide")
        if name == "add" and (
                moved := self._index_moved_by(left, right) or self._index_moved_by(right, left)) is not None:
            return self.with_fact(updated_node, moved)
        if name != "floor_divide" and (masked := self._masked_call(name, left, right)) is not None:
            return masked
        if any(isinstance(f, TensorFact) for f in facts):
            if name != "divide":
                self.report.changed(self.line, f"the operator on tiles becomes nl.{name}")
            if name == "floor_divide":
                operands = self.operands((left, right), None)
                quotient = self.exact(operands[0], operands[1], FLOAT32, FLOAT32)
                return self.new(f"{self.nl}.floor({self.text(self.deferred(quotient))})", quotient.fact)
            return self.deferred(self.binary(name, left, right))
        if all(isinstance(f, MaskFact) for f in facts) and name == "bitwise_and":
            first, second = facts
            assert isinstance(first, MaskFact) and isinstance(second, MaskFact)
            return self.with_fact(updated_node, self.conjunction(first, second))
        if name in ("add", "multiply") and (sequences := [f for f in facts if isinstance(f, (Items, Many))]):
            elements = [self.element(f) for f in sequences]
            return self.with_fact(updated_node, Many(elements[0] if len(elements) == 1 else join(*elements)))
        masks = [f for f in facts if isinstance(f, MaskFact)]
        if masks and name != "bitwise_and":
            is_or = name == "bitwise_or"
            return self.with_fact(updated_node, self.one_of(left, right) if is_or else MaskFact((), is_known=False))
        if masks and name == "bitwise_and":
            factor = right if isinstance(facts[0], MaskFact) else left
            return self.with_fact(updated_node, self.conjunction(masks[0], MaskFact((), (self.text(factor),))))
        if any(isinstance(f, IndexFact) for f in facts):
            return self.with_fact(updated_node, self._index(name, left, right))
        if any(isinstance(f, Unknown) for f in facts):
            raise LeftForAPerson("an operand that may or may not be a tile: the text does not show it")
        kinds = [f.kind if isinstance(f, NumberFact) else "" for f in facts]
        kind = "float" if "float" in kinds or name == "divide" else "int" if kinds == ["int", "int"] else ""
        kind = "bool" if name.startswith("bitwise") and kinds == ["bool", "bool"] else kind
        if name == "power" and kind == "int" and not isinstance(right, cst.Integer):        # 2 ** -3 is a float
            kind = ""
        return self.with_fact(updated_node, NumberFact(kind))

    def _masked_call(self, name: str, *nodes: cst.BaseExpression) -> cst.BaseExpression | None:
        """Return the call of a function for an operator on operands, one of which has a mask; None if none has."""
        call = cst.Call(cst.Name(name), [cst.Arg(node) for node in nodes])
        return self._public_call(f"nl.{name}", call) if any(id(n) in self.operand_masks for n in nodes) else None

    def _index_moved_by(self, node: cst.BaseExpression, offset: cst.BaseExpression) -> IndexFact | None:
        """Return an index plus a tile of one element; None for other operands."""
        index, tile = self.fact(node), self.fact(offset)
        if isinstance(index, IndexFact) and not index.moved and isinstance(tile, TensorFact) and (
                tile.on_chip and tile.shape == ("1", "1")):
            return replace(index, moved=self.text(offset))
        return None

    def _index(self, name: str, left: cst.BaseExpression, right: cst.BaseExpression) -> IndexFact:
        first, second = self.as_index(left), self.as_index(right)
        if name in ("add", "subtract"):
            return self.combined(name, first, second)
        if name == "multiply" and not ((first.axes and second.axes) or first.moved or second.moved):
            index, number = (first, second.base) if first.axes else (second, first.base)
            axes = tuple(type(a)(a.extent, terms.multiply(a.step, number)) for a in index.axes)
            return IndexFact(terms.multiply(index.base, number), axes)
        self.reject(f"an index vector in a {name}, which a slice cannot express")

    def leave_UnaryOperation(self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
                             ) -> cst.BaseExpression:
        """Rewrite minus and inversion of tiles and indices."""
        fact = self.fact(updated_node.expression)
        minus = isinstance(updated_node.operator, cst.Minus)
        if isinstance(fact, TensorFact):
            if isinstance(updated_node.operator, cst.Plus):
                raise LeftForAPerson("+ before a tile")
            if isinstance(updated_node.operator, cst.Not):
                self.reject("the truth of a tile")
            name = "negative" if minus else "invert"
            masked = self._masked_call(name, updated_node.expression)
            return masked if masked is not None else self.deferred(self.unary(name, updated_node.expression))
        condition = isinstance(updated_node.expression, (cst.Comparison, cst.BooleanOperation))
        if isinstance(updated_node.operator, cst.BitInvert) and condition and not isinstance(fact, MaskFact):
            self.report.changed(self.line, "~ of a condition on loop variables becomes Python's not")
            return self.new(f"(not {self.text(updated_node.expression)})", FACT)
        if isinstance(fact, MaskFact):
            return self.with_fact(updated_node, self.inverse(fact))
        if isinstance(fact, IndexFact) and minus:
            return self.with_fact(updated_node, self.combined("subtract", IndexFact("0", ()), fact))
        return self.with_fact(updated_node, fact if isinstance(fact, NumberFact) else Fact())

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        """Rewrite comparisons of indices (masks), of tiles, and of the host."""
        nodes = [updated_node.left, *(c.comparator for c in updated_node.comparisons)]
        facts = [self.fact(n) for n in nodes]
        name = COMPARISONS.get(type(updated_node.comparisons[0].operator), "")
        if name and len(nodes) == 2 and any(isinstance(f, IndexFact) and f.is_vector for f in facts):
            return self.with_fact(updated_node, self.compared(name, *nodes))
        if name and len(nodes) == 2 and any(isinstance(f, TensorFact) for f in facts) and not any(
                isinstance(n, cst.Name) and n.value == "None" for n in nodes):
            masked = self._masked_call(name, *nodes)
            return masked if masked is not None else self.deferred(self.binary(name, nodes[0], nodes[1]))
        is_unknown = any(isinstance(f, Unknown) for f in facts)
        return self.with_fact(updated_node, Fact() if is_unknown else NumberFact("bool"))

    def leave_Tuple(self, original_node: cst.Tuple, updated_node: cst.Tuple) -> cst.BaseExpression:
        """Note the values of the elements."""
        return self.with_fact(updated_node, self.element_facts(updated_node))

    def leave_List(self, original_node: cst.List, updated_node: cst.List) -> cst.BaseExpression:
        """Note the values of the elements."""
        return self.with_fact(updated_node, self.element_facts(updated_node))

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.BaseExpression:
        """Record the facts of the values if they are equal."""
        values: Fact = NoElement()
        for element in updated_node.elements:
            value = self.fact(element.value)
            values = value if isinstance(values, NoElement) else join(values, value)
        return self.with_fact(updated_node, Many(values, True))

    def element_facts(self, node: cst.Tuple | cst.List) -> Fact:
        """Return the facts of the elements of a tuple or list."""
        if any(isinstance(e, cst.StarredElement) for e in node.elements):
            return Many(reduce(join, [self.element(fact) if isinstance(e, cst.StarredElement) else fact
                                      for e in node.elements for fact in [self.fact(e.value)]]))
        if not node.elements:
            return Many(NoElement())
        return Items(tuple(self.fact(e.value) for e in node.elements))

    def leave_Integer(self, original_node: cst.Integer, updated_node: cst.Integer) -> cst.BaseExpression:
        """Note that an integer is a number."""
        return self.with_fact(updated_node.with_changes(), NumberFact("int"))

    def leave_Float(self, original_node: cst.Float, updated_node: cst.Float) -> cst.BaseExpression:
        """Note that a float is a number."""
        return self.with_fact(updated_node.with_changes(), NumberFact("float"))

    # -- calls ---------------------------------------------------------------------------------------------------------
    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Return a call in the form of the current generation."""
        meaning = self.names.meaning(original_node.func)
        package, _, name = meaning.partition(".")
        if meaning == f"nl.constants.{SIZE}":
            self.report.changed(self.line, f"{SIZE} becomes a function of the file: nki has none")
            return self.new(f"{SIZE}({self.text(updated_node.args[0].value)})", NumberFact("int"))
        if package in ("nl", "nisa"):
            return self._public_call(meaning, updated_node)
        if meaning == "nt.scalar":
            self.reject("nt.scalar within an expression: keep the condition in a register, and loop by nl.while_loop")
        if package == "np" and name in DTYPES:          # a number of the host: dtypes of nl cannot be called
            kind = "float" if "float" in name else "int"
            return self.with_fact(updated_node.with_changes(func=original_node.func), NumberFact(kind))
        return self.other_call(original_node, updated_node, meaning)

    def other_call(self, original: cst.Call, updated: cst.Call, meaning: str) -> cst.BaseExpression:
        """Rewrite a call of a function that is not public. Subclasses know the functions of the file."""
        return self.with_fact(updated, Fact())

    def from_first_row(self, arguments: Arguments) -> MaskFact | None:
        """Return the mask of a call with the rows before those that it selects, if the result is a new tile and rows do
        not depend on each other. The beta generation leaves these rows undefined, and an engine starts at few rows."""
        mask, (package, _, name) = arguments.mask, arguments.function.partition(".")
        by_rows = arguments.function in {*ROWWISE, *TRANSPOSES} or (package == "nl" and name in {*BINARY, *UNARY})
        views = [self.views[id(n)] for n in arguments.nodes.values() if id(n) in self.views]
        is_new = bool(self.assigned or self.updated_tile) and not any(n in arguments for n in DESTINATIONS)
        if mask is None or not is_new or not by_rows or not all(
                isinstance(item, IndexFact) and (terms.number(item.base) or 0) >= 0 for v in views for item in v.items
                if not isinstance(item, Integer | Part)):
            return mask
        bounds = [replace(b, low="", high=terms.simplified(terms.add(b.low, b.high))) if b.low and (
            arguments.function in TRANSPOSES or b.axis == -b.rank) else b for b in mask.bounds]
        self.scope.cut_sizes |= {b.high for b, old in zip(bounds, mask.bounds) if b.high != old.high and (
            terms.number(b.high) is None)}
        return replace(mask, bounds=tuple(bounds))

    def _public_call(self, meaning: str, node: cst.Call) -> cst.BaseExpression:
        package, _, name = meaning.partition(".")
        arguments = self.arguments(meaning, node)
        arguments.selected, arguments.mask = arguments.mask, self.from_first_row(arguments)
        if meaning in TAKE_OPERAND_MASKS:
            self.shape_by_mask(arguments.nodes.values(), arguments.mask)
        recipe = self.recipes.get(meaning)
        if arguments.selects_no_box and meaning not in {*ELEMENTWISE, *PRODUCTS, *TRANSPOSES} and not (
                package == "nl" and name in {*BINARY, *UNARY}):
            raise LeftForAPerson(f"{meaning} under a mask that does not select a box of elements")
        if "dst" in arguments and meaning not in HAVE_DESTINATION:
            return self._with_destination(node, recipe, arguments)
        if recipe is not None:
            result = recipe(self, arguments)
        elif package == "nl" and name in BINARY and {"x", "y"} <= set(arguments.nodes):
            if not any(isinstance(arguments.fact(n), (TensorFact, Unknown)) for n in ("x", "y")):
                if arguments.mask is not None or arguments.condition:
                    raise LeftForAPerson(f"{meaning} under a mask, of operands that the text does not show to be tiles")
                return self.with_fact(node, Fact())
            result = self.binary(name, arguments.nodes["x"], arguments.nodes["y"], arguments.dtype,
                               arguments.dtype_meaning, arguments.mask)
        elif package == "nl" and name in UNARY and arguments.nodes:
            result = self.unary(name, arguments.nodes.get("x") or next(iter(arguments.nodes.values())), arguments.dtype,
                              arguments.dtype_meaning, arguments.mask)
        else:
            raise LeftForAPerson(f"{meaning} has no counterpart")
        if isinstance(result, cst.BaseExpression) and isinstance(fact := self.fact(result), TensorFact) and (
                arguments.mask or arguments.condition):
            text = self.code(result)
            result = OperationText(fact, text, None, self.shape_text(fact, text), fact.dtype, "masked")
        if isinstance(result, cst.BaseExpression):
            self.conditions[id(result)] = arguments.condition
            return result
        result.condition, result.mask, result.selected = arguments.condition, arguments.mask, arguments.selected
        if meaning in TRANSPOSES and arguments.mask is not None:
            result.mask = self.transposed_mask(arguments.mask, meaning)
        elif result.mask is not None and meaning in OTHER_COLUMNS:
            result.mask = self.rows_of(result.mask, result.fact.rank or 2)
        elif result.mask is not None and meaning == "nisa.tensor_partition_reduce":
            result.mask = self.columns_of(result.mask)
        self.make_part(result, [b for b in (result.mask.bounds if result.mask else ()) if b.low or b.extent])
        return self.deferred(result)

    def _with_destination(self, node: cst.Call, recipe: Recipe | None, arguments: Arguments) -> cst.BaseExpression:
        """Rewrite a call of the beta package of later releases, in which calls already have a destination. A call that
        only the current generation takes stays."""
        parameters = arguments.nodes.keys() - {"dst"}
        if recipe is None or not any(parameters <= {p.name for p in form.parameters} and parameters.issuperset(
                p.name for p in form.parameters if p.default is None) for form in signatures(
                    f"nki.isa.{arguments.function.partition('.')[2]}", BETA)):
            if arguments.mask is not None or arguments.condition:
                raise LeftForAPerson(f"{arguments.function} with a destination and a mask")
            return self.with_fact(node, FACT)
        dst, target = arguments.tensor("dst")
        del arguments.nodes["dst"]
        result = recipe(self, arguments)
        if not isinstance(result, OperationText) or result.write_to is None:
            raise LeftForAPerson(f"{arguments.function} with a destination")
        *before, last = (self.without_marks(text) for text in result.write_to(dst, target))
        self.prelude[-1] += before
        return self.new(last, FACT)

    def arguments(self, meaning: str, node: cst.Call) -> Arguments:
        """Return the arguments of a call of a public function by name."""
        package, _, name = meaning.partition(".")
        module = beta_language if package == "nl" else beta_isa
        function = getattr(module, name, None)
        names: list[str] = []
        if function is not None:
            try:
                names = list(inspect.signature(function).parameters)
            except (TypeError, ValueError):
                names = []
        nodes: dict[str, cst.BaseExpression] = {}
        by_position = positional_names(meaning, sum(a.keyword is None for a in node.args)) or names
        for position, argument in enumerate(node.args):
            if argument.star:
                raise LeftForAPerson(f"{meaning} with arguments that are unpacked")
            if argument.keyword is not None:
                nodes[argument.keyword.value] = argument.value
            elif position < len(by_position):
                nodes[by_position[position]] = argument.value
            else:
                nodes[f"argument {position}"] = argument.value
        nodes = {n: self.member(n, self.unpassed(n, nodes[n])) for n in (*names, *nodes) if n in nodes}
        mask, condition = None, ""
        if "mask" in nodes:
            mask_node = nodes.pop("mask")
            fact = self.fact(mask_node)
            mask = self.mask_argument(fact)
            if mask is None and self.code(mask_node) not in ("None", "True"):
                text = self.text(mask_node)
                is_bool = not isinstance(mask_node, cst.Name) or fact == NumberFact("bool")
                condition = text if is_bool else f"{text} is None or {text}"
            self.report.changed(self.line, f"{meaning} has no mask: its operands become slices")
        if meaning in TAKE_OPERAND_MASKS:
            nodes, attached = self.unmasked(nodes)
            if attached is not None:
                mask = self.mask_argument(attached if mask is None else self.conjunction(mask, attached))
                self.report.changed(self.line, "the mask of an operand becomes that of the operation")
        if mask is not None:
            mask = self.within_cut_tiles(mask, nodes.values())
            mask, condition = self.executed(mask, condition, meaning != "nl.store")
            mask = mask and self.bounded(mask, [self.views[id(n)] for n in nodes.values() if id(n) in self.views])
        return Arguments(self, meaning, nodes, mask, condition)

    def unpassed(self, parameter: str, node: cst.BaseExpression) -> cst.BaseExpression:
        """Return the default of a parameter that no call passes, if it is None or says what the operation does."""
        default = self.defaults.get(node.value) if isinstance(node, cst.Name) else None
        if default is None or not (self.is_none(node) or parameter in STRUCTURAL):
            return node
        return self.new(ast.unparse(default), NoneFact() if self.is_none(node) else NumberFact("int"))

    def is_none(self, node: cst.BaseExpression) -> bool:
        """Return whether a node is a parameter that no call passes and whose default is None."""
        default = self.defaults.get(node.value) if isinstance(node, cst.Name) else None
        return isinstance(default, ast.Constant) and default.value is None

    def member(self, parameter: str, node: cst.BaseExpression) -> cst.BaseExpression:
        """Return the member of an enumeration for its number in the beta generation: 0 and 3 of ``dge_mode`` mean
        something else in the current one."""
        if parameter not in ENUMERATIONS:
            return node
        if isinstance(node, cst.Integer):
            name = next((m.name for m in ENUMERATIONS[parameter] if m.value == node.evaluated_value), "")
            if name:
                self.report.changed(self.line, f"the number for {parameter} becomes {self.nisa}.{parameter}.{name}")
                return self.new(f"{self.nisa}.{parameter}.{name}", Fact())
        elif parameter == "dge_mode" and isinstance(self.fact(node), NumberFact):
            self.report.add_manual(self.line, f"{self.code(node)} for {parameter}: 0 and 3 have other meanings in the "
                                        f"current generation; write a member of {self.nisa}.{parameter}")
        return node
