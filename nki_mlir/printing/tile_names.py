# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names tiles that the source does not name, such as those of graphs, after the operation that writes them first."""

from nki_mlir.dialects.nisa.movement import DmaCopyOp
from nki_mlir.dialects.op import Op

NOUNS = {"add": "added", "subtract": "difference", "multiply": "multiplied", "divide": "quotient", "maximum": "larger",
         "minimum": "smaller", "equal": "is_equal", "not_equal": "is_not_equal", "less": "is_less",
         "less_equal": "is_less_equal", "greater": "is_greater", "greater_equal": "is_greater_equal",
         "left_shift": "shifted", "right_shift": "shifted", "bitwise_and": "bits", "bitwise_or": "bits",
         "bitwise_xor": "bits", "copy": "copied", "abs": "magnitude", "pow": "power",
         "logical_not": "is_not", "is_finite": "finite"}
REDUCTIONS = {"add": "total", "maximum": "largest", "minimum": "smallest", "average": "mean", "multiply": "product"}
INSTRUCTIONS = {"nc_matmul": "product", "nc_matmul_double_row": "product", "nc_matmul_mx": "product",
                "matmul": "product", "nc_transpose": "transposed", "nc_matmul_transpose": "transposed",
                "transpose": "transposed", "dma_transpose": "transposed", "max8": "largest", "topk": "largest",
                "nc_find_index8": "indices", "nc_match_replace8": "replaced", "nc_stream_shuffle": "shuffled",
                "sequence_bounds": "bounds", "sendrecv": "received", "bn_stats": "statistics", "bn_aggr": "moments",
                "gather_columns": "gathered", "gather_flattened": "gathered", "local_gather": "gathered",
                "dropout": "kept", "rand": "random", "rng": "random", "memset": "filled", "iota": "numbers",
                "tensor_copy_predicated": "selected", "tensor_copy": "copied", "copy": "copied",
                "dynamic_read": "copied", "reciprocal": "reciprocal", "tensor_tensor_scan": "scanned",
                "dma_gather": "gathered"}


def name_of_result(op: Op, source: str, is_part: bool = False) -> str:
    """Return a name for the result of an operation, or for the tensor of which it writes a part; ``source`` is the name
    of the tensor that it copies, or "" ."""
    instruction = op.full_name().partition(".")[2]
    if instruction in ("dma_copy", "load") and source:
        return f"{source}_tiles" if is_part else f"{source}_tile"
    if isinstance(op, DmaCopyOp) and op.src.on_chip:
        return "staged"
    if instruction in INSTRUCTIONS:
        return INSTRUCTIONS[instruction]
    if "select" in instruction:
        return "selected"
    if instruction.endswith("reduce"):
        return REDUCTIONS.get(getattr(op, "op", ""), "reduced")
    last = getattr(op, "op1", "bypass")
    operator = last if last != "bypass" else getattr(op, "op0", getattr(op, "op", getattr(op, "fn", "")))
    name = NOUNS.get(operator, operator) if isinstance(operator, str) else ""
    return name if name.isidentifier() and name != "bypass" else "tile"
