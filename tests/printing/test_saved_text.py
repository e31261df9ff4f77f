# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A loop that cannot be printed as one is printed again from the state before it."""

from dataclasses import fields

from nki_mlir.machine import machine_named
from nki_mlir.printing.index_text import IndexText, IndexValues
from nki_mlir.printing.kernel_text import KernelText


def content(text: KernelText) -> dict[str, object]:
    return {field.name: repr(getattr(text, field.name)) for field in fields(KernelText)}


def change(text: KernelText, number: int) -> None:
    """Add a number to each list, set and table, and count each number up."""
    for name, value in [*vars(text).items()]:
        match value:
            case list():
                value.append(number)
            case set():
                value.add(number)
            case dict():
                value[number] = number
            case IndexValues():
                value.texts[number] = IndexText(number)
            case bool():
                setattr(text, name, not value)
            case int():
                setattr(text, name, value + 1)
            case tuple():
                setattr(text, name, (*value, 1))


def test_state__is_restored_completely_and_more_than_once() -> None:
    text = KernelText(False, machine_named("trn2"))
    change(text, 1)
    before, saved = content(text), text.saved()
    for number in (2, 3):
        change(text, number)
        assert {name for name, shown in content(text).items() if before[name] == shown} == {
            "machine", "release", "placement", "program_id", "line", "orders"}
        assert content(saved) == before
        text.restore(saved)
        assert content(text) == before
