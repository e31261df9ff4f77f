# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a kernel sees besides its tensors counts with the value it has at the call, changed in place or replaced."""

import contextvars
import dataclasses
import functools
import importlib
import operator
import os
import sys
import types
from array import array
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.closure_state import OBJECTS, ClosureState

from .running import check, numbers, output_of

X = numbers(16, 8)
TABLE = {}
count = 0


class Settings:
    bias = 1
    __slots__ = ("inner", "scale")

    def __init__(self):
        self.scale, self.inner = 2, SimpleNamespace(offset=3)

    def total(self):
        return self.bias + self.inner.offset


@dataclasses.dataclass
class Block:
    width: int
    options: dict


SETTINGS = Settings()


@pytest.fixture
def settings(monkeypatch):
    fresh = Settings()
    monkeypatch.setattr("tests.language.test_closure_state.SETTINGS", fresh)
    monkeypatch.setattr(Settings, "bias", 1)
    return fresh


def test_containers_and_arrays(on, monkeypatch):
    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) * TABLE["scale"][0] + int(TABLE["offsets"][1]))
    table = {"scale": [2], "offsets": np.array([1, 2])}
    monkeypatch.setattr("tests.language.test_closure_state.TABLE", table)
    check(on, kernel, X * 2 + 2, X)
    table["scale"][0] = 5
    check(on, kernel, X * 5 + 2, X)
    table["offsets"][1] = 7
    check(on, kernel, X * 5 + 7, X)
    table["scale"] = [9, 9]
    check(on, kernel, X * 9 + 7, X)


def test_objects_and_classes(on, settings, monkeypatch):
    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) * SETTINGS.scale + SETTINGS.total())
    check(on, kernel, X * 2 + 4, X)
    settings.scale = 4
    check(on, kernel, X * 4 + 4, X)
    settings.inner.offset = 10
    check(on, kernel, X * 4 + 11, X)
    monkeypatch.setattr(Settings, "bias", 5)
    check(on, kernel, X * 4 + 15, X)


def test_objects_of_methods_partials_and_closures(on):
    class Scaler:
        def __init__(self, scale):
            self.scale = scale

        def kernel(self, x):
            return output_of(nl.load(x) * self.scale)

    def scaled(x, by):
        return output_of(nl.load(x) * by.scale)
    scaler = Scaler(2)
    kernels = [nki.jit(scaler.kernel), nki.jit(functools.partial(scaled, by=scaler)),
               nki.jit(lambda x: output_of(nl.load(x) * scaler.scale))]
    for scale in (2, 6):
        scaler.scale = scale
        for kernel in kernels:
            check(on, kernel, X * scale, X)


def test_objects_that_are_arguments(on, settings):
    @nki.jit
    def kernel(x, settings, block, f=abs):
        return output_of(nl.load(x) * settings.scale + block.width + f(block.options["shift"]))
    block = Block(1, {"shift": -2})
    check(on, kernel, X * 2 + 3, X, settings, block)
    settings.scale, block.width = 5, 2
    check(on, kernel, X * 5 + 4, X, settings, block)
    block.options["shift"] = 1
    check(on, kernel, X * 5 + 3, X, settings, block)
    check(on, kernel, X * 5 + 3, X, settings, block, lambda value: settings.scale - 4)
    settings.scale = 6
    helper = lambda value: settings.scale * value
    check(on, kernel, X * 6 + 8, X, settings, block, helper)
    settings.scale = 7
    check(on, kernel, X * 7 + 9, X, settings, block, helper)


class Named(dict):
    pass


def of_a_helper_with_an_attribute():
    def helper(x):
        return x * helper.scale
    helper.scale = 2
    return helper, lambda value: setattr(helper, "scale", value)


def of_the_environment(read):
    return lambda x: x * float(read()), lambda value: os.environ.__setitem__("NKI_MLIR_TEST_SCALE", str(value))


def of_a_name_in_a_text():
    return lambda x: x * vars(sys.modules[__name__])["SCALE"] * globals()["SCALE"], (
        lambda value: globals().__setitem__("SCALE", value ** 0.5))


def of_memory(memory):
    return lambda x: x * float(memory[0]), lambda value: memory.__setitem__(0, value)


def of_a_view_of_a_dict():
    table = {"scale": 2}
    view = types.MappingProxyType(table)
    return lambda x: x * view["scale"], lambda value: table.__setitem__("scale", value)


def of_an_attribute_of_a_dict():
    table = Named(scale=7)
    return lambda x: x * table.scale, lambda value: setattr(table, "scale", value)


def of_a_context():
    scale = contextvars.ContextVar("scale")
    return lambda x: x * scale.get(), scale.set


@pytest.mark.parametrize("seen", [
    of_a_helper_with_an_attribute, lambda: of_the_environment(lambda: os.environ["NKI_MLIR_TEST_SCALE"]),
    lambda: of_the_environment(lambda: os.getenv("NKI_MLIR_TEST_SCALE", "0")), of_a_name_in_a_text,
    lambda: of_memory(bytearray(1)), lambda: of_memory(array("f", [2])), of_a_view_of_a_dict,
    of_an_attribute_of_a_dict, of_a_context], ids=[
    "function attribute", "environ", "getenv", "text", "bytearray", "array", "mapping", "dict attribute", "context"])
def test_values_that_hide_are_seen(seen, monkeypatch):
    monkeypatch.setenv("NKI_MLIR_TEST_SCALE", "2")
    monkeypatch.setattr("tests.language.test_closure_state.SCALE", 2, raising=False)
    scaled, change = seen()

    @nki.jit
    def kernel(x):
        return output_of(scaled(nl.load(x)))
    for value in (4, 4, 4, 9, 9, 4, 16):
        change(value)
        assert np.array_equal(kernel(X), X * value)
    assert len(kernel.specializations) == 3


def test_what_tools_keep_at_a_function_is_no_part_of_a_key():
    """A cache of captures, for one: its keys would hold each other."""
    def kernel(x):
        return output_of(nl.load(x) * 2)
    kernel.__cache__ = {}
    keys = [ClosureState(kernel).key]
    kernel.scale = 2
    for _ in range(3):
        keys.append(ClosureState(kernel).key)
        kernel.__cache__[keys[-1]] = keys[-1]
    assert keys[0] != keys[1] == keys[2] == keys[3] and len({len(repr(key)) for key in keys[1:]}) == 1


INSTALLED = {
    "__init__": "",
    "settings": "class Settings:\n    scale = 2\n    def __init__(self):\n        self.scale = 2\n"
                "scale, nested = 2, Settings()\n",
    "helpers": "from . import settings\ndef scaled(x):\n    return x * settings.scale\n",
    "kernels": "from nki_mlir.language.beta import language as nl, nki\nfrom . import helpers, settings\n"
               "def kernel(x):\n    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)\n"
               "    nl.store(out, SEEN)\n    return out\nkernel = nki.jit(kernel)\n"}


@pytest.mark.parametrize("owner, seen", [
    ("settings", "nl.load(x) * settings.scale"), ("settings.nested", "nl.load(x) * settings.nested.scale"),
    ("settings.Settings", "nl.load(x) * settings.Settings.scale"), ("settings", "helpers.scaled(nl.load(x))")],
    ids=["module", "object", "class", "helper"])
def test_packages_of_kernels_are_seen_where_they_are_installed(tmp_path, monkeypatch, owner, seen):
    package = tmp_path / "site-packages" / "kernels_to_install"
    package.mkdir(parents=True)
    for name, text in INSTALLED.items():
        (package / f"{name}.py").write_text(text.replace("SEEN", seen))
    monkeypatch.syspath_prepend(package.parent)
    for name in [n for n in sys.modules if n.startswith(package.name)]:
        monkeypatch.delitem(sys.modules, name)
    kernel = importlib.import_module(f"{package.name}.kernels").kernel
    changed = operator.attrgetter(owner)(sys.modules[package.name])
    for value in (2, 2, 2, 3, 3, 2):
        changed.scale = value
        assert np.array_equal(kernel(X), X * value)


def test_helpers_that_are_wrapped_are_called_quickly():
    @functools.wraps(output_of)
    def helper(x):
        return output_of(x)
    kernel = nki.jit(lambda x: helper(nl.load(x) + 1))
    for _ in range(3):
        assert np.array_equal(kernel(X), X + 1)
    assert [len(call.runs) for call in kernel.specializations.calls()] == [1]


def test_helpers_in_tables(on):
    factor = [2]
    helpers = {"scale": [lambda tile: tile * factor[0]]}

    @nki.jit
    def kernel(x):
        return output_of(helpers["scale"][0](nl.load(x)))
    check(on, kernel, X * 2, X)
    factor[0] = 3
    check(on, kernel, X * 3, X)
    helpers["scale"][0] = lambda tile: tile + factor[0]
    check(on, kernel, X + 3, X)


def test_what_the_kernel_itself_changes_does_not_count(on):
    """A log, a counter and a cache of the kernel's own do not lead to a capture at each call; what is next to them counts."""
    if on == "eager":
        pytest.skip("executes without capturing")
    log, number, config = [], 0, SimpleNamespace(scale=2)

    @nki.jit
    def kernel(x, offset):
        nonlocal number
        global count
        number, count = number + 1, count + 1
        log.append(offset)
        config.double = config.scale * 2
        return output_of(nl.load(x) * config.double + offset)
    for offset in (1, 1, 2, 1, 2):
        check(on, kernel, X * 4 + offset, X, offset)
    assert (log, number) == ([1, 2], 2)
    config.scale = 3
    check(on, kernel, X * 6 + 1, X, 1)
    assert number == 3


def test_key__recursive_and_endless():
    recursive = []
    recursive.append(recursive)
    deep = []
    for _ in range(5000):
        deep = [deep]
    many = [[n] for n in range(2 * OBJECTS)]

    def kernel():
        return recursive, deep, many
    before = ClosureState(kernel).key
    assert hash(before) == hash(ClosureState(kernel).key) and before == ClosureState(kernel).key
    recursive.append(1)
    assert ClosureState(kernel).key != before


def test_key__of_values():
    key = lambda value: ClosureState(len, [value]).key
    for one, other in ((0.0, -0.0), (1, True), (1, 1.0), ("1", 1), ((1,), [1]), ({"a": 1}, {"a": 2}),
                       ([1, 2], [2, 1]), (np.zeros(2), np.zeros(3)), (np.int8(1), np.int16(1)), (Block(1, {}), Block(2, {}))):
        assert key(one) != key(other), (one, other)
    for make in (lambda: [1, {"a": (2, 3.5)}], lambda: float("nan"), lambda: np.ones(3), lambda: Block(1, {"a": 2}),
                 lambda: {3, 1}, Settings):
        assert key(make()) == key(make())


def test_torch_calls_that_are_planned(settings):
    torch = pytest.importorskip("torch")

    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) * SETTINGS.scale)
    x = torch.from_numpy(X)
    for scale in (2, 2, 2, 5, 5, 2):
        settings.scale = scale
        torch.testing.assert_close(kernel(x), x * scale, rtol=0, atol=0)


def test_quick_calls__see_every_change():
    """From the third call on, a call asks only whether all is as it was: wherever something is seen."""
    def helper(x, *, factor=2):
        return x * factor * count

    @functools.wraps(helper)
    def decorated(x):
        return helper(x)
    shift = 1

    @nki.jit
    def kernel(x, by=3):
        try:
            extra = LATER
        except NameError:
            extra = 0
        return output_of(decorated(nl.load(x)) + shift + by + extra)

    def is_now(value):
        for _ in range(4):
            assert np.array_equal(kernel(X), value)
    globals()["count"] = 1
    try:
        is_now(X * 2 + 4)
        globals()["count"] = 5
        is_now(X * 10 + 4)
        globals()["LATER"] = 7                  # where there was no such name
        is_now(X * 10 + 11)
        del globals()["LATER"]
        is_now(X * 10 + 4)
    finally:
        globals()["count"] = 0
        globals().pop("LATER", None)
    globals()["count"] = 1
    helper.__kwdefaults__["factor"] = 4
    is_now(X * 4 + 4)
    shift = 2
    is_now(X * 4 + 5)
    helper = lambda x: x * 8
    is_now(X * 8 + 5)
    for by in (3, 3.0, True, 1, -0.0, 0.0):
        for _ in range(3):
            assert np.array_equal(kernel(X, by=by), X * 8 + 2 + by)
    helper.__code__ = (lambda x: x * 16).__code__
    is_now(X * 16 + 5)
    globals()["count"] = 0


def test_quick_calls__of_another_level_of_rules(monkeypatch):
    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) + 1)
    for _ in range(3):
        kernel(X)
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "nonsense")
    with pytest.raises(ValueError, match="NKI_MLIR_DEVICE_RULES cannot be 'nonsense'"):
        kernel(X)
    monkeypatch.setenv("NKI_MLIR_DEVICE_RULES", "warn")
    assert np.array_equal(kernel(X), X + 1)
    assert len(kernel.specializations) == 2
    monkeypatch.setenv("NKI_MLIR_EXECUTOR", "nonsense")
    with pytest.raises(ValueError, match="no executor named 'nonsense'"):
        kernel(X)
