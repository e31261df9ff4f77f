# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Methods that compute on tiles, and the classes that are left."""

from pathlib import Path

import pytest

from nki_mlir.migration.files import migrated

OBJECTS = Path(__file__).parent / "kernels" / "objects.py"
SOURCE = """from dataclasses import dataclass

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


class Total:
    def __init__(self, rows, dtype):
        self.tile = nl.zeros((rows, 1), dtype=dtype)

    def add(self, value):
        self.tile[...] = nl.add(self.tile, value)


@nki.jit
def kernel(x, flag=False):
    out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    total = Total(128, nl.float32)
    total.add(nl.load(x[0:128, 0:1]))
    nl.store(out, total.tile)
    return out
"""


def text_of(folder, source):
    file = folder / "kernel.py"
    file.write_text(source)
    result, = migrated(file, "2.32")
    return result.new, [entry.text.partition(",")[0] for entry in result.report.entries if entry.left]


def test_methods_are_rewritten_for_the_facts_of_attributes(tmp_path):
    text, left = text_of(tmp_path, SOURCE)
    assert left == []
    assert "class Total(nl.NKIObject):\n" in text
    assert "self.tile = nl.zeros((rows, 1), dtype=dtype, buffer=nl.sbuf)\n" in text
    assert "nisa.tensor_tensor(dst=self.tile, data1=self.tile, data2=value, op=nl.add)\n" in text


def test_methods_without_an_object_stay_as_they_are(tmp_path):
    host = "    @staticmethod\n    def rows():\n        return 128\n\n    def add("
    text, left = text_of(tmp_path, SOURCE.replace("    def add(", host).replace("Total(128,", "Total(Total.rows(),"))
    assert left == []
    assert host in text and "total = Total(Total.rows(), nl.float32)\n" in text
    assert "nisa.tensor_tensor(dst=self.tile, data1=self.tile, data2=value, op=nl.add)\n" in text


def test_properties_and_static_methods_are_functions(tmp_path):
    methods = """    @property
    def half(self):
        return self.tile * 0.5

    @property
    def first(self):
        return self.tile[0:1]

    @staticmethod
    def squared(tile):
        return tile * nl.copy(tile)

    def add("""
    text, left = text_of(tmp_path, SOURCE.replace("    def add(", methods).replace(
        "nl.store(out, total.tile)", "nl.store(out, total.half + Total.squared(total.squared(total.tile)))"))
    assert left == []
    assert "        return nl.multiply(self.tile, 0.5)\n" in text
    assert "        return nl.multiply(tile, nl.copy(tile))\n" in text
    assert "    nl.store(out, nl.add(total.half, Total.squared(total.squared(total.tile))))\n" in text


def test_attributes_of_two_objects_have_what_both_have(tmp_path):
    """The tile of one is bfloat16, so that nothing says what the sum of both tiles is."""
    more = SOURCE.replace("    total.add(", "    other = Total(128, nl.bfloat16)\n    other.add(total.tile)\n    total.add(")
    text, left = text_of(tmp_path, more.replace("nl.store(out, total.tile)", "nl.store(out, total.tile - other.tile)"))
    assert left == []
    assert "nl.store(out, nl.subtract(total.tile, other.tile))\n" in text


def test_objects_in_objects_and_records_have_methods():
    result, = migrated(OBJECTS, "2.32")
    assert not [entry for entry in result.report.entries if entry.left]
    assert "m = self.mean()\n" in result.new and "self.stats.add(tile)\n" in result.new
    assert "return nl.load(self.src[nl.ds(r, self.rows), nl.ds(c, self.cols)], dtype=dtype or self.src.dtype)\n" in (
        result.new.replace("\n            ", "").replace(",\n        )", ")"))


@pytest.mark.parametrize(("old", "new"), [
    ("self.tile[...] = nl.add(self.tile, value)", "self.tile = nl.add(self.tile, value)"),
    ("        self.tile = ", "        if rows > 1:\n            self.tile = "),
    ("class Total:", "class Base:\n    pass\n\n\nclass Total(Base):"),
    ("class Total:", "@register\nclass Total:"),
    ("    def add(", "    @classmethod\n    def add("),
    ("    total.add(", "    total.tile = nl.zeros((128, 1), dtype=nl.float32)\n    total.add("),
    ("@nki.jit", "class Last(Total):\n    pass\n\n\n@nki.jit")], ids=[
        "assigned again", "under a condition", "extends", "decorated", "class method", "assigned outside", "extended"])
def test_classes_whose_attributes_are_not_known_are_left(old, new, tmp_path):
    assert old in SOURCE
    text, left = text_of(tmp_path, SOURCE.replace(old, new))
    assert "the class Total" in left
    assert "class Total(nl.NKIObject)" not in text
