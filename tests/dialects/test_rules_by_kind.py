# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules that many classes ask of their ``Check``, each violated once, with the whole sentence that says so.

What the classes ask is written down first; each of those rules is then broken.
"""

from typing import Any

import pytest

from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.access import PSUM, SBUF, Access, Tile
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.dialects.verification import verify
from nki_mlir.dialects.verifier import Check
from nki_mlir.scalar.alu import ALU
from nki_mlir.scalar.dtypes import ALL, BY_MLIR

from .findings import full, headline
from .samples import COLUMN, SAMPLES, A, tile

Rule = tuple[str, str, tuple]           # op, kind of rule, its arguments


class Listening(Check):
    """Records the rules that ``verify`` requests, then checks them."""

    def __init__(self, op: Op) -> None:
        super().__init__(op)
        self.heard: list[tuple[str, tuple]] = []

    def on_chip(self, *labels: str) -> None:
        self.heard += [("spaces", (label, PSUM, SBUF)) for label in labels if getattr(self.op, label) is not None]
        super().on_chip(*labels)

    def alu(self, attribute: str, *operands: int) -> None:
        self.heard.append(("one_of", (attribute, tuple(n for n, op in ALU.items() if op.arity in operands))))
        super().alu(attribute, *operands)

    def spaces(self, *arguments: Any) -> None:
        self.heard.append(("spaces", arguments))
        super().spaces(*arguments)

    def same_shape(self, *arguments: Any) -> None:
        self.heard.append(("same_shape", arguments))
        super().same_shape(*arguments)

    def dtype(self, *arguments: Any) -> None:
        self.heard.append(("dtype", arguments))
        super().dtype(*arguments)

    def integers(self, *arguments: Any) -> None:
        self.heard += [("integers", (label,)) for label in arguments]
        super().integers(*arguments)

    def one_of(self, attribute: str, allowed: Any) -> None:
        self.heard.append(("one_of", (attribute, tuple(allowed))))
        super().one_of(attribute, allowed)

    def shape(self, *arguments: Any) -> None:
        self.heard.append(("shape", arguments))
        super().shape(*arguments)

    def per_partition(self, *labels: str) -> None:
        self.heard += [("per_partition", (label,)) for label in labels if getattr(self.op, label) is not None]
        super().per_partition(*labels)

    def at_most(self, label: str, dim: int, extent: int, limit: int) -> None:
        self.heard.append(("at_most", (label, dim, limit)))
        super().at_most(label, dim, extent, limit)


def bit_changes(name: str) -> dict[str, Any] | None:
    """Attributes and tiles that make a bit operation of the sample; None where the class has none."""
    cls = REGISTRY[name]
    fields = [f for f in ("op", "op0", "op1") if f in cls.attributes]
    tiles = {label: text.rpartition("x")[0] + "xi32" for label, text in SAMPLES[name].tiles.items()}
    negate = {"negate": False} if "negate" in cls.attributes else {}
    changes = {**tiles, **dict.fromkeys(fields, "bitwise_and"), **negate}
    try:
        verify(SAMPLES[name].make(**changes))
    except KernelError:
        return None
    return changes if fields else None


def rules_of(op: Op) -> list[Rule]:
    check = Listening(op)
    op.verify(check)
    return [(op.full_name(), kind, arguments) for kind, arguments in check.heard]


def all_rules() -> list[Rule]:
    rules: dict[Rule, None] = {}
    for name in sorted(SAMPLES):
        rules |= dict.fromkeys(rules_of(full(name)))
        if (changes := bit_changes(name)) is not None:
            rules |= dict.fromkeys(r for r in rules_of(SAMPLES[name].make(**changes)) if r[1] == "integers")
    return list(rules)


RULES = all_rules()


def rule_id(value: Any) -> str:
    return "-".join([value[0], value[1], str(value[2][0])]) if isinstance(value, tuple) and len(value) == 3 else ""


def of_kind(kind: str) -> Any:
    return pytest.mark.parametrize("rule", [r for r in RULES if r[1] == kind], ids=rule_id)


def in_space(t: Tile, space: str) -> Tile:
    return tile(f"{space} {'x'.join(map(str, t.shape))}x{t.dtype.mlir}", t.label)


@of_kind("spaces")
def test_memory(rule: Rule) -> None:
    name, _, (label, *excluded) = rule
    short_name = name.partition(".")[2]
    operand = getattr(full(name), label) or getattr(full(name, **{label: COLUMN}), label)       # an optional result
    for space in {"hbm", "sbuf", "psum"} - set(excluded):
        first = next(r for r in RULES if r[:2] == (name, "spaces") and r[2][0] == label and space not in r[2])
        allowed = first[2][1:]
        assert headline(full(name, **{label: in_space(operand, space)})) == (
            f"Expected operand '{label}' of '{short_name}' to be in address space '{'|'.join(allowed)}', "
            f"but got a tile in '{space}' instead.")


def resized(t: Tile, axis: int) -> Tile:
    extents = [n + (k == axis % len(t.shape)) for k, n in enumerate(t.shape)]
    return tile(f"{t.space} {'x'.join(map(str, extents))}x{t.dtype.mlir}", t.label)


@of_kind("same_shape")
def test_shapes_that_differ(rule: Rule) -> None:
    name, _, labels = rule
    short_name, first = name.partition(".")[2], getattr(full(name), labels[0])
    for label in labels[1:]:
        operand = getattr(full(name), label)
        wider = resized(operand, -1)
        assert headline(full(name, **{label: wider})) == (
            f"'{short_name}' needs operands of the same shape, got {labels[0]}{list(first.shape)} and "
            f"{label}{list(wider.shape)}")
        if first.on_chip and operand.on_chip and name != "nisa.nc_match_replace8":   # its vals are looked at first
            taller = resized(operand, 0)
            shapes = {k: list((taller if k == label else getattr(full(name), k)).shape) for k in labels}
            assert headline(full(name, **{label: taller})) == (
                "number of partitions (dimension 0 size of a tile) mismatch in parameters "
                f"({', '.join(f'{k}{v}' for k, v in shapes.items())}) of '{short_name}'")


@of_kind("shape")
def test_shapes_that_follow(rule: Rule) -> None:
    name, _, (label, expected) = rule
    wrong = resized(getattr(full(name), label), -1)
    problem = f"has shape {list(wrong.shape)}, which must be {list(expected)}"
    if label == "reduce_res":
        problem = f"has {wrong.free_elements} values in each partition; it must have one"
    assert headline(full(name, **{label: wrong})) == f"operand '{label}' of '{name.partition('.')[2]}' {problem}"


def retyped(t: Tile, dtype: Any) -> Tile:
    return Tile(t.handle, t.space, t.base_shape, dtype, Access(dtype, t.access.partition, t.access.free, t.access.dims),
                t.label)


@of_kind("dtype")
def test_dtypes(rule: Rule) -> None:
    name, _, (label, *allowed) = rule
    wrong = next(d for d in ALL if d not in allowed)
    assert headline(full(name, **{label: retyped(getattr(full(name), label), wrong)})) == (
        f"operand '{label}' of '{name.partition('.')[2]}' has dtype {wrong}, "
        f"which must be {' or '.join(map(str, allowed))}")


@of_kind("per_partition")
def test_one_value_a_partition(rule: Rule) -> None:
    name, _, (label,) = rule
    op = name.partition(".")[2]
    assert headline(full(name, **{label: A})) == (
        f"operand '{label}' of '{op}' has 6 values in each partition; it must have one")
    assert f", {label}[3, 1]) of '{op}'" in headline(full(name, **{label: "sbuf 3x1xf32"}))


@of_kind("integers")
def test_integers(rule: Rule) -> None:
    name, _, (label,) = rule
    changes = bit_changes(name) or {}
    wrong = retyped(getattr(SAMPLES[name].make(**changes), label), BY_MLIR["bf16"])
    assert headline(SAMPLES[name].make(**(changes | {label: wrong}))) == (
        f"operand '{label}' of '{name.partition('.')[2]}' has dtype bfloat16, which must be an integer type")


@of_kind("one_of")
def test_names_that_mean_nothing(rule: Rule) -> None:
    name, _, (attribute, _) = rule
    first = next(r for r in RULES if r[:2] == (name, "one_of") and r[2][0] == attribute)
    allowed = first[2][1]
    assert headline(full(name, **{attribute: "nonsense"})) == (
        f"attribute '{attribute}' of '{name.partition('.')[2]}' is 'nonsense', "
        f"which must be one of {', '.join(map(str, allowed))}")


@pytest.mark.parametrize("name", [n for n in sorted(SAMPLES) if REGISTRY[n].engines])
def test_engine_that_cannot_run_it(name: str) -> None:
    able = [e.value for e in REGISTRY[name].engines]
    for engine in {"tensor", "vector", "scalar", "gpsimd", "sync", "warp"} - set(able):
        assert headline(full(name, engine=engine)) == (
            f"attribute 'engine' of '{name.partition('.')[2]}' is '{engine}', "
            f"which must be one of unknown, {', '.join(able)}")
