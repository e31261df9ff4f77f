# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The signature of a kernel in IR, and everything that can be wrong with one."""

from typing import Any

import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.kernel_function import BadSignature, KernelFunction, kernel_functions, the_kernel
from nki_mlir.scalar.dtypes import FLOAT32, UINT8

from .samples import context

FUNCTION = """func.func @{name}(%a: memref<4x6xf32, "hbm"> {{nki.name = "image"}},
    %b: memref<8xui8, "hbm"> {{{shared}}}, %i: {index} {{{program}}}, %c: {kind} {{{mark}}})
    attributes {{{attributes}}} {{ return }}"""
USUAL = {"name": "kernel", "shared": "nki.shared = 0", "index": "index", "program": "nki.program_id = 1",
         "kind": 'memref<6xf32, "hbm">', "mark": "", "attributes": "nki.grid = [2, 3], nki.results = [1]"}


def functions(**changes: str) -> list[KernelFunction]:
    """The functions of a module with one kernel; they stay valid as long as the module is kept in their ``op``."""
    with context():
        module = ir.Module.parse(FUNCTION.format(**(USUAL | changes)))
        KEPT.append(module)
        return kernel_functions(module)


KEPT: list[Any] = []


def test_signature__is_read() -> None:
    (kernel,) = functions()
    assert (kernel.name, kernel.grid, kernel.results, kernel.target) == ("kernel", (2, 3), (1,), "trn2")
    assert [(a.kind, a.index, a.name, a.shape, a.dtype) for a in kernel.arguments] == [
        ("input", 0, "image", (4, 6), FLOAT32), ("shared", 0, "arg1", (8,), UINT8), ("program_id", 1, "arg2", (), None),
        ("input", 1, "arg3", (6,), FLOAT32)]
    assert [a.name for a in kernel.inputs] == ["image", "arg3"] and [a.name for a in kernel.shared] == ["arg1"]


def test_target_and_function__are_those_named() -> None:
    both = "func.func @a() { return } func.func @b() { return } func.func private @c()"
    with context():
        module = ir.Module.parse(f'module attributes {{nki.target = "trn3"}} {{ {both} }}')
    assert the_kernel(module, "b").target == "trn3"
    with pytest.raises(BadSignature, match=r"the module has 2 functions \(a, b\); say which one to use"):
        the_kernel(module)
    with pytest.raises(BadSignature, match=r"the module has 2 functions \(a, b\)"):
        the_kernel(module, "c")


@pytest.mark.parametrize("inside, text", [
    ("", "the module has no function"), ("func.func private @c()", "the module has no function"),
    ("module {}", "the module has no function but modules: nki-opt reads several with --split-input-file")])
def test_module_without_a_function(inside: str, text: str) -> None:
    with context():
        module = ir.Module.parse(f"module {{ {inside} }}")
    with pytest.raises(BadSignature) as caught:
        the_kernel(module)
    assert caught.value.headline == text


WRONG = [
    ({"kind": "f32"}, "argument 3 of @kernel has type f32, not a memref of static shape"),
    ({"kind": 'memref<?xf32, "hbm">'},
     'argument 3 of @kernel has type memref<?xf32, "hbm">, not a memref of static shape'),
    ({"kind": 'memref<6xf64, "hbm">'},
     'argument 3 of @kernel has type memref<6xf64, "hbm">, not a memref of static shape'),
    ({"program": ""}, "argument 2 of @kernel has type index, not a memref of static shape"),
    ({"program": "nki.program_id = 2"},
     "argument 2 of @kernel has type index and is marked nki.program_id = 2, with a grid of 2 axes"),
    ({"program": "nki.program_id = -1"},
     "argument 2 of @kernel has type index and is marked nki.program_id = -1, with a grid of 2 axes"),
    ({"index": "f32"}, "argument 2 of @kernel has type f32 and is marked nki.program_id = 1, with a grid of 2 axes"),
    ({"kind": "index", "attributes": "nki.grid = [2, 3]", "mark": "nki.program_id = 1"},
     "program ids of @kernel are of axes [1, 1], which must differ"),
    ({"program": 'nki.program_id = "x"'}, "attribute 'nki.program_id' is \"x\", which must be an integer (@kernel)"),
    ({"shared": "nki.shared = 1"}, "nki.shared of @kernel counts [1], which must be 0, 1, ... once each"),
    ({"shared": "nki.shared"}, "attribute 'nki.shared' is unit, which must be an integer (@kernel)"),
    ({"shared": "nki.name = 5"}, "attribute 'nki.name' is 5 : i64, which must be a string (@kernel)"),
    ({"attributes": "nki.grid = [2, 3], nki.results = [4]"}, "nki.results of @kernel names arguments [4] of 4"),
    ({"attributes": "nki.grid = [2, 3], nki.results = [-1]"}, "nki.results of @kernel names arguments [-1] of 4"),
    ({"attributes": "nki.grid = [2, 0]"}, "nki.grid of @kernel is [2, 0]; every extent must be 1 or more"),
    ({"attributes": "nki.grid = 2"}, "attribute 'nki.grid' is 2 : i64, which must be an array of integers (@kernel)"),
    ({"attributes": "nki.grid = [2, 3], nki.results = [1.5]"},
     "attribute 'nki.results' is [1.500000e+00], which must be an array of integers (@kernel)"),
]


@pytest.mark.parametrize(("changes", "text"), WRONG)
def test_wrong_signature(changes: dict[str, str], text: str) -> None:
    with pytest.raises(BadSignature) as caught:
        functions(**changes)
    assert caught.value.headline == text
    assert str(caught.value).startswith("-:1:1: error: ")
    assert "fix: write the kernel as a func.func of HBM memrefs" in str(caught.value)


def test_wrong_target() -> None:
    with context():
        module = ir.Module.parse("module attributes {nki.target = 5} { func.func @a() { return } }")
    with pytest.raises(BadSignature) as caught:
        kernel_functions(module)
    assert caught.value.headline == "attribute 'nki.target' is 5 : i64, which must be a string (the module)"
