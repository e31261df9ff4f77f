# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the flags of a processor say about its registers and instructions."""

import os
from collections.abc import Iterator

import pytest

from nki_mlir.targets.runtime import host

AVX512 = frozenset({"avx512f", "avx512vl", "avx512bw", "avx512dq"})
AVX2 = frozenset({"avx2", "fma"})


@pytest.fixture(autouse=True)
def lanes_of_this_test() -> Iterator[None]:
    host.lanes.cache_clear()
    yield
    host.lanes.cache_clear()


@pytest.mark.parametrize("flags, lanes", [
    (AVX512 | AVX2, 16), (AVX512, 16), (AVX2, 8), (frozenset({"avx2"}), 4), (frozenset({"fma"}), 4), (frozenset(), 4),
    (frozenset({"asimd"}), 4), *((AVX512 - {flag} | AVX2, 8) for flag in sorted(AVX512))])
@pytest.mark.parametrize("more", [frozenset[str](), frozenset({"avx512_bf16"}), frozenset({"avx512_vnni"})], ids=str)
def test_instructions_of_wide_registers(flags: frozenset[str], lanes: int, more: frozenset[str],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of pairs are used with registers of 16 float32 alone, for which the code is written."""
    monkeypatch.setattr(host, "features", lambda: flags | more)
    assert host.lanes() == lanes
    assert host.multiplies_pairs() is (lanes == 16 and "avx512_bf16" in more)
    assert host.adds_word_products() is (lanes == 16 and "avx512_vnni" in more)


@pytest.mark.parametrize("text, count", [("1", 1), ("7", 7), (str(host.MOST_THREADS), host.MOST_THREADS)])
def test_threads_that_the_environment_sets(text: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", text)
    assert host.threads() == count


@pytest.mark.parametrize("count, threads", [(None, 1), (3, 3), (10 ** 6, host.MOST_THREADS)])
def test_threads_of_a_system_that_counts_its_processors_alone(count: int | None, threads: int,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NKI_MLIR_NUM_THREADS", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert host.threads() == threads


@pytest.mark.parametrize("text", ["0", "-1", str(host.MOST_THREADS + 1), "", "two", "1.5"])
def test_error__threads_that_no_pool_has(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_MLIR_NUM_THREADS", text)
    with pytest.raises(host.BadThreadCount, match=rf"NKI_MLIR_NUM_THREADS.*{text}"):
        host.threads()
