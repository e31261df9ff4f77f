# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""State that a kernel's Python reads in containers, references and modules of unusual kinds."""

import collections
import ctypes
import json
import sys
import threading
import types
import weakref

import numpy as np
import pytest

from nki_mlir.capture.mutable_state import ABSENT, held_by, holds_state, is_users_class, referent
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.closure_state import ClosureState, UnseenStateWarning

from .running import check, numbers, output_of

X = numbers(16, 8)
SCALE = 2.0


class Config:
    def __init__(self, scale):
        self.scale = scale


def a_user_dict():
    table = collections.UserDict(scale=2)
    return lambda: table["scale"], lambda value: table.__setitem__("scale", value)


def a_user_list():
    table = collections.UserList([2])
    return lambda: table[0], lambda value: table.__setitem__(0, value)


def a_chain_of_maps():
    table = collections.ChainMap({}, {"scale": 2})
    return lambda: table["scale"], lambda value: table.maps[1].__setitem__("scale", value)


def an_array_of_objects():
    table = np.array([Config(2), None], object)
    return lambda: table[0].scale, lambda value: table.__setitem__(0, Config(value))


def an_object_in_an_array():
    table = np.array([Config(2), None], object)
    return lambda: table[0].scale, lambda value: setattr(table[0], "scale", value)


def a_weak_reference():
    config = Config(2)
    reference = weakref.ref(config)
    return lambda: reference().scale, lambda value: setattr(config, "scale", value)


def a_weak_proxy():
    config = Config(2)
    proxy = weakref.proxy(config)
    return lambda: proxy.scale, lambda value: setattr(config, "scale", value)


def a_weak_dictionary():
    config = Config(2)
    table = weakref.WeakValueDictionary(config=config)
    return lambda: table["config"].scale, lambda value: setattr(config, "scale", value)


def a_thread_local():
    local = threading.local()
    local.scale = 2
    return lambda: local.scale, lambda value: setattr(local, "scale", value)


def arguments_of_the_program():
    return lambda: float(sys.argv[-1]), lambda value: sys.argv.__setitem__(-1, str(value))


def a_view_of_memory():
    memory = memoryview(bytearray([2]))
    return lambda: memory[0], lambda value: memory.__setitem__(0, value)


def a_foreign_number():
    number = ctypes.c_int(2)
    return lambda: number.value, lambda value: setattr(number, "value", value)


def a_table_of_modules():
    return lambda: sys.modules[__name__].SCALE, lambda value: globals().__setitem__("SCALE", value)


def a_module_in_the_table():
    def change(value):
        module = types.ModuleType("nki_mlir_test_settings")
        module.__file__, module.scale = __file__, value
        sys.modules[module.__name__] = module
    return lambda: sys.modules["nki_mlir_test_settings"].scale, change


def a_module_that_the_kernel_imports():
    _, change = a_module_in_the_table()

    def scale():
        import nki_mlir_test_settings
        return nki_mlir_test_settings.scale
    return scale, change


def a_module_in_an_object():
    module = types.ModuleType("settings")
    module.__file__, module.scale = __file__, 2
    config = Config(module)
    return lambda: config.scale.scale, lambda value: setattr(module, "scale", value)


def a_name_of_an_installed_module():
    return lambda: np.lib.scale_of_this_test, lambda value: setattr(np.lib, "scale_of_this_test", value)


class Locked:
    __slots__ = ("__scale",)

    def put(self, value):
        self.__scale = value

    def scale(self):
        return self.__scale


def a_private_slot():
    locked = Locked()
    locked.put(2)
    return lambda: locked.scale(), locked.put


def an_expression_in_a_text():
    return lambda: eval("SCALE * 1"), lambda value: globals().__setitem__("SCALE", value)


CASES = [a_private_slot, a_user_dict, a_user_list, a_chain_of_maps, an_array_of_objects, an_object_in_an_array, a_weak_reference,
         a_weak_proxy, a_weak_dictionary, a_thread_local, arguments_of_the_program, a_view_of_memory, a_foreign_number,
         a_table_of_modules, a_module_in_the_table, a_module_that_the_kernel_imports, a_module_in_an_object,
         a_name_of_an_installed_module, an_expression_in_a_text]


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])
def test_state_is_seen(case, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program", "2"])
    monkeypatch.setattr("tests.language.test_changing_state.SCALE", 2.0)
    monkeypatch.setattr(np.lib, "scale_of_this_test", 2.0, raising=False)
    monkeypatch.setitem(sys.modules, "nki_mlir_test_settings", None)
    scale, change = case()

    @nki.jit
    def kernel(x):
        return output_of(nl.load(x) * float(scale()))
    kernels = [kernel.on(name) for name in ("jit", "interpreter", "isa", "eager")]
    for value in (2, 2, 2, 5, 5, 2, 3):
        change(value)
        for each in kernels:
            assert np.array_equal(each(X), X * value)


def test_what_a_weak_reference_leads_to_may_go():
    config = Config(2)
    reference = weakref.ref(config)

    @nki.jit
    def kernel(x):
        config = reference()
        return output_of(nl.load(x) * (7 if config is None else config.scale))
    for _ in range(3):
        assert np.array_equal(kernel(X), X * 2)
    del config
    assert reference() is None
    for _ in range(3):
        assert np.array_equal(kernel(X), X * 7)


def test_thread_has_its_own_local():
    local = threading.local()
    kernel = nki.jit(lambda x: output_of(nl.load(x) * local.scale))
    results = {}

    def run(scale):
        local.scale = scale
        results[scale] = [kernel(X) for _ in range(3)]
    for scale in (2, 3):
        thread = threading.Thread(target=run, args=[scale])
        thread.start()
        thread.join()
        assert all(np.array_equal(result, X * scale) for result in results[scale])


READERS = {"open": lambda path: open(path).read(), "Path": lambda path: path.read_text(),
           "NumPy": lambda path: np.fromfile(path, sep=" ")[0], "json": lambda path: json.load(path.open())}


@pytest.mark.parametrize("reader", READERS)
def test_files_that_a_capture_reads_are_seen(tmp_path, reader):
    path, read = tmp_path / "scale", READERS[reader]
    kernel = nki.jit(lambda x: output_of(nl.load(x) * float(read(path))))
    for value in (2, 2, 3, 2, 2, 5):
        path.write_text(str(value))
        for _ in range(2):
            for on in ("jit", "interpreter", "isa"):
                assert np.array_equal(kernel.on(on)(X), X * value)
    assert len(kernel.specializations) == 3


def test_file_that_comes_later_is_seen(tmp_path):
    path = tmp_path / "scale"

    @nki.jit
    def kernel(x):
        try:
            scale = float(open(path).read())
        except FileNotFoundError:
            scale = 7.0
        return output_of(nl.load(x) * scale)
    for _ in range(2):
        assert np.array_equal(kernel(X), X * 7)
    path.write_text("2")
    assert np.array_equal(kernel(X), X * 2)
    path.unlink()
    assert np.array_equal(kernel(X), X * 7)


def test_iterators_and_files_are_named_in_a_warning(tmp_path):
    steps, kernel = iter([2, 3]), nki.jit(lambda x: output_of(nl.load(x) * next(steps)))
    with pytest.warns(UnseenStateWarning, match="sees steps, an object of list_iterator, whose state is not compared"):
        assert np.array_equal(kernel(X), X * 2)
    path = tmp_path / "scale"
    path.write_text("2")
    with path.open() as scales:
        kernel = nki.jit(lambda x: output_of(nl.load(x) * float(scales.read())))
        with pytest.warns(UnseenStateWarning, match="sees scales, an object of TextIOWrapper"):
            assert np.array_equal(kernel(X), X * 2)


# -- state that changes during a capture -------------------------------------------------------------------------------
def changed_by_another_thread(change):
    thread = threading.Thread(target=change)
    thread.start()
    thread.join()


def test_global_that_another_thread_changes_during_a_capture(on, monkeypatch):
    """The first call may see the value of before; no later one does."""
    monkeypatch.setattr("tests.language.test_changing_state.SCALE", 5.0)
    changes = [3.0]

    @nki.jit
    def kernel(x):
        tile = nl.load(x) * SCALE
        while changes:
            changed_by_another_thread(lambda: globals().__setitem__("SCALE", changes.pop()))
        return output_of(tile)
    first = kernel.on(on)(X)
    assert np.array_equal(first, X * 5) or on == "eager"
    for value in (3.0, 3.0, 7.0, 5.0, 3.0):
        globals()["SCALE"] = value
        check(on, kernel, X * value, X)


@pytest.mark.parametrize("table", [{"scale": 5}, Config(5), [5]], ids=["dict", "object", "list"])
def test_contents_that_another_thread_changes_during_a_capture(table):
    def get():
        return table.scale if isinstance(table, Config) else table["scale" if isinstance(table, dict) else 0]

    def put(value):
        if isinstance(table, Config):
            table.scale = value
        else:
            table["scale" if isinstance(table, dict) else 0] = value
    waiting = [3]
    helpers = {"change": lambda: changed_by_another_thread(lambda: put(waiting.pop()))}

    @nki.jit
    def kernel(x):
        tile = nl.load(x) * get()
        if waiting:
            helpers["change"]()
        return output_of(tile)
    assert np.array_equal(kernel(X), X * 5)
    for value in (3, 3, 7, 5):
        put(value)
        assert np.array_equal(kernel(X), X * value)


def test_what_the_kernel_changed_counts_when_others_change_it():
    """A counter of the kernel's own leads to no capture at each call; another value that somebody gives it does."""
    config = Config(2)

    @nki.jit
    def kernel(x, offset):
        tile = nl.load(x) * config.scale + offset
        config.scale = config.scale + 1
        return output_of(tile)
    assert np.array_equal(kernel(X, 0), X * 2)
    assert np.array_equal(kernel(X, 0), X * 2) and config.scale == 3
    config.scale = 9
    for _ in range(2):
        assert np.array_equal(kernel(X, 0), X * 9)
    assert config.scale == 10


def test_functions_of_the_language_count_by_identity_alone():
    """They carry tables of this package's; comparing those at every call cost three times the call itself."""
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.maximum(nl.load(x), nl.minimum(1.0, 2.0)))
        return out
    state = ClosureState(kernel)
    assert [entry.function for entry in state.functions] == [kernel] and not state.objects


# -- whose classes -----------------------------------------------------------------------------------------------------
def class_without_module(name):
    """A class of code whose module has no name, or one that is not imported."""
    namespace = {} if name is None else {"__name__": name}
    exec("class Unnamed:\n    scale = 2", namespace)
    return namespace["Unnamed"]


@pytest.mark.parametrize("kind", [Config, class_without_module(None), class_without_module("not.imported")])
def test_classes_of_users__are_read_for_their_state(kind):
    assert is_users_class(kind) and holds_state(kind)
    assert held_by(kind)["scale" if hasattr(kind, "scale") else "__init__"] is not None
    changed = kind.__new__(kind)
    changed.scale = 3
    assert held_by(changed) == {"__class__": kind, "scale": 3}


@pytest.mark.parametrize("kind", [list, dict, int, object, types.FunctionType, type(None), type(sys.flags), np.ndarray,
                                  threading.Thread, json.JSONDecoder, type(nl.float32)],
                         ids=lambda kind: kind.__name__)
def test_classes_of_others__are_not(kind):
    assert not is_users_class(kind) and held_by(kind) is None


def test_proxy_whose_object_is_gone__has_no_referent():
    config = Config(2)
    proxy = weakref.proxy(config)
    assert referent(proxy) is config
    del config
    assert referent(proxy) is ABSENT
