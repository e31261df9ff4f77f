# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise instructions."""

from nki_mlir.language.entries.entry import SAME, SHAPES, Group, InstructionEntry, Page, Regular

GROUP = Group("elementwise", "Elementwise instructions", {
    "activation": InstructionEntry(
        repeats=True,
        releases="""
        2.20   (op, data, bias=None, scale=1.0, mask=None, dtype=None, **kwargs)
        2.21   (op, data, *, bias=None, scale=1.0, mask=None, dtype=None, **kwargs)
        2.22   (op, data, *, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=0, mask=None, dtype=None,
                **kwargs)
        2.23   (op, data, *, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=reduce_cmd.idle,
                mask=None, dtype=None, **kwargs)
        2.27   (dst, op, data, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=reduce_cmd.idle,
                name=None)
        """,
        page=Page(("activation", "activation_accumulate"), {
            "op": "an activation function, such as nl.exp",
            "reduce_op": "nl.add, or None"},
            "op(data * scale + bias), computed in float32 and rounded once to dst's dtype.",
            "An op that is not an activation function, and a bias or scale that is not [P, 1], are errors."),
        example="""
        x, y: float32[128, 64]
        nisa.activation(dst=y, op=nl.exp, data=x, scale=0.5)
        y == np.exp(0.5 * x)
        """),
    "activate2": InstructionEntry(
        releases="""
        kinds  MAYBE imm0 imm1
        2.30   (dst, op, data, imm0, imm1, op0, op1, relu_param=0.0, reverse0=False, reverse1=False, reduce_op=None,
                reduce_res=None, reduce_cmd=reduce_cmd.idle, name=None)
        """,
        regular=Regular(
            "Compute op((data op0 imm0) op1 imm1); ``reduce_cmd`` can accumulate it in the Scalar engine's registers.",
            {"data": "src"},
            {"imm0": ("operand0", "imm0"), "imm1": ("operand1", "imm1"), "relu_param": ("slope", "alpha")},
            {"op": "fn"}),
        page=Page(("activate2",), {
            "op": "an activation function, such as nl.exp",
            "imm0": "op0's operand; a tile is [P, 1]",
            "imm1": "op1's operand; a tile is [P, 1]",
            "relu_param": "the slope of nl.prelu below 0"},
            "op((data op0 imm0) op1 imm1) in float32, rounded once.",
            "A machine before NeuronCore-v4, and an op that is not an activation function, are errors."),
        example="""
        x, y: float32[128, 64]
        nisa.activate2(dst=y, op=nl.exp, data=x, imm0=0.5, imm1=1.0, op0=nl.multiply, op1=nl.subtract)
        y == np.exp(0.5 * x - 1)
        """),
    "exponential": InstructionEntry(
        releases="""
        2.28   (dst, src, max_value=0.0, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_init=0.0)
        2.29   (dst, src, max_value=0.0, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_init=0.0, name=None)
        """,
        regular=Regular(
            "Compute exp(src - max_value), and add it to the accumulation registers; ``reduce_res`` gets their values.",
            {"src": "src"},
            {"max_value": ("highest", "imm")}),
        commands=("idle", "reduce", "reset_reduce", "load_reduce"),
        page=Page(("exponential",), {
            "max_value": "the number to subtract; a tile is [P, 1] of float32"},
            "exp(src - max_value) in float32, rounded once; the accumulation registers get each row's sum.",
            "A machine before NeuronCore-v4, and reduce_init without load_reduce, are errors."),
        example="""
        x, y: float32[128, 64]
        nisa.exponential(dst=y, src=x, max_value=1.0)
        y == np.exp(x - 1)
        """),
    "tensor_tensor": InstructionEntry(
        repeats=True,
        releases="""
        2.20   (data1, data2, op, dtype=None, mask=None, **kwargs)
        2.21   (data1, data2, op, *, dtype=None, mask=None, **kwargs)
        2.22   (data1, data2, op, *, dtype=None, mask=None, engine=0, **kwargs)
        2.23   (data1, data2, op, *, dtype=None, mask=None, engine=engine.unknown, **kwargs)
        2.27   (dst, data1, data2, op, engine=engine.unknown, name=None)
        """,
        page=Page(("tensor_tensor",), {},
            "data1 op data2 of each element, computed in float32 (bitwise operators: on integers), rounded once.",
            SAME),
        example="""
        a, b, y: float32[128, 64]
        nisa.tensor_tensor(dst=y, data1=a, data2=b, op=nl.multiply)
        y == a * b
        """),
    "tensor_scalar": InstructionEntry(
        repeats=True,
        releases="""
        current MAYBE operand0
        2.20   (data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, dtype=None, mask=None,
                **kwargs)
        2.21   (data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, *, dtype=None, mask=None,
                engine=0, **kwargs)
        2.23   (data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, *, dtype=None, mask=None,
                engine=engine.unknown, **kwargs)
        2.27   (dst, data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False,
                engine=engine.unknown, name=None)
        """,
        page=Page(("tensor_scalar",), {},
            "(data op0 operand0) op1 operand1, computed in float32 and rounded once; data op0 operand0 without op1.",
            "operand1 without op1, and an operand that is neither a number nor [P, 1], are errors."),
        example="""
        x, y: float32[128, 64]
        rows: float32[128, 1]
        nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=rows)
        y == 2 * x + rows
        """),
    "scalar_tensor_tensor": InstructionEntry(
        repeats=True,
        releases="""
        kinds  TILE operand1
        current MAYBE operand0
        2.21   (*, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, dtype=None, mask=None, **kwargs)
        2.27   (dst, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, name=None)
        """,
        regular=Regular(
            "Compute (data op0 operand0) op1 operand1; operand0 is a number or a [P, 1] tile, operand1 a tile.",
            {"data": "src", "operand1": "rhs"}, {"operand0": ("operand0", "imm0")}),
        page=Page(("scalar_tensor_tensor",), {
            "operand1": "[P, F], of data's shape"},
            "(data op0 operand0) op1 operand1, computed in float32 and rounded once.",
            SAME),
        example="""
        a, b, y: float32[128, 64]
        nisa.scalar_tensor_tensor(dst=y, data=a, op0=nl.multiply, operand0=2.0, op1=nl.subtract, operand1=b)
        y == 2 * a - b
        """),
    "reciprocal": InstructionEntry(
        repeats=True,
        releases="""
        2.20   (data, dtype=None, mask=None, **kwargs)
        2.21   (data, *, dtype=None, mask=None, engine=0, **kwargs)
        2.22   (data, *, dtype=None, mask=None, **kwargs)
        2.27   (dst, data, name=None)
        """,
        regular=Regular("Compute 1 / data.", {"data": "src"}),
        page=Page(("reciprocal",), {},
            "1 / data in float32, rounded once; 1 / 0 is infinity.",
            SHAPES),
        example="""
        x, y: float32[128, 64]
        nisa.reciprocal(dst=y, data=x)
        y == 1 / x
        """),
    "quantize_mx": InstructionEntry(
        releases="""
        2.27   (dst, src, dst_scale, name=None)
        """,
        page=Page(("quantize_mx",), {
            "dst": "[P, F / 4] of nl.float8_e4m3fn_x4 or nl.float8_e5m2_x4 in SBUF",
            "src": "[P, F] of bfloat16 or float16 in SBUF, P a multiple of 32, F of 4",
            "dst_scale": "[P / 8, F / 4] of uint8 or float8_e8m0fnu; from 64 partitions on [P, F / 4], four rows in "
                         "32"},
            "8 partitions x 4 elements share a scale 2 ** e with e = floor(log2(largest magnitude)) - 7 (e5m2: - "
            "14). dst holds src / scale, rounded to nearest even, dst_scale e + 127.",
            SHAPES),
        example="""
        x: bfloat16[32, 64]
        words: uint32[32, 16]
        scale: uint8[4, 16]
        nisa.quantize_mx(dst=words.view(nl.float8_e4m3fn_x4), src=x, dst_scale=scale)
        scale == 120 + np.floor(np.log2(np.max(np.float32(x).reshape(4, 8, 16, 4), axis=(1, 3))))
        """),
    "dropout": InstructionEntry(
        releases="""
        2.20   (data, prob, mask=None, dtype=None, **kwargs)
        2.21   (data, prob, *, mask=None, dtype=None, **kwargs)
        2.27   (dst, data, prob, name=None)
        """,
        page=Page(("dropout",), {
            "dst": "[P, F], of data's dtype",
            "prob": "the probability of 0, from 0 to 1; a tile is [P, 1] of float32"},
            "data with elements set to 0 at random; the others stay unchanged.",
            "A probability outside of 0 to 1, and a dst whose dtype is not data's, are errors."),
        example="""
        x, y: float32[128, 64]
        nisa.dropout(dst=y, data=x, prob=0.0)
        y == x
        """),
})
