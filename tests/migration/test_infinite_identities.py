# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Maxima and minima under masks: elements that a mask leaves out do not count, also beside infinite elements alone."""

import importlib.util

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.migration.files import migrated
from nki_mlir.scalar.dtypes import BY_NAME

KERNELS = '''
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def triangles(x):
    n, m = x.shape
    out = nl.ndarray((n, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    i, j = nl.mgrid[0:n, 0:m]
    tile = nl.load(x)
    nl.store(out[:, 0:1], nl.max(tile, axis=[1], keepdims=True, mask=(j <= i)))
    nl.store(out[:, 1:2], nl.min(tile, axis=[1], keepdims=True, mask=(j <= i)))
    nl.store(out[:, 2:3], nisa.tensor_reduce(np.max, tile, axis=(1,), keepdims=True, mask=(j <= i)))
    nl.store(out[:, 3:4], nisa.tensor_reduce(np.min, tile, axis=(1,), keepdims=True, mask=(j <= i)))
    return out


@nki.jit
def windows(x):
    n, m = x.shape
    high = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    low = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_y, i_dy = nl.arange(n)[:, None, None], nl.arange(m)[None, :, None], nl.arange(3)[None, None, :]
    tile = nl.load(x)
    nl.store(high, nl.max(tile[i_p, i_y + i_dy], axis=[2], mask=(i_y + i_dy < m)))
    nl.store(low, nl.min(tile[i_p, i_y + i_dy], axis=[2], mask=(i_y + i_dy < m)))
    return high, low
'''


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    install()
    folder = tmp_path_factory.mktemp("kernels")
    old = folder / "infinite.py"
    old.write_text(KERNELS)
    one, = migrated(old, "2.32")
    assert not [e for e in one.report.entries if e.left]
    new = folder / "infinite_migrated.py"
    new.write_text(one.new)
    spec = importlib.util.spec_from_file_location(new.stem, new)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return one.new, module


def test_text__names_the_infinities(kernels):
    text, _ = kernels
    assert text.count("on_false_value=-math.inf,") == text.count("on_false_value=math.inf,") == 2
    assert "nl.full((n, m + 2), -math.inf, dtype" in text and "nl.full((n, m + 2), math.inf, dtype" in text


@pytest.mark.parametrize("spelling", ["", "import math", "from math import ceil"])
def test_math__is_imported_once(spelling, tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(spelling + KERNELS)
    one, = migrated(file, "2.32")
    assert one.new.count("import math\n") == 1
    compile(one.new, "kernel.py", "exec")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "uint8"])
@pytest.mark.parametrize("on", ["eager", "interpreter", "jit", "isa"])
def test_extremes_of_infinities__stay_infinite(on, dtype, kernels):
    _, module = kernels
    values = np.random.default_rng(0).integers(0, 100, (24, 32)).astype(np.float32)
    if not dtype.endswith("int8"):
        values[[0, 3, 9]], values[[4, 11]] = -np.inf, np.inf
        values[20, 5:9] = -np.inf
    x = values.astype(BY_NAME[dtype].numpy)
    selected = np.tril(np.ones((24, 32), bool))
    high = np.where(selected, values, -np.inf).max(1)
    low = np.where(selected, values, np.inf).min(1)
    result = np.asarray(module.triangles.run((x,), {}, on), np.float32)
    np.testing.assert_array_equal(result, np.stack([high, low, high, low], 1))
    padded = np.pad(values, ((0, 0), (0, 2)), constant_values=np.nan)
    shifted = np.stack([padded[:, k:k + 32] for k in range(3)])
    for computed, wanted in zip(module.windows.run((x,), {}, on), (np.nanmax(shifted, 0), np.nanmin(shifted, 0))):
        np.testing.assert_array_equal(np.asarray(computed, np.float32), wanted)
