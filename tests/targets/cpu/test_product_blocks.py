# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How packed products are cut: by the caches of an invented host, and where their sizes come from."""

import resource
import sys
from pathlib import Path

import pytest

from nki_mlir.targets.cpu import host_measurements
from nki_mlir.targets.cpu.product_blocks import ProductBlocks, Rates, chosen
from nki_mlir.targets.runtime import host
from nki_mlir.targets.runtime.host import BadCacheSizes, Caches

KIB, MIB = 1 << 10, 1 << 20
CACHES = Caches(48 * KIB, 2 * MIB, 32 * MIB)
SIZES = (128, 256, 512, 1024)


def blocks(third: float, caches: Caches = CACHES) -> ProductBlocks:
    """Return the blocks of a product of 2048, on a host that reads this many bytes a second from its third cache."""
    candidates = [ProductBlocks(2048, 2048, 2048, 16, rows, columns, 512) for rows in SIZES for columns in SIZES]
    return chosen(candidates, caches, Rates(third, 10e9, 113e9))


def test_a_slow_third_cache__gets_blocks_that_fit_the_second() -> None:
    slow = blocks(15e9)
    assert 4 * slow.depth * slow.columns <= CACHES.second * 3 // 4
    assert slow.columns == 512


@pytest.mark.parametrize("third", [15e9, 100e9])
def test_blocks_fit_the_second_cache__however_fast_the_third_is(third: float) -> None:
    assert [blocks(third, Caches(48 * KIB, size * MIB, 32 * MIB)).columns for size in (1, 2, 4)] == [256, 512, 1024]


def test_sums_that_wait__make_blocks_smaller() -> None:
    """Sums of few columns stay in the second cache, which counts where a block's depth is small."""
    candidates = [ProductBlocks(512, 2048, 2048, 16, 512, columns, 32) for columns in SIZES]
    rates = [Rates(third, 10e9, 113e9) for third in (15e9, 100e9)]
    assert [chosen(candidates, CACHES, rate).columns for rate in rates] == [512, 1024]


def test_traffic__is_what_blocks_read_again() -> None:
    one = ProductBlocks(1024, 1024, 1024, 16, 1024, 256, 512)
    moved = one.traffic(CACHES)
    factor = 4 * 1024 * 1024
    assert moved.first == factor * (1024 // 16 + 1024 // 256 + 3)
    assert moved.second == factor * (1 + 1024 // 256 + 1)
    assert moved.third == factor * 3
    assert str(one) == "1024 x 1024 x 1024 in blocks of 1024 rows, 256 columns, depth 512"
    assert str(moved) == "297.8 MB beyond L1, 25.2 MB beyond L2, 12.6 MB beyond L3"


def test_sizes__are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_MLIR_CACHES", "32K,1M,8388608")
    assert host_measurements.caches() == Caches(32 * KIB, MIB, 8 * MIB)
    for text in ("", "32K", "1M,32K,8M", "32K,1M,x"):
        monkeypatch.setenv("NKI_MLIR_CACHES", text)
        with pytest.raises(BadCacheSizes, match=f"NKI_MLIR_CACHES cannot be '{text}'"):
            host_measurements.caches()


@pytest.mark.parametrize("sizes, expected", [
    (("48K", "2048K", "32768K"), Caches(48 * KIB, 2 * MIB, 32 * MIB)), (("48K", "2048K", "0K"), None),
    (("4K", "2048K", "32768K"), None), (("48K", "2048K"), None), (("48K", "2048K", "all"), None)])
def test_sizes__are_what_linux_reports_where_that_is_plausible(tmp_path: Path, sizes, expected) -> None:
    for level, size in enumerate(sizes, 1):
        index = tmp_path / f"index{level}"
        index.mkdir()
        for name, text in {"level": str(level), "size": size, "type": "Unified" if level > 1 else "Data"}.items():
            (index / name).write_text(text + "\n")
    instructions = tmp_path / "index9"
    instructions.mkdir()
    for name, text in {"level": "1", "size": "64K", "type": "Instruction"}.items():
        (instructions / name).write_text(text + "\n")
    assert host.reported_caches(str(tmp_path)) == expected


def test_sizes__are_measured_where_rates_fall() -> None:
    def rate(size: int) -> float:
        return 200e9 if size <= 2 * MIB else 60e9 if size <= 16 * MIB else 10e9
    assert host_measurements.measured_caches(rate) == Caches(32 * KIB, 2 * MIB, 16 * MIB)
    assert host_measurements.measured_caches(lambda size: 1e9) == Caches(32 * KIB, MIB, host.MOST_CACHE)


def test_measurements__are_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NKI_MLIR_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NKI_MLIR_CACHE", raising=False)
    calls = []
    monkeypatch.setattr(host_measurements, "measured_caches", lambda: calls.append(1) or [1, 2, 3])
    for _ in range(2):
        host_measurements.memoized.cache_clear()
        assert host_measurements.memoized("caches") == [1, 2, 3]
    assert calls == [1]
    host_measurements.memoized.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="counts faults of pages")
def test_measured_arrays__have_pages_of_their_own() -> None:
    """Pages that nothing has written are one page, which is read from the caches."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    count = 1 << 24
    zeros = host_measurements.aligned_zeros(count)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before >= 4 * count // (1 << 21)       # huge pages, at most
    assert not zeros.any() and zeros.ctypes.data % host.LINE == 0
