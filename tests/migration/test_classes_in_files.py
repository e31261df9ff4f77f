# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classes that load, compute and store tiles, in another file than the kernels that create their objects."""

import pytest

from nki_mlir.cli import migrate

TILES = """import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


class RowTiles:
    def __init__(self, tensor, size=128):
        self.tensor, self.size = tensor, size
        self.rows, self.cols = tensor.shape

    def count(self):
        return -(-self.rows // self.size)

    def load(self, i):
        p, f = nl.mgrid[0:self.size, 0:self.cols]
        return nl.load(self.tensor[i * self.size + p, f], mask=(i * self.size + p < self.rows))

    def store(self, i, value):
        p, f = nl.mgrid[0:self.size, 0:self.cols]
        nl.store(self.tensor[i * self.size + p, f], value=value, mask=(i * self.size + p < self.rows))
"""
KERNELS = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
IMPORT


@nki.jit
def scaled(x, gain):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    source, target = CLASS(x), CLASS(out)
    wide = nl.load(gain).broadcast_to((128, x.shape[1]))
    for i in nl.affine_range(source.count()):
        tile = source.load(i)
        target.store(i, nl.multiply(nl.exp(tile), wide))
    return out


def cases():
    x = np.random.default_rng(0).standard_normal((200, 24)).astype(np.float32)
    return [(scaled, (x, x[:1]))]
"""


@pytest.mark.parametrize("import_line, name", [
    ("from .tiles import RowTiles", "RowTiles"), ("from .tiles import RowTiles as Rows", "Rows")])
@pytest.mark.parametrize("file", ["kernels", "zone"])      # before and after the file of the class
def test_classes_of_another_file(import_line, name, file, tmp_path, capsys):
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "tiles.py").write_text(TILES)
    (folder / f"{file}.py").write_text(KERNELS.replace("IMPORT", import_line).replace("CLASS", name))
    assert migrate.main([str(folder), "--in-place", "--check", "cases"]) == 0
    told = capsys.readouterr().err
    assert told.count("scaled on ") == told.count("the same values") == 4, told
    tiles, kernels = (folder / "tiles.py").read_text(), (folder / f"{file}.py").read_text()
    assert "return nl.load(self.tensor[nl.ds(i * self.size, num_rows), 0 : self.cols])" in tiles
    assert "nl.multiply(nl.exp(tile), wide[0 : tile.shape[0]])" in kernels
