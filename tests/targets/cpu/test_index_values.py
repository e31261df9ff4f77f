# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arithmetic on index values in addresses of native code, against Python's integers and the interpreter."""

from collections.abc import Callable

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.kernel_function import the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.verifier import OutOfBounds
from nki_mlir.targets.interpreter.module import compile_function

from .compiled import compiled

# The offset of a row of 4 elements from the loop's variable i, 0 to 5, and j = 3 i - 4.
OFFSETS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "sum": ("%at = arith.addi %j, %c40 : index", lambda i, j: j + 40),
    "difference": ("%at = arith.subi %c40, %j : index", lambda i, j: 40 - j),
    "difference of variables": ("%d = arith.subi %i, %j : index\n %at = arith.addi %d, %c40 : index",
                                lambda i, j: i - j + 40),
    "multiple": ("%at = arith.muli %i, %c7 : index", lambda i, j: 7 * i),
    "multiple of a constant": ("%at = arith.muli %c7, %i : index", lambda i, j: 7 * i),
    "product": ("%p = arith.muli %j, %i : index\n %at = arith.addi %p, %c40 : index", lambda i, j: i * j + 40),
    "square": ("%at = arith.muli %j, %j : index", lambda i, j: j * j),
    "minimum": ("%m = arith.minsi %j, %i : index\n %at = arith.addi %m, %c7 : index", lambda i, j: min(i, j) + 7),
    "maximum": ("%at = arith.maxsi %j, %i : index", lambda i, j: max(i, j)),
    "maximum with a constant": ("%at = arith.maxsi %j, %c7 : index", lambda i, j: max(j, 7)),
    "bits": ("%at = arith.andi %j, %c7 : index", lambda i, j: j & 7),
    "bits of the other operand": ("%at = arith.andi %c7, %j : index", lambda i, j: j & 7),
    "map": ("%at = affine.apply affine_map<(d0)[s0] -> (d0 * 2 + s0 floordiv 3 + 8)>(%i)[%j]",
            lambda i, j: 2 * i + j // 3 + 8),
    "quotient": ("%at = affine.apply affine_map<(d0) -> (d0 floordiv 4 + 1)>(%j)", lambda i, j: j // 4 + 1),
    "quotient, rounded up": ("%at = affine.apply affine_map<(d0) -> (d0 ceildiv 4 + 1)>(%j)", lambda i, j: -(-j // 4) + 1),
    "remainder": ("%at = affine.apply affine_map<(d0) -> (d0 mod 5)>(%j)", lambda i, j: j % 5),
    "least of several": ("%at = affine.min affine_map<(d0)[s0] -> (d0 + 9, s0 + 9, 12)>(%i)[%j]",
                         lambda i, j: min(i + 9, j + 9, 12)),
    "greatest of several": ("%at = affine.max affine_map<(d0)[s0] -> (d0, s0 + 2, 3)>(%i)[%j]",
                            lambda i, j: max(i, j + 2, 3)),
    "narrower numbers": ("%n = arith.index_cast %j : index to i32\n %c = arith.constant 5 : i32\n"
                         " %s = arith.addi %n, %c : i32\n %at = arith.index_cast %s : i32 to index", lambda i, j: j + 5),
}


def module_of(offset: str) -> str:
    return f"""
!row = memref<4xf32, strided<[1], offset: ?>, "hbm">
func.func @kernel(%x: memref<256xf32, "hbm"> {{nki.name = "x"}},
                  %y: memref<24xf32, "hbm"> {{nki.name = "y", nki.shared = 0 : i64}}) attributes {{nki.results = [1]}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %c7 = arith.constant 7 : index
  %c40 = arith.constant 40 : index
  %c60 = arith.constant 60 : index
  %c511 = arith.constant 511 : index
  scf.for %i = %c0 to %c6 step %c1 {{
    %j = affine.apply affine_map<(d0) -> (3 * d0 - 4)>(%i)
    %to = affine.apply affine_map<(d0) -> (4 * d0)>(%i)
    {offset}
    %t = memref.alloc() : memref<4xf32, "sbuf">
    %a = memref.reinterpret_cast %x to offset: [%at], sizes: [4], strides: [1] : memref<256xf32, "hbm"> to !row
    %b = memref.reinterpret_cast %y to offset: [%to], sizes: [4], strides: [1] : memref<24xf32, "hbm"> to !row
    linalg.copy ins(%a : !row) outs(%t : memref<4xf32, "sbuf">)
    linalg.copy ins(%t : memref<4xf32, "sbuf">) outs(%b : !row)
  }}
  return
}}"""


@pytest.mark.parametrize("case", OFFSETS)
def test_offset__is_that_of_integers(case: str) -> None:
    text, offset = OFFSETS[case]
    x = np.arange(256, dtype=np.float32)
    expected = np.concatenate([x[offset(i, 3 * i - 4):][:4] for i in range(6)])
    with shared_context(), ir.Location.file("<file>", 1, 1):
        module = ir.Module.parse(module_of(text))
        interpreted, native = np.zeros(24, np.float32), np.zeros(24, np.float32)
        compile_function(the_kernel(module))((), [x], [interpreted])
        compiled(module)([x], [native])
    np.testing.assert_array_equal(interpreted, expected)
    np.testing.assert_array_equal(native, expected)


# Numbers that leave the tensor of 256 elements, for which a wrong interval would say that no check is needed.
OUTSIDE = {
    "maximum": "%k = arith.muli %i, %c60 : index\n %at = arith.maxsi %k, %c7 : index",
    "minimum": "%at = arith.minsi %j, %c7 : index",
    "quotient": "%at = affine.apply affine_map<(d0) -> ((d0 * 500 - 4) floordiv 4)>(%i)",
    "remainder": "%at = affine.apply affine_map<(d0) -> (d0 * 64 mod 290)>(%i)",
    "least of several": "%at = affine.min affine_map<(d0)[s0] -> (d0, s0)>(%i)[%j]",
    "greatest of several": "%at = affine.max affine_map<(d0) -> (d0 * 60, 3)>(%i)",
    "difference": "%at = arith.subi %i, %j : index",
    "bits": "%k = arith.muli %i, %c60 : index\n %at = arith.andi %k, %c511 : index",
    "product": "%k = arith.muli %j, %i : index\n %at = arith.muli %k, %c7 : index",
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_offset_beyond_the_tensor__is_an_error(case: str) -> None:
    with shared_context(), ir.Location.file("<file>", 1, 1):
        kernel = compiled(ir.Module.parse(module_of(OUTSIDE[case])))
        with pytest.raises(OutOfBounds, match="exceed dimension size of 256"):
            kernel([np.zeros(256, np.float32)], [np.zeros(24, np.float32)])
