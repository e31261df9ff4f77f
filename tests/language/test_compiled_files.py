# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files that a capture leaves for profilers and in the cache, by the environment."""

import os
import re

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.compiled_files import leave_in_cache
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.targets.neuron.format.artifacts import unpack_kernel

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def doubled():
    """A kernel that has not been captured yet."""
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 2.0)
        return out
    return nki.jit(kernel)


def files(folder) -> list[str]:
    return sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file())


@pytest.mark.parametrize("settings, are_left", [
    ({"ENABLE": "1"}, True), ({"ENABLE": "1", "DEVICE_PROFILE": "1"}, True), ({"ENABLE": "1", "DEVICE_PROFILE": "0"}, False),
    ({"ENABLE": "0"}, False), ({"ENABLE": ""}, False), ({}, False)], ids=str)
def test_capture__leaves_the_compiled_kernel_and_its_trace_where_profilers_look(settings, are_left, tmp_path, monkeypatch):
    for name in ("ENABLE", "DEVICE_PROFILE"):
        monkeypatch.delenv(f"NEURON_RT_INSPECT_{name}", raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(f"NEURON_RT_INSPECT_{name}", value)
    monkeypatch.setenv("NEURON_RT_INSPECT_OUTPUT_DIR", str(tmp_path))
    np.testing.assert_array_equal(doubled().on("interpreter")(X), X * 2)
    left = files(tmp_path)
    if not are_left:
        assert left == []
        return
    trace, compiled = left
    match = re.fullmatch(rf"i-model_pid_{os.getpid()}/neff_([0-9a-f]{{16}})\.neff", compiled)
    assert match is not None and trace == f"i-model_pid_{os.getpid()}/{match[1]}_vnc_0.ntff"
    assert len(unpack_kernel((tmp_path / compiled).read_bytes(), compiled).programs) == 1


def test_cache__has_the_compiled_kernel_under_its_key(tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path))
    kernel = doubled()
    capture = kernel.specialize(kernel.bind((X,), {}, is_array, describe_array))
    leave_in_cache(capture)
    assert files(tmp_path) == [f"nki_mlir/MODULE_{int(capture.key[:15], 16)}+{capture.key[16:24]}/model.neff"]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "file"))
    leave_in_cache(capture)                                 # it cannot be written: no error
    assert len(files(tmp_path)) == 2
