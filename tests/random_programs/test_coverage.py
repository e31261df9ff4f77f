# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The random kernels draw from all of the op tables: what they leave out is listed here, with the reason."""

import inspect
import random
import re

import pytest

from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.current import isa as current_isa
from nki_mlir.language.current import language as current_nl
from nki_mlir.scalar.activation import ACTIVATIONS
from nki_mlir.scalar.alu import ALU

from ..language import surface_beta
from ..language_current import test_names as surface_current
from . import beta_rules, current_rules  # noqa: F401
from .beta import BetaWriter
from .current import CurrentWriter
from .writer import DTYPES

BETA = {"nl": {*surface_beta.LANGUAGE}, "nisa": {*surface_beta.ISA}}
CURRENT = {"nl": {*surface_current.LANGUAGE, *surface_current.OTHER_LANGUAGE.split()},
           "nisa": {*surface_current.ISA, *surface_current.OTHER_ISA.split()}}
QUERIES = {"num_programs", "program_id", "program_ndim", "get_nc_version",
           "get_nc_sub_version", "unique_name", "is_hbm", "is_on_chip", "is_psum", "is_sbuf",
           "par_dim", "static_cast", "empty_like", "ds", "no_reorder", "shared_constant", "shared_identity_matrix"}
OTHER_TESTS = {"device_print",                                                        # output
               "random_seed", "rand", "dropout", "rand_get_state", "rand_set_state",    # of instructions that are drawn
               "tensor_copy_dynamic_dst", "tensor_copy_dynamic_src"}                # of the current generation: removed
NOT_NAMED = {"select", "bypass", "arith_shift_right"}        # operators that functions are lowered to
NOT_BETA = {"float8_e4m3fn", "abs_max", "abs_min", "gelu_apprx_sigmoid_dx"}
NOT_CURRENT = {"average"}                                    # of partitions only


def texts(writer):
    return "\n".join(writer(random.Random(n).randrange).program().text for n in range(900))


@pytest.mark.parametrize("writer, nl, isa, names, missing", [
    (BetaWriter, beta_nl, beta_isa, BETA, NOT_BETA), (CurrentWriter, current_nl, current_isa, CURRENT, NOT_CURRENT)])
def test_tables_are_drawn_from(writer, nl, isa, names, missing):
    text = texts(writer)
    left_out = []
    for prefix, module in (("nl", nl), ("nisa", isa)):
        functions = {n for n in names[prefix] if inspect.isfunction(getattr(module, n, None))}
        left_out += [n for n in sorted(functions - QUERIES - OTHER_TESTS) if not re.search(rf"\b{prefix}\.{n}\b", text)]
    named = [n for n in (*ALU, *ACTIVATIONS) if hasattr(nl, n) and n not in NOT_NAMED]
    left_out += [n for n in named if not re.search(rf"\b(nl|np)\.{n}\b", text)]
    left_out += [d.name for d in DTYPES if not re.search(rf"\bnl\.{d.name}_?\b", text)]
    assert set(left_out) - missing == set()
    loops = ["nl.affine_range(", "nl.sequential_range(", "nl.static_range(", " range("]
    loops += ["scalar(True)", " | ", "mask="] if writer is BetaWriter else [
        "nl.fori_loop(", "nl.while_loop(", "nl.dynamic_range(", ".ap(", ".view(", "scalar_offset=", "vector_offset="]
    assert [form for form in loops if form not in text] == []
