# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels that change Python state behind their variables: in classes, functions, modules, arrays and containers.

The operations of an iteration do not show the change; what comes after the loop does. ``test_capture`` runs them.
"""

import array
import collections
import functools
import types

import numpy as np

from nki_mlir.language.beta import language as nl

from .traps import copy_rows, probe


class Counted:
    n = 0

    @classmethod
    def count(cls):
        cls.n += 1

    def count_all(self):
        type(self).n += 1


class Slotted:
    __slots__ = ("n",)


class Derived(Slotted):
    __slots__ = ()


class OneSlot:
    __slots__ = "count"


class Private:
    __slots__ = ("__n",)

    def __init__(self):
        self.__n = 0

    def count(self):
        self.__n += 1
        return self.__n


class Items(list):
    n = 0


COUNTS = {"n": 0}
MODULE = types.ModuleType("settings")
NUMBER = 0


def count_in_a_dict():
    COUNTS["n"] += 1


def count_in_the_module():
    global NUMBER
    NUMBER += 1


def count_in(module):
    module.n += 1


def put_in_the_module(value):
    global NUMBER
    NUMBER = value


def count_in_an_attribute():
    count_in_an_attribute.n += 1


def count_in_a_default(counts=[0]):  # noqa: B006
    counts[0] += 1
    return counts[0]


def count_of(counts):
    counts[0] += 1


def after_a_loop(start, change, count):
    """Register a kernel whose loop changes the state of ``start()``, and that copies the rows after the loop ``count``
    of the state selects."""
    def kernel(x, o):
        state = start()
        for i in nl.affine_range(3):
            copy_rows(o, x, i)
            change(state)
        copy_rows(o, x, 3, float(count(state)))
    return kernel


def set_class():
    Counted.n = 0
    return Counted


def set_dict():
    COUNTS["n"] = 0


def set_module():
    MODULE.n = 0
    return MODULE


def set_attribute():
    count_in_an_attribute.n = 0


def set_default():
    count_in_a_default.__defaults__[0][0] = 0


def set_slot(kind, name):
    value = kind()
    setattr(value, name, 0)
    return value


def add(state, name="n"):
    setattr(state, name, getattr(state, name) + 1)


def add_item(state, at=0):
    state[at] += 1


KERNELS = {
    "class": (set_class, add, lambda s: s.n), "class_method": (set_class, lambda s: s.count(), lambda s: s.n),
    "class_of_an_object": (lambda: set_class()(), lambda s: s.count_all(), lambda s: s.n),
    "global_dict": (set_dict, lambda s: count_in_a_dict(), lambda s: COUNTS["n"]),
    "global_name": (lambda: put_in_the_module(0), lambda s: count_in_the_module(), lambda s: NUMBER),
    "module": (set_module, lambda s: count_in(s), lambda s: s.n),
    "function_attribute": (set_attribute, lambda s: count_in_an_attribute(), lambda s: count_in_an_attribute.n),
    "default": (set_default, lambda s: count_in_a_default(), lambda s: count_in_a_default()),
    "inherited_slot": (lambda: set_slot(Derived, "n"), add, lambda s: s.n),
    "only_slot": (lambda: set_slot(OneSlot, "count"), lambda s: add(s, "count"), lambda s: s.count),
    "private_slot": (Private, lambda s: s.count(), lambda s: s.count()),
    "attribute_of_a_list": (lambda: Items([1]), add, lambda s: s.n),
    "partial": (lambda: functools.partial(count_of, [0]), lambda s: s(), lambda s: s.args[0][0]),
    "deque": (lambda: collections.deque([1, 2, 3, 4]), lambda s: s.rotate(1), lambda s: s[0]),
    "bytes": (lambda: bytearray(4), add_item, lambda s: s[0]),
    "typed_array": (lambda: array.array("i", [0]), add_item, lambda s: s[0]),
    "large_array": (lambda: np.zeros((50, 80))[:, ::2], lambda s: add_item(s, (3, 3)), lambda s: s[3, 3]),
    "late_item": (lambda: [0] * 1000, lambda s: add_item(s, 999), lambda s: s[999]),
    "late_item_of_a_dict": (lambda: dict.fromkeys(range(1000), 0), lambda s: add_item(s, 999), lambda s: s[999]),
}
for name, arguments in KERNELS.items():
    kernel = after_a_loop(*arguments)
    kernel.__name__ = f"state_in_{name}"
    probe(loops=0, because="state is carried from one iteration to the next")(kernel)


# -- in branches -------------------------------------------------------------------------------------------------------
@probe(loops=0, because="an if that depends on it changes Python state: scale_of")
def function_of_a_branch(x, o):
    for i in nl.affine_range(4):
        if i > 1:
            def scale_of():
                return 2.0
        else:
            def scale_of():
                return 3.0
        copy_rows(o, x, i, scale_of())


@probe(loops=0, because="an if that depends on it changes Python state: Scale")
def class_of_a_branch(x, o):
    for i in nl.affine_range(4):
        class Scale:
            value = 3.0
        if i > 1:
            class Scale:
                value = 2.0
        copy_rows(o, x, i, Scale.value)


@probe(loops=0, because="an if that depends on it changes Python state: scale")
def pattern_of_a_branch(x, o):
    for i in nl.affine_range(4):
        scale = 3.0
        if i > 1:
            match (1, [2.0, 4.0]):
                case (_, [scale, *_]):
                    pass
        copy_rows(o, x, i, scale)


@probe(loops=0, because="an if that depends on it changes Python state: numbers")
def import_of_a_branch(x, o):
    for i in nl.affine_range(4):
        import math as numbers
        if i > 1:
            import cmath as numbers
        copy_rows(o, x, i, 2.0 if numbers.__name__ == "cmath" else 3.0)


@probe(loops=0, because="an if that depends on it changes Python state: put_in_the_module")
def global_of_a_branch(x, o):
    put_in_the_module(3)
    for i in nl.affine_range(4):
        if i > 1:
            put_in_the_module(2)
        copy_rows(o, x, i, float(NUMBER))


# -- state that stays equal --------------------------------------------------------------------------------------------
TABLE = np.arange(5000.0)
CONSTANTS = types.SimpleNamespace(scale=2.0, rows=[*range(1000)], table=TABLE)


def constant_scale():
    return CONSTANTS.scale * float(TABLE[1]) * len(CONSTANTS.rows) / 1000


@probe(loops=1)
def large_constants(x, o):
    counted = Counted()
    for i in nl.affine_range(4):
        if i > 1:
            copy_rows(o, x, i, constant_scale())
        else:
            copy_rows(o, x, i, float(counted.n < 0))
