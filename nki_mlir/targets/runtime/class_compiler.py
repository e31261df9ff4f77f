# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Translates the methods of a class, in a small subset of Python, to functions of the LLVM dialect.

The same methods run as Python, and give the same numbers. Values are integers of 64 bits, floats, objects of such
classes, and arrays of one of these; a class annotates its fields in its body, and a method its arguments and its
result. Methods have assignments, ``if``, ``while``, ``for`` over ``range``, ``return``, ``break``, ``continue``, and
calls of methods. An instance is a record of words: a number, or the address of an array or of another record.
"""

import ast
import inspect
import struct
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import NamedTuple, get_args, get_origin

from nki_mlir.diagnostics import InternalError

Type = object               # int, float, bool, NoneType, list[int], list[float], or a class of such methods
MLIR: dict[Type, str] = {int: "i64", bool: "i1", float: "f64", type(None): "void"}
INTEGER = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
           ast.LShift: "shl", ast.RShift: "ashr"}
FLOAT = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
PREDICATES = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
EXTERNAL = {"erf": "erf", "floor": "floor", "fmod": "fmod"}     # functions of the C library, of floats
DECLARED = """llvm.func @erf(f64) -> f64
llvm.func @floor(f64) -> f64
llvm.func @fmod(f64, f64) -> f64
"""


class TypedValue(NamedTuple):
    name: str
    type: Type


@cache
def fields_of(cls: Type) -> dict[str, Type]:
    """Return the annotated fields of a class, those of its bases first."""
    assert isinstance(cls, type)
    fields: dict[str, Type] = {}
    for base in reversed(cls.__mro__):
        fields |= inspect.get_annotations(base)
    return fields


@cache
def element_of(kind: Type) -> Type | None:
    """Return the type of an array's elements; None for other types."""
    return get_args(kind)[0] if get_origin(kind) is list else None


def mlir_type(kind: Type) -> str:
    return MLIR.get(kind, "!llvm.ptr")


def symbol(cls: type, method: str) -> str:
    return f"{cls.__name__}.{method}"


def translated(cls: type, entries: Sequence[str]) -> str:
    """Return the functions of these methods and of all that they call."""
    texts: dict[tuple[type, str], str] = {}
    waiting = [(cls, entry) for entry in entries]
    while waiting:
        key = waiting.pop()
        if key not in texts:
            writer = MethodWriter(*key)
            texts[key] = writer.text()
            waiting += writer.called
    return DECLARED + "\n".join(texts.values())


class MethodWriter:
    """Writes one method. Locals are in memory of the frame."""

    def __init__(self, cls: type, name: str) -> None:
        self.cls, self.name = cls, name
        self.function: FunctionType = getattr(cls, name)
        self.called: list[tuple[type, str]] = []
        self.lines: list[str] = []
        self.locals: dict[str, Type] = {}
        self.loops: list[tuple[str, str]] = []          # for each open loop: the labels for ``continue`` and ``break``
        self.number = 0
        self.ended = False                              # whether the current block has its terminator
        self.signature = inspect.signature(self.function)
        self.result: Type = self.signature.return_annotation or type(None)

    # -- text ----------------------------------------------------------------------------------------------------------
    def text(self) -> str:
        tree = ast.parse(textwrap.dedent(inspect.getsource(self.function))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        arguments = [(name, parameter.annotation) for name, parameter in self.signature.parameters.items()]
        arguments[0] = arguments[0][0], self.cls
        for name, kind in arguments:
            self.locals[name] = int if kind is bool else kind
            self.emit(f"llvm.store %arg_{name}, %var_{name} : {self.passed(kind)}, !llvm.ptr")
        self.block(tree.body)
        if not self.ended:
            self.emit("llvm.return" if self.result is type(None) else "llvm.unreachable")
        slots = [f"  %var_{name} = llvm.alloca %one x {self.passed(kind)} : (i64) -> !llvm.ptr"
                 for name, kind in self.locals.items()]
        listed = ", ".join([f"%arg_{name}: {self.passed(kind)}" for name, kind in arguments])
        result = "" if self.result is type(None) else f" -> {self.passed(self.result)}"
        return "\n".join([f'llvm.func internal @"{symbol(self.cls, self.name)}"({listed}){result} {{',
                          "  %one = llvm.mlir.constant(1 : i64) : i64", *slots, *self.lines, "}"])

    @staticmethod
    def passed(kind: Type) -> str:
        """Return the type that a value has in memory and as an argument or result, where a truth value is an
        integer."""
        return "i64" if kind is bool else mlir_type(kind)

    def emit(self, line: str) -> None:
        self.lines.append("  " + line)

    def new(self, operation: str, kind: Type) -> TypedValue:
        self.number += 1
        name = f"%v{self.number}"
        self.emit(f"{name} = {operation}")
        return TypedValue(name, kind)

    def label(self) -> str:
        self.number += 1
        return f"^b{self.number}"

    def start(self, label: str) -> None:
        """Start a block. If the current block has no terminator, branch to the new one."""
        self.branch(label)
        self.lines.append(f"{label}:")
        self.ended = False

    def branch(self, label: str) -> None:
        if not self.ended:
            self.emit(f"llvm.br {label}")
            self.ended = True

    def refuse(self, node: ast.AST) -> InternalError:
        return InternalError(f"{symbol(self.cls, self.name)} cannot be compiled: {ast.unparse(node)}")

    # -- statements ----------------------------------------------------------------------------------------------------
    def block(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self.ended:
                raise self.refuse(statement)            # the statement is unreachable
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, [self.expression(value) for value in values]):
                    self.assign(target, value)
            case ast.Assign(targets=targets, value=expression):
                value = self.expression(expression)
                for target in targets:
                    self.assign(target, value)
            case ast.AugAssign(target=target, op=op, value=expression):
                self.assign(target, self.binary(op, self.expression(target), self.expression(expression), node))
            case ast.If(test=test, body=body, orelse=orelse):
                self.branches(test, lambda: self.block(body), lambda: self.block(orelse))
            case ast.While(test=test, body=body, orelse=[]):
                self.loop(test, body)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=args), body=body,
                         orelse=[]):
                self.counted(name, args, body)
            case ast.Return(value=expression):
                self.leave(expression)
            case ast.Break() | ast.Continue():
                self.branch(self.loops[-1][isinstance(node, ast.Break)])
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value=ast.Call() as call):
                self.expression(call)
            case _:
                raise self.refuse(node)

    def leave(self, expression: ast.expr | None) -> None:
        if expression is None:
            self.emit("llvm.return")
        else:
            value = self.converted(self.expression(expression), self.result)
            self.emit(f"llvm.return {value.name} : {self.passed(self.result)}")
        self.ended = True

    def branches(self, test: ast.expr, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        yes, no, after = self.label(), self.label(), self.label()
        self.condition(test, yes, no)
        reached = False
        for label, write in ((yes, then), (no, otherwise)):
            self.ended = True
            self.start(label)
            write()
            reached |= not self.ended
            self.branch(after)
        if reached:
            self.ended = True
            self.start(after)

    def loop(self, test: ast.expr, body: Sequence[ast.stmt]) -> None:
        head, inside, after = self.label(), self.label(), self.label()
        self.start(head)
        self.condition(test, inside, after)
        with self.inside(head, after):
            self.start(inside)
            self.block(body)
            self.branch(head)
        self.start(after)

    def counted(self, name: str, args: Sequence[ast.expr], body: Sequence[ast.stmt]) -> None:
        """Write a loop over ``range(end)``, ``range(begin, end)`` or ``range(begin, end, -1)``."""
        values = [self.converted(self.expression(arg), int) for arg in args]
        begin = values[0] if len(values) > 1 else self.constant(0)
        end, down = values[min(1, len(values) - 1)], len(values) == 3
        if down and ast.unparse(args[2]) != "-1":
            raise self.refuse(args[2])
        counter = f"{name}.next{self.number}"           # the body may assign to the loop variable
        self.store(counter, begin)
        head, inside, after = self.label(), self.label(), self.label()
        self.start(head)
        index = self.load(counter)
        more = self.new(f'llvm.icmp "{"sgt" if down else "slt"}" {index.name}, {end.name} : i64', bool)
        self.emit(f"llvm.cond_br {more.name}, {inside}, {after}")
        with self.inside(head, after):
            self.start(inside)
            self.store(name, index)
            self.store(counter, self.new(f"llvm.add {index.name}, {self.constant(-1 if down else 1).name} : i64", int))
            self.block(body)
            self.branch(head)
        self.start(after)

    @contextmanager
    def inside(self, head: str, after: str) -> Iterator[None]:
        self.ended = True
        self.loops.append((head, after))
        yield
        self.loops.pop()
        self.ended = True

    # -- memory --------------------------------------------------------------------------------------------------------
    def assign(self, target: ast.expr, value: TypedValue) -> None:
        match target:
            case ast.Name(id=name):
                self.store(name, value)
            case ast.Attribute() | ast.Subscript():
                address, kind = self.address(target)
                value = self.converted(value, kind)
                self.emit(f"llvm.store {value.name}, {address} : {self.passed(kind)}, !llvm.ptr")
            case _:
                raise self.refuse(target)

    def store(self, name: str, value: TypedValue) -> None:
        kind = self.locals.setdefault(name, int if value.type is bool else value.type)
        value = self.converted(value, kind)
        self.emit(f"llvm.store {value.name}, %var_{name} : {self.passed(kind)}, !llvm.ptr")

    def load(self, name: str) -> TypedValue:
        kind = self.locals[name]
        return self.new(f"llvm.load %var_{name} : !llvm.ptr -> {self.passed(kind)}", kind)

    def address(self, node: ast.expr) -> tuple[str, Type]:
        """Return the address and the type of a field or of an element."""
        if isinstance(node, ast.Attribute):
            record = self.expression(node.value)
            fields = fields_of(record.type)
            if node.attr not in fields:
                raise self.refuse(node)
            at = f"llvm.getelementptr {record.name}[{list(fields).index(node.attr)}] : (!llvm.ptr) -> !llvm.ptr, i64"
            return self.new(at, int).name, fields[node.attr]
        assert isinstance(node, ast.Subscript)
        array, index = self.expression(node.value), self.converted(self.expression(node.slice), int)
        element = element_of(array.type)
        if element is None:
            raise self.refuse(node)
        at = f"llvm.getelementptr {array.name}[{index.name}] : (!llvm.ptr, i64) -> !llvm.ptr, i64"
        return self.new(at, int).name, element

    # -- expressions ---------------------------------------------------------------------------------------------------
    def constant(self, number: float) -> TypedValue:
        if isinstance(number, float):
            bits = struct.unpack("<Q", struct.pack("<d", number))[0]
            return self.new(f"llvm.mlir.constant(0x{bits:016X} : f64) : f64", float)
        return self.new(f"llvm.mlir.constant({int(number)} : i64) : i64", int)

    def converted(self, value: TypedValue, kind: Type) -> TypedValue:
        """Return a value as another type."""
        if value.type is bool and kind is not bool:
            value = self.new(f"llvm.zext {value.name} : i1 to i64", int)
        if value.type is int and kind is float:
            return self.new(f"llvm.sitofp {value.name} : i64 to f64", float)
        return value

    def expression(self, node: ast.expr) -> TypedValue:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return self.constant(number)
            case ast.Name(id=name):
                if name in self.locals:
                    return self.load(name)
                return self.constant(self.function.__globals__[name])
            case ast.Attribute() | ast.Subscript():
                address, kind = self.address(node)
                return self.new(f"llvm.load {address} : !llvm.ptr -> {self.passed(kind)}",
                                int if kind is bool else kind)
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.expression(left), self.expression(right), node)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return self.constant(-number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.binary(ast.Sub(), self.constant(0), self.expression(operand), node)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self.binary(ast.BitXor(), self.constant(-1), self.expression(operand), node)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self.chosen(node, lambda: self.constant(1), lambda: self.constant(0))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.chosen(test, lambda: self.expression(body), lambda: self.expression(orelse))
            case ast.Call(keywords=[]):
                return self.call(node)
        raise self.refuse(node)

    def chosen(self, test: ast.expr, body: Callable[[], TypedValue], orelse: Callable[[], TypedValue]) -> TypedValue:
        """Return one of two values. Only the chosen one is computed."""
        self.number += 1
        name = f"chosen{self.number}"
        self.branches(test, lambda: self.store(name, body()), lambda: self.store(name, orelse()))
        return self.load(name)

    def condition(self, test: ast.expr, yes: str, no: str) -> None:
        """Go to the block ``yes`` if a condition holds, else to ``no``."""
        match test:
            case ast.BoolOp(op=op, values=values):
                for value in values[:-1]:
                    next_test = self.label()
                    self.condition(value, *((next_test, no) if isinstance(op, ast.And) else (yes, next_test)))
                    self.start(next_test)
                self.condition(values[-1], yes, no)
                return
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.condition(operand, no, yes)
                return
            case ast.Compare(left=left, ops=[*ops], comparators=[*operands]):
                bit = self.compared(left, ops, operands)
            case _:
                truth = self.expression(test)
                if truth.type is not int:
                    raise self.refuse(test)
                bit = f'llvm.icmp "ne" {truth.name}, {self.constant(0).name} : i64'
        self.emit(f"llvm.cond_br {self.new(bit, bool).name}, {yes}, {no}")
        self.ended = True

    def compared(self, left: ast.expr, ops: Sequence[ast.cmpop], operands: Sequence[ast.expr]) -> str:
        """Return the operation that compares a chain of values, all of which are computed."""
        values = [self.expression(node) for node in (left, *operands)]
        bits = []
        for op, a, b in zip(ops, values, values[1:]):
            kind = float if float in (a.type, b.type) else int
            a, b, predicate = self.converted(a, kind), self.converted(b, kind), PREDICATES[type(op)]
            if kind is float:
                bits.append(f'llvm.fcmp "{"une" if predicate == "ne" else "o" + predicate}" {a.name}, {b.name} : f64')
            else:
                sign = "" if predicate in ("eq", "ne") else "s"
                bits.append(f'llvm.icmp "{sign}{predicate}" {a.name}, {b.name} : i64')
        while len(bits) > 1:
            first, second = (self.new(bit, bool).name for bit in bits[:2])
            bits[:2] = [f"llvm.and {first}, {second} : i1"]
        return bits[0]

    def binary(self, op: ast.operator, left: TypedValue, right: TypedValue, node: ast.AST) -> TypedValue:
        kind = float if float in (left.type, right.type) or isinstance(op, ast.Div) else int
        left, right = self.converted(left, kind), self.converted(right, kind)
        names = FLOAT if kind is float else INTEGER
        if type(op) in names:
            return self.new(f"llvm.{names[type(op)]} {left.name}, {right.name} : {mlir_type(kind)}", kind)
        # division and remainder of numbers that are not negative
        if kind is int and isinstance(op, (ast.FloorDiv, ast.Mod)):
            name = "sdiv" if isinstance(op, ast.FloorDiv) else "srem"
            return self.new(f"llvm.{name} {left.name}, {right.name} : i64", int)
        raise self.refuse(node)

    def call(self, node: ast.Call) -> TypedValue:
        match node.func:
            case ast.Name(id="min" | "max" as name):
                return self.extreme(name, [self.expression(arg) for arg in node.args])
            case ast.Name(id=name) if name in EXTERNAL:
                values = [self.converted(self.expression(arg), float).name for arg in node.args]
                return self.new(f"llvm.call @{EXTERNAL[name]}({', '.join(values)}) : "
                                f"({', '.join(['f64'] * len(values))}) -> f64", float)
            case ast.Attribute(value=operand, attr="bit_length"):
                zeros = self.new(f'"llvm.intr.ctlz"({self.expression(operand).name}) <{{is_zero_poison = false}}> : '
                                 f"(i64) -> i64", int)
                return self.new(f"llvm.sub {self.constant(64).name}, {zeros.name} : i64", int)
            case ast.Attribute(value=owner, attr=name):
                return self.method_call(self.expression(owner), name, node)
        raise self.refuse(node)

    def extreme(self, name: str, values: Sequence[TypedValue]) -> TypedValue:
        """Return the least or the greatest of two values, the first of equal ones."""
        first, second = values
        kind = float if float in (first.type, second.type) else int
        first, second = self.converted(first, kind), self.converted(second, kind)
        predicate = "lt" if name == "min" else "gt"
        compared = f'llvm.fcmp "o{predicate}"' if kind is float else f'llvm.icmp "s{predicate}"'
        bit = self.new(f"{compared} {second.name}, {first.name} : {mlir_type(kind)}", bool)
        return self.new(f"llvm.select {bit.name}, {second.name}, {first.name} : i1, {mlir_type(kind)}", kind)

    def method_call(self, owner: TypedValue, name: str, node: ast.Call) -> TypedValue:
        assert isinstance(owner.type, type)
        signature = inspect.signature(getattr(owner.type, name))
        kinds = [int if p.annotation is bool else p.annotation for p in list(signature.parameters.values())[1:]]
        values = [self.converted(self.expression(arg), kind) for arg, kind in zip(node.args, kinds, strict=True)]
        self.called.append((owner.type, name))
        result: Type = signature.return_annotation or type(None)
        passed = "()" if result is type(None) else self.passed(result)
        text = (f'llvm.call @"{symbol(owner.type, name)}"({", ".join([owner.name, *[v.name for v in values]])}) : '
                f"({', '.join(['!llvm.ptr', *[self.passed(kind) for kind in kinds]])}) -> {passed}")
        if result is type(None):
            self.emit(text)
            return TypedValue("", result)
        return self.new(text, int if result is bool else result)
