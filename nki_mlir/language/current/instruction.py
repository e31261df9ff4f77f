# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The decorator of the functions of ``nki.isa``, the handle they return, and the checks of their operators."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, NoReturn

from nki_mlir.capture.builder import Builder, active, current
from nki_mlir.language.current import repeated_calls
from nki_mlir.language.current.calls import CURRENT, shown, table_name
from nki_mlir.language.current.errors import core_rule, invalid, require
from nki_mlir.language.current.memory import VirtualRegister
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.entries import INSTRUCTIONS
from nki_mlir.language.instructions import NoTable
from nki_mlir.language.signatures.binding import bound
from nki_mlir.language.tensor_object import BINARY, UNARY
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.tokens import UnknownToken, alu_token, token_name

ACTIVATION_FUNCTIONS = frozenset((
    "copy", "square", "abs", "sign", "relu", "prelu", "sigmoid", "tanh", "softplus", "mish", "silu", "silu_dx", "gelu",
    "gelu_dx", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "gelu_apprx_sigmoid_dx", "erf", "erf_dx", "exp", "log", "sin",
    "arctan", "sqrt", "rsqrt", "reciprocal"))


class NkiInstruction:
    """The handle of an issued instruction, to order other instructions after it."""

    pass_instead = "pass the tile that the instruction writes, its dst: instructions return no tiles"

    def __init__(self, kind: str, name: str | None, label: str, loops: "tuple[InstructionNumbers, ...]") -> None:
        self.kind, self.name, self.label, self.loops = kind, name, label, loops

    def depends_on(self, *producers: "NkiInstruction") -> "NkiInstruction":
        """Order this instruction after ``producers``, which are in the same dynamic loop or an enclosing one."""
        for producer in producers:
            require(isinstance(producer, NkiInstruction), "depends_on takes instructions",
                    fix="give what instructions return, for example depends_on=[a, b]")
            require(self.loops[:len(producer.loops)] == producer.loops,
                    f"{self.kind} cannot depend on {producer.kind}: no dependency crosses the border of a dynamic loop",
                    fix="order them inside of one loop, or leave the dependency out")
            require(producer.label != self.label, f"{self.kind} cannot depend on itself",
                    fix="give the instructions that must be complete before it starts")
            if (builder := current.get()) is not None:
                builder.order(self.label, producer.label)
        return self

    def __repr__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind

    def _refused(self, *operands: object) -> NoReturn:
        """Raise the error for an operator or subscript of the handle."""
        invalid(f"{self.kind} is an instruction: it returns no tile for operators and subscripts",
                fix=self.pass_instead)

    __getitem__ = _refused


for _method in (*BINARY, *UNARY):
    setattr(NkiInstruction, f"__{_method}__", NkiInstruction._refused)
    if _method in BINARY:
        setattr(NkiInstruction, f"__r{_method}__", NkiInstruction._refused)


class InstructionNumbers:
    """Numbers the instructions of a kernel, or of a dynamic loop's body. Their labels do not depend on how often the
    body's Python runs."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.count = prefix, 0

    def next(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"


def instruction_numbers(builder: Builder) -> InstructionNumbers:
    """Return the numbers for the innermost dynamic loop, or for the kernel."""
    loops: list[InstructionNumbers] = builder.properties.get("dynamic_loops", [])
    return loops[-1] if loops else builder.properties.setdefault("instruction_numbers", InstructionNumbers(""))


def instruction(function: Callable[..., object]) -> Any:
    """Make a function an instruction, which is callable in any release's form and returns its handle. The wrapper
    handles the last parameter, ``name``, and does not pass it to the function."""
    if not hasattr(function, "__signature__"):
        CURRENT.with_defaults(function, table_name(function))
    kind, shown = function.__name__, [*signature(function).parameters.values()]
    repeats = kind in INSTRUCTIONS and INSTRUCTIONS[kind].repeats
    position = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in shown)

    @wraps(function)
    def issue(*arguments: Any, **keywords: Any) -> NkiInstruction:
        builder = active(f"nisa.{kind}")
        name = arguments[position] if len(arguments) > position else keywords.pop("name", None)
        label = instruction_numbers(builder).next()
        if not writes_nothing(kind, arguments, keywords):
            outer, builder.instruction = builder.instruction, builder.instruction or label
            try:
                if repeats:
                    repeated_calls.perform(builder, function, arguments[:position], keywords)
                else:
                    function(*arguments[:position], **keywords)
            finally:
                builder.instruction = outer
        issued = NkiInstruction(kind, name, label, tuple(builder.properties.get("dynamic_loops", ())))
        if name:
            builder.properties.setdefault("named_instructions", {}).setdefault(name, []).append(issued)
        return issued
    name = Parameter("name", Parameter.POSITIONAL_OR_KEYWORD, default=None)
    issue.__signature__ = Signature([*shown[:position], name, *shown[position:]])         # type: ignore[attr-defined]
    return bound(issue, table_name(function), CURRENT)


def writes_nothing(kind: str, arguments: tuple[NkiTensor | VirtualRegister, ...], keywords: dict[str, object]
                   ) -> bool:
    """Return whether the destination is an empty part of a tensor. Operands that are not empty are an error then."""
    dst = keywords.get("dst", arguments[0] if arguments else None)
    if not isinstance(dst, NkiTensor) or 0 not in dst.shape:
        return False
    for value in (*arguments, *keywords.values()):
        if isinstance(value, NkiTensor) and value.size > value.shape[0]:
            invalid(f"{kind} dst of shape {list(dst.shape)} is empty, an operand of shape {list(value.shape)} is not",
                    fix="give both the same shape, or skip the instruction when a part is empty")
    return True


def named(token: object) -> str:
    """Return the text of a value that was passed as an operator, for error messages."""
    return str(getattr(token, "__name__", shown(token)))


TILE_AS_OPERATOR = "the tile is passed as an operator: name the arguments, as in op=nl.exp, data=tile"


def alu(token: object, subject: str) -> str:
    """Return the name of an ALU operator, or raise an error."""
    try:
        return alu_token(token).name
    except UnknownToken as error:
        why, fix = error.advice
        name = token_name(token)
        if isinstance(token, NkiTensor):
            fix = TILE_AS_OPERATOR
        elif name in ACTIVATION_FUNCTIONS:
            fix = f"compute it with nisa.activation, op=nl.{name}"
        invalid(f"{subject}: {named(token)} is not an operator", why, fix, error.code)


def activation_name(token: object, subject: str) -> str:
    """Return the name of an activation function, or raise an error."""
    name = token_name(token)
    if name not in ACTIVATION_FUNCTIONS:
        function = ACTIVATIONS.get(name or "")
        core_rule(function is None or function.native, NoTable, fn=name)
        fix = f"one of nl.: {', '.join(sorted(ACTIVATION_FUNCTIONS))}"
        if isinstance(token, NkiTensor):
            fix = TILE_AS_OPERATOR
        elif name in ALU:
            fix = f"compute it with nisa.tensor_tensor or nisa.tensor_scalar, with the operator nl.{name}"
        invalid(f"{subject}: {named(token)} is not an activation function", fix=fix, code="NKI-OPERATOR")
    return str(name)
