# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Methods of a class as machine code: the same numbers as Python, and a refusal of what the subset does not have."""

import random
from math import erf, fmod, inf

import numpy as np
import pytest

from nki_mlir.diagnostics import InternalError
from nki_mlir.targets.runtime.class_compiler import translated
from nki_mlir.targets.runtime.compiled_class import CompiledClass, InstanceRecord, new_array, new_floats, with_lists

LIMIT, SLOPE = 7, 0.1


class Counter:
    total: int

    def __init__(self) -> None:
        self.total = 3

    def add(self, number: int) -> int:
        self.total += number
        return self.total


class Base:
    scale: float
    counter: Counter

    def scaled(self, x: float) -> float:
        return x * self.scale


class Sample(Base):
    """Has each construct of the subset."""

    count: int
    is_on: bool
    numbers: list[int]
    floats: list[float]
    counters: list[Counter]

    def __init__(self, numbers: list[int], floats: list[float], count: int, scale: float) -> None:
        self.numbers, self.floats = np.array(numbers, np.int64), np.array(floats)
        self.count, self.scale, self.counter, self.is_on = count, scale, Counter(), False
        self.counters = [Counter() for _ in numbers]

    def integers(self, a: int, b: int) -> int:
        """Compute with integers, of which those that are divided are not negative."""
        first, second = a, b
        total = (first + second) * 3 - (first - second) * 2 + (second << 2) + (first >> 1) + (first & second)
        total += (first | 5) + (first ^ second) + ~second + -first + first % LIMIT + second // LIMIT
        return total + (second & -second).bit_length() + min(first, second) - max(first, second)

    def real(self, x: float, n: int) -> float:
        y = self.scaled(x) - n / 4 + -x * SLOPE
        return erf(y) + fmod(x, 3.0) + max(y, n) + min(y, 0.5) + (inf if y > 1e9 else 1.0)

    def choices(self, a: int, b: int) -> int:
        """Compare, and compute only what a condition needs."""
        bits = 0
        if a < b <= LIMIT or (a == b and self.counter.add(1) > 4):
            bits |= 1
        elif not (a != b and self.counter.add(10) > 20):
            bits |= 2
        else:
            bits |= 4
        self.is_on = a > b
        if self.is_on:
            bits |= 8
        bits += 16 if a >= 3 and not self.is_on else 32
        flag = a < 4
        return bits + (flag + flag) * 64 + (b > 2) * 256

    def loops(self, most: int) -> int:
        total, k = 0, 0
        while True:
            k += 1
            if k > most:
                break
            if k % 3 == 0:
                continue
            total += k
        for i in range(most):
            for j in range(i, most):
                if j > 5:
                    break
                total += i * j
        for k in range(self.count - 1, max(most - 5, 0), -1):
            self.numbers[k], self.numbers[0] = self.numbers[0] + k, self.numbers[k]
            self.floats[k] += self.scale
        return total

    def nothing(self, k: int) -> None:
        if k == 0:
            return
        array = self.numbers
        array[0] += k
        self.nothing(k - 1)


    def others(self, k: int) -> int:
        """Change instances of a list."""
        other = self.counters[k % self.count]
        return other.add(k) * 100 + self.counters[0].total


ENTRIES = "others", "integers", "real", "choices", "loops", "nothing"
CODE = CompiledClass(Sample, ENTRIES, 0)


def sample(compiled: bool) -> tuple[Sample, InstanceRecord | None]:
    instance = Sample([1, 2, 3, 4, 5], [0.5, -1.5, 2.0, 1e300, 3.0], 5, 0.3)
    if compiled:
        return instance, InstanceRecord(instance)
    with_lists(instance)
    return instance, None


def outcome(method: str, arguments: tuple[float, ...], compiled: bool) -> tuple[object, ...]:
    """Return the result of a method, and the fields of its instance after the call."""
    instance, record = sample(compiled)
    if record is None:
        result = getattr(instance, method)(*arguments)
    else:
        assert CODE.is_ready(1)
        result = CODE.functions[method](record.address, *arguments)
        record.read()
    return (result, instance.count, instance.scale, instance.is_on, instance.counter.total, list(instance.numbers),
            list(instance.floats), [other.total for other in instance.counters])


@pytest.mark.parametrize("method,kinds", [("integers", "ii"), ("real", "fi"), ("choices", "ii"), ("loops", "i"),
                                          ("nothing", "i"), ("others", "i")])
def test_methods_compute_the_same_as_python(method: str, kinds: str) -> None:
    r = random.Random(5)
    results = set()
    for _ in range(100):
        arguments = tuple([r.randint(0, 9) if kind == "i" else r.uniform(0, 20) for kind in kinds])
        python = outcome(method, arguments, False)
        assert outcome(method, arguments, True) == python
        results.add(repr(python))
    assert len(results) > 8


def test_code_that_does_not_pay_off_stays_python(monkeypatch: pytest.MonkeyPatch) -> None:
    code = CompiledClass(Sample, ENTRIES, 10)
    loads: list[bool] = []
    monkeypatch.setattr(code, "load", loads.append)
    assert [code.is_ready(4) for _ in range(4)] == [False] * 4
    assert loads == [False, True, True]             # it looks for cached code once, and compiles after 10 units


class Refused:
    number: int
    array: list[int]

    def text(self) -> int:
        return self.number + len(self.array)

    def keyword(self) -> None:
        self.text(a=1)                      # type: ignore[call-arg]

    def slices(self) -> None:
        self.array[0:2] = self.array[1:3]

    def unknown(self) -> None:
        self.other = 1

    def steps(self) -> None:
        for _ in range(0, 4, 2):
            pass

    def behind(self) -> int:
        return 1
        return 2


@pytest.mark.parametrize("method,code", [
    ("text", "len(self.array)"), ("keyword", "self.text(a=1)"), ("slices", "1:3"), ("unknown", "self.other"),
    ("steps", "2"), ("behind", "return 2")])
def test_what_the_subset_lacks_is_refused(method: str, code: str) -> None:
    with pytest.raises(InternalError) as raised:
        translated(Refused, [method])
    assert f"Refused.{method} cannot be compiled: {code}" in str(raised.value)


def test_fields_have_arrays_of_their_type() -> None:
    instance, _ = sample(True)
    assert new_array(2, 4).tolist() == [4, 4] and new_floats(2).tolist() == [0.0, 0.0]
    instance.numbers = new_floats(2)
    with pytest.raises(AssertionError, match="float64"):
        InstanceRecord(instance)
