# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels whose images are on disk run without being assembled: the same values, the same errors at the same lines."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nki_mlir import cache_entries
from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.nki.movement import LoadOp, print_sink
from nki_mlir.language.beta import language as nl
from nki_mlir.language.kernel import Kernel
from nki_mlir.targets.cpu import image, lowering, routines
from nki_mlir.targets.cpu.kernel import NativeKernel
from nki_mlir.targets.runtime import host
from nki_mlir.targets.runtime.object_file import NotLoadable

from .compiled import Captured

pytestmark = pytest.mark.skipif(sys.platform != "linux" or host.platform.machine() != "x86_64",
                                reason="objects are kept on x86-64 Linux")

PROGRAM = """
import sys, numpy as np
from nki_mlir.language.beta import language as nl
from nki_mlir.language.kernel import Kernel

def kernel(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 16):
        rows = nl.load(x[i * 16:i * 16 + 16, :])
        nl.store(out[i * 16:i * 16 + 16, :], nl.exp(rows) * FACTOR + nl.sum(rows, axis=1, keepdims=True))
    return out

x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
sys.stdout.buffer.write(Kernel(kernel).on("jit")(x).tobytes())
print("assembled" if "nki_mlir.targets.cpu.assemble" in sys.modules else "found", file=sys.stderr)
"""
X = np.arange(32 * 36, dtype=np.float32).reshape(32, 36)


def started(folder: Path, source: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=(
        os.environ | {"NKI_MLIR_CACHE": "on", "NKI_MLIR_CACHE_DIR": str(folder)} | environment))


def run(folder: Path, factor: str = "2", **environment: str) -> tuple[bytes, str]:
    """Return the values, and how the process got its program."""
    process = started(folder, PROGRAM.replace("FACTOR", factor), **environment)
    values, words = process.communicate()
    assert process.returncode == 0, words
    return values, words.split()[-1].decode()


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NKI_MLIR_CACHE", "on")
    monkeypatch.setenv("NKI_MLIR_CACHE_DIR", str(tmp_path))
    return tmp_path / "objects"


def images(folder: Path) -> set[Path]:
    """Return the entries of the cache that are not code."""
    return {file for file in folder.iterdir() if file.read_bytes()[cache_entries.DIGEST:][:4] != b"\x7fELF"}


def call(function: Callable[..., Any], *arguments: Any, grid: tuple[int, ...] | None = None, forget: bool = True) -> Any:
    """Call a kernel that this process has not seen on native code."""
    if forget:
        routines.clear_memo()
    kernel = Kernel(function).on("jit")
    return (kernel[grid] if grid else kernel)(*arguments)


def refuse(*arguments: object) -> None:
    raise AssertionError("assembled")


def both(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], *arguments: Any,
         grid: tuple[int, ...] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the results of a kernel that is assembled, and of one whose image the cache has."""
    first = call(function, *arguments, grid=grid)
    with monkeypatch.context() as patch:
        patch.setattr(lowering, "image_of", refuse)
        return first, call(function, *arguments, grid=grid)


def failures(monkeypatch: pytest.MonkeyPatch, failing: Callable[[], object]) -> tuple[str, str]:
    """Return the errors of a kernel that fails, in both ways: their texts, with those of their causes."""
    routines.clear_memo()                   # a routine that another test has compiled is not in this test's cache
    with pytest.raises(IndexError) as first:
        failing()
    routines.clear_memo()
    with monkeypatch.context() as patch:
        patch.setattr(lowering, "image_of", refuse)
        with pytest.raises(IndexError) as second:
            failing()
    return f"{first.value} {first.value.__cause__}", f"{second.value} {second.value.__cause__}"


# -- processes ---------------------------------------------------------------------------------------------------------
def test_processes__find_what_others_assembled(tmp_path: Path) -> None:
    values, how = run(tmp_path)
    assert how == "assembled"
    assert run(tmp_path) == (values, "found")
    assert run(tmp_path, NKI_MLIR_CACHE="off") == (values, "assembled")


def test_processes__a_changed_kernel_is_another_one(tmp_path: Path) -> None:
    values, _ = run(tmp_path)
    other, how = run(tmp_path, factor="3")
    assert how == "assembled" and other != values
    assert run(tmp_path, factor="3") == (other, "found") and run(tmp_path) == (values, "found")


def test_processes__another_number_of_threads_is_another_key(tmp_path: Path) -> None:
    values, _ = run(tmp_path, NKI_MLIR_NUM_THREADS="1")
    assert run(tmp_path, NKI_MLIR_NUM_THREADS="2") == (values, "assembled")
    assert run(tmp_path, NKI_MLIR_NUM_THREADS="1") == (values, "found")


def test_processes__at_the_same_time(tmp_path: Path) -> None:
    source = PROGRAM.replace("FACTOR", "2")
    processes = [started(tmp_path, source) for _ in range(3)]
    values = {process.communicate()[0] for process in processes}
    assert len(values) == 1 and not any(process.returncode for process in processes)
    assert run(tmp_path) == (values.pop(), "found")


# -- entries -----------------------------------------------------------------------------------------------------------
def twice(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x) * 2)
    return out


@pytest.mark.parametrize("damage", [
    lambda file, raw: b"", lambda file, raw: raw[:-1], lambda file, raw: raw[:50] + bytes([raw[50] ^ 1]) + raw[51:],
    lambda file, raw: cache_entries.digest_of(file, b"(") + b"("], ids=["empty", "cut", "a bit", "digest of another"])
def test_entry__that_is_damaged_is_made_again(cached: Path, monkeypatch: pytest.MonkeyPatch, damage) -> None:
    call(twice, X)
    (file,) = images(cached)
    intact = file.read_bytes()
    file.write_bytes(damage(file, intact))
    np.testing.assert_array_equal(call(twice, X), X * 2)
    assert file.read_bytes() == intact
    first, second = both(monkeypatch, twice, X)
    np.testing.assert_array_equal(first, second)


def test_entries__that_are_swapped_are_made_again(cached: Path) -> None:
    def half(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 0.5)
        return out
    call(twice, X)
    first = images(cached)
    call(half, X)
    (one,), (other,) = first, images(cached) - first
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    np.testing.assert_array_equal(call(twice, X), X * 2)
    np.testing.assert_array_equal(call(half, X), X * 0.5)
    assert (one.read_bytes(), other.read_bytes()) == contents


def test_entry__whose_code_is_gone_is_made_again(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call(twice, X)
    for file in set(cached.iterdir()) - images(cached):
        file.unlink()
    np.testing.assert_array_equal(call(twice, X), X * 2)
    first, second = both(monkeypatch, twice, X)
    np.testing.assert_array_equal(first, second)


def test_entry__of_routines_that_another_kernel_compiled(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def thrice(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 2 * 3)
        return out
    call(twice, X)
    np.testing.assert_array_equal(call(thrice, X, forget=False), X * 6)      # with routines of the other one
    with monkeypatch.context() as patch:
        patch.setattr(lowering, "image_of", refuse)
        np.testing.assert_array_equal(call(thrice, X), X * 6)


def test_entry__depends_on_where_the_kernel_stands(cached: Path) -> None:
    text = "def kernel(x):\n    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\n" \
           "    nl.store(out, nl.load(x) + 1)\n    return out\n"
    for number, lines in enumerate(("", "\n\n"), 1):
        file = cached.parent / "kernel.py"
        file.write_text(lines + text)
        space: dict[str, Any] = {"nl": nl}
        exec(compile(file.read_text(), str(file), "exec"), space)
        np.testing.assert_array_equal(call(space["kernel"], X), X + 1)
        assert len(images(cached)) == number


def test_entry__does_not_depend_on_where_the_kernel_is_called(cached: Path) -> None:
    def twice(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 2)
        return out
    np.testing.assert_array_equal(call(twice, X), X * 2)
    np.testing.assert_array_equal(
        call(twice, X), X * 2)
    assert len(images(cached)) == 1


def test_keep__nothing_of_operations_that_the_host_runs(cached: Path) -> None:
    def shows(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.device_print("tile", tile)
        nl.store(out, tile)
        return out
    shown: list[np.ndarray] = []
    token = print_sink.set(lambda prefix, value: shown.append(value))
    try:
        for _ in range(2):
            np.testing.assert_array_equal(call(shows, X), X)
    finally:
        print_sink.reset(token)
    assert not images(cached)
    np.testing.assert_array_equal(shown, [X, X])


def test_keep__nothing_of_operations_of_plugins(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoadOp, "__module__", "plugin.operations")
    np.testing.assert_array_equal(call(twice, X), X * 2)
    assert not images(cached)


def test_keep__nothing_that_is_large(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "MOST_BYTES", 4 * X.nbytes - 1)
    assert not images_of_constants(cached, 4) and images_of_constants(cached, 3)


def images_of_constants(cached: Path, count: int) -> set[Path]:
    written = image.KernelImage((), (), (X,) * count, (), 2, False, (), False, 1)
    image.store(f"{count} constants", written)
    try:
        loaded = image.find(f"{count} constants")
    except NotLoadable:
        return set()
    assert [c.view(np.float32).tolist() for c in loaded.constants] == [X.ravel().tolist()] * count
    return images(cached)


# -- kernels -----------------------------------------------------------------------------------------------------------
def test_variants__of_programs_have_their_own_words(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        factor = [1.0, 5.0, -2.0, 5.0][nl.program_id(0)]
        rows = slice(nl.program_id(0) * 8, nl.program_id(0) * 8 + 8)
        nl.store(out[rows, :], nl.load(x[rows, :]) * factor)
        return out
    first, second = both(monkeypatch, shifted, X, grid=(4,))
    np.testing.assert_array_equal(first, X * np.repeat(np.float32([1, 5, -2, 5]), 8)[:, None])
    assert first.tobytes() == second.tobytes()


def test_constants__are_kept_with_the_program(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.random.default_rng(0).standard_normal((32, 36)).astype(np.float32)

    def weighted(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * nl.load(nl.shared_constant(weights)))
        return out
    first, second = both(monkeypatch, weighted, X)
    np.testing.assert_array_equal(first, X * weights)
    assert first.tobytes() == second.tobytes()


def test_large__kernel_uses_the_pool(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def heavy(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // 128):
            tile = nl.load(x[i * 128:(i + 1) * 128, :])
            nl.store(out[i * 128:(i + 1) * 128, :], nl.tanh(tile) * nl.exp(tile))
        return out
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", "2")
    x = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float32)
    first, second = both(monkeypatch, heavy, x)
    assert first.tobytes() == second.tobytes()
    np.testing.assert_allclose(first, np.tanh(x) * np.exp(x), rtol=1e-5, atol=1e-6)


# -- errors ------------------------------------------------------------------------------------------------------------
def test_error__of_a_mask_names_its_place(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
func.func @f(%x: memref<50xf32, "hbm"> {nki.name = "x"}, %y: memref<8x8xf32, "hbm">) {
  %a = memref.reinterpret_cast %x to offset: [0], sizes: [8, 8], strides: [8, 1]
    : memref<50xf32, "hbm"> to memref<8x8xf32, strided<[8, 1], offset: 0>, "hbm">
  linalg.generic {indexing_maps = [affine_map<(p, f) -> (p, f)>, affine_map<(p, f) -> (p, f)>],
                  iterator_types = ["parallel", "parallel"], nki.mask = affine_set<(p, f) : (p - f >= 0)>}
    ins(%a : memref<8x8xf32, strided<[8, 1], offset: 0>, "hbm">) outs(%y : memref<8x8xf32, "hbm">) {
  ^bb0(%v: f32, %old: f32):
    linalg.yield %v : f32
  } loc("kernel.py":7:5)
  return
}"""
    assembled, loaded = failures(monkeypatch, lambda: native(text)([X[:2, :25].copy(), np.zeros((8, 8), np.float32)], []))
    assert loaded == assembled
    assert loaded.startswith("kernel.py:7:5: error: an index is 14 elements outside its dimension")


def test_error__of_an_index_that_was_loaded_names_tensor_and_range(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
func.func @f(%x: memref<40xf32, "hbm"> {nki.name = "x"}, %n: memref<1x1xi32, "sbuf">, %y: memref<4xf32, "hbm">) {
  %c0 = arith.constant 0 : index
  %v = memref.load %n[%c0, %c0] : memref<1x1xi32, "sbuf">
  %k = arith.index_cast %v : i32 to index
  %a = memref.subview %x[%k] [4] [1] : memref<40xf32, "hbm"> to memref<4xf32, strided<[1], offset: ?>, "hbm">
  linalg.copy ins(%a : memref<4xf32, strided<[1], offset: ?>, "hbm">) outs(%y : memref<4xf32, "hbm">) loc("kernel.py":9:3)
  return
}"""
    def run_at(number: int) -> np.ndarray:
        y = np.zeros(4, np.float32)
        native(text)([X[:2, :20].copy(), np.array([[number]], np.int32), y], [])
        return y
    assembled, loaded = failures(monkeypatch, lambda: run_at(39))
    assert loaded == assembled
    assert loaded.startswith("kernel.py:9:3: error: Out-of-bound access for tensor `x` on dimension 0 (flat): "
                             "index range [0, 42] exceed dimension size of 40")
    assert run_at(18).tolist() == [18, 19, 36, 37]


def native(text: str) -> NativeKernel:
    with shared_context(), ir.Location.unknown():
        return NativeKernel(Captured(ir.Module.parse(text)), ())


def test_error__of_a_row_has_its_line_and_the_number_that_is_none(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gathered(table, index):
        out = nl.ndarray((4, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
        rows = nl.load(index)
        nl.store(out, nl.load(table[rows, nl.arange(36)[None, :]]))
        return out
    index = np.array([[3], [0], [99], [1]], np.int32)
    assembled, loaded = failures(monkeypatch, lambda: call(gathered, X, index))
    assert loaded == assembled and "99" in loaded
    assert f"test_image.py:{gathered.__code__.co_firstlineno + 3}:" in loaded
