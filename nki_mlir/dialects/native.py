# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ``native`` dialect: what upstream's dialects cannot say of a kernel for the CPU.

Passes of the CPU write a kernel function with ``func``, ``scf``, ``memref``, ``arith``, ``affine`` and ``linalg``. The
dialect adds five operations, and marks on operations of those dialects:

- ``native.check`` fails if an index is below 0, ``native.check_limits`` if one of its ``limits`` is below 0 at an
  element of ``extents`` where ``mask`` holds. ``rule`` and ``values`` describe the error.
- ``native.packed_product`` multiplies panels of rows by panels of columns, in the order in which register tiles read
  them. ``panels`` counts both, ``sizes`` has the rows and columns of a panel, ``depth`` the words of the summed axis,
  ``line`` the elements between rows of the result, ``tile`` the rows and vectors of a register tile, ``unit`` the
  instruction. If it is ``fresh``, sums start from 0, else from the result.
- ``native.table`` is the table of a function of all 16-bit floats, in the order of their bits. Its region computes the
  function, as the last value. In the body of a nest, ``native.lookup`` returns the element of a table, an input, at the
  bits of a value; ``fn`` names it. If the name begins with ``fitted_``, polynomials after the elements of the table
  compute the element where they can.

| mark | on | meaning |
|---|---|---|
| ``native.function`` | ``func.func`` | passes of the CPU have written it: nests keep the form that they have |
| ``native.notes`` | ``func.func`` | the choices of passes, with their reasons |
| ``native.zeroed`` | ``memref.alloc`` | the buffer is zeroed |
| ``native.on_pool`` | ``scf.for`` | iterations run on the pool, each with its buffers |
| ``native.spread`` | a nest | the number of equal parts that run on the pool |
| ``native.streams`` | a nest, a gather | outputs that streaming stores write |
| ``native.ahead`` | a nest | inputs that it prefetches, each with the distance in bytes |
| ``native.fields`` | a nest | inputs that lie beside each other are loaded together |
| ``native.words`` | a nest | it loads pairs of bfloat16 as words, whose halves it widens |
| ``native.powers`` | a nest | it computes exp by sixteenths of powers of two, which one instruction selects |
| ``native.zeros`` | a nest | it looks for denormals only where a result of rounding to bfloat16 is 0 |
| ``native.compares`` | a nest | it folds a maximum or minimum of 16-bit floats on their bits |
| ``native.nans`` | a nest | it rounds to bfloat16 without a repair of NaN, where the rounding keeps them |
| ``native.rounds`` | a nest | it rounds values to bfloat16 by the host's instruction, then looks for denormals |
| ``native.dots`` | a nest | it rounds values to bfloat16 by sums of products of 16-bit words |
| ``native.extrema`` | a nest | it computes extrema without repairs of NaN and zeros that no result shows |
| ``native.delays`` | a nest | each iteration rounds to bfloat16 and stores the results of the one before |
| ``native.halves`` | a nest | it computes in registers of 32 bytes |
| ``native.fresh`` | a product, the fill before it | the product starts its sums from 0 in registers |
| ``native.pairs`` | a product | each float32 of its factors stands for two bfloat16 of neighboring positions |
| ``native.next`` | a product | it prefetches the factor of the loop's next product, this many bytes further on |
| ``native.fixed`` | a nest | no later pass changes it |
"""

FUNCTION, NOTES, ZEROED, ON_POOL = "native.function", "native.notes", "native.zeroed", "native.on_pool"
SPREAD, STREAMS, AHEAD, FIELDS = "native.spread", "native.streams", "native.ahead", "native.fields"
FRESH, PAIRS, NEXT, FIXED = "native.fresh", "native.pairs", "native.next", "native.fixed"
WORDS, POWERS, ZEROS = "native.words", "native.powers", "native.zeros"
COMPARES, NANS, ROUNDS, EXTREMA = "native.compares", "native.nans", "native.rounds", "native.extrema"
DOTS, DELAYS, HALVES = "native.dots", "native.delays", "native.halves"
CHECK, CHECK_LIMITS, PACKED_PRODUCT = "native.check", "native.check_limits", "native.packed_product"
TABLE, LOOKUP = "native.table", "native.lookup"

IRDL = """
irdl.dialect @native {
  irdl.operation @check {
    %0 = irdl.is index
    irdl.operands(value: %0)
    %1 = irdl.base "#builtin.string"
    %2 = irdl.base "#builtin.array"
    irdl.attributes {"rule" = %1, "values" = %2}
  }
  irdl.operation @check_limits {
    %0 = irdl.is index
    irdl.operands(symbols: variadic %0)
    %1 = irdl.base "#builtin.string"
    %2 = irdl.base "#builtin.array"
    %3 = irdl.base "#builtin.dense_array"
    %4 = irdl.base "#builtin.integer_set"
    %5 = irdl.base "#builtin.integer_set"
    irdl.attributes {"rule" = %1, "values" = %2, "extents" = %3, "mask" = %4, "limits" = %5}
  }
  irdl.operation @packed_product {
    %0 = irdl.base "!builtin.memref"
    %1 = irdl.base "!builtin.memref"
    %2 = irdl.base "!builtin.memref"
    irdl.operands(rows: %0, columns: %1, result: %2)
    %3 = irdl.base "#builtin.string"
    %4 = irdl.base "#builtin.dense_array"
    %5 = irdl.base "#builtin.dense_array"
    %6 = irdl.base "#builtin.dense_array"
    %7 = irdl.base "#builtin.integer"
    %8 = irdl.base "#builtin.integer"
    %9 = irdl.base "#builtin.integer"
    irdl.attributes {"unit" = %3, "panels" = %4, "sizes" = %5, "tile" = %6, "depth" = %7, "line" = %8, "fresh" = %9}
  }
  irdl.operation @table {
    %0 = irdl.base "!builtin.memref"
    irdl.results(table: %0)
    %1 = irdl.region with size 1
    irdl.regions(function: %1)
  }
  irdl.operation @lookup {
    %0 = irdl.any
    %1 = irdl.any
    irdl.operands(value: %0, table: %1)
    irdl.results(result: %1)
    %2 = irdl.base "#builtin.string"
    irdl.attributes {"fn" = %2}
  }
}
"""
