# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Text in the custom form reads back to the same module, and is printed the same again.

For the input of every FileCheck test, and for random kernels of both generations at each level; `make fuzz` tries 2,000
of these.
"""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, seed, settings

from nki_mlir.bindings import cloned, ir
from nki_mlir.cli.lowering import split_input
from nki_mlir.cli.source import read_module, read_modules
from nki_mlir.custom_form.printer import custom_text
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.isa.module import program_text
from nki_mlir.passes.pass_manager import run_passes
from nki_mlir.passes.pipelines import passes_to
from nki_mlir.targets.neuron.codegen.emission import Emission, emit_each

from ..fuzz_time import ending_in_time
from ..random_programs.beta import BetaWriter
from ..random_programs.current import CurrentWriter
from ..random_programs.test_random_kernels import FUZZ, SEED, beta_kernel, current_kernel, programs

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "lit_tests").rglob("*.mlir"))
PARTS = 50 if FUZZ else 1
KERNELS = 1_000 // PARTS if FUZZ else 2        # of each generation
LEFT = re.compile(r'"(?:nki|nisa|scalar|isa)\.\w+"\(')


def generic(module) -> str:
    return module.operation.get_asm(print_generic_op_form=True)


def check(module) -> str:
    """The module's text, which reads back to it."""
    text = custom_text(module)
    assert not LEFT.search(text)
    again = read_module(text, "<text>")
    assert generic(again) == generic(module)
    assert custom_text(again) == text
    assert generic(read_module(custom_text(module, with_aliases=False), "<text>")) == generic(module)
    return text


@pytest.mark.share(4)
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT / "lit_tests")))
def test_inputs_of_filecheck_tests_read_back(file):
    for part in split_input(file.read_text(), str(file)):
        try:
            module = read_module(part, "<part>")
        except NkiMlirError:                    # what the test is about
            continue
        check(module)


@pytest.mark.parametrize("name", ["assembly", "run-time-loops", "cores"])
def test_streams_of_filecheck_tests_read_back(name):
    file = ROOT / "lit_tests" / "isa" / f"{name}.mlir"
    for module in read_modules(split_input(file.read_text(), str(file)), "<part>")[:1]:
        with module.context, ir.Location.unknown():
            run_passes(module, passes_to("nisa", module))
        for options in Emission(), Emission(reorder=False):
            check_streams(module, options)


def check_levels(kernel, program):
    """A kernel as it is captured, at the waist, and as instructions."""
    note(program.text)
    launched = kernel[program.grid if len(program.grid) > 1 else program.grid[0]] if program.grid else kernel
    for module in launched.lower(*program.arrays.values()).specialization.modules:
        # As a file has it: an affine expression of a capture is not read back as the same tree by MLIR either.
        check(read_module(generic(module), "<module>"))
        text = custom_text(module)
        assert custom_text(read_module(text, "<text>")) == text
        for level in ("linalg", "nisa"):
            copy = cloned(module)
            with copy.context, ir.Location.unknown():
                run_passes(copy, passes_to(level, copy))
            check(read_module(generic(copy), "<module>"))
        check_streams(copy, Emission.for_values())


def check_streams(module, options):
    """The streams of a module of instructions, unless it has none: those of other generations or memories."""
    try:
        programs = emit_each(module, options)
    except NkiMlirError:
        return
    for program in programs:
        program_text(program, check)


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("writer, kernel", [(BetaWriter, beta_kernel), (CurrentWriter, current_kernel)],
                         ids=["beta", "current"])
def test_random_kernels_read_back(writer, kernel, part, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")

    @seed((SEED << 8) + part)
    @settings(max_examples=KERNELS, deadline=None, database=None, derandomize=False,
              suppress_health_check=list(HealthCheck))
    @given(programs(writer))
    @ending_in_time
    def run(program):
        check_levels(kernel(program), program)
    run()
