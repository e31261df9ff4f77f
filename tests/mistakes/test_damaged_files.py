# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Damaged compiled kernels, configs and pickles, and wrong uses of bindings: one error each, at the caller's line."""

import inspect
import pickle
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir import compat
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.frameworks.framework_kernel import FrameworkKernel, read_config
from nki_mlir.language.current import driver, nki, runtime
from nki_mlir.language.current import language as nl

from ..caught_errors import error_of

X = np.ones((4, 8), np.float32)


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


@pytest.fixture(autouse=True)
def short_tracebacks(monkeypatch):
    monkeypatch.delenv("NKI_MLIR_TRACEBACK", raising=False)


def damaged(raw):
    """Yield bytes cut at a twelfth, with a bit changed, random, or an archive's first bytes alone."""
    draw = random.Random(5)
    yield from (raw[:len(raw) * k // 12] for k in range(12))
    for _ in range(12):
        changed = bytearray(raw)
        changed[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
        yield bytes(changed)
    yield from (draw.randbytes(len(raw)), b"PK\x03\x04" + draw.randbytes(200), bytes(len(raw)))


# -- compiled kernels --------------------------------------------------------------------------------------------------
def test_compiled_kernels(tmp_path):
    """A changed bit is found, or is in a part of the archive that says nothing about the kernel."""
    options = driver.CompileOptions(artifacts_dir=str(tmp_path))
    written = driver.compile_bir_to_neff(options, driver.compile_to_bir(double, inputs={"x": X}, compile_opts=options))
    file, accepted = tmp_path / "damaged.neff", 0
    with open(written.neff_path, "rb") as intact:
        raw = intact.read()
    for content in damaged(raw):
        file.write_bytes(content)
        try:
            model = runtime.SpikeModel.load_from_neff(file)
        except NkiMlirError:
            error = error_of(lambda: runtime.SpikeModel.load_from_neff(file))
            assert error.headline.startswith(f"{file} is not a compiled kernel of nki_mlir: it cannot be unpacked (")
            assert error.advice[1].startswith("give a file that nki.baremetal, nki.benchmark, nki.profile or the capture")
        else:
            accepted += 1
            result, = model({"x": runtime.SpikeTensor.from_numpy(X)}).values()
            assert np.array_equal(result.numpy(), 2 * X)
    assert accepted < 6
    runtime.reset()


# -- configs -----------------------------------------------------------------------------------------------------------
def test_configs():
    config, _, _ = FrameworkKernel(double).dump_config(X)
    for content in damaged(config.encode()):
        try:
            assert read_config(content).name == "double"
        except NkiMlirError:
            error = error_of(lambda: read_config(content))
            assert error.headline.startswith("the custom call's config cannot be used: ")
            assert error.advice[1].startswith("use a config that nki_mlir wrote, unchanged: from FrameworkKernel.dump_config")


@pytest.mark.parametrize("value, text", [
    (None, "it is a value of type NoneType, not text"), (3, "it is a value of type int, not text"),
    ([], "it is a value of type list, not text"), ("", "it is not base64 of JSON"), (b"\xff", "it is not base64 of JSON"),
    ("{}", "it is not base64 of JSON")])
def test_what_is_no_config(value, text):
    assert error_of(lambda: read_config(value)).headline == f"the custom call's config cannot be used: {text}"


# -- pickles -----------------------------------------------------------------------------------------------------------
def test_pickles_of_what_is_gone(monkeypatch):
    raw = pickle.dumps(double.lower(X))
    assert pickle.loads(raw).as_text() == double.lower(X).as_text()
    monkeypatch.delattr(sys.modules[__name__], "double")
    for content, text in ((raw, f"double of module {__name__}, which cannot be found: module '{__name__}' has no attribute "
                                "'double'"),
                          (raw.replace(__name__.encode(), b"m" * len(__name__)),
                           f"double of module {'m' * len(__name__)}, which cannot be found: No module named")):
        error = error_of(lambda content=content: pickle.loads(content))
        assert isinstance(error, AttributeError) and error.headline.startswith(f"a pickled kernel is {text}")
        assert error.advice[1] == "load it where the module can be imported and still has the kernel"


# -- FrameworkKernel ---------------------------------------------------------------------------------------------------
def kernel_class(**methods):
    return type("Binding", (FrameworkKernel,), methods)


@pytest.mark.parametrize("call, text, fix", [
    (lambda: FrameworkKernel(3).dump_config(X), "3 is not a function", "decorate a function with nki.jit"),
    (lambda: FrameworkKernel(len).dump_config(X), "len is not a function that is written in Python", "decorate a function"),
    (lambda: FrameworkKernel(double).dump_config(), "double(x): missing a required argument: 'x'", "pass x as well"),
    (lambda: FrameworkKernel(double).dump_config(X, X), "double(x): too many positional arguments", "pass one argument"),
    (lambda: FrameworkKernel(double).dump_config(X.astype(complex)), "a tensor of dtype complex128 is passed to a kernel: ",
     "pass its real part and its imaginary part"),
    (lambda: FrameworkKernel(double, platform_target="trn9").dump_config(X), "there is no target named 'trn9'", "trn2"),
    (lambda: FrameworkKernel(double).bind_arguments(X, X).__enter__(), "double(x): too many positional arguments", "pass one"),
    (lambda: FrameworkKernel(double).dump_config_with_boundargs(None),
     "dump_config_with_boundargs takes inspect.BoundArguments, got a value of type NoneType",
     "pass what bind_arguments yields: with kernel.bind_arguments(x) as bound: ..."),
    (lambda: kernel_class(map_framework_tensor=lambda self, t: None)(double).dump_config(X),
     "map_framework_tensor returned None", "return a pair of the tensor's shape and dtype"),
    (lambda: kernel_class(map_framework_tensor=lambda self, t: (t.shape,))(double).dump_config(X),
     "map_framework_tensor returned ((4, 8),)", "return a pair of the tensor's shape and dtype"),
    (lambda: kernel_class(map_framework_tensor=lambda self, t: ("ab", t.dtype))(double).dump_config(X),
     "a tensor of shape 'ab': it is a text", ""),
    (lambda: kernel_class(translate_to_neuron_dtype=lambda self, d: "nothing")(double).dump_config(X),
     "a tensor of dtype float32 is passed to a kernel: ", "")])
def test_framework_kernels(call, text, fix):
    with pytest.raises(NkiMlirError) as caught:
        call()
    assert caught.value.headline.startswith(text) and fix in caught.value.advice[1]
    assert caught.value.at is not None and caught.value.at.file == __file__


def test_framework_kernel__binds_and_dumps():
    with FrameworkKernel(double).bind_arguments(X) as bound:
        assert isinstance(bound, inspect.BoundArguments)
        assert FrameworkKernel(double).dump_config_with_boundargs(bound).input_names == ["x"]


# -- torch_neuronx -----------------------------------------------------------------------------------------------------
def test_entries_of_torch_neuronx():
    torch = pytest.importorskip("torch")
    from nki_mlir.frameworks.torch_neuronx import nki_jit, nki_op, trace, wrap_nki

    def body(x: torch.Tensor) -> torch.Tensor:
        return double(x)
    for call, text in (
            (lambda: nki_jit(3), "3 is not a function"), (lambda: wrap_nki("x"), "'x' is not a function"),
            (lambda: trace(3, torch.ones(4, 8)), "3 is not a function"), (lambda: nki_op("a::b", 3), "3 is not a function"),
            (lambda: wrap_nki(double, platform_target="trn9"), "there is no target named 'trn9'"),
            (lambda: wrap_nki(double, platform_target=[1]), "there is no target named 'a value of type list'"),
            (lambda: nki_op("a::b", body, mutates_args=3), "mutates_args of nki_op is a value of type int"),
            (lambda: nki_op("a::b", body, mutates_args=None), "mutates_args of nki_op is a value of type NoneType")):
        assert error_of(call).headline == text


# -- modules that stand in for the vendor's ----------------------------------------------------------------------------
def test_absent_names_while_built_in_functions_are_replaced(monkeypatch):
    """``hasattr`` asks modules for names that they do not have, also while PyTorch replaces ``max`` for its symbols."""
    def refuse(name):
        raise AttributeError(f"module 'm' has no attribute {name!r}")
    module = SimpleNamespace(__name__="m")
    module.__dict__["__getattr__"] = refuse
    find = compat.lazy_names({}, module)
    monkeypatch.setattr("builtins.max", lambda *values: 0)
    with pytest.raises(AttributeError, match=r"^module 'm' has no attribute '__file__'$"):
        find("__file__")
