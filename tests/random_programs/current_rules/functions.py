# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of the language that become several instructions."""

from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, UINT8, UINT32

from ..beta import kind
from ..current import CurrentWriter, rule
from ..writer import Facts
from .operands import ANY_BITS, BITWISE, ULP


@rule()
def more_functions(w: CurrentWriter):
    a = w.operand((w.P, w.F), w.dtypes)
    name = w.pick("logical_not", "invert", "ones", "zeros_like", "transpose", "gather_flattened", "all", "prod", "power",
                  "softmax", "rms_norm", "expand_dims", "broadcast_to", "load_transpose2d", "matmul", "store")
    w.note(f"nl.{name}")
    P, F = a.shape
    match name:
        case "logical_not":
            return w.let(f"nl.logical_not({a.text}, dtype=nl.uint8)", a.shape, UINT8, Facts(1, 1))
        case "invert":
            b = w.operand(a.shape, BITWISE)
            return w.let(f"nl.invert({b.text})", b.shape, b.dtype, ANY_BITS.cast(b.dtype))
        case "ones":
            return w.let(f"nl.ones({a.shape}, {kind(a.dtype)})", a.shape, a.dtype, Facts(1, 1))
        case "zeros_like":
            return w.let(f"nl.zeros_like({a.text})", a.shape, a.dtype, Facts(1, 1))
        case "transpose":
            b = w.operand(a.shape, (FLOAT32, BFLOAT16))
            return w.let(f"nl.copy(nl.transpose({b.text}))", b.shape[::-1], b.dtype, b.facts)
        case "gather_flattened":
            index = w.fresh((P, F), UINT32, "one")
            if F < 2:
                return False
            return w.let(f"nl.gather_flattened({a.text}, {index.text})", (P, F), a.dtype, a.facts)
        case "all":
            return w.let(f"nl.all({a.text}, axis=1, dtype=nl.uint8)", (P, 1), UINT8, Facts(1, 1))
        case "prod":
            b = w.fresh(a.shape, FLOAT32, "one")
            return w.let(f"nl.prod({b.text}, axis=1, dtype=nl.float32, keepdims=True)", (P, 1), FLOAT32, Facts(1, 1))
        case "power":
            b = w.fresh(a.shape, FLOAT32, "amount")
            return w.inexact(f"nl.power({b.text}, {w.pick(2.0, 0.5, 1.5)}, dtype=nl.float32)", b.shape, FLOAT32, 10 * ULP)
        case "softmax":
            b = w.fresh(a.shape, FLOAT32, "fraction")
            return w.inexact(f"nl.softmax({b.text}, axis=-1, dtype=nl.float32)", b.shape, FLOAT32, 1e-5, 1e-6)
        case "rms_norm":
            b, weight = w.fresh(a.shape, FLOAT32, "fraction"), w.fresh((1, F), FLOAT32, "fraction")
            return w.inexact(f"nl.rms_norm({b.text}, {weight.text}, axis=1, n={F}, dtype=nl.float32)", b.shape, FLOAT32,
                             1e-5, 1e-5)
        case "expand_dims":
            return w.let(f"nl.copy(nl.expand_dims({a.text}, 1))", (P, 1, F), a.dtype, a.facts)
        case "broadcast_to":
            return w.let(f"nl.copy(nl.broadcast_to(nl.expand_dims({a.text}, 1), ({P}, 2, {F})))", (P, 2, F), a.dtype,
                         a.facts)
        case "load_transpose2d":
            name, facts = w.array(FLOAT32, "small")
            return w.let(f"nl.load_transpose2d({name}[1:{1 + P}, 2:{2 + F}])", (F, P), FLOAT32, facts)
        case "matmul":
            x, y = w.fresh((P, 8), BFLOAT16, "small"), w.fresh((P, F), BFLOAT16, "small")
            return w.let(f"nl.add(nl.copy(nl.matmul({x.text}, {y.text}, transpose_x=True)), 0.0)", (8, F), FLOAT32,
                         Facts(36 * P, 1))
    out = w.name("hbm")
    w.emit(f"{out} = nl.ndarray({a.shape}, {kind(a.dtype)}, buffer=nl.private_hbm)")
    w.emit(f"nl.store({out}, {a.text})")
    return w.let(f"nl.load({out})", a.shape, a.dtype, a.facts)
