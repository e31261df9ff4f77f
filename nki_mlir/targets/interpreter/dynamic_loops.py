# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops whose condition is computed at run time."""

from typing import TYPE_CHECKING

from nki_mlir.diagnostics import Unsupported
from nki_mlir.targets.interpreter.steps import Env, Step, executes

if TYPE_CHECKING:
    from nki_mlir.bindings import Operation
    from nki_mlir.targets.interpreter.module import FunctionCompiler


@executes("scf.while")
def _while(code: "FunctionCompiler", op: "Operation") -> Step:
    if len(op.results) or len(op.operands):
        raise Unsupported(feature="'scf.while' with loop-carried values", instead="keep them in a buffer")
    before, after = (r.blocks[0] for r in op.regions)
    test = code.block(before)
    holds = code.slot(list(before.operations)[-1].operation.operands[0])
    body = code.block(after)

    def run(env: Env) -> None:
        while True:
            for step in test:
                step(env)
            if not env[holds]:
                return
            for step in body:
                step(env)
    return run


@executes("scf.condition")
def _condition(code: "FunctionCompiler", op: "Operation") -> None:
    return None
