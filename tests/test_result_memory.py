# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory of large results is used again, and never while something can still see it."""

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir import result_memory
from nki_mlir.language import call_cache
from nki_mlir.language.beta import language as nl
from nki_mlir.language.kernel import Kernel

from .at_once import at_once

SHAPE = 300, 1024


def address(array: np.ndarray) -> int:
    return array.ctypes.data


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_memory, "_free", {})
    monkeypatch.setattr(result_memory, "_waiting", 0)


def test_memory__comes_back_when_the_array_is_gone() -> None:
    first = result_memory.empty(SHAPE, np.float32)
    where = address(first)
    assert where % 4096 == 0 and first.shape == SHAPE and first.dtype == np.float32 and first.flags.c_contiguous
    second = result_memory.empty(SHAPE, np.float32)
    assert address(second) != where
    del first
    again = result_memory.empty((1024, 300), np.int32)
    assert address(again) == where and again.flags.writeable


def advised(array: np.ndarray) -> bool:
    """Whether Linux may use huge pages for the array's memory, as it reports of each mapping."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        start, dash, end = line.split(" ")[0].partition("-")
        if dash:
            inside = int(start, 16) <= address(array) < int(end, 16)
        elif inside and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError("no mapping has the array")


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists(), reason="a kernel without them")
def test_memory__of_large_results_has_huge_pages() -> None:
    assert advised(result_memory.empty((1 << 21,), np.int8))
    assert not advised(result_memory.empty((1 << 20,), np.int8))


def test_memory__needs_no_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_memory.mmap, "MADV_HUGEPAGE", 1 << 20, raising=False)    # advice that no kernel takes
    array = result_memory.empty((1 << 21,), np.int8)
    array[:] = 3
    assert address(array) % 4096 == 0 and array.min() == 3


@pytest.mark.parametrize("keep", [lambda a: a[5:, ::2], lambda a: a.T, lambda a: a.view(np.uint8), memoryview,
                                  lambda a: a.reshape(-1)[7:8], lambda a: np.asarray(a)[None], lambda a: a.flat,
                                  lambda a: a.view(np.matrix), lambda a: np.frombuffer(a, np.int16)],
                         ids=["slice", "transpose", "dtype", "memoryview", "element", "axis", "flat", "matrix", "bytes"])
@pytest.mark.usefixtures("only_new_garbage")
def test_memory__stays_while_a_view_is_there(keep) -> None:
    array = result_memory.empty(SHAPE, np.float32)
    where, view = address(array), keep(array)
    del array
    second = result_memory.empty(SHAPE, np.float32)
    assert address(second) != where
    del view
    gc.collect()
    assert address(result_memory.empty(SHAPE, np.float32)) == where


def test_memory__stays_while_a_tensor_is_there() -> None:
    torch = pytest.importorskip("torch")
    array = result_memory.empty(SHAPE, np.float32)
    where, tensor = address(array), torch.from_numpy(array)[10:]
    del array
    second = result_memory.empty(SHAPE, np.float32)
    assert address(second) != where
    del tensor
    assert address(result_memory.empty(SHAPE, np.float32)) == where


def bytes_of_free_blocks() -> int:
    return sum(size * len(blocks) for size, blocks in result_memory._free.items())


def test_memory__that_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_memory, "MOST_BYTES", 3 << 20)
    several = [result_memory.empty((1 << 18,), np.float32) for _ in range(5)]
    assert len({address(a) for a in several}) == 5 and result_memory._waiting == 0
    del several
    assert result_memory._waiting == 3 << 20 == bytes_of_free_blocks()


def test_memory__that_was_freed_last_is_used_first() -> None:
    several = [result_memory.empty((1 << 16,), np.float32) for _ in range(70)]
    addresses = [address(a) for a in several]
    for k, array in enumerate(several):
        array[:] = k
    assert len({*addresses}) == 70 and all((array == k).all() for k, array in enumerate(several))
    del several[69], several[20], array
    more = [result_memory.empty((1 << 16,), np.float32) for _ in range(3)]
    assert [address(a) for a in more[:2]] == [addresses[69], addresses[20]] and address(more[2]) not in addresses


def test_memory__is_taken_once_where_code_of_the_user_runs_a_kernel_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """So do finalizers in a garbage collection, and handlers of signals."""
    where, inner, waits = address(result_memory.empty(SHAPE, np.float32)), [], [True]

    def interrupt(frame, event, argument):
        if frame.f_code.co_filename == result_memory.__file__ and waits and event == "line":
            waits.pop()
            inner.append(result_memory.empty(SHAPE, np.float32))
            waits.append(True)
        return interrupt
    before = sys.gettrace()
    sys.settrace(interrupt)
    outer = result_memory.empty(SHAPE, np.float32)
    sys.settrace(before)
    addresses = [address(array) for array in (outer, *inner)]
    assert len(inner) > 5 and where in addresses and len({*addresses}) == len(addresses)
    del outer
    inner.clear()
    again = {address(result_memory.empty(SHAPE, np.float32)) for _ in range(3)}
    assert len(again) == 1 and result_memory._waiting == bytes_of_free_blocks()


def test_memory__stays_while_another_thread_looks_at_variables_of_frames() -> None:
    """Debuggers and monitors read them in the middle of functions, which keeps objects of that moment alive."""
    kept = [result_memory.empty(SHAPE, np.float32) for _ in range(3)]
    for line in range(40):
        seen = [0]

        def look(frame, event, argument):
            if frame.f_code.co_filename == result_memory.__file__:
                seen[0] += 1
                if seen[0] == line:
                    seen.append(len(frame.f_locals))
            return look
        before = sys.gettrace()
        sys.settrace(look)
        kept.append(result_memory.empty(SHAPE, np.float32))
        sys.settrace(before)
    assert len({address(array) for array in kept}) == len(kept)


class Keeper:
    """An object of a garbage cycle whose finalizer keeps what it refers to."""

    kept: list[object] = []

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.itself = array, self

    def __del__(self) -> None:
        self.kept.append(self.array)


@pytest.mark.parametrize("part", [lambda a: a, lambda a: a[3:], lambda a: a.base, memoryview, lambda a: memoryview(a.base)],
                         ids=["array", "view", "base", "memoryview", "memoryview of the base"])
@pytest.mark.usefixtures("only_new_garbage")
def test_memory__stays_where_a_finalizer_keeps_the_array_of_a_garbage_cycle(part) -> None:
    array = result_memory.empty(SHAPE, np.float32)
    where = address(array)
    Keeper(part(array))
    del array
    gc.collect()
    assert len(Keeper.kept) == 1 and address(result_memory.empty(SHAPE, np.float32)) != where
    Keeper.kept.clear()
    assert address(result_memory.empty(SHAPE, np.float32)) == where


def test_memory__that_waits_makes_room_for_what_is_used_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_memory, "MOST_BYTES", 3 << 20)
    for kilobytes in range(256, 2048, 64):
        result_memory.empty((kilobytes, 1024), np.uint8)[:] = 7
        assert (result_memory.empty((kilobytes, 1024), np.uint8) == 7).all()         # fresh pages are zeros
        assert result_memory._waiting == bytes_of_free_blocks() <= 3 << 20
    waiting = result_memory._waiting
    result_memory.empty((4 << 20,), np.uint8)                        # one that is too large takes nobody's place
    assert result_memory._waiting == waiting > 1 << 20


def test_memory__that_waits_goes_before_there_is_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")
    result_memory.empty((1 << 20,), np.uint8)
    monkeypatch.setattr(result_memory, "pages", refuse)
    large = result_memory.empty((2 << 20,), np.uint8)
    assert large.shape == (2 << 20,) and large.flags.owndata and result_memory._waiting == 0 == bytes_of_free_blocks()
    with pytest.raises(MemoryError, match="Unable to allocate"):
        result_memory.empty((1 << 60,), np.uint8)


def test_small_arrays__are_numpys_own() -> None:
    assert result_memory.empty((16, 16), np.float32).base is None
    assert result_memory.empty((0, 1 << 20), np.float32).shape == (0, 1 << 20)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), max_size=60))
def test_arrays__that_live_have_memory_of_their_own(steps: list[tuple[int, int]]) -> None:
    slots: list[np.ndarray | None] = [None] * 6
    for size, slot in steps:
        slots[slot] = fresh = result_memory.empty((1 << 16, size + 1), np.float32) if size else None
        if fresh is not None:
            fresh[:] = slot
        for k, array in enumerate(slots):
            assert array is None or (array == k).all()


def test_results__of_a_kernel_are_recycled_and_those_that_are_kept_are_not() -> None:
    def kernel(x, amount):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // 128):
            nl.store(out[i * 128:i * 128 + 128, :], nl.load(x[i * 128:i * 128 + 128, :]) + amount)
        return out
    x = np.arange(512 * 512, dtype=np.float32).reshape(512, 512)
    add = Kernel(kernel).on("jit")
    first, second = add(x, 1), add(x, 2)
    where = address(first)
    np.testing.assert_array_equal(first, x + 1)
    np.testing.assert_array_equal(second, x + 2)
    del first
    third = add(x, 3)
    assert address(third) == where != address(second)
    np.testing.assert_array_equal(third, x + 3)
    np.testing.assert_array_equal(second, x + 2)


def test_threads__never_share_memory(tmp_path: Path) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(200):
            array = result_memory.empty((1 << 17,), np.float32)
            array[:] = number
            if not (array == number).all():
                wrong.append(number)
    at_once(work, range(4))
    assert not wrong


def status_of_child(work: Callable[[], bool]) -> int:
    """0 where a forked child finds what it looks for."""
    child = os.fork()
    if child == 0:                                  # no assertion may return to pytest here
        signal.alarm(20)
        os._exit(0 if work() else 1)
    return os.waitpid(child, 0)[1]


def test_forked_child__has_copies_of_results_and_memory_of_its_own() -> None:
    kept, waiting = result_memory.empty(SHAPE, np.float32), result_memory.empty(SHAPE, np.float32)
    kept[:] = 1
    where = address(waiting)
    del waiting

    def work() -> bool:
        fine = bool((kept == 1).all()) and result_memory._waiting == 0 and not result_memory._free
        kept[:] = 7
        result_memory.empty(SHAPE, np.float32)[:] = 7
        return fine
    assert status_of_child(work) == 0
    assert (kept == 1).all()
    again = result_memory.empty(SHAPE, np.float32)
    assert address(again) == where and not (again == 7).any()


def test_forked_child__does_not_wait_for_a_thread_that_only_its_parent_has() -> None:
    holding, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with result_memory._lock, call_cache._lock:
            holding.set()
            leave.wait(20)
    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(20)

    def work() -> bool:
        call_cache.CallCache().add((), call_cache.CachedCall(None, None))
        return result_memory.empty(SHAPE, np.float32).shape == SHAPE
    assert status_of_child(work) == 0
    leave.set()
    thread.join()



FRAMES = """
import sys
import numpy as np
from torch._C._dynamo.eval_frame import set_eval_frame

set_eval_frame(False if sys.argv[1] == "import" else None)      # calls count a reference more meanwhile
from nki_mlir import result_memory
set_eval_frame(False if sys.argv[1] == "use" else None)
first, second = result_memory.empty((300, 1024), np.float32), result_memory.empty((300, 1024), np.float32)
third = result_memory.empty((300, 1024), np.float32)
addresses = {array.ctypes.data for array in (first, second, third)}
where = third.ctypes.data
del third
reused = result_memory.empty((300, 1024), np.float32).ctypes.data
set_eval_frame(None)
assert len(addresses) == 3 and reused == where, (addresses, reused)
"""


@pytest.mark.share(3)
@pytest.mark.parametrize("when", ["import", "use"])
def test_frames_that_torch_evaluates__change_no_count(when: str) -> None:
    """In them a call of Python refers to its arguments once more, by which memory in use would be taken as free."""
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, "-c", FRAMES, when], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("size, in_block", [(131_073, 0), (196_608, 0), (196_609, 262_144), (262_144, 262_144),
                                            (262_145, 327_680)])
def test_memory__of_small_arrays_is_the_c_librarys_and_of_others_a_multiple_of_64_kilobytes(size: int, in_block: int
                                                                                            ) -> None:
    allocate = result_memory.allocator((size,), np.uint8)
    assert allocate().shape == (size,)
    assert list(result_memory._free) == ([in_block] if in_block else [])
