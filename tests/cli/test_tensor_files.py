# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A tensor argument that names a file alone has the file's shape, dtype and values."""

import os

import ml_dtypes
import numpy as np
import pytest

from nki_mlir.array_files import UnreadableArray, read_array
from nki_mlir.cli import arguments
from nki_mlir.cli.arguments import BadArgumentText, fill, tensor_of_file
from nki_mlir.input_limits import InputTooLarge
from nki_mlir.scalar.dtypes import FLOAT32

NAMED = ("float32", "float16", "int32", "uint32", "int16", "uint16", "int8", "uint8")


@pytest.mark.parametrize("values", (True, False))
@pytest.mark.parametrize("name", NAMED)
def test_file__names_shape_and_dtype(name, values, tmp_path):
    array = np.arange(6).reshape(2, 3).astype(name)
    np.save(tmp_path / "x.npy", array)
    tensor = tensor_of_file(str(tmp_path / "x.npy"), values)
    assert tensor.dtype == array.dtype and np.array_equal(tensor, array if values else np.zeros_like(array))


@pytest.mark.parametrize("array, told", [
    (np.zeros((2, 3), np.complex64), "holds complex64; choose one, as in --arg 2x3xf32="),
    (np.zeros((4,), "M8[s]"), "holds datetime64[s]; choose one, as in --arg 4xf32="),
    (np.zeros((2, 5), ml_dtypes.bfloat16), "does not name its dtype; choose one, as in --arg 2x5xbf16=")])
def test_file__of_another_dtype_is_an_error_that_names_the_form(array, told, tmp_path):
    np.save(tmp_path / "x.npy", array)
    for values in (True, False):
        with pytest.raises(BadArgumentText) as error:
            tensor_of_file(str(tmp_path / "x.npy"), values)
        assert f"the file {told}{tmp_path}/x.npy" in str(error.value)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)], ids=["pipe", "device"])
def test_file__that_is_no_regular_one_is_not_opened(make, tmp_path):
    make(tmp_path / "x.npy")
    with pytest.raises(UnreadableArray, match=r"^cannot be read: it is not a regular file$"):
        read_array(tmp_path / "x.npy")


def test_file__of_another_shape_is_an_error_before_its_values_are_read(tmp_path, monkeypatch):
    np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
    read, modes = read_array, []
    monkeypatch.setattr(arguments, "read_array", lambda path, mode=None: modes.append(mode) or read(path, mode))
    with pytest.raises(BadArgumentText, match=r"the file has shape \(2, 3\)"):
        fill((2, 2), FLOAT32, str(tmp_path / "x.npy"), 0, "2x2xf32=x.npy")
    assert modes == ["r"]


def test_file__beyond_the_limit_of_memory_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((8, 4), np.float32))
    monkeypatch.setenv("NKI_MLIR_INPUT_BYTES", "256")
    assert os.path.getsize(path) == 256 and tensor_of_file(str(path), True).shape == (8, 4)
    monkeypatch.setenv("NKI_MLIR_INPUT_BYTES", "255")
    assert tensor_of_file(str(path), False).shape == (8, 4)
    for text in (str(path), f"8x4xf32={path}", f"x={path}"):
        with pytest.raises(InputTooLarge) as error:
            arguments.parse_arguments([text])
        assert str(error.value) == (
            f"{path}:1:1: error: the file of the array takes 256 bytes, more than the limit of 255 [NKI-INPUT-SIZE]\n"
            "  why: reading it takes several times as much memory\n"
            "  fix: set NKI_MLIR_INPUT_BYTES to a larger number of bytes")
    with pytest.raises(BadArgumentText, match=r"the file has shape \(8, 4\)"):      # its header is read alone
        fill((2, 2), FLOAT32, str(path), 0, "2x2xf32=x.npy")
