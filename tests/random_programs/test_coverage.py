# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The random kernels draw every name and parameter of the language: what they leave out is listed here, with the reason.

``python -m tests.random_programs.table`` prints how often each was drawn.
"""

import random

import pytest

from ..language import surface_beta
from ..language_current import test_names as surface_current
from . import beta_rules, current_rules  # noqa: F401
from .beta import BetaWriter
from .current import CurrentWriter
from .drawn import Drawn
from .writer import DTYPES

BETA = {"nl": {*surface_beta.LANGUAGE}, "nisa": {*surface_beta.ISA}}
CURRENT = {"nl": {*surface_current.LANGUAGE, *surface_current.OTHER_LANGUAGE.split()},
           "nisa": {*surface_current.ISA, *surface_current.OTHER_ISA.split()}}

# No operations: kinds of values, errors, other names of what is drawn.
TYPES = {"nl.Tensor", "nl.DType", "nl.MemoryRegion", "nl.NKIObject", "nl.NkiTensor", "nl.tensor", "nl.range", "nl.bool",
         "nl.bfp16", "nl.par_dim", "nl.par_dim(x=)", "nl.nc", "nl.spmd_dim", "nisa.fp32", "nisa.NkiInstruction",
         "nisa.NkiValidationError", "nisa.VirtualRegister", "nisa.dma_engine"}
# Engines that take some operands only: named where their instructions are tested.
ENGINES = {"nisa.gpsimd_engine", "nisa.scalar_engine", "nisa.tensor_engine"}
# Formats that are only packed or scales: of quantize_mx and nc_matmul_mx, drawn as bytes.
PACKED = {"nl.float4_e2m1fn_x4", "nl.float8_e8m0fnu"}
# Of partitions alone.
PARTITIONS = {"nl.average"}
# Removed from the current generation.
REMOVED = {f"nisa.tensor_copy_dynamic_{side}{parameter}" for side in ("src", "dst")
           for parameter in ("", "(dst=)", "(src=)", "(engine=)", "(name=)")}
BETA_FORMS = ["loop.affine_range", "loop.sequential_range", "loop.static_range", "loop.range", "loop.while", "mask.or",
              "mask.comparison", "mask.rows", "if", "update", "subscript.mgrid", "subscript.arange", "subscript.ellipsis",
              "subscript.ellipsis before others",
              "subscript.ds", "subscript.step", "subscript.one", "subscript.loop variable", "subscript.coefficient -1",
              "subscript.coefficient 0", "subscript.coefficient 1", "subscript.coefficient 2", "view of a view",
              "pattern on chip", "pattern written", "nl.load of vectors", "nl.store of vectors", "subscript.rank 2",
              "subscript.rank 3", "subscript.rank 4", "subscript.rank 5", "subscript.axis in two dimensions", "operand mask",
              "view of a masked operand", "gather of rows", "scatter of rows",
              "mutable_tensor", "direct allocation", "blocks", "rounded total", "nl.store in two parts",
              "assigned under a mask after it was rounded", "promoted"]
CURRENT_FORMS = ["loop.range", "loop.fori_loop", "loop.while_loop", "loop.dynamic_range", "ap of rank 2", "ap of rank 3",
                 "ap of rank 4", "ap of rank 5", "ap of a view", "ap in HBM", "ap.step 0", "ap.step 1", "ap.step 2",
                 *(f"ap.indirect_dim {k}" for k in range(5)),
                 *(f"view.{form}" for form in ("slice", "subscript", "select", "permute", "split", "flatten", "expand",
                                               "squeeze", "broadcast", "rearrange")),
                 *(f"subscript.{form}" for form in ("all", "part", "step", "ds", "one", "negative", "ellipsis",
                                                    "ellipsis before others")),
                 "chain written", "view of bytes", "view of bytes of a part", "view.select at run time", "dma_copy with vector_offset", "dma_copy with scalar_offset",
                 "store with scalar_offset", "store with vector_offset", "nisa.sendrecv", "nisa.core_barrier",
                 "ncc.all_reduce", "ncc.all_gather", "ncc.reduce_scatter", "ncc.all_to_all"]


PROGRAMS, PART = 2500, 20               # what rules draw, most of it in far fewer


def drawn(writer, names, forms, left_out) -> Drawn:
    """What programs draw, until nothing is missing. A draft that names nothing of what is missing is left at that: of the
    names of the language, spelling adds those of hints alone."""
    counts = Drawn(writer.modules)
    for n in range(PROGRAMS):
        if n % PART == 0:
            rows, unseen, dtypes = missing(counts, names, forms, left_out)
            if not (rows or unseen or dtypes):
                break
            wanted = {row.partition("(")[0] for row in rows} | dtypes
        drawing = writer(random.Random(n).randrange)
        draft = drawing.draft()
        text = f"{draft.text}\n{writer.hints}"
        if not draft.used.isdisjoint(unseen) or any(name in text for name in wanted):
            program = drawing.spelled(draft)
            counts.add(program.text, program.used)
    return counts


def missing(counts, names, forms, left_out) -> tuple[list[str], list[str], set[str]]:
    """The names, forms and element types that no program has."""
    dtypes = {f"nl.{d.name}" for d in DTYPES} - {"nl.bool", "nl.float8_e4m3fn"}
    return ([row for row, count in dict(counts.rows(names)).items() if not count and row not in left_out],
            [form for form in forms if not counts.forms[form]], {d for d in dtypes if not counts.calls[d]})


@pytest.mark.share(3)
@pytest.mark.parametrize("writer, names, forms, left_out", [
    (BetaWriter, BETA, BETA_FORMS, TYPES | ENGINES),
    (CurrentWriter, CURRENT, CURRENT_FORMS, TYPES | ENGINES | PACKED | PARTITIONS | REMOVED)], ids=["beta", "current"])
def test_every_name_and_parameter_is_drawn(writer, names, forms, left_out):
    assert missing(drawn(writer, names, forms, left_out), names, forms, left_out) == ([], [], set())


def test_what_is_left_out_is_there():
    every = {row for writer, names in ((BetaWriter, BETA), (CurrentWriter, CURRENT))
             for row, _ in Drawn(writer.modules).rows(names)}
    assert {*TYPES, *ENGINES, *PACKED, *PARTITIONS, *REMOVED} <= every
