# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The machine around compiled code: native entry, threads, forks, calls within calls, memory."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import InternalError
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.nki.movement import print_sink
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.passes.safety import UnsafeInput
from nki_mlir.targets import cpu
from nki_mlir.targets.cpu import routines
from nki_mlir.targets.cpu.kernel import NativeKernel, OutOfMemory
from nki_mlir.targets.runtime import host, jit
from nki_mlir.targets.runtime.machine import machine

from ...at_once import at_once
from .compiled import Captured, compiled

X = np.random.default_rng(0).standard_normal((128 * 12, 512)).astype(np.float32)


@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    tile = nl.load(x[i * 128:(i + 1) * 128, :])
    for _ in nl.static_range(3):
        tile = nl.tanh(tile) + tile
    nl.store(out[i * 128:(i + 1) * 128, :], tile)
    return out


@pytest.fixture(scope="module")
def program() -> NativeKernel:
    kernel = doubled[12]
    kernel.on("jit")(X)
    (spec,) = kernel.specializations.values()
    return spec.program("jit")


@pytest.fixture(scope="module")
def expected(program: NativeKernel) -> np.ndarray:
    out = np.zeros_like(X)
    program([X], [out])
    return out


# -- the native entry --------------------------------------------------------------------------------------------------
def test_address__is_a_c_function(program: NativeKernel, expected: np.ndarray) -> None:
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(program.address)
    out = np.zeros_like(X)
    data = (ctypes.c_void_p * 2)(X.ctypes.data, out.ctypes.data)
    assert entry(ctypes.addressof(data)) == 0
    assert np.array_equal(out, expected)


def test_address__stays_the_same(program: NativeKernel) -> None:
    assert program.address == program.address


def test_error__of_a_status_nobody_gave(program: NativeKernel) -> None:
    assert "status 77" in str(program.error(77))
    assert isinstance(program.error(1 << 15), OutOfMemory)


# -- threads -----------------------------------------------------------------------------------------------------------
def test_parallel__the_grid_runs_on_several_threads(program: NativeKernel) -> None:
    assert program.parallel
    assert machine().threads == host.threads()


def test_threads__four_callers_at_once(program: NativeKernel, expected: np.ndarray) -> None:
    wrong: list[int] = []

    def call(k: int) -> None:
        for _ in range(20):
            out = np.zeros_like(X)
            program([X], [out])
            if not np.array_equal(out, expected):
                wrong.append(k)
    at_once(call, range(4))
    assert not wrong


def test_threads__compile_the_same_kernel_at_once(expected: np.ndarray) -> None:
    kernels = [nki.jit(doubled.func)[12] for _ in range(4)]
    results = at_once(lambda kernel: kernel.on("jit")(X), kernels)
    assert len(results) == 4 and all(np.array_equal(r, expected) for r in results)


def test_thread_count__comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", "3")
    assert host.threads() == 3
    for text in ("0", "many", "1000"):
        monkeypatch.setenv("NKI_MLIR_NUM_THREADS", text)
        with pytest.raises(host.BadThreadCount, match=text):
            host.threads()


def test_fork__both_sides_go_on(program: NativeKernel, expected: np.ndarray) -> None:
    child = os.fork()
    if child == 0:                                  # no assertion may return to pytest here
        out = np.zeros_like(X)
        try:
            program([X], [out])
            fine = np.array_equal(out, expected) and machine().threads == host.threads()
            routines.clear_memo()                       # so that the child has to compile, too
            fine &= np.array_equal(nki.jit(doubled.func)[12].on("jit")(X), expected)
        except BaseException:
            fine = False
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    out = np.zeros_like(X)
    program([X], [out])
    assert np.array_equal(out, expected)


def ran(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, env={
        **os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NKI_MLIR_NUM_THREADS": "8"} | environment)


FORKS = """
import os, signal, threading
import numpy as np
from tests.targets.cpu.test_runtime import X, doubled
from nki_mlir.targets.runtime import jit
kernel = doubled[12].on("jit")
expected = kernel(X)

def same(times):
    return all(np.array_equal(kernel(X), expected) for _ in range(times))

def forks(times, calls):
    for _ in range(times):
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            os._exit(0 if same(calls) else 1)
        ended, status = 0, 0
        while not ended:
            ended, status = os.waitpid(child, os.WNOHANG if calls else 0)
            assert status == 0 and (not calls or same(1))
"""


def test_fork__of_a_process_that_loaded_its_code(tmp_path: Path) -> None:
    """A child's workers, gates and memory are not its parent's, wherever the machine's code came from."""
    text = FORKS + "forks(4, 50)\nprint(len(jit._compiled), same(10))"
    cache = {"NKI_MLIR_CACHE": "on", "NKI_MLIR_CACHE_DIR": str(tmp_path)}
    for loads in (False, sys.platform == "linux" and host.platform.machine() == "x86_64"):
        engines, same = ran(text, **cache).stdout.split()
        assert (engines == "0", same) == (loads, "True")


def test_fork__of_several_threads_at_once() -> None:
    done = ran(FORKS + """
threads = [threading.Thread(target=forks, args=(100, 0)) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(same(10))
""")
    assert (done.returncode, done.stdout.strip()) == (0, "True"), done.stderr


def test_call_within_a_call__has_memory_of_its_own(program: NativeKernel, expected: np.ndarray) -> None:
    @nki.jit
    def shows(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        other = tile + 1
        nl.device_print("now", tile)
        nl.store(out, tile + other)
        return out
    inner = []

    def call(prefix: str, value: np.ndarray) -> None:
        out = np.zeros_like(X)
        program([X], [out])
        inner.append(np.array_equal(out, expected))
    token = print_sink.set(call)
    try:
        small = X[:128]
        for _ in range(3):
            np.testing.assert_array_equal(shows.on("jit")(small), small + (small + 1))
    finally:
        print_sink.reset(token)
    assert inner == [True] * 3


def test_process__ends_while_workers_sleep() -> None:
    text = """
import numpy as np
from tests.targets.cpu.test_runtime import X, doubled
doubled[12].on("jit")(X)
print("done")
"""
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120,
                         env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, "done", "")


# -- modules that do not come from kernels -----------------------------------------------------------------------------
def module_of(text: str) -> Any:
    with shared_context(), ir.Location.unknown():
        return ir.Module.parse(text)


WAIST = """
func.func @f(%x: memref<4x6xf32, "hbm">, %n: memref<4x6xi32, "hbm">, %y: memref<4x6xf32, "hbm">) {{
  linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
                                   affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}}
    ins(%x, %n : memref<4x6xf32, "hbm">, memref<4x6xi32, "hbm">) outs(%y : memref<4x6xf32, "hbm">) {{
  ^bb0(%a: f32, %k: i32, %old: f32):
    {body}
    linalg.yield %r : f32
  }}
  return
}}"""


@pytest.mark.parametrize(("body", "wanted"), [
    ("%r = arith.addf %a, %old : f32", lambda x, n: x + 1),
    ("%v = math.tanh %a : f32\n %r = arith.maximumf %v, %a : f32", lambda x, n: np.maximum(np.tanh(x), x)),
    ("%c = arith.cmpf olt, %a, %old : f32\n %r = arith.select %c, %a, %old : f32", lambda x, n: np.minimum(x, 1)),
    ("%c = arith.cmpi sgt, %k, %k : i32\n %v = arith.extui %c : i1 to i32\n %r = arith.sitofp %v : i32 to f32",
     lambda x, n: 0 * x),
    ("%z = arith.constant 0 : i32\n %d = arith.divsi %k, %z : i32\n %r = arith.sitofp %d : i32 to f32",
     lambda x, n: 0 * x),
    ("%z = arith.constant -3 : i32\n %d = arith.remsi %k, %z : i32\n %r = arith.sitofp %d : i32 to f32",
     lambda x, n: np.fmod(n, -3)),
    ("%v = math.log1p %a : f32\n %w = math.expm1 %v : f32\n %r = math.atan2 %w, %a : f32",
     lambda x, n: np.arctan2(np.expm1(np.log1p(x)), x)),
    ("%b = arith.truncf %a : f32 to bf16\n %m = arith.mulf %b, %b : bf16\n %r = arith.extf %m : bf16 to f32", None),
    ("%i = linalg.index 0 : index\n %w = arith.index_cast %i : index to i32\n %r = arith.sitofp %w : i32 to f32",
     lambda x, n: np.broadcast_to(np.arange(4.0)[:, None], (4, 6))),
    ("%v = arith.fptosi %a : f32 to i32\n %s = arith.shli %v, %v : i32\n %r = arith.uitofp %s : i32 to f32",
     lambda x, n: x.astype(np.int32) << x.astype(np.int32)),
])
def test_waist__bodies_of_upstream_operations(body: str, wanted: Any) -> None:
    x = np.linspace(0.1, 3.9, 24, dtype=np.float32).reshape(4, 6)
    n, y = np.arange(-12, 12, dtype=np.int32).reshape(4, 6), np.ones((4, 6), np.float32)
    compiled(module_of(WAIST.format(body=body)))([x, n, y], [])
    if wanted is None:
        from ml_dtypes import bfloat16
        b = x.astype(bfloat16)
        assert np.array_equal(y, (b * b).astype(np.float32))
    else:
        np.testing.assert_allclose(y, wanted(x, n), rtol=1e-6, atol=1e-7)


def test_waist__named_operations_and_windows() -> None:
    text = """
func.func @f(%a: memref<5x7xf32, "hbm">, %b: memref<7x3xf32, "hbm">, %c: memref<5x3xf32, "hbm">,
             %x: memref<8xf32, "hbm">, %y: memref<4xf32, "hbm">) {
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%c : memref<5x3xf32, "hbm">)
  linalg.matmul ins(%a, %b : memref<5x7xf32, "hbm">, memref<7x3xf32, "hbm">) outs(%c : memref<5x3xf32, "hbm">)
  %two = arith.constant 2.0 : f32
  %s = memref.subview %x[1] [7] [1] : memref<8xf32, "hbm"> to memref<7xf32, strided<[1], offset: 1>, "hbm">
  linalg.generic {indexing_maps = [affine_map<(i) -> (2 * i)>, affine_map<(i) -> ()>, affine_map<(i) -> (i)>],
                  iterator_types = ["parallel"]}
    ins(%s, %two : memref<7xf32, strided<[1], offset: 1>, "hbm">, f32) outs(%y : memref<4xf32, "hbm">) {
  ^bb0(%v: f32, %t: f32, %old: f32):
    %r = arith.mulf %v, %t : f32
    linalg.yield %r : f32
  }
  return
}"""
    a, b = np.arange(35, dtype=np.float32).reshape(5, 7), np.arange(21, dtype=np.float32).reshape(7, 3)
    c, x, y = np.ones((5, 3), np.float32), np.arange(8, dtype=np.float32), np.zeros(4, np.float32)
    compiled(module_of(text))([a, b, c, x, y], [])
    assert np.array_equal(c, a @ b) and np.array_equal(y, 2 * x[1::2])


@pytest.mark.parametrize("offset", ["s mod 3", "s floordiv 2", "s ceildiv 2", "(s * 5) mod 4 + s"])
def test_waist__index_arithmetic(offset: str) -> None:
    text = f"""
func.func @f(%x: memref<16x4xf32, "hbm">, %y: memref<16x4xf32, "hbm">) {{
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %c9 = arith.constant 9 : index
  scf.for %i = %c0 to %c9 step %c2 {{
    %from = affine.apply affine_map<()[s] -> (({offset}) * 4)>()[%i]
    %to = affine.apply affine_map<()[s] -> (s * 4)>()[%i]
    %a = memref.reinterpret_cast %x to offset: [%from], sizes: [4], strides: [1]
      : memref<16x4xf32, "hbm"> to memref<4xf32, strided<[1], offset: ?>, "hbm">
    %b = memref.reinterpret_cast %y to offset: [%to], sizes: [4], strides: [1]
      : memref<16x4xf32, "hbm"> to memref<4xf32, strided<[1], offset: ?>, "hbm">
    linalg.copy ins(%a : memref<4xf32, strided<[1], offset: ?>, "hbm">)
                outs(%b : memref<4xf32, strided<[1], offset: ?>, "hbm">)
  }}
  return
}}"""
    x, y = np.arange(64, dtype=np.float32).reshape(16, 4), np.zeros((16, 4), np.float32)
    compiled(module_of(text))([x, y], [])
    for i in range(0, 9, 2):
        row = {"s mod 3": i % 3, "s floordiv 2": i // 2, "s ceildiv 2": -(-i // 2), "(s * 5) mod 4 + s": i * 5 % 4 + i}
        assert np.array_equal(y[i], x[row[offset]])


def test_waist__loops_with_bounds_of_outer_loops() -> None:
    text = """
func.func @f(%y: memref<6x6xf32, "hbm">) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %one = arith.constant 1.0 : f32
  scf.for %i = %c0 to %c6 step %c1 {
    scf.for %j = %c0 to %i step %c1 {
      %at = affine.apply affine_map<()[i, j] -> (i * 6 + j)>()[%i, %j]
      %a = memref.reinterpret_cast %y to offset: [%at], sizes: [1], strides: [1]
        : memref<6x6xf32, "hbm"> to memref<1xf32, strided<[1], offset: ?>, "hbm">
      linalg.fill ins(%one : f32) outs(%a : memref<1xf32, strided<[1], offset: ?>, "hbm">)
    }
  }
  return
}"""
    y = np.zeros((6, 6), np.float32)
    compiled(module_of(text))([y], [])
    assert np.array_equal(y, np.tril(np.ones((6, 6)), -1))


def test_waist__conditions() -> None:
    text = """
func.func @f(%y: memref<8xf32, "hbm">, %i: index {nki.program_id = 0 : i64}) attributes {nki.grid = [8]} {
  %c2 = arith.constant 2 : index
  %c6 = arith.constant 6 : index
  %one = arith.constant 1.0 : f32
  %two = arith.constant 2.0 : f32
  %a = arith.cmpi sge, %i, %c2 : index
  %b = arith.cmpi slt, %i, %c6 : index
  %c = arith.andi %a, %b : i1
  %v = memref.reinterpret_cast %y to offset: [%i], sizes: [1], strides: [1]
    : memref<8xf32, "hbm"> to memref<1xf32, strided<[1], offset: ?>, "hbm">
  scf.if %c {
    linalg.fill ins(%one : f32) outs(%v : memref<1xf32, strided<[1], offset: ?>, "hbm">)
  } else {
    linalg.fill ins(%two : f32) outs(%v : memref<1xf32, strided<[1], offset: ?>, "hbm">)
  }
  return
}"""
    y = np.zeros(8, np.float32)
    compiled(module_of(text), (8,))([y], [])
    assert y.tolist() == [2, 2, 1, 1, 1, 1, 2, 2]


def test_waist__what_cannot_be_compiled_is_interpreted_with_a_warning() -> None:
    text = """
func.func @f(%x: memref<4xf32, "hbm">, %y: memref<4xf32, "hbm">) {
  %c1 = arith.constant 1 : index
  %v = memref.load %x[%c1] : memref<4xf32, "hbm">
  linalg.fill ins(%v : f32) outs(%y : memref<4xf32, "hbm">)
  return
}"""
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    with pytest.warns(RuntimeWarning, match="memref.load") as shown:
        run = cpu.load(Captured(module_of(text)), ())
    assert [w.filename for w in shown] == [__file__]
    run([x, y], [])
    assert y.tolist() == [1, 1, 1, 1]


def test_waist__code_from_outside_is_refused() -> None:
    for text, says in (
            ('func.func private @system(%p: i64)\nfunc.func @f(%x: memref<4xf32, "hbm">) { return }',
             "function @system has no body"),
            ("llvm.func @f() { llvm.return }", "'llvm.func' is refused in input")):
        with pytest.raises(UnsafeInput, match=says):
            compiled(module_of(text))


# -- defects of our own are internal errors, not lines on stderr ------------------------------------------------------
def test_compile__a_defect_is_an_internal_error(capfd: pytest.CaptureFixture) -> None:
    text = "llvm.func internal @f() {\n  %x = tensor.empty() : tensor<4xf32>\n  llvm.return\n}\n"
    with pytest.raises(InternalError, match="generated code does not compile"):
        jit.compile_functions(lambda: ir.Module.parse(text + jit.addresses_text(["f"])), ["f"], text)
    assert capfd.readouterr().err == ""


def test_memory__holds_the_largest_frame_before_the_largest_memory():
    """Of a grid's programs in separate modules, one has a large tile, the other many loops and thus many slots."""
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x[nl.program_id(0)])
        if ("large", "loops")[nl.program_id(0)] == "large":
            tile = tile + nl.sum(nl.zeros((128, 512), nl.float32), axis=1, keepdims=True)[0:8]
        else:
            for _ in nl.sequential_range(3):
                for _ in nl.sequential_range(3):
                    for _ in nl.sequential_range(3):
                        tile[...] = tile + 1
        nl.store(out[nl.program_id(0)], tile)
        return out
    x = np.zeros((2, 8, 4), np.float32)
    launched = nki.jit(kernel)[2]
    specialized = launched.specialize(launched.bind((x,), {}, is_array, describe_array))
    program = NativeKernel(specialized.captured, (2,))
    large, loops = program.image.programs
    assert large.memory > loops.memory and large.frame_bytes < loops.frame_bytes
    assert program.bytes == large.memory + loops.frame_bytes
    np.testing.assert_array_equal(launched.on("jit")(x), np.stack([np.zeros((8, 4)), np.full((8, 4), 27)]))


FIRST_CALL = """
import sys
import numpy as np
from nki_mlir.language.beta import language as nl, nki

@nki.jit
def total(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a) + nl.load(b))
    return out

assert (total(np.ones((128, 512), np.float32), np.ones((128, 512), np.float32)) == 2).all()
print([name for name in sys.modules if name.endswith("dialects.linalg")])
import nki_mlir.bindings
print(nki_mlir.bindings.load("dialects.linalg").GenericOp.OPERATION_NAME)
"""


def test_a_first_call__does_without_the_classes_of_linalg(tmp_path):
    """Their import takes 70 ms; code that uses them gets them."""
    script = tmp_path / "first.py"
    script.write_text(FIRST_CALL)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.stdout == "[]\nlinalg.generic\n", done.stderr


# -- index arithmetic --------------------------------------------------------------------------------------------------
DIVISIONS = """
import ctypes, sys
import numpy as np
from nki_mlir.targets.runtime.machine import machine

lowest, highest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
numbers = [lowest, lowest + 1, -7, -3, -1, 0, 1, 2, 3, 7, highest]
for name, expected in (("nki_floordiv", np.floor_divide), ("nki_mod", np.remainder)):
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(machine().function(name))
    for a in numbers:
        for b in numbers:
            result = ctypes.c_int64(99)
            function((ctypes.c_int64 * 3)(ctypes.addressof(result), a, b))
            with np.errstate(all="ignore"):
                wanted = int(expected(np.int64(a), np.int64(b)))
            assert result.value == wanted, (name, a, b, result.value, wanted)
"""


def test_integers_divide_as_numpy_does__by_0_and_the_lowest_by_minus_1():
    """The test runs in a separate process, which a division that traps would end."""
    done = subprocess.run([sys.executable, "-c", DIVISIONS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
