# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Represents a kernel as a custom call of a graph: target name, operands, results, and a config that contains the
kernel.

The config is base64 of JSON with the documented keys first. The key ``nki_mlir`` holds the modules of the kernel as
text, so that another process or machine can compile the kernel with nothing but the graph. Reading a config checks it.
A custom C++ operator is such a call as well, with another target; its config only names it (``custom_op``).
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

from nki_mlir.alone import alone, exclusive_property
from nki_mlir.analysis.effects import ArgumentEffects, argument_effects, multiply_accumulates
from nki_mlir.bindings import Module, ir
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.dialects.kernel_function import ArgumentSpec, KernelFunction, the_kernel
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.programs import operator_record
from nki_mlir.passes.levels import Level, check_level
from nki_mlir.passes.safety import check_safe
from nki_mlir.text_limits import check_text

TARGET = "AwsNeuronCustomNativeKernel"
OPERATOR_TARGET = "AwsNeuronCustomOp"       # the call target of custom C++ operators
TARGETS = (TARGET, OPERATOR_TARGET)
CONFIG_VERSION = 1

Fixed = tuple[tuple[int, int], ...]         # program ids that a module was captured for, as (axis, id)
Slot = tuple[str, int]                      # a buffer of the kernel: ("input", n) or ("shared", n)


class BadConfig(NkiMlirError, ValueError):
    code = "NKI-CONFIG"
    message = "the custom call's config cannot be used: {what}"
    fix = "use a config that nki_mlir wrote, unchanged: from FrameworkKernel.dump_config, or lowered by jax.jit"


@dataclass(frozen=True)
class CallForm:
    """The buffers of a kernel that are operands of its call, and those that are results.

    ``operands`` has the numbers of the inputs. ``results`` has the buffers that contain the results of the call,
    returned ones first; ``returned`` maps each returned value to its result. An input in both lists is an aliased
    operand, which the kernel updates in place. An input that is only a result is written and never read.
    """

    operands: tuple[int, ...]
    results: tuple[Slot, ...]
    returned: tuple[int, ...]

    @property
    def aliases(self) -> dict[int, int]:
        """Map operand numbers to result numbers, for inputs that are updated in place."""
        return {k: self.results.index(("input", number)) for k, number in enumerate(self.operands)
                if ("input", number) in self.results}

    def source(self, slot: Slot) -> Slot:
        """Return where the memory of a buffer of the kernel comes from: ("result", n) or ("operand", n)."""
        if slot in self.results:
            return "result", self.results.index(slot)
        return "operand", self.operands.index(slot[1])


@dataclass(frozen=True, eq=False)
class KernelRecord:
    """A captured kernel as text, as a graph carries it; ``key`` identifies it."""

    name: str
    grid: tuple[int, ...]
    structure: str  # the form in which the kernel returns its results: one, tuple, or a literal
    variants: tuple[tuple[Fixed, str], ...]         # the module of each class of programs
    form: CallForm
    output_names: tuple[str, ...]
    target: ClassVar[str] = TARGET

    @cached_property
    def key(self) -> str:
        """The sha256 of the variants, which is the key of the specialization that the call runs."""
        digest = hashlib.sha256()
        for fixed, text in self.variants:
            digest.update(repr(fixed).encode() + text.encode())
        return digest.hexdigest()

    @exclusive_property
    def modules(self) -> dict[Fixed, Module]:
        """Return the modules of the variants in the process's context. Equal texts share a module."""
        read = {text: read_module(text) for _, text in self.variants}
        return {fixed: read[text] for fixed, text in self.variants}

    @exclusive_property
    def signature(self) -> KernelFunction:
        """Return the function of one variant: all variants have the same arguments."""
        return the_kernel(next(iter(self.modules.values())))

    @property
    def inputs(self) -> list[ArgumentSpec]:
        return self.signature.inputs

    @property
    def shared(self) -> list[ArgumentSpec]:
        return self.signature.shared

    @property
    def slots(self) -> list[Slot]:
        """The buffers in the order of the native entry's arguments: inputs, then shared outputs."""
        return [(kind, n) for kind, group in (("input", self.inputs), ("shared", self.shared))
                for n in range(len(group))]

    @property
    def operands(self) -> list[ArgumentSpec]:
        return [self.inputs[number] for number in self.form.operands]

    @property
    def results(self) -> list[ArgumentSpec]:
        return [self.inputs[n] if kind == "input" else self.shared[n] for kind, n in self.form.results]

    @exclusive_property
    def effects(self) -> dict[Slot, ArgumentEffects]:
        """Return the effects of the kernel on each of its buffers."""
        return effects_of(list(self.modules.values()))

    def starts_from_zero(self, slot: Slot) -> bool:
        """Return whether a buffer that is only a result must be zeroed before the kernel runs."""
        return self.effects[slot].reads or not self.effects[slot].covered

    @cached_property
    def has_effects(self) -> bool:
        """Return whether the call has an effect other than its results."""
        return self.has_collectives or any("nki.device_print" in text for _, text in self.variants)

    @cached_property
    def has_collectives(self) -> bool:
        """Return whether the kernel exchanges data with other ranks."""
        return any('over = "ranks"' in text or '"nisa.permute"' in text for _, text in self.variants)

    @cached_property
    def depends_on_rank(self) -> bool:
        """Return whether the kernel exchanges data with other ranks, or asks for its rank."""
        return self.has_collectives or any('"nisa.rank_id"' in text for _, text in self.variants)

    @property
    def program(self) -> Callable[..., None] | None:
        """``run(inputs, shared)`` of a call that is not compiled from modules, else None."""
        return None

    @cached_property
    def config(self) -> str:
        """The ``backend_config``: base64 of the JSON."""
        return base64.b64encode(json.dumps(self.fields()).encode()).decode()

    @alone
    def fields(self) -> dict[str, object]:
        """Return the JSON object of the config, documented keys first."""
        return {
            "kernel_version": 1, "func_name": self.name, "platform_target": self.signature.target,
            "grid": list(self.grid), "input_names": [s.name for s in self.operands],
            "output_names": list(self.output_names),
            "operand_output_aliases": {str(k): n for k, n in self.form.aliases.items()},
            "has_collectives": self.has_collectives, "mac_count": multiply_accumulates(self.signature),
            "klir_binary": self.interface(),
            "nki_mlir": {
                "version": CONFIG_VERSION, "key": self.key, "structure": self.structure,
                "operands": list(self.form.operands), "results": [list(slot) for slot in self.form.results],
                "returned": list(self.form.returned),
                "modules": [{"fixed": [list(pair) for pair in fixed], "text": text} for fixed, text in self.variants]}}

    def interface(self) -> dict[str, object]:
        """Return names and aliases under the keys where other tools look for them. ``binary`` is empty: the config
        contains the kernel."""
        names = [s.name + ".must_alias_input" * (k in self.form.aliases) for k, s in enumerate(self.operands)]
        return {"binary": "", "input_names": names, "output_names": list(self.output_names), "version_identifier": "",
                "aliases": [list(pair) for pair in self.form.aliases.items()]}


@alone
def effects_of(modules: list[Module]) -> dict[Slot, ArgumentEffects]:
    """Return the effects of the variants of one kernel on its buffers. If there are several variants, no buffer
    counts as covered."""
    effects_by_slot: dict[Slot, ArgumentEffects] = {}
    distinct = list(dict.fromkeys(modules))
    for kernel in map(the_kernel, distinct):
        for argument, effects in zip(kernel.arguments, argument_effects(kernel)):
            if argument.kind != "program_id":
                total = effects_by_slot.setdefault((argument.kind, argument.index), ArgumentEffects())
                total.reads |= effects.reads
                total.writes |= effects.writes
                total.covered = effects.covered and len(distinct) == 1
    return effects_by_slot


# -- reading -----------------------------------------------------------------------------------------------------------
@alone
def read_record(config: str) -> KernelRecord:
    """Read the kernel of a config; raises ``BadConfig`` if the config is incomplete or was changed."""
    try:
        fields = json.loads(base64.b64decode(config, validate=True))
        if "custom_op" in fields:
            named: KernelRecord = operator_record(fields["custom_op"])
            return named
        section = fields["nki_mlir"]
        if section["version"] != CONFIG_VERSION:
            raise BadConfig(what=f"it has version {section['version']}, and this nki_mlir reads {CONFIG_VERSION}")
        variants = tuple((tuple((int(a), int(n)) for a, n in m["fixed"]), str(m["text"])) for m in section["modules"])
        form = CallForm(tuple(map(int, section["operands"])), tuple((str(k), int(n)) for k, n in section["results"]),
                        tuple(map(int, section["returned"])))
        record = KernelRecord(str(fields["func_name"]), tuple(map(int, fields["grid"])), str(section["structure"]),
                              variants, form, tuple(map(str, fields["output_names"])))
        if not variants:
            raise BadConfig(what="it has no modules")
        for _, text in variants:
            check_text(text, "<backend_config>")
        if record.key != section["key"]:
            raise BadConfig(what="its modules do not have the key it states")
    except NkiMlirError:
        raise
    except (binascii.Error, UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise BadConfig(what="it is not base64 of JSON") from None
    except KeyError as error:
        raise BadConfig(what=f"it has no {error}") from None
    except (OverflowError, TypeError, ValueError) as error:
        raise BadConfig(what=f"one of its fields is malformed: {error}") from None
    _check_variants(record)
    _check_form(record)
    return record


def _check_variants(record: KernelRecord) -> None:
    """Check that each program of the grid has one module, and all modules the same arguments; raises ``BadConfig``."""
    kernels = [the_kernel(module) for module in record.modules.values()]
    if any(kernel.grid != record.grid for kernel in kernels):
        raise BadConfig(what="its grid differs from the grid of its modules")
    memory = [[(a.shape, a.dtype) for a in (*kernel.inputs, *kernel.shared)] for kernel in kernels]
    if any((len(kernel.inputs), arguments) != (len(record.inputs), memory[0])
           for kernel, arguments in zip(kernels, memory)):
        raise BadConfig(what="the arguments of its modules differ")
    axes = [axis for axis, _ in record.variants[0][0]]
    ids = {tuple(number for _, number in fixed) for fixed, _ in record.variants}
    if (any([axis for axis, _ in fixed] != axes for fixed, _ in record.variants) or len({*axes}) != len(axes)
            or not all(0 <= axis < len(record.grid) for axis in axes)
            or not all(0 <= number < record.grid[axis] for point in ids for axis, number in zip(axes, point))
            or not len(ids) == len(record.variants) == prod(record.grid[axis] for axis in axes)):
        raise BadConfig(what="a program of its grid does not have exactly one module")


def _check_form(record: KernelRecord) -> None:
    """Check that the call form fits the signature: every buffer has exactly one source; raises ``BadConfig``."""
    operands = {("input", number) for number in record.form.operands}
    if operands | set(record.form.results) != set(record.slots) or len(operands) != len(record.form.operands) or len(
            set(record.form.results)) != len(record.form.results):
        raise BadConfig(what="its operands and results are not the buffers of the kernel")
    if not all(0 <= n < len(record.form.results) for n in record.form.returned):
        raise BadConfig(what="it returns results that it does not have")
    if any(effects.writes and slot not in record.form.results for slot, effects in record.effects.items()):
        raise BadConfig(what="its kernel writes an operand that is not a result")


@alone
def read_module(text: str) -> Module:
    """Parse a module from outside in the process's context; raises an error unless it consists of tile operations and
    refers to nothing outside of it."""
    check_text(text, "<backend_config>")
    with shared_context():
        try:
            module = ir.Module.parse(text)
        except ir.MLIRError as error:
            first = error.error_diagnostics[0]
            raise BadConfig(what=f"its module does not parse, {str(first.location)[4:-1]}: {first.message}") from None
    check_level(module, Level.NKI, "in a custom call")
    check_safe(module)
    return module
