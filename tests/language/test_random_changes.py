# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random changes of all that a kernel sees, between calls: no executor and no framework returns a value of before.

A kernel reads one number from each of a few places. A step changes a place, or puts a value of before back, and calls a
kernel in a random way; the places, read as plain Python, say what is right. ``make fuzz`` makes 10,000 steps.
"""

import array
import collections
import contextvars
import ctypes
import enum
import os
import random
import sys
import threading
import types
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki

from ..fuzz_time import in_time

FUZZ = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"
STEPS = 10_000 if FUZZ else 60
SEED = int(os.environ.get("NKI_MLIR_FUZZ_SEED", "0"))
VALUES = (1.0, 2.0)
X = np.arange(1, 9, dtype=np.float32).reshape(2, 4)
NUMBER, TABLE, SETTINGS = 1.0, {"inner": [1.0]}, "nki_mlir_test_settings_of_calls"
CONSTANTS = {value: (lambda value: lambda *arguments: value)(value) for value in VALUES}
CODES = {1.0: (lambda: 1.0).__code__, 2.0: (lambda: 2.0).__code__}


class Base:
    __slots__ = ()

    def inherited(self):
        return 1.0


class Config(Base):
    kind = 1.0
    __slots__ = ("__dict__", "__weakref__", "slot")

    def __init__(self):
        self.field = self.slot = 1.0

    def method(self):
        return 1.0

    @classmethod
    def of_class(cls):
        return 1.0

    @staticmethod
    def of_nothing():
        return 1.0

    @property
    def read(self):
        return 1.0

    def __call__(self):
        return 1.0

    def __getitem__(self, key):
        return 1.0

    def inherited(self):
        return super().inherited()


class Mode(enum.Enum):
    ONE = 1

    def scale(self):
        return 1.0


class Named(collections.namedtuple("Named", ["part"])):
    def scale(self):
        return 1.0


def helper():
    return 1.0


def with_defaults(by=1.0, *, factor=1.0):
    return by * 16 + factor


def with_attribute():
    return with_attribute.scale


def number_that_may_be_missing():
    return globals().get("LATER", 0.0)


def item(owner, key, convert=float):
    return lambda value: owner.__setitem__(key, convert(value))


def attribute(owner, name):
    return lambda value: setattr(owner, name, value)


def method(owner, name, wrap=lambda function: function):
    return lambda value: setattr(owner, name, wrap(CONSTANTS[value]))


def set_later(value):
    globals().pop("LATER", None)
    if value != 1.0:
        globals()["LATER"] = value


def variable():
    cell = 1.0

    def put(value):
        nonlocal cell
        cell = value
    return lambda: cell, put


def places(file):
    """Where a kernel may read, by name: (read, write)."""
    config, weakly = Config(), Config()
    chain, user = collections.ChainMap({}, {"part": 1.0}), collections.UserDict(part=1.0)
    memory, number = bytearray([1]), ctypes.c_double(1.0)
    view, packed = memoryview(bytearray([1])), array.array("d", [1.0])
    objects, numbers = np.array([config, 1.0], object), np.ones(3)
    local, context = threading.local(), contextvars.ContextVar("scale", default=1.0)
    queue, mapping, named = collections.deque([1.0]), {"part": 1.0}, Named(1.0)
    table, proxy, readable = weakref.WeakValueDictionary(part=weakly), weakref.proxy(weakly), types.MappingProxyType(mapping)
    module = types.ModuleType(SETTINGS)
    module.__file__, module.SCALE, module.OTHER = __file__, 1.0, 1.0
    sys.modules[SETTINGS] = module
    local.scale = with_attribute.scale = 1.0
    holder = SimpleNamespace(reference=weakref.ref(weakly), part=SimpleNamespace(scale=1.0), module=module)
    file.write_text("1.0")
    return {
        "global": (lambda: NUMBER, item(globals(), "NUMBER")),
        "cell": variable(),
        "item": (lambda: TABLE["inner"][0], lambda value: TABLE["inner"].__setitem__(0, value)),
        "list": (lambda: TABLE["inner"][0], lambda value: TABLE.__setitem__("inner", [value])),
        "later": (number_that_may_be_missing, set_later),
        "attribute": (lambda: config.field, attribute(config, "field")),
        "slot": (lambda: config.slot, attribute(config, "slot")),
        "class": (lambda: config.kind, attribute(Config, "kind")),
        "method": (lambda: config.method(), method(Config, "method")),
        "class method": (lambda: config.of_class(), method(Config, "of_class", classmethod)),
        "static method": (lambda: config.of_nothing(), method(Config, "of_nothing", staticmethod)),
        "property": (lambda: config.read, method(Config, "read", property)),
        "call": (lambda: config(), method(Config, "__call__")),
        "operator": (lambda: config["x"], method(Config, "__getitem__")),
        "base": (lambda: config.inherited(), method(Base, "inherited")),
        "enumeration": (lambda: Mode.ONE.scale(), method(Mode, "scale")),
        "named tuple": (lambda: named.scale(), method(Named, "scale")),
        "code": (lambda: helper(), lambda value: setattr(helper, "__code__", CODES[value])),
        "default": (lambda: with_defaults(), lambda value: setattr(with_defaults, "__defaults__", (value,))),
        "keyword default": (lambda: with_defaults(), item(with_defaults.__kwdefaults__, "factor")),
        "function attribute": (lambda: with_attribute(), attribute(with_attribute, "scale")),
        "chain": (lambda: chain["part"], item(chain.maps[1], "part")),
        "user dict": (lambda: user["part"], item(user, "part")),
        "mapping": (lambda: readable["part"], item(mapping, "part")),
        "bytes": (lambda: float(memory[0]), item(memory, 0, int)),
        "view": (lambda: float(view[0]), item(view, 0, int)),
        "foreign number": (lambda: number.value, attribute(number, "value")),
        "packed": (lambda: packed[0], item(packed, 0)),
        "deque": (lambda: queue[0], item(queue, 0)),
        "array": (lambda: float(numbers[1]), item(numbers, 1)),
        "array of objects": (lambda: objects[1], item(objects, 1)),
        "local of a thread": (lambda: local.scale, attribute(local, "scale")),
        "context": (lambda: context.get(), context.set),
        "weak reference": (lambda: holder.reference().field, attribute(weakly, "field")),
        "weak table": (lambda: table["part"].slot, attribute(weakly, "slot")),
        "weak proxy": (lambda: proxy.field, attribute(weakly, "field")),
        "namespace": (lambda: holder.part.scale, attribute(holder.part, "scale")),
        "module": (lambda: holder.module.SCALE, attribute(module, "SCALE")),
        "table of modules": (lambda: sys.modules["nki_mlir_test_settings_of_calls"].OTHER, attribute(module, "OTHER")),
        "environment": (lambda: float(os.environ["NKI_MLIR_TEST_SCALE"]),
                        item(os.environ, "NKI_MLIR_TEST_SCALE", str)),
        "arguments of the program": (lambda: float(sys.argv[-1]), item(sys.argv, -1, str)),
        "file": (lambda: float(open(file).read()), lambda value: file.write_text(str(value)) and None),
        "name of an installed module": (lambda: np.lib.scale_of_calls, attribute(np.lib, "scale_of_calls")),
    }


class Group:
    """Three places, a kernel of each generation that reads them, and what frameworks compiled of it."""

    def __init__(self, names, places):
        self.names = names
        reads = [places[name][0] for name in names]

        def total():
            return sum([read() for read in reads])

        def beta(x, by=0.0):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.load(x) * total() + by)
            return out

        def current(x, by=0.0):
            out = current_nl.ndarray(x.shape, dtype=x.dtype, buffer=current_nl.shared_hbm)
            current_nl.store(out, current_nl.add(current_nl.multiply(current_nl.load(x), total()), by))
            return out
        self.total, self.kernels, self.compiled = total, [nki.jit(beta), current_nki.jit(current)], {}


def by_torch(group, number, by):
    torch = pytest.importorskip("torch")
    return group.kernels[number](torch.from_numpy(X), *by).numpy()


def by_torch_compile(group, number, by):
    torch, kernel = pytest.importorskip("torch"), group.kernels[number]
    if (number, by) not in group.compiled:
        group.compiled[number, by] = torch.compile(lambda x: kernel(x, *by), backend="eager", fullgraph=True)
    return group.compiled[number, by](torch.from_numpy(X)).numpy()


def by_jax(group, number, by):
    jax = pytest.importorskip("jax")
    return np.asarray(group.kernels[number](jax.numpy.asarray(X), *by))


def by_jax_jit(group, number, by):
    """A separate trace, since one keeps the values that it saw, as of any function."""
    jax = pytest.importorskip("jax")
    return np.asarray(jax.jit(lambda x: group.kernels[number](x, *by))(X))


def on(executor):
    return lambda group, number, by: group.kernels[number].on(executor)(X, *by)


RUNS = {"jit": lambda group, number, by: group.kernels[number](X, *by),
        "by keyword": lambda group, number, by: group.kernels[number](X, **dict(zip(["by"], by))),
        "interpreter": on("interpreter"), "isa": on("isa"), "eager": on("eager"), "torch": by_torch,
        "torch.compile": by_torch_compile, "jax": by_jax, "jax.jit": by_jax_jit}
WEIGHTS = {"jit": 8, "by keyword": 2, "interpreter": 2, "isa": 1, "eager": 1, "torch": 4, "torch.compile": 2, "jax": 2,
           "jax.jit": 0.3}


@pytest.mark.fuzz
def test_random_changes_between_calls(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program", "1.0"])
    monkeypatch.setattr(np.lib, "scale_of_calls", 1.0, raising=False)
    monkeypatch.setenv("NKI_MLIR_TEST_SCALE", "1.0")
    monkeypatch.delenv("NKI_MLIR_EXECUTOR", raising=False)
    dynamo = pytest.importorskip("torch._dynamo")
    draw, every = random.Random(SEED), places(tmp_path / "scale")
    monkeypatch.delitem(globals(), "LATER", raising=False)
    names = sorted(every)
    draw.shuffle(names)
    count = len(names) // 3
    groups, log = [Group(names[k::count], every) for k in range(count)], []
    with dynamo.config.patch(recompile_limit=1000, accumulated_recompile_limit=100_000):
        for step in in_time(range(STEPS)):
            if step % 1000 == 999:
                dynamo.reset()          # each of its programs is compared with the state before all others
            group = draw.choice(groups if FUZZ else groups[:3])
            if draw.random() < 0.6:
                name, value = draw.choice(group.names), draw.choice(VALUES)
                log.append(f"{name} = {value}")
                every[name][1](value)
            way, number, by = draw.choices([*WEIGHTS], WEIGHTS.values())[0], draw.randrange(2), draw.choice([(), (2.0,)])
            log.append(f"{way} of generation {number} with {by} reads {group.names}")
            expected = X * np.float32(group.total()) + np.float32(sum(by))
            result = RUNS[way](group, number, by)
            assert np.array_equal(result, expected), "\n".join([f"seed {SEED}", *log[-30:], f"{result} for {expected}"])
    set_later(1.0)
    sys.modules.pop(SETTINGS)
