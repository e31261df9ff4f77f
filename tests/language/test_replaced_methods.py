# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Methods that are replaced on a class count as helpers that are: by identity and code, wherever a class has them."""

import enum
import functools
from unittest import mock

import numpy as np
import pytest

from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .running import check, numbers, output_of

X = numbers(16, 8)
TWO, FIVE = (lambda self: 2), (lambda self: 5)


def a_method():
    class Config:
        scale = TWO
    return Config, "scale", FIVE, Config(), lambda config: config.scale()


def a_class_method():
    class Config:
        scale = classmethod(TWO)
    return Config, "scale", classmethod(FIVE), Config, lambda config: config.scale()


def a_static_method():
    class Config:
        scale = staticmethod(lambda: 2)
    return Config, "scale", staticmethod(lambda: 5), Config, lambda config: config.scale()


def a_property():
    class Config:
        scale = property(TWO)
    return Config, "scale", property(FIVE), Config(), lambda config: config.scale


def a_call():
    class Config:
        __call__ = TWO
    return Config, "__call__", FIVE, Config(), lambda config: config()


def an_operator():
    class Config:
        __add__ = lambda self, other: 2
    return Config, "__add__", lambda self, other: 5, Config(), lambda config: config + 1


def an_item():
    class Config:
        __getitem__ = lambda self, key: 2
    return Config, "__getitem__", lambda self, key: 5, Config(), lambda config: config["scale"]


def an_attribute_that_is_missing():
    class Config:
        __getattr__ = lambda self, name: 2
    return Config, "__getattr__", lambda self, name: 5, Config(), lambda config: config.scale


def a_base_class():
    class Base:
        scale = TWO

    class Config(Base):
        pass
    return Base, "scale", FIVE, Config(), lambda config: config.scale()


def a_call_of_super():
    class Base:
        def scale(self):
            return 2

    class Config(Base):
        def scale(self):
            return super().scale()
    return Base, "scale", FIVE, Config(), lambda config: config.scale()


def a_method_of_a_named_tuple():
    class Config(tuple):
        scale = TWO
    return Config, "scale", FIVE, Config((1, 2)), lambda config: config.scale()


def a_method_of_a_number():
    class Config(int):
        scale = TWO
    return Config, "scale", FIVE, Config(1), lambda config: config.scale()


def a_method_of_a_table():
    class Config(dict):
        scale = TWO
    return Config, "scale", FIVE, Config(), lambda config: config.scale()


def a_method_of_an_enumeration():
    class Config(enum.Enum):
        ONE = 1

        def scale(self):
            return 2
    return Config, "scale", FIVE, Config.ONE, lambda config: config.scale()


def a_method_of_a_metaclass():
    class Meta(type):
        scale = TWO

    class Config(metaclass=Meta):
        pass
    return Meta, "scale", FIVE, Config, lambda config: config.scale()


def a_partial_method():
    class Config:
        def of(self, value):
            return value
        scale = functools.partialmethod(of, 2)
    return Config, "scale", functools.partialmethod(Config.of, 5), Config(), lambda config: config.scale()


def a_method_of_an_instance():
    class Config:
        pass
    config = Config()
    config.scale = lambda: 2
    return config, "scale", lambda: 5, config, lambda config: config.scale()


CASES = [a_method, a_class_method, a_static_method, a_property, a_call, an_operator, an_item,
         an_attribute_that_is_missing, a_base_class, a_call_of_super, a_method_of_a_named_tuple, a_method_of_a_number,
         a_method_of_a_table, a_method_of_an_enumeration, a_method_of_a_metaclass, a_partial_method,
         a_method_of_an_instance]


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
def test_replaced_methods_are_seen(on, case):
    owner, name, other, config, scale = case()

    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) * scale(config))
    for _ in range(2):
        check(on, kernel, X * 2, X)
    with mock.patch.object(owner, name, other):
        for _ in range(2):
            check(on, kernel, X * 5, X)
    check(on, kernel, X * 2, X)
    setattr(owner, name, other)
    check(on, kernel, X * 5, X)


def test_code_of_a_method_is_seen(on):
    class Config:
        def scale(self):
            return 2
    config = Config()
    kernel = nki.jit(lambda x: output_of(nl.load(x) * config.scale()))
    check(on, kernel, X * 2, X)
    Config.scale.__code__ = FIVE.__code__
    check(on, kernel, X * 5, X)


def test_method_that_comes_between_is_seen(on):
    class Base:
        scale = TWO

    class Config(Base):
        pass
    config = Config()
    kernel = nki.jit(lambda x: output_of(nl.load(x) * config.scale()))
    check(on, kernel, X * 2, X)
    Config.scale = FIVE
    check(on, kernel, X * 5, X)
    del Config.scale
    check(on, kernel, X * 2, X)


def test_what_a_mock_returns_is_seen():
    class Config:
        scale = TWO
    kernel = nki.jit(lambda x: output_of(nl.load(x) * Config().scale()))
    with mock.patch.object(Config, "scale", return_value=3.0) as scale:
        for value in (3.0, 3.0, 5.0, 3.0):
            scale.return_value = value
            assert np.array_equal(kernel(X), X * value)
    assert np.array_equal(kernel(X), X * 2)
