# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors and warnings of instructions name the user's parameters, not the fields of the operation's class."""

import inspect
import linecache
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace

import pytest

from nki_mlir.diagnostics import DeviceRuleWarning, NkiMlirError, shown
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.language.current import isa, language, nki
from nki_mlir.language.documentation.page import ISA
from nki_mlir.language.signatures.table import BETA, CURRENT

from ..language.example_kernels import Example, Tile, example_of, public

nl, nisa = language, isa
FIELDS = {field.name for cls in REGISTRY.values() for field in cls.tiles}
EXAMPLES = {f"{name} of {generation}": example for generation in (BETA, CURRENT) for name in public(ISA, generation)
            if (example := example_of(ISA, name, generation)).tiles and not example.ranks}

NAMED = re.compile(r"operand '(\w+)'|'(\w+)\[|\b(src|lhs|rhs)\b")
CORRECT = {"core_barrier", "rand_set_state", "register_alloc", "register_move", "iota", "memset",
           "sequence_bounds"}           # they take such tiles, or none


def changed(tile: Tile) -> list[Tile]:
    """Return wrong tiles: in another memory, of another dtype, of another shape."""
    *rows, columns = tile.shape
    return [replace(tile, memory="sbuf" if tile.memory == "hbm" else "hbm"),
            replace(tile, dtype="float32" if tile.dtype != "float32" else "uint16"),
            replace(tile, shape=(*rows, columns + 1))]


def headline(example: Example) -> str:
    """Return the rule that the example's instruction breaks, with the fix; "" if it breaks none."""
    try:
        example.kernel().run(example.arrays, {}, "eager")
    except NkiMlirError as error:
        if error.at is not None and f"nisa.{example.name}(" in linecache.getline(error.at.file, error.at.line):
            return f"{error.headline} {error.advice[1]}"
    return ""


def variants(example: Example) -> Iterator[Example]:
    """Yield the example with each tile changed to a wrong one, and with operands at partitions where no engine starts."""
    for label, tile in example.tiles.items():
        for wrong in changed(tile):
            yield replace(example, tiles=example.tiles | {label: wrong})
    for labels in (*example.tiles, "|".join(example.tiles)):
        yield replace(example, code=[re.sub(rf"\b({labels})\b(?=[,)])", r"\1[5:25]", line) for line in example.code])


def names_field(example: Example, text: str) -> bool:
    """Return whether a text names a field that is not a parameter of the functions that the example calls."""
    functions = public(ISA, example.generation)
    called = {name for line in example.code for name in re.findall(r"nisa\.(\w+)\(", line)}
    foreign = FIELDS - {p for name in called for p in inspect.signature(functions[name]).parameters} - {"dst"}
    return bool(foreign & {word for words in NAMED.findall(text) for word in words})


@pytest.mark.share(3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXAMPLES)
def test_errors__name_parameters(name):
    texts = [headline(example) for example in variants(EXAMPLES[name])]
    assert any(texts) or EXAMPLES[name].name in CORRECT
    assert not [text for text in texts if names_field(EXAMPLES[name], text)]


def test_warnings__name_parameters(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "warn")             # also of rules that are certain
    warned = {}
    for name, example in EXAMPLES.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for variant in variants(example):
                shown.clear()
                headline(variant)
        texts = [str(w.message) for w in caught if w.category is DeviceRuleWarning]
        assert not [text for text in texts if names_field(example, text)]
        warned |= {name: texts} if texts else {}
    assert len(warned) > 50


def test_operands_of_one_buffer__are_named_in_order():
    @nki.jit
    def kernel():
        tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum)
        nisa.tensor_tensor(dst=nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf), data2=tile, data1=tile, op=nl.add)
    with pytest.raises(NkiMlirError, match="'tensor_tensor': at most one of data1 and data2 may be in PSUM"):
        kernel()
