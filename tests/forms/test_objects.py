# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classes that kernels construct: with and without ``NKIObject``, decorator, initializer, defaults."""

import copy
import dataclasses
import enum
import pickle
from typing import ClassVar, NamedTuple

import numpy as np
import pytest

from nki_mlir.language.beta import language as beta
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from ..oracle.current import nl as oracle_nl

X = (np.random.default_rng(0).permutation(16 * 8) % 101).astype(np.float32).reshape(16, 8)


class Params(nl.NKIObject):
    section: int
    scale: float = 2.0
    tile: nl.ndarray
    dtype = nl.float32
    notes: list = None

    def scaled(self):
        return nl.multiply(self.tile, self.scale)


class Derived(Params):
    offset: float = 1.0

    def __post_init__(self):
        self.total = (self.section or 0) + self.offset


class Own(nl.NKIObject):
    def __init__(self, x, *, scale=1.0):
        self.x, self.scale = x, scale

    @property
    def shape(self):
        return self.x.shape

    @staticmethod
    def one():
        return 1.0

    @classmethod
    def of(cls, x):
        return cls(x, scale=3.0)

    def __call__(self, tile):
        return nl.multiply(tile, self.scale)

    def __getitem__(self, k):
        return (self.scale, self.x)[k]

    def __iter__(self):
        return iter((self.scale,))

    def __repr__(self):
        return f"Own({self.scale})"


@dataclasses.dataclass
class Config(nl.NKIObject):
    rows: int
    dtype: object = nl.bfloat16
    sizes: list = dataclasses.field(default_factory=list)
    tile: object = None

    def __post_init__(self):
        self.sizes.append(self.rows)


@dataclasses.dataclass(frozen=True)
class Frozen(nl.NKIObject):
    rows: int
    dtype: object = nl.float8_e5m2


@dataclasses.dataclass(frozen=True)
class FrozenChild(Frozen):
    columns: int = 4


class Plain:
    def __init__(self, value):
        self.value = value


class Kind(enum.Enum):
    rows = "r"
    columns = "c"


class Sizes(NamedTuple):
    rows: int
    columns: int = 8


def test_objects_in_kernels(on):
    @nki.jit
    def kernel(x, config, frozen, kind, sizes):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        params = Params(section=3)
        assert params.tile is None and params.scale == 2.0 and params.notes is None and params.dtype == nl.float32
        params.tile = nl.load(x)
        params.extra = 1
        derived = Derived(1, 2.0, params.tile, nl.float32, None, 4.0)
        assert (derived.section, derived.offset, derived.total) == (1, 4.0, 5.0)
        assert Params(section=1) == Params(1) != Params(2) and Params(1) != Derived(1)
        subclassed = Own.of(x)
        assert subclassed.shape == x.shape and subclassed[0] == 3.0 and [*subclassed] == [3.0] and Own.one() == 1.0 and f"{subclassed}" == "Own(3.0)"
        assert config.sizes == [2] and config.dtype is nl.bfloat16 and frozen.dtype == nl.float8_e5m2
        assert dataclasses.replace(frozen, rows=5) == Frozen(5) and FrozenChild(1, columns=2).columns == 2
        assert kind is Kind.rows and {Kind.rows: 1}[kind] == 1 and kind.value == "r" and sizes.columns == 8
        configured = Config(4, tile=subclassed(params.scaled()))
        other = copy.copy(configured)
        assert other.tile is configured.tile and Plain(configured).value is configured
        nl.store(out, other.tile)
        return out
    result = kernel.on(on)(X, Config(2), Frozen(3), Kind.rows, Sizes(16))
    np.testing.assert_array_equal(result, X * 6)


@dataclasses.dataclass
class Mixed(nl.NKIObject):
    first = None
    second: int
    third = 3
    fourth: float = 2.0
    shared: ClassVar[int] = 7
    function = nl.silu

    class Inside:
        pass

    def __post_init__(self):
        self.pair = (self.first, self.second)

    @property
    def total(self):
        return self.third + self.fourth


class MoreMixed(Mixed):
    fifth = 5


@dataclasses.dataclass(frozen=True)
class FrozenMixed(nl.NKIObject):
    rows: int
    columns = 4
    sizes: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class Slotted(nl.NKIObject):
    rows: int
    columns = 4
    depth: int = 2


def test_attributes_without_annotation_are_fields_in_the_order_of_the_text():
    assert vars(Mixed()) == {"first": None, "second": None, "third": 3, "fourth": 2.0, "function": nl.silu,
                             "pair": (None, None)}
    mixed = Mixed(1, 2, 4, 5.0)
    assert (mixed.first, mixed.second, mixed.third, mixed.fourth, mixed.pair) == (1, 2, 4, 5.0, (1, 2))
    assert mixed.total == 9.0 and Mixed.shared == 7 and mixed.function is nl.silu
    assert Mixed(first=1) == Mixed(1) != Mixed(2) and dataclasses.replace(mixed, second=9) == Mixed(1, 9, 4, 5.0)
    assert dataclasses.asdict(Mixed(2))["first"] == 2 and "first=2" in repr(Mixed(2))
    assert MoreMixed(1, 2, 3, 4, None, 6).fifth == 6 and MoreMixed(fifth=0).fifth == 0 and MoreMixed().fifth == 5
    for unknown in ("shared", "Inside", "total", "pair", "_"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{unknown}'"):
            Mixed(**{unknown: 1})


def test_what_a_decorated_class_is_not_given_is_none():
    assert Config().sizes == [None]
    frozen = FrozenMixed()
    assert (frozen.rows, frozen.columns, frozen.sizes) == (None, 4, []) and frozen.sizes is not FrozenMixed().sizes
    assert FrozenMixed(1, 2, [3]) == FrozenMixed(rows=1, columns=2, sizes=[3]) != FrozenMixed(1, 3, [3])
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'rows'"):
        frozen.rows = 2
    slotted = Slotted(1, 2, 3)
    assert (slotted.rows, slotted.columns, slotted.depth) == (1, 2, 3) and (Slotted().rows, Slotted().depth) == (None, 2)


def of_two_fields(language):
    @dataclasses.dataclass
    class Pair(language.NKIObject):
        before = None
        x: int
        scale = 2.0
        rest: list = dataclasses.field(default_factory=list)

        def __post_init__(self):
            self.seen = self.x is None

    class Plain(language.NKIObject):
        scale = 2.0
        x: int
    return Pair, Plain


@pytest.mark.parametrize("arguments, keywords", [((), {}), ((1,), {}), ((1, 2), {"rest": [3]}), ((), {"scale": 4.0}),
                                                 ((1, 2, 3.0, [4]), {})])
def test_fields_are_those_of_the_oracle(arguments, keywords):
    (pair, plain), (other, other_plain) = of_two_fields(nl), of_two_fields(oracle_nl)
    assert vars(pair(*arguments, **keywords)) == vars(other(*arguments, **keywords))
    assert vars(plain(*arguments[:2])) == vars(other_plain(*arguments[:2]))


def test_fields_without_annotation_in_kernels(on):
    @nki.jit
    def kernel(x, config):
        state = Mixed(nl.load(x), config.columns)
        assert state.third == 3 and config.rows is None
        return nl.multiply(state.first, float(state.second))
    np.testing.assert_array_equal(kernel.on(on)(X, FrozenMixed(columns=3)), X * 3)
    np.testing.assert_array_equal(kernel.on(on)(X, FrozenMixed(columns=5)), X * 5)


def test_mutable_state_object(on):
    class State(nl.NKIObject):
        tile: object
        count: int = 0

    def advance(state):
        advanced = nl.ndarray(state.tile.shape, state.tile.dtype, buffer=nl.sbuf)
        from nki_mlir.language.current import isa as nisa
        nisa.tensor_scalar(advanced, state.tile, nl.add, 1.0)
        state.tile, state.count = advanced, state.count + 1

    @nki.jit
    def kernel(x):
        state = State(tile=nl.load(x))
        for _ in range(3):
            advance(state)
        assert state.count == 3
        return state.tile
    np.testing.assert_array_equal(kernel.on(on)(X), X + 3)


def test_arrays_in_objects_are_tensors(on):
    class Pair(nl.NKIObject):
        x: nl.ndarray
        scale: float = 2.0

    @nki.jit
    def kernel(pair):
        assert pair.x.shape == (16, 8) and pair.x.buffer == nl.hbm
        return nl.multiply(nl.load(pair.x), pair.scale)
    np.testing.assert_array_equal(kernel.on(on)(Pair(X)), X * 2)
    np.testing.assert_array_equal(kernel.on(on)(Pair(x=X, scale=3.0)), X * 3)


@pytest.mark.parametrize("call, text", [
    (lambda: Params(unknown=1), "unexpected keyword argument 'unknown'"),
    (lambda: Params(1, 2, 3, 4, 5, 6), "too many arguments given"),
    (lambda: Params(1, section=2), "section"),
])
def test_errors_of_fields(call, text):
    with pytest.raises(TypeError, match=text):
        call()


@pytest.mark.parametrize("dtype", [nl.bfloat16, nl.float8_e4m3, nl.float32, beta.bfloat16, beta.float8_e5m2])
def test_copies_of_dtypes(dtype):
    assert copy.deepcopy(dtype) is dtype or copy.deepcopy(dtype) == dtype
    assert copy.copy(dtype) == dtype and pickle.loads(pickle.dumps(dtype)) == dtype
    config = Config(2, dtype)
    assert dataclasses.asdict(config) == {"rows": 2, "dtype": dtype, "sizes": [2], "tile": None}
    assert copy.deepcopy(config) == config and copy.deepcopy(config).dtype == dtype


def test_copies_of_names():
    for value in (nl.sbuf, nl.shared_hbm, nl.add, nl.bypass, nl.load, beta.sbuf, beta.add, nl.NKIObject):
        assert copy.deepcopy(value) is value
        assert copy.copy(value) is value
    assert copy.deepcopy(Params(1, dtype)) if (dtype := None) else copy.deepcopy(Params(1, 2.0)) == Params(1, 2.0)


def test_copies_of_objects_that_hold_tiles(on):
    @nki.jit
    def kernel(x):
        config = Config(2, tile=nl.load(x))
        duplicate = copy.deepcopy(config)
        as_dict = dataclasses.asdict(config)
        assert duplicate == config
        return nl.add(duplicate.tile, as_dict["tile"])
    np.testing.assert_array_equal(kernel.on(on)(X), X * 2)
