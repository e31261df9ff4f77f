# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random beta kernels through ``nki-migrate``: the new text computes the old values, wherever these are defined.

The oracle runs each old kernel on memory with several initial bytes: the elements that depend on them are undefined and
not compared. It also runs the new text, whose defined elements may not depend on the initial bytes of memory.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("libcst")

from nki_mlir import compat
from nki_mlir.dialects.nki.movement import print_sink
from nki_mlir.migration.elementwise import INVERTED
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

from ..language.generated import kernel_from_text
from ..oracle import beta as beta_evaluator
from ..oracle import current as oracle
from ..oracle import run
from .beta import BetaWriter
from .comparing import arrays_of_ranks, bits, differences, flat
from .test_random_kernels import PARTS, part_of

HEAD = """import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc.nki.typing import mutable_tensor, scalar


@nki.jit
"""
FILLS = (0, 0x41, 0xC2, 0xFF)


class WithoutReductionsOverPrograms(BetaWriter):
    """The tool leaves ``nl.all_reduce`` within other statements for a person."""

    meetings = (lambda writer: False,)


def defined_results(program):
    """Return the beta kernel's results in the oracle and their defined elements; None if it breaks a rule."""
    outcomes = [run(program.text, arrays_of_ranks(program)[0], generation=beta_evaluator, names=beta_evaluator.NAMES,
                    grid=program.grid, fill=fill) for fill in FILLS]
    if any(outcome.findings for outcome in outcomes):
        return None
    results = [flat([outcome.results]) for outcome in outcomes]
    masks = []
    for k, random in enumerate(outcomes[0].incomparable):
        same = np.full(results[0][k].shape, not random)
        for other in results[1:]:
            same &= bits(other[k]) == bits(results[0][k])
        masks.append(same)
    return results[0], masks


def with_quotients(output):
    """Compare the output within a unit of the last place: a product with a reciprocal is rounded twice."""
    # bfloat16 has 8 bits
    return replace(output, rtol=max(output.rtol, 3e-7 if output.dtype.bits == 32 else 2.0 ** -7))


def without_overflows(mask, new, old):
    """Leave out finite numbers for which the new text has others: the reciprocal of a number below 2^-128 overflows."""
    if old.dtype.kind in "iub":
        return mask
    new, old = (np.isfinite(values.astype(np.float64)) for values in (new, old))
    return mask & (new | ~old)


def check_same_values(program, new, outputs=None, overflows=False):
    outputs = outputs or program.outputs
    expected, masks = defined_results(program) or (None, None)
    if expected is None:
        return
    arrays = arrays_of_ranks(program)[0]
    in_loops = bool(program.grid and re.search(r"\bgrid=\(", new))
    keywords = {"grid": program.grid} if in_loops else {}
    grid = () if in_loops else program.grid
    kernel = new_kernel(new)
    outcome = run(new, arrays_of_ranks(program)[0], keywords, generation=oracle, grid=grid, fill=FILLS[1])
    findings = [f for f in outcome.findings if f.kind not in ("missing", "unwritten")]      # undefined in the old text
    assert not findings, f"{findings}\n{new}"
    launched = kernel[grid if len(grid) > 1 else grid[0]] if grid else kernel
    token = print_sink.set(lambda prefix, value: None)
    try:
        got = flat([launched.on("eager")(*arrays, **keywords)])
    finally:
        print_sink.reset(token)
    for name, values in (("eager", got), ("the oracle", flat([outcome.results]))):
        assert len(values) == len(expected)
        for array, wanted, mask, output in zip(values, expected, masks, outputs, strict=True):
            assert array.shape == wanted.shape and array.dtype == wanted.dtype, f"{name}: {output.name}\n{new}"
            compared = without_overflows(mask, array, wanted) if overflows else mask
            difference = differences(array[compared], wanted[compared], output)
            assert not difference, f"{name}: {difference}\n{new}"


def new_kernel(text):
    compat.install()
    scope = {}
    return kernel_from_text(text, scope, jit=lambda kernel: kernel)


def check_migration(program):
    """A complete migration computes the same; a text with lines that are left is still a text of Python. The order of
    the indices of equal values in ``nc_match_replace8`` is another one in the current generation."""
    if program.ranks > 1 or "dst_idx" in program.text:
        return
    report = MigrationReport("kernel.py")
    new = rewritten(HEAD + program.text, report)
    compile(new, "kernel.py", "exec")
    if report.is_complete:
        has_quotients = any(entry.text == INVERTED for entry in report.entries)
        check_same_values(program, new, [with_quotients(o) if has_quotients else o for o in program.outputs],
                          overflows=has_quotients and "_wild" in program.text)


@pytest.mark.share(3)
@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(PARTS // 5))
@pytest.mark.filterwarnings("ignore")
def test_migrated_kernels_compute_the_same(part):
    part_of(WithoutReductionsOverPrograms, check_migration, part)
