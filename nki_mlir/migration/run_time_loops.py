# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites loops whose condition the device computes: the condition is in a register, and the body is a function.

before:  going = nt.scalar(True)                after:  going = nisa.register_alloc(1)
         while going:
             left[...] = nl.subtract(left, 1)           def repeat(going):
             going = nt.scalar(left)                        nisa.tensor_scalar(dst=left, data=left, ...)
                                                            nisa.register_load(dst=going, src=left)
                                                            return going

                                                        nl.while_loop(going, repeat)
"""

import ast
from dataclasses import dataclass

import libcst as cst

from nki_mlir.migration.elementwise import INTEGERS
from nki_mlir.migration.facts import PSUM, Fact, TensorFact
from nki_mlir.migration.names import parsed
from nki_mlir.migration.parameters import bound_names
from nki_mlir.migration.statements import Statements


@dataclass(frozen=True)
class RegisterFact(Fact):
    """A register that has the condition of a loop."""


class RunTimeLoops(Statements):
    """Rewrites conditions that are ``nt.scalar``, and loops over them."""

    def assign(self, target: cst.BaseExpression, value: cst.BaseExpression,
               other_targets: list[cst.BaseAssignTargetExpression]) -> list[str] | None:
        """Rewrite ``target = nt.scalar(value)`` and other assignments."""
        match target, value:
            case cst.Name(value=name), cst.Call(func=function, args=[cst.Arg(value=condition)]) if (
                    self.names.meaning(function) == "nt.scalar" and not other_targets):
                return self._register(name, condition)
        return super().assign(target, value, other_targets)

    def _register(self, name: str, condition: cst.BaseExpression) -> list[str]:
        """Return the statement that creates a register for the first condition, or loads a later one into it."""
        if isinstance(condition, cst.Name) and condition.value == "True":
            self.bind(name, RegisterFact())
            self.report.changed(self.line, "the condition that the device computes is in a register")
            return [f"{name} = {self.nisa}.register_alloc(1)"]
        if not isinstance(self.scope.facts.get(name), RegisterFact):
            self.reject("nt.scalar whose first value is not True: keep the condition in a register "
                        "(nisa.register_load), and loop by nl.while_loop")
        tile = self.rewritten(condition)
        fact, text = self.fact(tile), self.text(tile)
        if not isinstance(fact, TensorFact) or fact.shape != ("1", "1"):
            self.reject("nt.scalar of a value that the text does not show to be a tile of one element")
        if fact.dtype not in INTEGERS:          # a register has the bits of a float
            text = f"{self.nl}.not_equal({text}, 0, dtype={self.nl}.int32)"
        elif fact.memory == PSUM:
            text = f"{self.nl}.copy({text})"
        return [f"{self.nisa}.register_load(dst={name}, src={text})"]

    def statement(self, node: cst.BaseStatement) -> list[cst.BaseStatement]:
        """Return the statements that replace one statement."""
        match node:
            case cst.While(test=cst.Name(value=name)) if isinstance(self.scope.facts.get(name), RegisterFact):
                return self._while_loop(node, name)
        return super().statement(node)

    def _while_loop(self, node: cst.While, condition: str) -> list[cst.BaseStatement]:
        tree = ast.parse(self._source(node.body))
        if node.orelse is not None or any(isinstance(n, ast.Break | ast.Continue | ast.Return) for n in ast.walk(tree)):
            self.reject("a loop over nt.scalar with else, break, continue or return")
        if rebound := sorted(name for name in bound_names(tree) if name != condition and name in self.scope.facts):
            self.reject(f"a loop over nt.scalar that assigns {rebound[0]} anew: update it in place")
        name = self.fresh_name("repeat")
        body = self._loop_body(node.body)
        function, call = parsed(f"def {name}({condition}):\n    return {condition}\n{self.nl}.while_loop({condition}, "
                                f"{name})")
        assert isinstance(function, cst.FunctionDef) and isinstance(body, cst.IndentedBlock)
        self.report.changed(self.line, "the loop over a condition of the device becomes nl.while_loop")
        function = function.with_changes(body=body.with_changes(body=[*body.body, *function.body.body]),
                                         leading_lines=node.leading_lines)
        return [function, call]
