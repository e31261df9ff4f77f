# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels get from elsewhere: options, results of helpers, functions of factories, lists of objects, other files."""

import linecache

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.files import migrated
from nki_mlir.migration.modules import rewritten
from nki_mlir.migration.report import MigrationReport

HEAD = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


"""
RANDOM = np.random.default_rng(3).random((200, 16), np.float32)


def new_text(text):
    report = MigrationReport("kernel.py")
    new = rewritten(HEAD + text, report)
    assert [entry.text for entry in report.entries if entry.left] == []
    return new


def value(text, name, arguments):
    install()
    file = f"helpers of {hash(text)}"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, object] = {}
    exec(compile(text, file, "exec"), scope)
    return np.asarray(scope[name].run(arguments, {}, "eager"))


def same_values(text, name="kernel", arguments=(RANDOM,)):
    new = new_text(text)
    np.testing.assert_allclose(value(new, name, arguments), value(HEAD + text, name, arguments), rtol=3e-7)
    return new


TAIL = """    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    columns = nl.arange(16)[None, :]
    for i in nl.affine_range(2):
        rows = i * 128 + nl.arange(128)[:, None]
        tile = nl.load(x[rows, columns], mask=rows < x.shape[0])
        RESULT
        nl.store(out[rows, columns], result, mask=rows < x.shape[0])
    return out
"""


def with_result(text):
    return TAIL.replace("RESULT", text)


def test_options_become_arguments():
    new = same_values("""def scaled(tile, factor, **opts):
    return nisa.tensor_scalar(tile, np.multiply, factor, **opts)


def plain(tile, **unused): return nl.exp(tile, **unused)


@nki.jit
def kernel(x):
    opts = dict(op1=np.add, operand1=1.0)
    options = {"scale": 0.5, "bias": None}
""" + with_result("result = nisa.activation(op=np.exp, data=scaled(plain(tile), 2.0, **opts), **options)"))
    assert "def scaled(tile, factor, op1=None, operand1=None):" in new and "def plain(tile):" in new
    assert "op0=nl.multiply, operand0=factor, op1=op1, operand1=operand1)" in new
    assert "scaled(plain(tile), 2.0, op1=nl.add, operand1=1.0)" in new and "scale=0.5)" in new and "**" not in new


@pytest.mark.parametrize("line", ['opts["scale"] = 2.0', "opts.update(scale=2.0)", 'opts = {"scale": 2.0}', "use(opts)"])
def test_options_that_may_change_are_left(line):
    report = MigrationReport("kernel.py")
    new = rewritten(f"""{HEAD}@nki.jit
def kernel(x, use):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    opts = {{"scale": 0.5}}
    {line}
    nl.store(out, nisa.activation(np.exp, nl.load(x), **opts))
    return out
""", report)
    assert [e.text for e in report.entries if e.left] == ["nisa.activation with arguments that are unpacked"]
    assert "**opts" in new


def test_a_helper_returns_the_rows_that_a_mask_leaves():
    new = same_values("""def halves(tile, weight):
    rows, columns = tile.shape
    return nl.multiply(tile, 0.5), nl.add(tile, weight)


@nki.jit
def kernel(x):
    weight = nl.broadcast_to(nl.load(x[0:1, :]), shape=(128, 16))
""" + with_result("half, result = halves(tile, weight)\n        result = half * weight + result"))
    assert "nl.add(tile, weight[0:rows])" in new and "nl.multiply(half, weight[0:num_rows])" in new


def test_a_factory_gets_a_function():
    new = new_text("""def make(function, factor):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, function(nl.load(x)) * factor)
        return out
    return kernel


made = make(nl.exp, 0.5)
""")
    assert "nl.store(out, nl.multiply(function(nl.load(x)), factor, dtype=nl.float32))" in new


def test_lists_of_tiles_in_objects():
    new = same_values("""class Bank:
    def __init__(self, count):
        self.tiles = []
        self.named = {}
        self.slots = [None] * count

    def add(self, tile, name):
        self.tiles.append(tile)
        self.named[name] = nl.square(tile)
        self.slots[0] = tile

    def total(self):
        acc = nl.zeros((128, 16), nl.float32)
        for tile in self.tiles:
            acc += tile
        for name, tile in self.named.items():
            acc[...] = nl.add(acc, tile)
        return acc * self.slots[0]


@nki.jit
def kernel(x):
    bank = Bank(1)
    out = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    bank.add(nl.load(x[0:128, :]), "first")
    nl.store(out, bank.total())
    return out
""")
    assert new.count("nisa.tensor_tensor(dst=acc, data1=acc, data2=tile, op=nl.add)") == 2
    assert "return nl.multiply(acc, self.slots[0])" in new


def test_a_parameter_with_a_negative_index_is_a_list():
    new = new_text("def last(tile, weights):\n    return nl.multiply(tile, weights[-1])\n")
    assert "weights[-1]" in new


def test_rows_that_begin_where_the_text_does_not_show():
    new = same_values("""HALF = 64


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:128, :])
    result = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.sbuf)
    size = x.shape[1]
    for i in nl.affine_range(8):
        result[i * size:(i + 1) * size, :] = nl.exp(tile[i * size:(i + 1) * size, :])
        result[i * size:(i + 1) * size, :] += 1.0
    result[16 * 3:16 * 3 + 8, :] = 0.0
    for i in nl.affine_range(2):
        start = i * HALF
        result[start:start + HALF, :] = nl.square(result[start:start + HALF, :])
    nl.store(out, result)
    return out
""")
    assert "nisa.dma_copy(dst=result[nl.ds(i * size, size), :], src=nl.exp(" in new.replace("\n            ", "")
    assert "nisa.activation(dst=result[nl.ds(start, HALF), :], op=nl.square" in new.replace("\n            ", "")


def test_masks_of_another_file(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "masks.py").write_text("""import neuronxcc.nki.language as lang

TILE = 128


def inside(i, count, rows):
    return i * TILE + rows < count


def tile_rows(i):
    return i * TILE + lang.arange(TILE)[:, None]


def halved(tile, weight):
    return lang.multiply(lang.add(tile, weight), 0.5)


def total(tile, rows=True):
    return lang.sum(tile, axis=1, keepdims=True, mask=rows)
""")
    kernel = tmp_path / "kernel.py"
    kernel.write_text(HEAD + """from lib import masks
from lib.masks import halved, tile_rows, total


@nki.jit
def summed(x):
    out = nl.ndarray((64, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, total(nl.load(x[0:64, :])))
    return out


@nki.jit
def masked(x):
    out = nl.ndarray((64, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.zeros((64, 1), x.dtype))
    rows = nl.arange(64)[:, None]
    below = rows < x.shape[1]
    nl.store(out[rows, 0], total(nl.load(x[rows, nl.arange(16)[None, :]], mask=below), below), mask=below)
    return out


@nki.jit
def kernel(x):
    weight = nl.broadcast_to(nl.load(x[0:1, :]), shape=(128, 16))
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    columns = nl.arange(16)[None, :]
    for i in nl.affine_range(2):
        rows = tile_rows(i)
        valid = masks.inside(i, x.shape[0], nl.arange(128)[:, None])
        tile = nl.load(x[rows, columns], mask=valid)
        nl.store(out[rows, columns], halved(tile, weight), mask=valid)
    return out
""")
    alone, = migrated(kernel, "2.32")
    assert [e.text for e in alone.report.entries if e.left] == [
        "masks.py is of the beta generation, too: migrate the directory"]
    files = {file.path.name: file for file in migrated(tmp_path, "2.32")}
    assert all(file.report.is_complete for file in files.values())
    assert """    for i in range(2):
        num_rows = min(128, x.shape[0] - i * 128)
        tile = nl.load(x[nl.ds(i * 128, num_rows), 0:16])
        nl.store(out[nl.ds(i * 128, num_rows), 0:16], halved(tile, weight))
""" in files["kernel.py"].new and "from lib.masks import halved, total\n" in files["kernel.py"].new
    assert "def total(tile, rows=True):" in files["masks.py"].new and "total(nl.load(x[0:64, :]))" in files["kernel.py"].new
    assert "nl.sum(" in files["kernel.py"].new             # the body of the call under a mask
    assert "lang.add(tile, weight[0 : tile.shape[0]]), 0.5" in files["masks.py"].new
    assert "tile_rows" not in files["masks.py"].new


@pytest.mark.parametrize(("shape", "rows"), [((4, 1), 1), ((4, 16), 16), ((4,), 1), ((4, 8, 2), 8)])
def test_part_of_a_tensor_of_unknown_rank(shape, rows):
    """A load of one dimension is a column; the text does not show how many dimensions the part has."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    new = same_values("""def part_of(x, k):
    return nl.load(x[k], dtype=nl.float32)


@nki.jit
def kernel(x, rows, columns):
    out = nl.ndarray((4, rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    for k in nl.affine_range(4):
        nl.store(out[k], part_of(x, k))
    return out
""", arguments=(x, rows, shape[2] if len(shape) == 3 else 1))
    assert "nl.load(as_rows(x[k]), dtype=nl.float32)" in new and "def as_rows(view):" in new


def test_part_of_a_vector_of_which_the_kernel_shows_only_rows():
    """The tile of the numbers has one column, whether the argument has one dimension or two."""
    x = np.arange(64 * 8, dtype=np.float32).reshape(64, 8)
    for shape in ((64,), (64, 1)):
        new = same_values("""@nki.jit
def kernel(x, numbers, shifts, more):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    i_f = nl.arange(columns)[None, :]
    last = nl.load(more)
    for k in nl.affine_range(2):
        i_p = nl.arange(32)[:, None]
        number = nl.load(numbers[nl.ds(k * 32, 32)])
        tile = nl.load(x[number[i_p, 0], i_f]) + nl.load(shifts[k * 32:(k + 1) * 32]) * last[0:32, 0]
        nl.store(out[k * 32 + i_p, i_f], tile)
    return out
""", arguments=(x, np.arange(64, dtype=np.int32)[::-1].reshape(shape).copy(),
                np.linspace(0, 1, 64, dtype=np.float32).reshape(shape), np.ones(shape, np.float32)))
        assert "number = nl.load(as_rows(numbers[nl.ds(k * 32, 32)]))" in new
        assert "nl.load(as_rows(shifts[nl.ds(k * 32, 32)]))" in new and "last = nl.load(as_rows(more))" in new


TILING = """import neuronxcc.nki.language as nl

P_MAX = nl.tile_size.pmax


def row_index(i, size=P_MAX):
    return i * size + nl.arange(P_MAX)[:, None]
"""
IMPORTING = HEAD + """{imports}


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        rows = {prefix}row_index(i)
        tile = nl.load(x[rows, nl.arange(16)[None, :]], mask=rows < x.shape[0])
        nl.store(out[rows, nl.arange(16)[None, :]], tile, mask=rows < x.shape[0])
    return out
"""


@pytest.mark.parametrize(("imports", "prefix", "size"), [
    ("from tiling import P_MAX, row_index", "", "P_MAX"), ("from tiling import P_MAX as P, row_index", "", "P"),
    ("import tiling", "tiling.", "tiling.P_MAX"), ("from .tiling import P_MAX, row_index", "", "P_MAX")])
def test_function_of_another_file_reads_what_the_kernel_imports_of_it(imports, prefix, size, tmp_path):
    (tmp_path / "tiling.py").write_text(TILING)
    (tmp_path / "kernel.py").write_text(IMPORTING.format(imports=imports, prefix=prefix))
    files = {file.path.name: file for file in migrated(tmp_path, "2.32")}
    assert all(file.report.is_complete for file in files.values())
    assert f"tile = nl.load(x[nl.ds(i * {size}, num_rows), 0:16])" in files["kernel.py"].new
    assert "row_index" not in files["tiling.py"].new


def test_function_of_another_file_that_reads_what_the_kernel_lacks_is_left(tmp_path):
    (tmp_path / "tiling.py").write_text(TILING)
    (tmp_path / "kernel.py").write_text(IMPORTING.format(imports="from tiling import row_index", prefix=""))
    assert not all(file.report.is_complete for file in migrated(tmp_path, "2.32"))


def test_helper_whose_shape_another_operand_gets_is_called_once():
    text = """def rotated(t, half):
    rows = t.shape[0]
    p, f = nl.arange(rows)[:, None], nl.arange(half)[None, :]
    r = nl.ndarray((rows, 2 * half), dtype=t.dtype)
    r[p, f] = nl.negative(t[p, half + f])
    r[p, half + f] = nl.copy(t[p, f])
    return r


@nki.jit
def kernel(x, y):
    n, h, d = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    other = nl.load(y)
    for head in nl.affine_range(h):
        tile = nl.load(x[:, head, :])
        nl.store(out[:, head, :], nl.multiply(rotated(tile, d // 2), other))
    return out
"""
    new = new_text(text)
    assert new.count("rotated(") == 2 and "nl.broadcast_to(as_rows(other), wide.shape)" in new
    x, y = RANDOM[:128].reshape(64, 2, 16), RANDOM[:64]
    turned, column = np.concatenate([-x[..., 8:], x[..., :8]], axis=-1), np.ascontiguousarray(y[:, 0])
    np.testing.assert_array_equal(value(new, "kernel", (x, y)), turned * y[:, None])
    np.testing.assert_array_equal(value(new, "kernel", (x, column)), turned * column[:, None, None])


EDGES = """def edge(i, size, limit, inner=None):
    valid = i * size + nl.arange(size)[:, None] < limit
    {combined}


@nki.jit
def kernel(x):
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:64, 0:d]
    for i in nl.affine_range(-(-n // 64)):
        rows = edge(i, 64, n)
        lower = edge(i, 64, n, inner=(f <= i * 64 + p))
        tile = nl.load(x[i * 64 + p, f], mask=rows)
        kept = nl.zeros((64, d), dtype=x.dtype)
        kept[p, f] = nl.multiply(tile, 2.0, mask=lower)
        nl.store(out[i * 64 + p, f], kept, mask=rows)
    return out
"""


@pytest.mark.parametrize("combined", [
    "return valid if inner is None else valid & inner", "return valid & inner if inner is not None else valid",
    "if inner is not None:\n        valid = valid & inner\n    return valid",
    "if inner is None:\n        pass\n    else:\n        valid = valid & inner\n    return valid"])
def test_masks_that_a_helper_combines_with_an_optional_one(combined):
    new = new_text(EDGES.format(combined=combined))
    assert " is None" not in new and "if is_active" not in new and "valid" not in new
    x = RANDOM[:64 * 90].reshape(96, 60)[:80] if RANDOM.ndim == 1 else np.resize(RANDOM, (80, 60))
    np.testing.assert_array_equal(value(new, "kernel", (x,)), np.tril(x) * 2)


@pytest.mark.parametrize("default", ["p = nl.arange(64)[:, None] if p is None else p",
                                     "if p is None:\n        p = nl.arange(64)[:, None]"])
def test_default_of_an_index_vector(default):
    new = same_values(f"""def is_valid(i, n, p=None):
    {default}
    return i * 64 + p < n


@nki.jit
def kernel(x):
    n, d = x.shape
    out = nl.ndarray((n, d), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(64)[:, None], nl.arange(d)[None, :]
    rows = nl.arange(64)[:, None]
    for i in nl.affine_range((n + 63) // 64):
        valid = is_valid(i, n)
        tile = nl.load(x[i * 64 + rows, f], mask=is_valid(i, n, rows))
        nl.store(out[i * 64 + p, f], nl.exp(tile, mask=valid), mask=valid)
    return out
""", arguments=(np.resize(RANDOM, (90, 40)),))
    assert "is_valid" not in new and "        num_rows = min(64, n - i * 64)\n" in new


def test_size_of_an_element():
    new = same_values("""from neuronxcc.nki.language.constants import sizeinbytes


@nki.jit
def kernel(x):
    out = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    columns = 64 // sizeinbytes(x.dtype) // sizeinbytes(nl.uint8)
    for k in nl.affine_range(16 // columns):
        nl.store(out[:, nl.ds(k * columns, columns)], nl.load(x[0:128, nl.ds(k * columns, columns)]))
    return out
""")
    assert "neuronxcc" not in new and "def sizeinbytes(dtype):\n" in new


@pytest.mark.parametrize(("package", "imports", "prefix"), [
    ("from .tiling import P_MAX, row_index\n\n__all__ = ['P_MAX', 'row_index']\n",
     "from .sizes import P_MAX, row_index", ""),
    ("from .tiling import *\n\n__all__ = ['P_MAX', 'row_index']\n", "from .sizes import *", ""),
    ("", "from .sizes import tiling", "tiling.")])
def test_function_that_a_package_hands_on(package, imports, prefix, tmp_path):
    (tmp_path / "sizes").mkdir()
    (tmp_path / "sizes" / "__init__.py").write_text(package)
    (tmp_path / "sizes" / "tiling.py").write_text(TILING)
    (tmp_path / "kernel.py").write_text(IMPORTING.format(imports=imports, prefix=prefix))
    files = {str(file.path.relative_to(tmp_path)): file for file in migrated(tmp_path, "2.32")}
    assert all(file.report.is_complete for file in files.values())
    assert "row_index" not in "".join(file.new for file in files.values())
    assert "tile = nl.load(x[nl.ds(i * " in files["kernel.py"].new


def test_parameter_that_only_a_default_function_reads_is_a_tile():
    """`gate` is a tile, because the function that reads it, `act`, computes with tiles."""
    new = same_values("""def gated(tile, gate, act=nl.sigmoid, scale=1.0):
    return nl.multiply(tile, scale) * act(gate)


@nki.jit
def kernel(x):
    def halved(tile, gate, scale=0.5):
        return gated(tile, gate, scale=scale)

""" + with_result("result = halved(tile, tile)"))
    assert "act(gate))" in new


def test_names_of_an_inlined_helper():
    """The results get the names that the caller gives them, and locals keep theirs if these are free."""
    new = same_values("""def halves(tile, rows, columns, dtype=None):
    low = nl.copy(tile[rows, columns], dtype=dtype or tile.dtype)
    high = nl.copy(tile[rows, columns + 8])
    return low, high


def store(out, tile, rows, columns, mask):
    product = tile * 2.0
    nl.store(out[rows, columns], product, mask=mask)


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, columns = nl.arange(100)[:, None], nl.arange(8)[None, :]
    for i in nl.affine_range(2):
        tile = nl.load(x[nl.ds(i * 100, 100), :])
        first, second = halves(tile, rows, columns)
        second, first = halves(tile, rows, columns)
        store(out, first - second, i * 100 + rows, columns, i * 100 + rows < 200)
        nl.store(out[i * 100 + rows, columns + 8], second)
    return out
""")
    assert "first = nl.copy(tile[:, 0:8], dtype=tile.dtype)" in new and "second = nl.copy(tile[:, 0:8]" in new
    assert "product = " in new and "product_2" not in new
