# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki_mlir.check`` on the kernels of tests that run eagerly: an error that it reports for a right kernel is a false one."""

import copy
import os
import warnings
from typing import Any
from zlib import crc32

import pytest

import nki_mlir
from nki_mlir.language.kernel import Kernel

SHARE = 16                      # of so many tests one is checked; in `make fuzz` all are
# Tests whose kernels do what the check reports, by file or by name.
WRONG = {
    # races, reads of what nothing wrote, outputs with unwritten elements, rules of the device
    "test_hazard_verdicts.py", "test_unwritten_memory.py", "test_unwritten_outputs.py", "test_unwritten.py",
    "test_device_rules.py", "test_random_programs.py", "test_written_sources.py", "test_an_iteration_that_a_condition_picks",
    "test_programs_read_what_earlier_ones_wrote_of_an_input", "test_store_view", "test_affine_subscripts_of_loop_variables",
    "test_kept", "test_simulation_as_a_mode_reads_what_was_never_written_as_nan",
    # they store elements that a mask left out
    "test_mean_and_var__of_what_a_mask_lets_through", "test_masks_of_loads_stores_and_copies",
    "test_shuffles_and_local_gathers_take_masks_of_whole_groups",
    "test_local_gather_of_many_dims_under_a_mask_is_one_instruction", "test_mask_on_matmul__loop_predicate",
    # tiles that fill a partition, tiles of another call, NaN, values that only a simulation has
    "test_a_tile_has_room_in_a_partition", "test_tensor_of_another_call", "test_fills", "test_unrounded.py",
    "test_powers__of_zeros_and_infinities",
}


def check_first_run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kernel_class: type[Kernel]) -> None:
    """Let the first eager run of a kernel in a test be checked as well."""
    node = request.node
    if WRONG & {node.path.name, getattr(node, "originalname", node.name)} or (
            crc32(node.nodeid.encode()) % SHARE and os.environ.get("HYPOTHESIS_PROFILE") != "fuzz"):
        return
    run = kernel_class.run
    checks: list[bool] = []

    def run_and_check(kernel: Any, arguments: tuple[object, ...], keywords: dict[str, object], on: str) -> Any:
        if on != "eager" or checks:
            return run(kernel, arguments, keywords, on)
        checks.append(True)
        unchanged = copy.deepcopy((arguments, keywords))
        result = run(kernel, arguments, keywords, on)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = nki_mlir.check(kernel, *unchanged[0], **unchanged[1])
        assert report.sound, str(report)
        return result
    monkeypatch.setattr(kernel_class, "run", run_and_check)
