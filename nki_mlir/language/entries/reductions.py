# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reductions, scans and statistics."""

from nki_mlir.language.entries.entry import SAME, SHAPES, Group, InstructionEntry, Page, Regular, columns

GROUP = Group("reductions", "Reductions, scans and statistics", {
    "activation_reduce": InstructionEntry(
        repeats=True,
        releases="""
        2.21   (op, data, *, reduce_op, reduce_res, bias=None, scale=1.0, mask=None, dtype=None, **kwargs)
        2.27   (dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0, name=None)
        """,
        page=Page(("activation_accumulate", "activation_reduce"), {
            "op": "an activation function, such as nl.exp",
            "reduce_op": "nl.add, the only operator"},
            "op(data * scale + bias), and in reduce_res [P, 1] the sum of the float32 values over the free axes.",
            "An op that is not an activation function is an error; a reduce_op other than nl.add is a warning."),
        example="""
        x, y: float32[128, 64]
        total: float32[128, 1]
        nisa.activation_reduce(dst=y, op=nl.square, data=x, reduce_op=nl.add, reduce_res=total)
        y == x * x
        total == np.sum(x * x, axis=1, keepdims=True)
        """),
    "tensor_reduce": InstructionEntry(
        repeats=True,
        releases="""
        2.20   (op, data, axis, mask=None, dtype=None, negate=False, keepdims=False, **kwargs)
        2.21   (op, data, axis, *, mask=None, dtype=None, negate=False, keepdims=False, **kwargs)
        2.27   (dst, op, data, axis, negate=False, keepdims=False, name=None)
        """,
        page=Page(("tensor_reduce",), {
            "axis": "the axes to reduce, which are the last free axes"},
            "data folded over the axes in float32 and rounded once; [P, F] over axis 1 is [P, 1].",
            "Axis 0, the partition, and axes that are not the last ones are errors."),
        example="""
        x: float32[128, 64]
        y: float32[128, 1]
        nisa.tensor_reduce(dst=y, op=nl.maximum, data=x, axis=1)
        y == np.max(x, axis=1, keepdims=True)
        """,
        beta_example="""
        x: float32[128, 64]
        y: float32[128, 1]
        y = nisa.tensor_reduce(nl.max, x, axis=1, keepdims=True)
        y == np.max(x, axis=1, keepdims=True)
        """),
    "tensor_partition_reduce": InstructionEntry(
        repeats=True,
        releases="""
        2.21   (op, data, *, mask=None, dtype=None, **kwargs)
        2.27   (dst, op, data, name=None)
        """,
        regular=Regular(
            "Reduce data over its partitions: [1, F...].", {"data": "src"},
            shape=lambda shapes, attributes: (1, *shapes[0][1:])),
        page=Page(("tensor_partition_reduce",), {
            "dst": "[1, F] in SBUF",
            "data": "[P, F] in SBUF"},
            "[1, F]: data folded over its partitions in float32, rounded once.",
            SHAPES),
        example="""
        x: float32[32, 64]
        y: float32[1, 64]
        nisa.tensor_partition_reduce(dst=y, op=nl.maximum, data=x)
        y == np.max(x, axis=0, keepdims=True)
        """),
    "tensor_scalar_reduce": InstructionEntry(
        repeats=True,
        releases="""
        current MAYBE operand0
        2.21   (*, data, op0, operand0, reduce_op, reduce_res, reverse0=False, dtype=None, mask=None, **kwargs)
        2.27   (dst, data, op0, operand0, reduce_op, reduce_res, reverse0=False, name=None)
        2.30   (dst, data, op0, operand0, reduce_op, reduce_res, reverse0=False, reduce_cmd=reduce_cmd.reset_reduce,
                reduce_init=None, name=None)
        2.32   (dst, data, op0, operand0, reduce_op, reduce_res=None, reverse0=False,
                reduce_cmd=reduce_cmd.reset_reduce, reduce_init=None, reduce_res_negate=False, name=None)
        """,
        regular=Regular(
            "Compute data op0 operand0, and fold it in the accumulation registers; ``reduce_res`` gets their values.",
            {"data": "src"},
            {"operand0": ("operand0", "imm0")}, {"reduce_res_negate": "negate"}, op="tensor_scalar_accumulate"),
        commands=("reset_reduce", "reduce", "load_reduce"),
        page=Page(("tensor_scalar_accumulate", "tensor_scalar_reduce"), {
            "reduce_op": "nl.add, nl.multiply, nl.maximum or nl.minimum",
            "reduce_res_negate": "True multiplies the values that reduce_res gets by -1"},
            "data op0 operand0, rounded once; the accumulation registers fold its float32 values over the free axes.",
            "Any other reduce_op, and reduce_init without load_reduce, are errors."),
        example="""
        x, y: float32[128, 64]
        total: float32[128, 1]
        nisa.tensor_scalar_reduce(dst=y, data=x, op0=nl.multiply, operand0=2.0, reduce_op=nl.add, reduce_res=total)
        y == 2 * x
        total == np.sum(2 * x, axis=1, keepdims=True)
        """),
    "tensor_scalar_cumulative": InstructionEntry(
        releases="""
        2.27   (dst, src, op0, op1, imm0, imm1=None, reduce_cmd=reduce_cmd.reset_reduce)
        2.29   (dst, src, op0, op1, imm0, imm1=None, reduce_cmd=reduce_cmd.reset_reduce, name=None)
        """,
        regular=Regular(
            "Compute r, with r[i] = op1(op0(src[i], imm0), r[i-1]) along the free axis.", {"src": "src"},
            {"imm0": ("operand0", "imm0")}, initial="imm1"),
        commands=("reset_reduce", "reduce", "load_reduce"),
        page=Page(("tensor_scalar_cumulative",), {
            "imm0": "op0's operand; a tile is [P, 1]",
            "imm1": "element -1 of the result, for load_reduce"},
            "[P, F]: element i is op1(op0(src[i], imm0), element i - 1), computed in float32, each rounded once.",
            "Tiles of 32-bit integers, and imm1 without load_reduce, are errors."),
        example="""
        x, y: float32[128, 64]
        nisa.tensor_scalar_cumulative(dst=y, src=x, op0=nl.multiply, op1=nl.add, imm0=2.0)
        y == np.add.accumulate(2 * x, axis=1)
        """),
    "tensor_tensor_scan": InstructionEntry(
        repeats=True,
        releases="""
        2.20   (data0, data1, initial, op0, op1, reverse0=False, reverse1=False, dtype=None, mask=None, **kwargs)
        2.21   (data0, data1, initial, op0, op1, reverse0=False, reverse1=False, *, dtype=None, mask=None, **kwargs)
        2.27   (dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False, name=None)
        """,
        regular=Regular(
            "Compute r, with r[i] = op1(op0(data0[i], r[i-1]), data1[i]) along the free axis; r[-1] is ``initial``.",
            {"data0": "data0", "data1": "data1"}, {"initial": ("initial", "imm")}),
        page=Page(("tensor_tensor_scan",), {
            "data0": "[P, F] in SBUF or PSUM",
            "data1": "[P, F], of data0's shape",
            "initial": "element -1 of the result; a tile is [P, 1]"},
            "[P, F]: element i is op1(op0(data0[i], element i - 1), data1[i]); element -1 is initial.",
            SAME),
        example="""
        ones: float32[128, 64]
        x, y: float32[128, 64]
        nisa.memset(dst=ones, value=1.0)
        nisa.tensor_tensor_scan(dst=y, data0=ones, data1=x, initial=0.0, op0=nl.multiply, op1=nl.add)
        y == np.add.accumulate(x, axis=1)
        """),
    "select_reduce": InstructionEntry(
        repeats=True,
        releases="""
        2.26   (*, dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_op=np.amax,
                reverse_pred=False, mask=None, dtype=None, **kwargs)
        2.27   (dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_op=nl.maximum,
                reverse_pred=False, name=None)
        """,
        regular=Regular(
            "Select on_true where the predicate is not 0, else on_false; the registers get each row's maximum.",
            {"predicate": "predicate", "on_true": "on_true"}, {"on_false": ("on_false", "imm")}),
        commands=("idle", "reduce", "reset_reduce"),
        page=Page(("select_reduce",), {
            "predicate": "[P, F] of 8-bit or 16-bit integers; any value but 0 is true",
            "on_true": "[P, F] in SBUF or PSUM",
            "on_false": "a tile is [P, 1] of float32",
            "reduce_op": "nl.maximum, the only operator",
            "reverse_pred": "True selects on_true where the predicate is 0"},
            "on_true where the predicate is true, else on_false; the accumulation registers get each row's maximum.",
            "A predicate of floats or 32 bits, on_true of 32-bit integers, and any other reduce_op are errors."),
        example="""
        x, y: float32[128, 64]
        flags: uint8[128, 64]
        nisa.select_reduce(dst=y, predicate=flags, on_true=x, on_false=-1.0)
        y == np.where(flags != 0, x, -1)
        """),
    "bn_stats": InstructionEntry(
        releases="""
        2.20   (data, mask=None, dtype=None, **kwargs)
        2.21   (data, *, mask=None, dtype=None, **kwargs)
        2.27   (dst, data, name=None)
        """,
        regular=Regular("Compute count, mean and variance * count of the even, then of the odd elements: [P, 6].",
                            {"data": "src"}, shape=columns(6)),
        page=Page(("bn_stats",), {
            "dst": "[P, 6] in SBUF or PSUM",
            "data": "[P, F], F at most 512 elements"},
            "[P, 6]: count, mean, variance * count of the elements at even indices, then at odd indices.",
            SHAPES),
        example="""
        x: float32[128, 64]
        y: float32[128, 6]
        nisa.bn_stats(dst=y, data=x)
        y[:, 1] == np.mean(x[:, 0::2], axis=1)
        y[:, 5] == 32 * np.var(x[:, 1::2], axis=1)
        """),
    "bn_aggr": InstructionEntry(
        releases="""
        2.20   (data, mask=None, dtype=None, **kwargs)
        2.21   (data, *, mask=None, dtype=None, **kwargs)
        2.27   (dst, data, name=None)
        """,
        regular=Regular("Combine groups of (count, mean, variance * count) into their mean and variance: [P, 2].",
                           {"data": "src"}, shape=columns(2)),
        page=Page(("bn_aggr",), {
            "dst": "[P, 2] in SBUF or PSUM",
            "data": "[P, 3 * groups]: count, mean and variance * count of each group"},
            "[P, 2]: mean and population variance of all groups together.",
            SHAPES),
        example="""
        x: float32[128, 64]
        parts: float32[128, 6]
        y: float32[128, 2]
        nisa.bn_stats(dst=parts, data=x)
        nisa.bn_aggr(dst=y, data=parts)
        y[:, 0] == np.mean(x, axis=1)
        y[:, 1] == np.var(x, axis=1)
        """,
        beta_example="""
        x: float32[128, 64]
        y: float32[128, 2]
        y = nisa.bn_aggr(nisa.bn_stats(x))
        y[:, 0] == np.mean(x, axis=1)
        y[:, 1] == np.var(x, axis=1)
        """),
})
