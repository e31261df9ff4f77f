# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The kernels that graphs of this process can call, by content: records, the executor each runs on, and their entries.

A kernel in a graph is known by the hash of its content and call form, never by a number of this process alone, so that
caches and exported modules name the same kernel everywhere. Nothing is ever released: executables of a framework may
outlive every Python object.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from nki_mlir.alone import ALONE, alone, made_alone
from nki_mlir.analysis.effects import ArgumentEffects
from nki_mlir.frameworks.native import NativeEntry, Program, native_entry
from nki_mlir.frameworks.process_state import once
from nki_mlir.graph.custom_call import CallForm, KernelRecord, effects_of, read_record
from nki_mlir.language.specialization import Specialization, executor


@dataclass(eq=False)
class Callee:
    """A kernel that can be called from a graph, on one executor."""

    record: KernelRecord
    on: str
    load: Callable[[], Program] = field(repr=False)

    @cached_property
    def key(self) -> str:
        """Hash of the kernel's content, its call form and the executor."""
        said = (self.record.key, self.record.structure, self.record.form, self.on)
        return hashlib.sha256(repr(said).encode()).hexdigest()

    @property
    def number(self) -> int:
        """The key as a positive 60-bit number."""
        return int(self.key[:15], 16)

    @made_alone
    def entry(self) -> NativeEntry:
        """Compiled on first use."""
        return native_entry(self.load(), self.record.inputs, self.record.shared)

    def __repr__(self) -> str:
        return f"{self.record.name}:{self.key[:8]}"


def callees() -> dict[str, Callee]:
    """All callees of the process, by key."""
    return once("callees", dict)


@dataclass(frozen=True)
class PlainResults:
    """Which inputs that are written and never read are results and no operands.

    ``indices``, or all whose every element is provably written where it is None.
    """

    indices: tuple[int, ...] | None = ()

    def holds(self, place: int, effects: ArgumentEffects) -> bool:
        return effects.covered if self.indices is None else place in self.indices


def callee_of(spec: Specialization, on: str, plain: PlainResults, eager: Program | None = None) -> Callee:
    """The callee of a specialisation. An eager program is given, since it runs the kernel's own Python."""
    known = f"callee on {on}, {plain}"
    if known not in spec.programs:
        with ALONE:
            spec.report_left_out()
            callee = Callee(record_of(spec, plain), on, lambda: eager or spec.program(on))
            spec.programs.setdefault(known, callees().setdefault(callee.key, callee))
    found: Callee = spec.programs[known]
    return found


@alone
def record_of(spec: Specialization, plain: PlainResults) -> KernelRecord:
    """A specialisation as text with its call form."""
    variants = tuple((fixed, str(v.module)) for fixed, v in spec.captured.variants.items())
    effects = effects_of([v.module for v in spec.captured.variants.values()])
    results = [("shared", r.shared) if r.shared is not None else ("input", r.input) for r in spec.results]
    slots = list(dict.fromkeys(results))
    written = [("input", k) for k in range(len(spec.inputs)) if effects["input", k].writes]
    hidden = [s for s in [*written, *(("shared", k) for k in range(len(spec.shared)))] if s not in slots]
    made = {s for s in written if not effects[s].reads and plain.holds(s[1], effects[s])}
    operands = tuple(k for k in range(len(spec.inputs)) if ("input", k) not in made)
    form = CallForm(operands, tuple(slots + hidden), tuple(slots.index(r) for r in results))     # type: ignore[arg-type]
    names = [spec.results[results.index(s)].name for s in slots]
    names += [spec.inputs[k].name if kind == "input" else spec.shared[k].name for kind, k in hidden]
    record = KernelRecord(spec.name, spec.grid, str(spec.structure), variants, form, tuple(names))
    vars(record)["modules"] = {fixed: v.module for fixed, v in spec.captured.variants.items()}      # need no parsing
    return record


@alone
def callee_from(config: str, on: str) -> Callee:
    """The callee of a config, which may come from another process."""
    record = read_record(config)
    callee = Callee(record, on, lambda: program_of(record, on))
    return callees().setdefault(callee.key, callee)


@alone
def program_of(record: KernelRecord, on: str) -> Program:
    """Compile a record's modules for an executor. Without the kernel's Python there is no eager execution."""
    if record.program is not None:
        return record.program
    from nki_mlir.frontend.capture import Captured, Variant  # start-up: loads MLIR
    variants = {fixed: Variant(module, [], record.structure, 0) for fixed, module in record.modules.items()}
    return executor("interpreter" if on == "eager" else on)(Captured(variants, 0, {}), record.grid)
