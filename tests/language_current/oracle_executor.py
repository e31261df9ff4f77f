# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The evaluator of ``tests/oracle`` as an executor, on which kernels of some tests run with its names.

It has the newest signatures, but neither warnings nor the product's texts: tests of these are listed here, or are in
other modules.
"""

from typing import Any

import pytest

from nki_mlir.language.current import simulator
from nki_mlir.language.kernel import Kernel

from ..oracle import current as oracle
from ..oracle import run
from ..oracle.current.surroundings import Surroundings

NAME = "oracle"
MODULES = """test_attention_kernels test_collectives test_document_vectors test_dynamic_loops test_functions
    test_instructions test_kernels test_layer_kernels test_less_used_names test_oracles test_parameters
    test_pattern_offsets test_run_time_subscripts test_strided_operands test_views""".split()
OTHER_TESTS = {
    "test_ranks_that_do_not_make_the_same_exchanges": "text of an error", "test_registers": "an older keyword",
    "test_the_partition_stride_of_a_pattern": "text of an error", "test_one_column_beside_a_tile_warns": "a warning",
    "test_matmul_and_transpose": "compares objects of the product", "test_printing": "standard output",
    "test_dma_compute_of_one_source": "a warning", "test_a_barrier_that_only_one_core_reaches": "text of an error",
    "test_cores_that_come_to_different_meetings": "text of an error", "test_dynamic_range": "a warning",
    "test_cores_that_do_not_send_to_each_other": "text of an error", "test_structures_of_results": "dicts as results",
    "test_cores_that_exchange_unlike_tiles": "text of an error",
    "test_tensors_that_are_described_by_shape_and_dtype": "no arrays", "test_affine_select": "older releases",
    "test_gathers_stay_in_their_row": "text of an error", "test_generation_of_the_target": "a result in place",
    "test_dynamic_copies_of_older_releases": "a warning", "test_an_empty_part_beside_one_that_is_not": "text of an error",
    "test_loop_that_runs_no_iteration": "an error after the run", "test_one_output_of_two": "an error after the run",
    "test_two_cores_count_together": "an error after the run", "test_an_index_out_of_bounds_is_an_error": "text of an error",
    "test_private_memory_that_nothing_has_written": "warnings", "test_what_is_refused": "texts of errors",
    "test_what_collectives_refuse": "texts of errors",
    "test_a_start_that_is_no_element_of_the_dtype_is_refused": "text of an error",
    **{f"test_gather_by_a_vector[oracle-{kind}-indices3-False-None]": "text of an error" for kind in ("int32", "uint32")},
    "test_assignment_by_subscript_is_reported_where_asked": "a warning",
    "test_a_destination_that_overlaps_itself": "text of an error",
    "test_attention_of_a_context": "classes whose methods compute",
    "test_projection_at_addresses_of_a_stack": "classes whose methods allocate",
}


def reason_against(item: pytest.Item) -> str | None:
    """Why a test does not run on the oracle."""
    callspec = getattr(item, "callspec", None)
    if callspec is None or callspec.params.get("on") != NAME:
        return None
    if item.module.__name__.rpartition(".")[2] not in MODULES:          # type: ignore[attr-defined]
        return "older releases, frameworks, texts of errors"
    return OTHER_TESTS.get(item.name) or OTHER_TESTS.get(item.originalname)    # type: ignore[attr-defined]


class OnOracle:
    """A kernel that runs on the oracle."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> "OnOracle":
        return OnOracle(self.kernel[grid])

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        names = Surroundings("nki_mlir")
        kernel = names.kernel(self.kernel)
        values = [names.value(value) for value in arguments]
        named = {key: names.value(value) for key, value in keywords.items()}
        return run(kernel, values, named, generation=oracle, grid=kernel.grid).results


def ranks_on_oracle(kernel: Any, arguments: Any) -> list[Any]:
    names = Surroundings("nki_mlir")
    return [outcome.results for outcome in oracle.run_ranks(names.kernel(kernel), arguments)]


def install(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    """``kernel.on("oracle")`` and ``simulate_ranks(..., executor="oracle")`` for one test."""
    on, simulate_ranks = Kernel.on, simulator.simulate_ranks

    def chosen(kernel: Any, executor: str) -> Any:
        return OnOracle(kernel) if executor == NAME else on(kernel, executor)

    def ranks(kernel: Any, arguments: Any, target: str | None = None, executor: str = "eager") -> list[Any]:
        return ranks_on_oracle(kernel, arguments) if executor == NAME else simulate_ranks(kernel, arguments, target, executor)
    monkeypatch.setattr(Kernel, "on", chosen)
    if hasattr(module, "simulate_ranks"):
        monkeypatch.setattr(module, "simulate_ranks", ranks)
