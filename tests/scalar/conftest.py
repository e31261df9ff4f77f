# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compile expansions: each becomes a loop that applies it to arrays, many of them in one module."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from nki_mlir.bindings import ir, load
from nki_mlir.scalar.dtypes import DType, storage_type
from nki_mlir.scalar.emit import ScalarEmitter

COUNT = 2048                    # elements that one call handles
VECTOR = 16

PIPELINE = (
    "builtin.module(canonicalize,cse,convert-vector-to-scf,convert-scf-to-cf,convert-math-to-llvm,"
    "expand-strided-metadata,convert-vector-to-llvm,finalize-memref-to-llvm,convert-arith-to-llvm,"
    "convert-index-to-llvm,convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},convert-cf-to-llvm,"
    "reconcile-unrealized-casts)"
)


class Loops:
    """A module of functions, each a loop that applies one expansion to arrays of ``COUNT`` elements."""

    def __init__(self) -> None:
        self.context = ir.Context()
        self.location = ir.Location.unknown(self.context)
        self.outputs: dict[str, DType] = {}
        self.addresses: dict[str, Any] = {}
        with self.context, self.location:
            self.module = ir.Module.create()

    def add(self, name: str, inputs: Sequence[DType], output: DType, build: Callable[..., Any], lanes: int) -> None:
        """A function ``name``; ``build(e, *values)`` gives the result. ``lanes`` of 1 is the scalar form."""
        arith, func, memref, scf, vector = (load(f"dialects.{n}") for n in ("arith", "func", "memref", "scf", "vector"))
        self.outputs[name] = output
        with self.context, self.location, ir.InsertionPoint(self.module.body):
            elements = [ir.Type.parse(storage_type(d)) for d in (*inputs, output)]
            function = func.FuncOp(name, ([ir.MemRefType.get([COUNT], t) for t in elements], []))
            *sources, target = function.add_entry_block().arguments
            with ir.InsertionPoint(function.entry_block):
                index = [arith.ConstantOp(ir.IndexType.get(), n).result for n in (0, COUNT, lanes)]
                loop = scf.ForOp(*index)
                func.ReturnOp([])
            with ir.InsertionPoint(loop.body):
                at = [loop.induction_variable]
                if lanes == 1:
                    memref.store(build(ScalarEmitter(), *(memref.load(s, at) for s in sources)), target, at)
                else:
                    types = [ir.VectorType.get([lanes], t) for t in elements]
                    values = [vector.load(t, s, at) for t, s in zip(types, sources)]
                    vector.store(build(ScalarEmitter(), *values), target, at)
                scf.YieldOp([])

    def compile(self) -> "Loops":
        with self.context:
            self.module.operation.verify()
            load("passmanager").PassManager.parse(PIPELINE).run(self.module.operation)
            self.engine = load("execution_engine").ExecutionEngine(self.module, opt_level=0)   # the level of the product
        return self

    def __call__(self, name: str, *arrays: np.ndarray) -> np.ndarray:
        """Apply the function ``name`` to one-dimensional arrays of any length."""
        if name not in self.addresses:          # the packed form: an array of pointers to the arguments
            self.addresses[name] = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.engine.raw_lookup(name))
        size = arrays[0].size
        padded = -(-size // COUNT) * COUNT
        sources = [np.resize(a, padded) for a in arrays]
        result = np.empty(padded, self.outputs[name].numpy)
        for start in range(0, padded, COUNT):
            parts = [a[start:start + COUNT] for a in (*sources, result)]
            pointers = np.array([p.ctypes.data for p in parts], np.uintp)
            packed = pointers.ctypes.data + np.arange(len(parts), dtype=np.uintp) * np.uintp(pointers.itemsize)
            self.addresses[name](packed.ctypes.data)
        return result[:size]


@pytest.fixture(scope="session")
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
