# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Find the largest cause of a kernel's time: a resource at its bound, the launch, or a line of the critical path."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import TypedDict

from nki_mlir.targets.neuron.timing.result import Figures

BOUND = 0.8                     # least share of the time for which a busy resource bounds a kernel


class SourceLine(TypedDict):
    """The figures of a source line: its function, executions, ns of engines and transfers, bytes, ns of the critical
    path."""

    file: str
    line: int
    function: str
    executed: int
    engine_ns: float
    transfer_ns: float
    hbm_bytes: int
    path_ns: float


class Cause(TypedDict):
    """What limits a kernel most. ``bound`` is the resource that is saturated, or "". ``share`` is the part of the time
    that the resource, the launch or the line takes. ``file`` and ``line`` are the ones with most of the critical path.
    """

    bound: str
    share: float
    file: str
    line: int
    text: str


def largest_cause(timing: Figures, lines: Sequence[SourceLine], files: Mapping[str, Sequence[str]],
                  hbm_bytes_per_ns: float) -> Cause:
    """Return the largest cause of a time; ``files`` have the source text by name."""
    total = timing["total_ns"]
    at = max(lines, key=lambda row: row["path_ns"], default=None)
    file, line, of_line = (at["file"], at["line"], at["path_ns"] / total) if at is not None else ("", 0, 0.0)
    on_path = f"{of_line:.0%} of the critical path is {PurePath(file).name}:{line}"
    bound, share, text = _busiest(timing, hbm_bytes_per_ns)
    launch = timing["launch_ns"] / total
    if share < BOUND:
        bound, share, text = "", launch, f"{launch:.0%} of the time is the launch, which no kernel changes"
        if of_line > launch:
            source = files.get(file, [])
            quoted = f": `{source[line - 1].strip()}`" if 0 < line <= len(source) else ""
            return Cause(bound="", share=of_line, file=file, line=line, text=on_path + quoted)
    return Cause(bound=bound, share=share, file=file, line=line, text=f"{text}; {on_path}" if of_line else text)


def _busiest(timing: Figures, hbm_bytes_per_ns: float) -> tuple[str, float, str]:
    """Return the resource with the largest share of the time, the share, and the sentence about it."""
    total, nbytes = timing["total_ns"], timing["hbm_bytes"]
    uses = [("HBM", nbytes / hbm_bytes_per_ns, f"{nbytes / 1e6:.1f} MB at {hbm_bytes_per_ns:.0f} GB/s are")]
    for core in timing["cores"]:
        uses.append(("DMA engines", core["dma_ns"], "they move data"))
        uses += [(f"{name} engine", ns, "it is busy") for name, ns in core["busy_ns"].items()]
    name, ns, does = max(uses, key=lambda use: use[1])
    share = ns / total
    return name, share, f"at the bound of {'' if name == 'HBM' else 'the '}{name}: {does} {share:.0%} of the time"
