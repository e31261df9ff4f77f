# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops and branches, and the buffers of a function."""

import numpy as np

from nki_mlir.bindings import Operation
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.access import HBM
from nki_mlir.dialects.buffer_types import global_array, memref_parts
from nki_mlir.dialects.creation import terminator
from nki_mlir.dialects.mlir_ops import is_tile_op
from nki_mlir.targets.interpreter.module import Env, FunctionCompiler, Step, executes
from nki_mlir.targets.interpreter.unwritten import tracked


@executes("scf.for")
def _loop(code: FunctionCompiler, op: Operation) -> Step:
    if len(op.results):
        raise Unsupported(feature="'scf.for' with loop-carried values", instead="keep them in a buffer")
    low, high, by = (code.slot(v) for v in list(op.operands)[:3])
    block = op.regions[0].blocks[0]
    variable, body = code.slot(block.arguments[0]), code.block(block)

    def run(env: Env) -> None:
        for i in range(env[low], env[high], env[by]):
            env[variable] = i
            for step in body:
                step(env)
    return run


@executes("scf.while")
def _while(code: FunctionCompiler, op: Operation) -> Step:
    if len(op.results) or len(op.operands):
        raise Unsupported(feature="'scf.while' with loop-carried values", instead="keep them in a buffer")
    before, after = (r.blocks[0] for r in op.regions)
    test = code.block(before)
    holds = code.slot(terminator(before).operands[0])
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


@executes("scf.if")
def _branch(code: FunctionCompiler, op: Operation) -> Step:
    condition = code.slot(op.operands[0])
    then, otherwise = ([s for b in r.blocks for s in code.block(b)] for r in op.regions)

    def run(env: Env) -> None:
        for step in then if env[condition] else otherwise:
            step(env)
    return run


@executes("scf.yield", "scf.condition", "func.return", "memref.dealloc")
def _nothing(code: FunctionCompiler, op: Operation) -> None:
    return None


@executes("memref.alloc", "memref.alloca")
def _allocation(code: FunctionCompiler, op: Operation) -> Step:
    result = op.result
    shape, dtype, space = memref_parts(result.type)
    out = code.slot(result)
    if space == HBM and all(is_tile_op(use.owner) for use in result.uses):
        name = op.attributes["nki.name"].value if "nki.name" in op.attributes else ""
        return lambda env: env.__setitem__(out, tracked(np.zeros(shape, dtype.numpy), name))
    return lambda env: env.__setitem__(out, np.zeros(shape, dtype.numpy))


@executes("memref.get_global")
def _get_global(code: FunctionCompiler, op: Operation) -> Step:
    out, array = code.slot(op.results[0]), global_array(op)
    return lambda env: env.__setitem__(out, array)
