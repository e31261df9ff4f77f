# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documented laws that all generations share: the costs in the reference of ``nki.isa``, release 2.26.

A target's file uses them unless a measurement or a newer document differs. N is the number of elements of a partition.
"""

from nki_mlir.machine.cited import Cited
from nki_mlir.machine.costs import Law


def isa(value: float, function: str, text: str) -> Cited:
    """Return a number of the cost that the reference documents for a function."""
    return Cited(value, f"nki.isa.{function}, cost: {text}")


REDUCING = isa(64, "activation_reduce, tensor_scalar", "MIN_II more with a reduction")
LIKE_ITS_SOURCES = "assumption: one cycle an element, as of every instruction that reads one operand"

FOUR_A_CYCLE = Law(Cited(0.25, "architecture guide of Trainium3, Vector Engine: four elements a cycle"))

VECTOR = {
    "tensor_tensor": Law(isa(2, "tensor_tensor", "2 N")),
    "tensor_tensor.psum": Law(isa(1, "tensor_tensor", "N of one operand in PSUM, one in SBUF")),
    "tensor_tensor.bfloat16": Law(isa(1, "tensor_tensor", "N of sums and products of bfloat16 in SBUF")),
    "tensor_tensor.divide": Law(Cited(10, "assumption: a reciprocal of 8 N, and a product; nki.isa has no quotient")),
    "tensor_scalar": Law(isa(1, "tensor_scalar", "max(MIN_II, N)")),
    "tensor_scalar_reduce": Law(isa(1, "tensor_scalar", "max(MIN_II, N) + MIN_II with a reduction"), fixed=REDUCING),
    "scalar_tensor_tensor": Law(isa(2, "scalar_tensor_tensor", "2 N")),
    "scalar_tensor_tensor.bfloat16": Law(isa(1, "scalar_tensor_tensor", "N of bfloat16, an even number")),
    "tensor_copy": Law(isa(1, "tensor_copy", "max(MIN_II, N)")),
    "dynamic_copy": Law(isa(1, "tensor_copy_dynamic_src", "max(600, N)"),
                        least=isa(600, "tensor_copy_dynamic_src", "max(600, N)")),
    "select": Law(isa(2, "tensor_copy_predicated", "2 N of sources in SBUF")),
    "select.psum": Law(isa(1, "tensor_copy_predicated", "N of one source in PSUM")),
    "tensor_reduce": Law(isa(1, "tensor_reduce", "N")),
    "tensor_reduce.bfloat16": Law(isa(0.5, "tensor_reduce", "N / 2 of bfloat16 in and out, add and max")),
    "scan": Law(isa(2, "tensor_tensor_scan", "2 N")),
    "range_select": Law(isa(1, "range_select", "max(MIN_II, N)")),
    "bn_stats": Law(isa(1, "bn_stats", "max(MIN_II, N)")),
    "bn_aggr": Law(isa(13 / 3, "bn_aggr", "max(MIN_II, 13 N / 3)")),
    "search": Law(isa(1, "max8, nc_find_index8, nc_match_replace8", "max(MIN_II, N); of the last one printed as min")),
    "shuffle": Law(isa(1, "nc_stream_shuffle", "max(MIN_II, N)")),
    "transpose": Law(isa(1, "nc_transpose", "max(MIN_II, N) on the vector engine")),
    "reciprocal": Law(isa(8, "reciprocal", "max(MIN_II, 8 N)")),
    "memset": Law(isa(1, "memset", "max(MIN_II, N)")),
    "memset.fast": Law(isa(0.5, "memset", "max(MIN_II, N / 2) of 0, or of 16 bits")),
    "random": Law(isa(1, "dropout", "max(MIN_II, N)")),
    "elements": Law(Cited(1, LIKE_ITS_SOURCES)),
    "gather": Law(Cited(1, LIKE_ITS_SOURCES)),
    "roots": Law(Cited(4, "assumption: as on the GpSimd engine")),
    "exponential": FOUR_A_CYCLE,
    "quantize": FOUR_A_CYCLE,
}

SCALAR_REDUCING = Law(isa(1, "activation_reduce", "max(MIN_II, N) + MIN_II"), fixed=REDUCING)
SCALAR = {
    "activation_reduce": SCALAR_REDUCING,
    "tensor_scalar_reduce": SCALAR_REDUCING,
    "activation.rounded": Law(
        Cited(6, "assumption: copies to int32 and back, a comparison, a difference, and beyond 2^23 a comparison and a "
              "choice, as the language composes floor, ceil and trunc"),
        fixed=Cited(320, "assumption: each of five more instructions takes MIN_II, 64 cycles")),
    "dynamic_copy": VECTOR["dynamic_copy"],
}
ONE_A_CYCLE = Law(isa(1, "activation", "max(MIN_II, N); the architecture guides: one element a lane and cycle"))

START = isa(150, "iota, affine_select", "150 + N")
GPSIMD = {
    "tensor_tensor": Law(Cited(2, "assumption: two operands through a port of 32 bits a partition and cycle"),
                         fixed=START),
    "roots": Law(Cited(4, "performance guide: rsqrt takes about four times as long as on the scalar engine"),
                 fixed=START),
    "dynamic_copy": VECTOR["dynamic_copy"],
    "across_partitions": Law(Cited(8, "assumption: a core reads the rows of its 16 partitions, two elements a cycle"),
                             fixed=START),
    "sequence_bounds": Law(Cited(4, "assumption: two passes over the ids of one partition, each reads and writes"),
                           fixed=START),
    "call": Law(Cited(1, "the operator's emulation counts cycles"), least=START),
}
GPSIMD_OTHER = Law(isa(1, "iota, affine_select", "150 + N"), fixed=START)
