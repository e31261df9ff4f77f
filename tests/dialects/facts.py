# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is known about an operation beside its values, as a text: its engines, costs, axes and tiles, and the changes of
a valid operation that its rules refuse.

``python -m tests.dialects.facts`` writes ``facts.txt``, which a reviewer reads when a fact changes.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.access import Linear
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.dialects.target_findings import findings
from nki_mlir.dialects.verification import verify
from nki_mlir.machine import machine_named
from nki_mlir.scalar.dtypes import BY_MLIR

from .findings import optional_tiles
from .samples import SAMPLES

FILE = Path(__file__).with_name("facts.txt")
TARGETS = {name: machine_named(name) for name in ("trn2", "trn3")}
FLAGS = ("is_loop_nest", "rows_apart", "chooses", "keeps_bits", "broadcasts", "acts_outside", "queued")
OTHERS = ("partition_group", "addressed_by_data", "destinations", "offsets", "row_operands", "since")
FIXED = {"engine", "library", "function", "output", "reason"}           # attributes that no rule limits by their value


def facts() -> str:
    return "".join(f"{name}\n{class_facts(REGISTRY[name])}{work_facts(name)}{tile_facts(name)}{rule_facts(name)}"
                   for name in sorted(SAMPLES))


def class_facts(cls: type[Op]) -> str:
    flags = " ".join(flag for flag in FLAGS if getattr(cls, flag))
    others = " ".join(f"{name}={value}" for name in OTHERS if (value := getattr(cls, name)) != getattr(Op, name))
    engines = " ".join(engine.asm for engine in cls.engines)
    shared = " ".join(engine.asm for engine in cls.shared_engines)
    return (f"  {flags}\n" + (f"  {others}\n" if others else "")
            + (f"  {cls.mnemonic} {cls.opcode:#x} on {engines}; exchanged: {shared or 'none'}\n" if cls.engines else ""))


def work_facts(name: str) -> str:
    """What the engine does, in each size."""
    if not name.startswith("nisa."):
        return ""
    works = [SAMPLES[name].make(sizes=sizes).work() for sizes in ({}, *SAMPLES[name].sizes)]
    return "".join(f"  {work}\n" for work in dict.fromkeys(map(str, works)))


def tile_facts(name: str) -> str:
    op = SAMPLES[name].make()
    iteration = op.iteration()
    axes = " ".join(f"{tile}{list(at)}".replace(" ", "") for tile, at in iteration.axes.items())
    lines = [f"iterates {list(iteration.extents)} reduced {sorted(iteration.reduced)}: {axes}",
             f"apart {sorted(op.axes_apart(iteration))} computes in {op.compute} index forms {len(op.index_forms())}",
             *computes_in(name)]
    for what, tiles in (("reads", [n for n in op.tile_names if op.reads(n)]),
                        ("overwrites", [n for n in op.tile_names if op.overwrites(n)]),
                        ("unread", list(op.unread_tiles())), ("writes", [n for n, _ in op.targets()])):
        if tiles:
            lines.append(f"{what} {' '.join(tiles)}")
    return "".join(f"  {line}\n" for line in lines)


def computes_in(name: str) -> Iterator[str]:
    """The dtypes of sources for which it computes in another dtype than usual, with and without an operation on bits."""
    sample = SAMPLES[name]
    usual = sample.make().compute
    for change in ({}, {"op": "bitwise_xor"}) if "op" in sample.attributes else ({},):
        for label in ("src", "lhs", "moving"):
            if label in sample.tiles:
                tiles = {dtype: f"{sample.tiles[label].rpartition('x')[0]}x{dtype}"
                         for dtype in BY_MLIR}
                other = [f"{dtype}: {compute}" for dtype, text in tiles.items()
                         if (compute := sample.make(**{label: text}, **change).compute) is not usual]
                if other:
                    yield f"with {label} {' '.join(change.values())}".rstrip() + f" of {', '.join(other)}"


# -- rules -------------------------------------------------------------------------------------------------------------
def rule_facts(name: str) -> str:
    """The changes of an operation that its rules refuse, under the finding that each leads to."""
    usual = findings_of(name, {})
    lines = [f"  {finding}\n" for finding in usual]
    refused: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for label, value, change in changes(name):
        for finding in findings_of(name, {label: change}):
            if finding not in usual:
                refused[finding][label].append(value)
    for finding, labels in refused.items():
        lines += [f"  {finding}\n", *(f"    {label}: {' '.join(values)}\n" for label, values in labels.items())]
    return "".join(lines)


def changes(name: str) -> Iterator[tuple[str, str, Any]]:
    """Each tile with another dtype, in another memory, with another extent; each attribute with other values: the
    field, the change as a text, the new value."""
    sample = SAMPLES[name]
    for label, text in sample.tiles.items():
        space, shape = text.split()
        *extents, element = shape.split("x")
        for dtype in BY_MLIR:
            if dtype != element:
                yield label, dtype, f"{space} {'x'.join((*extents, dtype))}"
        for other in ("sbuf", "psum", "hbm"):
            if other != space:
                yield label, other, f"{other} {shape}"
        for axis in range(len(extents)):
            for extent in ("1", "2", "5", "33", "129", "513", "40000"):
                new = "x".join((*extents[:axis], extent, *extents[axis + 1:]))
                yield label, new, f"{space} {new}x{element}"
    for label, tile in optional_tiles(name).items():
        yield label, "given", tile
    for attribute, kind in REGISTRY[name].attributes.items():
        if attribute not in FIXED:
            now = sample.attributes.get(attribute, REGISTRY[name].defaults.get(attribute))
            yield from ((attribute, str(value).replace(" ", "") or "none", value) for value in others(kind, now))


def others(kind: type, now: Any) -> list[Any]:
    """Other values of an attribute."""
    if kind is bool:
        return [not now]
    if kind is int:
        return [n for n in (-1, 0, 1, 4, 31, 32, 1 << 31, 1 << 40) if n != now]
    if kind is float:
        return [n for n in (-1.0, 0.0, float("inf")) if n != now]
    if kind is str:
        return [word for word in ("add", "subtract", "min", "divide", "reset_reduce", "skip", "exp", "none", "[[0, 1]]")
                if word != now]
    if kind is Linear:
        return [Linear(-1), Linear(1 << 20)]
    return [now[:-1], (*now, 1), (*now[:-1], -1), (*now[:-1], 99)] if now else [(1,)]


def findings_of(name: str, fields: dict[str, Any]) -> list[str]:
    """The findings about a changed operation: of all targets, or else of each."""
    op = SAMPLES[name].make(**fields)
    try:
        verify(op)
    except NkiMlirError as error:
        return [general(error)]
    result: dict[str, list[str]] = defaultdict(list)
    for target, machine in TARGETS.items():
        for finding in findings(op, machine):
            marks = " uncertain" * finding.uncertain + " binds-current" * finding.binds_current
            result[general(finding.error) + marks].append(target)
    return [f"{' '.join(targets)}: {text}" for text, targets in result.items()]


VALUES = re.compile(r"(?<=\[)[\d, ]+(?=\])|(?<=has dtype )\w+|(?<=partitions )\d+(?= exceed)|(?<=has )\d+(?= values)"
                    r"|(?<= is ).*(?=, which must)|(?<=, got ).*")


def general(error: NkiMlirError) -> str:
    """The text of an error without the values that a change gave."""
    return f"{VALUES.sub('...', error.headline)} [{error.code}]"


if __name__ == "__main__":
    FILE.write_text(facts())
