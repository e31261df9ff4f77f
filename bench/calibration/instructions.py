# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Single instructions: the times of the laws beside the measured ones. The laws come from these, so errors say little.
"""

from typing import NamedTuple

from nki_mlir.machine import Engine, Work, machine_named


class Single(NamedTuple):
    """The ns until the result is visible, or from the start of an instruction to that of the next in a chain."""

    name: str
    target: str
    engine: Engine
    work: Work
    published_ns: float
    chain: bool = False


def law(base: float, slope: float, x: float) -> float:
    """Return the published base plus slope at 512 elements."""
    return base + slope * 512 * x


VECTOR, SCALAR, TENSOR = Engine.VECTOR, Engine.SCALAR, Engine.TENSOR
SINGLES = (
    Single("L003", "trn1", SCALAR, Work("tensor_copy", 1), 189, chain=True),
    Single("L004", "trn1", SCALAR, Work("tensor_copy", 1), 159),
    Single("L005", "trn1", VECTOR, Work("tensor_tensor", 8192), 14987),
    Single("L018", "trn2", SCALAR, Work("activation", 4096), 3710),
    Single("L019", "trn2", SCALAR, Work("activation", 128), 400),
    Single("L021", "trn2", TENSOR, Work("product.float32", 512), law(381.3, 2.0, 4 / 2.4)),
    Single("L022", "trn2", TENSOR, Work("product.bfloat16", 512), law(203, 1.9875, 1 / 2.4)),
    Single("L024", "trn2", VECTOR, Work("tensor_copy", 512), law(161.3, 0.5, 1 / 0.96)),
    Single("L025", "trn2", VECTOR, Work("tensor_copy.bfloat16", 512), law(141.7, 0.685, 1 / 0.96)),
    Single("L026", "trn2", VECTOR, Work("memset", 512), law(58.7, 0.7975, 1 / 0.96)),
    Single("L027", "trn2", VECTOR, Work("tensor_tensor", 512), law(158.7, 0.5, 2 / 0.96)),
    Single("L028", "trn2", VECTOR, Work("tensor_scalar", 512), law(160.3, 0.5, 1 / 0.96)),
    Single("L029", "trn2", SCALAR, Work("tensor_copy", 512), law(190.3, 1.0, 1 / 1.2)),
    Single("L030", "trn2", SCALAR, Work("activation", 512), law(293.5, 0.8333, 1)),
    Single("L031", "trn2", VECTOR, Work("reciprocal", 512), law(154.3, 6.249, 1)),
    Single("L032", "trn2", VECTOR, Work("tensor_reduce", 512), law(152.5, 1.0417, 1)),
    Single("L033", "trn2", VECTOR, Work("scan", 64), 291),
    Single("L034", "trn2", VECTOR, Work("scan", 256), 691),
    Single("L035", "trn2", VECTOR, Work("scan", 1024), 2291),
    Single("L036", "trn2", VECTOR, Work("scan", 2048), 4424),
    Single("L037", "trn2", SCALAR, Work("activation", 64), 348),
    Single("L038", "trn2", SCALAR, Work("activation", 256), 491),
    Single("L039", "trn2", SCALAR, Work("activation", 1024), 1148),
    Single("L040", "trn2", SCALAR, Work("activation", 2048), 2001),
    Single("L375", "trn2", SCALAR, Work("tensor_copy", 128), 297, chain=True),
    Single("L376", "trn2", SCALAR, Work("tensor_copy", 512), 617, chain=True),
    Single("L377", "trn2", SCALAR, Work("tensor_copy", 2048), 1897, chain=True),
    Single("L378", "trn2", SCALAR, Work("tensor_copy", 8192), 7017, chain=True),
)


def model_ns(single: Single) -> float:
    cost = machine_named(single.target).cost(single.engine, single.work)
    return cost.busy + (cost.result_in_engine if single.chain else cost.result)


def table() -> list[str]:
    """Return lines with each instruction's measured time and the time of its law."""
    lines = ["single instructions"]
    for single in SINGLES:
        law_ns = model_ns(single)
        chain = " in a chain" if single.chain else ""
        description = f"{single.engine.value} {single.work.law} of {single.work.elements:g}{chain}"
        lines.append(f"{single.name:5}  {single.target:6}  {single.published_ns:10.1f} ns  {law_ns:10.1f} ns  "
                     f"{law_ns / single.published_ns:5.2f}  {description}")
    return lines
