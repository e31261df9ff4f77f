# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Methods of classes of the host that get index vectors."""

import pytest

from nki_mlir.compat import install
from nki_mlir.migration.files import migrated
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport
from nki_mlir.migration.tile_objects import VECTOR

from .test_migration import loaded
from .test_text import floats

TEXT = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

ZERO = 0
upper = 1000


class Tiles:
    size = 32

    def __init__(self, rows):
        self.rows = rows

    def row(self, i, ip):
        \"\"\"Return the rows of a tile.\"\"\"
        return i * self.size + ip

    def valid(self, i, ip):
        {valid}


@nki.jit
def kernel(x):
    tiles = Tiles(x.shape[0])
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ip, jf = nl.mgrid[0:32, 0:16]
    for i in nl.affine_range(3):
        tile = nl.load(x[tiles.row(i, ip), jf], mask=tiles.valid({arguments}))
        nl.store(out[tiles.row(i, ip), jf], nl.exp(tile), mask=tiles.valid({arguments}))
    return out
"""
VALID = "return i * self.size + ip < self.rows"


@pytest.mark.parametrize("valid, arguments", [
    (VALID, "i, ip"), (VALID.replace("<", "+ ZERO <"), "i, ip"), (VALID, "(i + 1) - 1, ip"), (VALID, "i, ip=ip"),
    ("first, limit = i * self.size, self.rows; row = first + ip; return row < limit", "i, ip")])
def test_value_replaces_the_call(valid, arguments, tmp_path):
    text, report = TEXT.format(valid=valid, arguments=arguments), MigrationReport("kernel.py")
    new = rewritten(text, report)
    assert report.is_complete and "tiles.rows - " in new and "tiles.valid(" not in new
    install()
    values = []
    for name, source in (("methods_old", text), ("methods_new", new)):
        (tmp_path / f"{name}.py").write_text(source)
        values.append(loaded(tmp_path / f"{name}.py", name).kernel.run((floats(70, 16),), {}, "eager"))
    assert (values[0] == values[1]).all()


@pytest.mark.parametrize(("valid", "arguments"), [
    ("limit = self.rows; limit += 1; return i * self.size + ip < limit", "i, ip"), ("return i * self.size + ip < upper", "i, ip"),
    (VALID, "*(i, ip)"),
    (VALID + "\n\nclass Other:\n    def valid(self, i, ip):\n        return ip < i", "i, ip")])
def test_calls_of_other_methods_are_left(valid, arguments):
    report = MigrationReport("kernel.py")
    rewritten(TEXT.format(valid=valid, arguments=arguments), report)
    assert not report.is_complete


GRIDS = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


class Grid:
    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns

    {grids}

    def inside(self, i):
        {inside}


@nki.jit
def kernel(x):
    grid = Grid(*x.shape)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(3):
        ip, jf = {call}
        valid = grid.inside(i)
        tile = nl.load(x[ip, jf], mask=valid)
        nl.store(out[ip, jf], nl.exp(tile, mask=valid), mask=valid)
    return out
"""
AT = "def at(self, i, width=24): return i * 32 + nl.arange(32)[:, None], nl.arange(width)[None, :]"
ROWS = """def row(self, first, size=32): return first + nl.arange(size)[:, None]

    def column(self): return nl.arange(24)[None, :]"""


STATIC = "@staticmethod\n    " + AT.replace("self, ", "")
OF_CLASS = "size = 32\n\n    @classmethod\n    " + AT.replace("self, ", "cls, ").replace("32", "cls.size")
PROPERTIES = """@property
    def ip(self): return nl.arange(32)[:, None]

    @property
    def jf(self): return nl.arange(24)[None, :]"""
FIRST = "self.rows, self.columns = rows, columns"
AT_ATTRIBUTES = "def at(self, i): return i * 32 + self.ip, self.jf"
INSIDE = "return (i * 32 + self.ip < self.rows) & (self.jf < self.columns)"
TWO = "ip, jf = self.at(i); return (ip < self.rows) & (jf < self.columns)"


@pytest.mark.parametrize(("grids", "inside", "call"), [
    (STATIC, TWO.replace("self.at", "Grid.at"), "Grid.at(i)"), (STATIC, TWO, "grid.at(i)"), (OF_CLASS, TWO, "grid.at(i)"),
    (PROPERTIES, INSIDE, "i * 32 + grid.ip, grid.jf"),
    (AT, "ip, jf = self.at(i); return (ip < self.rows) & (jf < self.columns)", "grid.at(i)"),
    (AT, "ip, jf = self.at(i, 24); return (ip < self.rows) & (jf < self.columns)", "grid.at(width=24, i=i)"),
    (ROWS, "return (self.row(first=i * 32) < self.rows) & (self.column() < self.columns)",
     "grid.row(i * 32), grid.column()"),
    ("def mesh(self): return nl.mgrid[0:32, 0:24]",
     "ip, jf = self.mesh(); return (i * 32 + ip < self.rows) & (jf < self.columns)",
     "i * 32 + grid.mesh()[0], grid.mesh()[1]")])
def test_methods_that_return_new_index_vectors(grids, inside, call, tmp_path):
    assert_same(GRIDS.format(grids=grids, inside=inside, call=call), tmp_path)


@pytest.mark.parametrize(("vectors", "inside"), [
    ("nl.mgrid[0:32, 0:24]", INSIDE), ("nl.arange(32)[:, None], nl.arange(24)[None, :]", TWO)])
def test_index_vectors_in_attributes(vectors, inside, tmp_path):
    text = GRIDS.format(grids=AT_ATTRIBUTES, inside=inside, call="grid.at(i)")
    assert_same(text.replace(FIRST, f"{FIRST}\n        self.ip, self.jf = {vectors}"), tmp_path)


def assert_same(text, tmp_path):
    report = MigrationReport("kernel.py")
    new = rewritten(text, report)
    assert report.is_complete
    install()
    values = []
    for name, source in (("grids_old", text), ("grids_new", new)):
        (tmp_path / f"{name}.py").write_text(source)
        values.append(loaded(tmp_path / f"{name}.py", name).kernel.run((floats(70, 20),), {}, "eager"))
    assert (values[0] == values[1]).all()


def test_an_index_vector_in_an_attribute_that_depends_on_another_is_left():
    text = GRIDS.format(grids=AT_ATTRIBUTES, inside=INSIDE, call="grid.at(i)")
    text = text.replace(FIRST, f"{FIRST}\n        self.ip, self.jf = nl.mgrid[0:32, 0:self.columns + 4]")
    report = MigrationReport("kernel.py")
    rewritten(text, report)
    assert [entry.text for entry in report.entries if entry.left] == [VECTOR]


SLICES = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


class Windows:
    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns

    def part(self, i):
        return nl.ds(i * self.rows, self.rows)

    def window(self, i):
        return nl.ds(i * self.rows, self.rows), nl.ds(0, self.columns)


@nki.jit
def kernel(x, windows):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(2):
        rows = windows.part(i)
        tile = nl.zeros((windows.rows, windows.columns), dtype=x.dtype)
        tile[:, 0:windows.columns] = nl.load(x[rows, :])
        p, f = windows.window(i)
        nl.store(out[p, f], nl.exp(tile))
    return out
"""


def test_methods_that_return_slices():
    report = MigrationReport("kernel.py")
    text = rewritten(SLICES, report)
    assert report.is_complete
    assert "src=x[rows, :])" in text and "nl.store(out[p, f], nl.exp(tile))" in text


def test_methods_of_a_class_of_another_file_read_its_constants(tmp_path):
    (tmp_path / "tiles.py").write_text("""import neuronxcc.nki.language as nl

SIZE = 32


class Tiles:
    def __init__(self, rows):
        self.rows = rows

    def index(self, i):
        return i * SIZE + nl.arange(SIZE)[:, None]

    def valid(self, i):
        return i * SIZE + nl.arange(SIZE)[:, None] < self.rows
""")
    (tmp_path / "kernel.py").write_text("""import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
from tiles import Tiles


@nki.jit
def kernel(x):
    tiles = Tiles(x.shape[0])
    for i in nl.affine_range(3):
        tile = nl.load(x[tiles.index(i), nl.arange(16)[None, :]], mask=tiles.valid(i))
""")
    new = {file.path.name: file for file in migrated(tmp_path, "2.32")}
    assert """        num_rows = min(32, tiles.rows - i * 32)
        tile = nl.load(x[nl.ds(i * 32, num_rows), :])
""" in new["kernel.py"].new.replace("0:16", ":").replace("0 : 16", ":") and new["kernel.py"].report.is_complete


GRID = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


class Grid:
    \"\"\"Index vectors of tiles.\"\"\"

    def __init__(self, rows, cols):
        self.rows, self.cols = rows, cols

    def at(self, i):
        return self.row(i), nl.arange(self.cols)[None, :]

    def row(self, i):
        return i * 32 + nl.arange(32)[:, None]

    def valid(self, i):
        return self.row(i) < self.rows

    def count(self):
        return (self.rows + 31) // 32


@nki.jit
def kernel(x):
    grid = Grid(x.shape[0], x.shape[1])
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(grid.count()):
        p, f = grid.at(i)
        tile = nl.load(x[p, f], mask=grid.valid(i))
        nl.store(out[p, f], nl.exp(tile), mask=grid.valid(i))
    return out
"""


@pytest.mark.parametrize("other, removed", [("", ["at", "row", "valid"]), ("def f(grid):\n    return grid.valid(3)\n", ["at", "row"])])
def test_methods_whose_values_have_replaced_all_calls_go(other, removed, tmp_path):
    file = tmp_path / "grid.py"
    file.write_text(GRID)
    (tmp_path / "other.py").write_text(f"import grid\n\n\n{other}")
    result, = [m for m in migrated(tmp_path, "2.32") if m.path == file]
    assert [e.text for e in result.report.entries if e.text.startswith("the method")] == [
        f"the method {name} is removed: its value has replaced all calls" for name in removed]
    methods = [line.split("(")[0].strip() for line in result.new.splitlines() if line.startswith("    def ")]
    assert methods == ["def __init__", *(f"def {name}" for name in ("at", "row", "valid", "count") if name not in removed)]
    assert [(e.line, e.text) for e in result.report.entries if e.left] == [
        (17, "valid returns index vectors or masks: let it return starts and sizes instead")] * bool(other)
    assert ("nl.arange" in result.new) is bool(other)
