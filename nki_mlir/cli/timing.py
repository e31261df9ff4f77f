# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki-run --time``: print how long a kernel takes on the device, where the time goes, and how two kernels differ."""

import argparse
import json
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, TypedDict

from nki_mlir.cli.runnable import requested
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.timing.result import duration, with_interval
from nki_mlir.targets.neuron.timing.uncertainty import verdict

if TYPE_CHECKING:
    from nki_mlir.dialects.isa.program import Program
    from nki_mlir.targets.neuron.timing import Timing
    from nki_mlir.targets.neuron.timing.path_shares import Share

LINES = 8                       # most lines of a list that the text shows


class Difference(TypedDict):
    """The additional time of a kind of work on the second critical path, in ns."""

    engine: str
    instruction: str
    what: str
    ns: float


def time_all(options: argparse.Namespace) -> int:
    """Time the programs of the options and print the times. Compare them if there are two."""
    if options.profile is not None:
        return profile(options)
    timings = [neuron.timed(streams(source, options), options.as_written) for source in options.source]
    if len(timings) == 1:
        print(json.dumps(timings[0].figures(), indent=1) if options.json else "\n".join(report(timings[0])))
        return 0
    first, second = timings
    found_order = verdict(first.laws, second.laws)
    if options.json:
        print(json.dumps({"first": first.figures(), "second": second.figures(),
                          "faster": ("first", "second")[found_order.faster] if found_order.is_certain else "",
                          "probability": found_order.probability,
                          "ratio": second.total_ns / first.total_ns, "difference": differences(first, second)},
                         indent=1))
    else:
        print("\n".join([*report(first), "", *report(second), "", *comparison(first, second)]))
    return 0


def streams(source: str, options: argparse.Namespace) -> "list[Program]":
    """Return the programs of a source, one for each core."""
    emission = neuron.emission(options.as_written, options.level, options.disable_dge)
    return requested(source, options, values=False).streams(emission)


def profile(options: argparse.Namespace) -> int:
    """Time the program of the options, write a profile of it, and print a summary."""
    from nki_mlir.targets.neuron.profile import check_folder, profile_of, write_profile  # start-up: --profile only
    from nki_mlir.targets.neuron.profile.summary import show
    folder = check_folder(options.profile)                      # check the folder before the long work
    result = profile_of(streams(options.source[0], options), neuron.mode(options.as_written))
    if options.format == "neuron-explorer":
        from nki_mlir.targets.neuron.profile.vendor_tables import write_tables  # start-up: imported on first use
        written = write_tables(result, folder)
    else:
        written = write_profile(result, folder)
    if options.json:
        print(json.dumps(result["timing"], indent=1))
    else:
        show(result, sys.stdout)
        print("\n".join(f"wrote {file}" for file in written))
    return 0


# -- text --------------------------------------------------------------------------------------------------------------
def report(timing: "Timing") -> list[str]:
    """Return the lines of the report: the time, the share of each engine, and the critical path."""
    total = timing.total_ns
    cores = f" on {len(timing.cores)} cores" if len(timing.cores) > 1 else ""
    mode = f", {timing.mode}" if timing.mode != "optimized" else ""
    lines = [f"{timing.kernel} ({timing.target}{cores}{mode}): {with_interval(total, timing.interval_ns)}, of "
             f"which {duration(timing.launch_ns)} launch; "
             f"{timing.instructions} instructions, {timing.hbm_bytes / 1e6:.1f} MB to and from HBM"]
    core = timing.slowest
    for engine, busy in core.busy_ns.items():
        stalls = sorted(core.stall_ns[engine].items(), key=lambda item: -item[1])
        waits = ", ".join(f"{cause} {ns / total:.0%}" for cause, ns in stalls if ns / total >= 0.005)
        lines.append(f"  {engine.value:<7} {busy / total:4.0%} busy; else {waits}")
    lines.append(f"  {'dma':<7} {core.dma_ns / total:4.0%} moving data")
    lines.append("critical path:")
    lines += [f"  {s['ns'] / total:6.1%}  {duration(s['ns']):>10}  {named(s)}" for s in timing.path[:LINES]]
    rest_ns = sum(share["ns"] for share in timing.path[LINES:])
    if rest_ns:
        lines.append(f"  {rest_ns / total:6.1%}  {duration(rest_ns):>10}  {len(timing.path) - LINES} more")
    return lines + [f"note: {note}" for note in timing.notes]


def named(share: "Share") -> str:
    where = PurePath(share["location"]).name
    return " ".join(filter(None, (share["engine"], share["instruction"], share["what"], where)))


def comparison(first: "Timing", second: "Timing") -> list[str]:
    """Return the lines that compare two times: the ratio, and the kinds of work on the critical paths that differ."""
    change = second.total_ns - first.total_ns
    work = differences(first, second)
    lines = [order(first, second),
             f"{second.kernel} takes {second.total_ns / first.total_ns:.3f} times as long as {first.kernel} "
             f"({'+' if change >= 0 else '-'}{duration(abs(change))})" + ", on the critical path:" * bool(work)]
    lines += [f"  {'+' if d['ns'] >= 0 else '-'}{duration(abs(d['ns'])):>10}  "
              f"{' '.join(filter(None, (d['engine'], d['instruction'], d['what'])))}" for d in work[:LINES]]
    rest_ns = sum(d["ns"] for d in work[LINES:])
    if work[LINES:]:
        lines.append(f"  {'+' if rest_ns >= 0 else '-'}{duration(abs(rest_ns)):>10}  {len(work) - LINES} more")
    return lines


def order(first: "Timing", second: "Timing") -> str:
    """Return a sentence that tells which of two kernels is faster and how sure that is, or that they cannot be told
    apart."""
    comparison_verdict = verdict(first.laws, second.laws)
    fast, slow = (first, second) if not comparison_verdict.faster else (second, first)
    of_fast, of_slow = (with_interval(timing.total_ns, timing.interval_ns) for timing in (fast, slow))
    names = (fast.kernel, slow.kernel) if fast.kernel != slow.kernel else \
        ("the first", "the second") if fast is first else ("the second", "the first")
    if comparison_verdict.is_certain:
        return f"{names[0]} is faster: {of_fast} against {of_slow}; {confidence(comparison_verdict.probability)} sure"
    return f"these cannot be told apart: {names[0]} takes {of_fast}, {names[1]} {of_slow}; " \
           f"{confidence(comparison_verdict.probability)} sure of the order"


def confidence(probability: float) -> str:
    """Format a probability in percent, at most 99.9%."""
    return f"{min(probability, 0.999):.1%}" if probability > 0.99 else f"{probability:.0%}"


def differences(first: "Timing", second: "Timing") -> list[Difference]:
    """Return the differences by kind of work, the largest first. They add up to the difference of the times."""
    by_work: dict[tuple[str, str, str], float] = {}
    for sign, timing in ((-1.0, first), (1.0, second)):
        for share in timing.path:
            key = share["engine"], share["instruction"], share["what"]
            by_work[key] = by_work.get(key, 0.0) + sign * share["ns"]
    result = [Difference(engine=e, instruction=i, what=w, ns=ns) for (e, i, w), ns in by_work.items() if ns]
    return sorted(result, key=lambda d: -abs(d["ns"]))
