# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The code of a candidate: unrolled loops, loads, merged instructions, and transposes by the DMA engines.

The candidates of a search share the results of slow steps: unrolled code, merged instructions and transposes.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from nki_mlir.dialects.access import HBM, SBUF
from nki_mlir.dialects.op import Op
from nki_mlir.targets.neuron.codegen.coalesce_copies import coalesce_copies
from nki_mlir.targets.neuron.codegen.dependences import RunDependences
from nki_mlir.targets.neuron.codegen.forward_stores import forward_stores
from nki_mlir.targets.neuron.codegen.group_transposes import group_transposes
from nki_mlir.targets.neuron.codegen.merge_instructions import merge_instructions
from nki_mlir.targets.neuron.codegen.merge_loads import merge_loads
from nki_mlir.targets.neuron.codegen.records import Code, copied
from nki_mlir.targets.neuron.codegen.reuse_loads import reuse_loads
from nki_mlir.targets.neuron.codegen.search_options import Candidate
from nki_mlir.targets.neuron.codegen.sink_constants import sink_constants
from nki_mlir.targets.neuron.codegen.split_blocks import split_blocks
from nki_mlir.targets.neuron.codegen.transpose_tiles import transpose_tiles
from nki_mlir.targets.neuron.codegen.unroll_loops import unrolled


def run_step(_name: str, _code: Code, run: Callable[[], Any]) -> Any:
    return run()


def expanded(rolled: Code, candidate: Candidate, step: Callable[..., Any] = run_step) -> Code:
    """Return the code with the loops unrolled that the candidate unrolls."""
    code: Code = step("unroll-loops", rolled, lambda: unrolled(rolled, candidate.limit, candidate.body))
    step("split-blocks", code, lambda: split_blocks(code))
    step("sink-constants", code, lambda: sink_constants(code))
    # after unrolling, a copy in one iteration or under a condition is in the same run as its load
    if rolled.coalesced:
        step("coalesce-copies", code, lambda: coalesce_copies(code))
    return code


# options of candidates that change instructions, in this order
CHANGES = "grouped", "merge_loads", "merge", "transposes"


class Instructions(NamedTuple):
    """Unrolled code with the loads, merged instructions and transposes of a candidate: the loads that were dropped, and
    by option of ``CHANGES`` how many instructions its pass removed or replaced."""

    code: Code
    dropped: list[Op]
    changes: dict[str, int]

    def copied(self) -> "Instructions":
        """Return a copy that passes may change in place."""
        return self._replace(code=copy_of(self.code))


def copy_of(code: Code) -> Code:
    return replace(code, body=copied(code.body), notes=list(code.notes))


def with_instructions(code: Code, candidate: Candidate, step: Callable[..., Any] = run_step,
                      dependences: RunDependences | None = None) -> Instructions:
    """Give unrolled code the instructions of a candidate, in place."""
    instructions = Instructions(code, without_repeated_loads(code, candidate, step), {})
    for option in CHANGES:
        if getattr(candidate, option):
            instructions = with_change(instructions, option, candidate, step, dependences)
    return instructions


def with_change(instructions: Instructions, option: str, candidate: Candidate, step: Callable[..., Any] = run_step,
                dependences: RunDependences | None = None) -> Instructions:
    """Run the pass of an option of ``CHANGES``, in place."""
    code = instructions.code
    passes: dict[str, tuple[str, Callable[[], int]]] = {
        "grouped": ("group-transposes", lambda: group_transposes(code, dependences=dependences)),
        "merge_loads": ("merge-loads", lambda: merge_loads(code, dependences)),
        "merge": ("merge-instructions", lambda: merge_instructions(code, dependences=dependences)),
        "transposes": ("transpose-tiles", lambda: transpose_tiles(code, candidate.transposes))}
    name, run = passes[option]
    return instructions._replace(changes={**instructions.changes, option: step(name, code, run)})


def without_repeated_loads(code: Code, candidate: Candidate, step: Callable[..., Any] = run_step) -> list[Op]:
    """Drop loads of data that are on chip, if a candidate drops them, in place. Return them."""
    dropped: list[Op] = step("forward-stores", code, lambda: forward_stores(code)) if candidate.loads else []
    spaces = (HBM, SBUF) if candidate.loads else (SBUF,)
    dropped += step("reuse-loads", code, lambda: reuse_loads(code, spaces=spaces))
    return dropped


class SharedCode:
    """The code of the candidates of a search. Each candidate gets a copy. ``dependences``: those of the runs of all
    candidates, which their schedules share, too."""

    def __init__(self, rolled: Code, dependences: RunDependences | None = None) -> None:
        self.rolled, self.dependences = rolled, dependences or RunDependences()
        self.unrolled: dict[tuple[int, int], Code] = {}
        self.derived: dict[Candidate, Instructions] = {}        # from unrolled code

    def expanded(self, candidate: Candidate) -> Code:
        loops = candidate.limit, candidate.body
        if loops not in self.unrolled:
            self.unrolled[loops] = expanded(self.rolled, candidate)
        return copy_of(self.unrolled[loops])

    def instructions(self, candidate: Candidate) -> Instructions:
        """Return unrolled code with the instructions of a candidate."""
        limit, body, loads = candidate[:3]
        key = Candidate(limit, body, loads, merge=candidate.merge, transposes=candidate.transposes,
                        merge_loads=candidate.merge_loads, grouped=candidate.grouped)
        if key not in self.derived:
            if last := next((option for option in reversed(CHANGES) if getattr(key, option)), ""):
                unchanged = self.instructions(key._replace(**{last: getattr(Candidate(0, 0), last)}))
                self.derived[key] = with_change(unchanged, last, key, dependences=self.dependences)
            else:
                self.derived[key] = with_instructions(self.expanded(key), key)
        return self.derived[key].copied()

    def loads_merge(self, candidate: Candidate) -> bool:
        """Return whether some loads of a candidate can be merged."""
        return self.instructions(Candidate(*candidate[:3], merge_loads=True)).changes["merge_loads"] > 0

    def transposes_move(self, candidate: Candidate) -> bool:
        """Return whether the transposes of a candidate can be grouped."""
        return self.instructions(Candidate(*candidate[:3], grouped=True)).changes["grouped"] > 0
