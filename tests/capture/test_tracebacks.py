# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tracebacks of users' errors have no frames of the toolchain; those of its defects have them."""

import json
import subprocess
import sys
import traceback
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.capture import attempts, locations
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import language as beta_language
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import isa, nki
from nki_mlir.language.current import language as nl
from nki_mlir.targets.cpu import kernel as cpu_kernel

X = np.ones((4, 8), np.float32)


@pytest.fixture(autouse=True)
def without_own(monkeypatch):
    monkeypatch.delenv("NKI_MLIR_TRACEBACK", raising=False)


def broken(language, fault):
    def kernel(x):
        fault()
        return language.load(x[0:4, 0:9])
    return kernel


def nothing():
    pass


def divide():
    return 1 // 0


def interrupt():
    raise KeyboardInterrupt


def functions(error: BaseException) -> list[str]:
    """The functions of a traceback from the test's own on, each of which is in this file."""
    frames = traceback.extract_tb(error.__traceback__)
    if sys.version_info < (3, 11):          # a bare ``raise`` keeps the frame of its function
        user_frames = [frame for frame in frames if "/nki_mlir/" not in frame.filename]
        assert len(frames) - len(user_frames) <= 1
        frames = user_frames
    assert {frame.filename for frame in frames} == {__file__}
    return [frame.name for frame in frames[1:]]


CALLS = {
    "beta": lambda fault: beta.jit(broken(beta_language, fault))(X),
    "beta, interpreter": lambda fault: beta.jit(broken(beta_language, fault)).on("interpreter")(X),
    "beta, isa": lambda fault: beta.jit(broken(beta_language, fault)).on("isa")(X),
    "beta, eager": lambda fault: beta.jit(broken(beta_language, fault)).on("eager")(X),
    "beta, simulated": lambda fault: beta.simulate_kernel(beta.jit(broken(beta_language, fault)), X),
    "beta, lowered": lambda fault: beta.jit(broken(beta_language, fault)).lower(X),
    "beta, measured": lambda fault: beta.benchmark(broken(beta_language, fault))(X),
    "current": lambda fault: nki.jit(broken(nl, fault))(X),
    "current, isa": lambda fault: nki.jit(broken(nl, fault)).on("isa")(X),
    "current, simulated": lambda fault: nki.simulate(nki.jit(broken(nl, fault)))(X),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("fault, error, deepest", [(nothing, NkiMlirError, []), (divide, ZeroDivisionError, ["divide"]),
                                                   (interrupt, KeyboardInterrupt, ["interrupt"])])
def test_only_lines_of_the_user_are_shown(call, fault, error, deepest):
    with pytest.raises((error, IndexError) if error is NkiMlirError else error) as raised:
        call(fault)
    assert functions(raised.value) == ["<lambda>", "kernel", *deepest]


@nki.jit
def copied_on_chip(x):
    return x


@pytest.mark.parametrize("call", [
    lambda: copied_on_chip[3](X), lambda: nl.ndarray((1, 2), nl.float32, buffer=nl.sbuf), lambda: nl.add(1, 2),
    lambda: isa.memset(1, 2), lambda: nl.affine_range("x"), lambda: beta_language.load(X), lambda: nki.jit(3),
    lambda: beta_language.ndarray((1, 2), nl.float32), lambda: beta.jit(staticmethod(nothing))],
    ids=["grid", "ndarray", "add", "memset", "range", "load", "no function", "beta, ndarray", "static method"])
def test_outside_of_kernels_only_lines_of_the_user_are_shown(call):
    with pytest.raises(NkiMlirError, match="error: ") as raised:
        call()
    assert functions(raised.value) == ["<lambda>"]
    assert raised.value.__cause__ is None


def test_what_a_library_of_the_toolchain_handled_at_ctrl_c_is_not_shown(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu_kernel, "find", lambda key: tmp_path.mkdir(exist_ok=True))
    monkeypatch.setattr(Path, "is_dir", lambda path: interrupt())           # after FileExistsError

    @beta.jit
    def copied(x):
        out = beta_language.ndarray(x.shape, x.dtype, buffer=beta_language.shared_hbm)
        beta_language.store(out, beta_language.load(x))
        return out
    with pytest.raises(KeyboardInterrupt) as raised:
        copied(X)
    assert isinstance(raised.value.__context__, FileExistsError) and raised.value.__suppress_context__


def test_what_the_kernel_handled_at_ctrl_c_is_shown():
    def handle():
        try:
            divide()
        except ZeroDivisionError:
            interrupt()
    with pytest.raises(KeyboardInterrupt) as raised:
        beta.jit(broken(beta_language, handle))(X)
    assert isinstance(raised.value.__context__, ZeroDivisionError) and not raised.value.__suppress_context__


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_in_a_framework__only_lines_of_the_user_are_shown(framework):
    module = pytest.importorskip(framework)
    x = module.ones((4, 8)) if framework == "torch" else module.numpy.ones((4, 8))
    with pytest.raises(ZeroDivisionError) as raised:
        beta.jit(broken(beta_language, divide))(x)
    assert functions(raised.value) == ["kernel", "divide"]


def test_an_error_by_which_jax_reports_misuse_has_no_frames_of_the_toolchain():
    jax = pytest.importorskip("jax")
    traced = []
    jax.jit(traced.append)(jax.numpy.ones((4, 8)))

    def kernel(x):
        out = beta_language.ndarray(x.shape, x.dtype, buffer=beta_language.shared_hbm)
        beta_language.store(out, beta_language.load(x))
        return out
    with pytest.raises(jax.errors.UnexpectedTracerError) as raised:
        beta.jit(kernel)(*traced)
    assert functions(raised.value) == []


def test_arguments_that_do_not_fit__are_at_the_call():
    with pytest.raises(TypeError) as raised:
        beta.jit(broken(beta_language, nothing))(X, X)
    assert functions(raised.value) == []


def test_where_an_error_comes_from_is_shown_alike():
    def caught():
        try:
            divide()
        except ZeroDivisionError as error:
            raise ValueError("no number") from error
    with pytest.raises(ValueError, match="no number") as raised:
        beta.jit(broken(beta_language, caught))(X)
    assert functions(raised.value) == ["kernel", "caught"] and functions(raised.value.__cause__) == ["divide"]


def test_the_environment_shows_all(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_TRACEBACK", "full")
    with pytest.raises(ZeroDivisionError, match="division") as raised:
        beta.jit(broken(beta_language, divide))(X)
    assert "_captured_call" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]


def test_a_defect_of_the_toolchain_keeps_its_frames(monkeypatch):
    def defect(*arguments):
        raise LookupError("a mistake of ours")
    defect.__code__ = defect.__code__.replace(co_filename=attempts.__file__)
    monkeypatch.setattr(attempts, "_attempt", defect)
    with pytest.raises(LookupError, match="a mistake of ours") as raised:
        beta.jit(broken(beta_language, nothing))(X)
    assert [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)][-2:] == ["capture", "defect"]


def test_of_a_script__python_prints_as_many_lines_as_the_user_wrote(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import numpy as np, nki, nki.language as nl\n"
                      "def f(x):\n    return nl.load(x) / []\n"
                      "nki.jit(f)(np.ones((4, 8), np.float32))\n")
    ended = subprocess.run([sys.executable, "-m", "nki_mlir", str(script)], capture_output=True, text=True)
    assert ended.returncode == 1 and "nki_mlir/" not in ended.stderr.replace("nki_mlir/__main__.py", "")


class FailsOnRead:
    """A value like those of PyTorch that look for a device when an attribute is read."""

    def __call__(self) -> None:
        raise AssertionError("called")

    def __getattribute__(self, name: str) -> None:
        raise AssertionError("read")


@pytest.mark.parametrize("file, scope, is_users", [
    ("/usr/lib/site-packages/devices/code.py", {"cuda": FailsOnRead()}, False),
    ("/usr/lib/site-packages/functions/code.py", {"cuda": FailsOnRead(), "load": nl.load}, True),
    ("/usr/lib/site-packages/dtypes/code.py", {"dtype": nl.float32}, True),
    ("/home/kernels.py", {}, True), ("/usr/lib/site-packages/other/code.py", {}, False),
    ("/usr/lib/dist-packages/another/code.py", {}, False),
    ("/usr/lib/site-packages/kernels/code.py", {"nl": nl}, True), ("/usr/lib/site-packages/jax/code.py", {"nl": nl}, False),
    (f"{Path(attempts.__file__).parent}/no_such_file.py", {}, False),
    (f"{Path(json.__file__).parent}/no_such_file.py", {}, False), ("<frozen code>", {}, False)])
def test_location__is_the_innermost_line_of_a_user(file, scope, is_users):
    """Installed packages are users' if they name NKI, except frameworks, which call kernels."""
    exec(compile("def called(fault):\n    fault()", file, "exec"), scope)
    for fault, within in ((divide, True), (partial(json.loads, "{"), False)):
        with pytest.raises((ZeroDivisionError, json.JSONDecodeError), match=r"zero|property name") as error:
            scope["called"](fault)
        location = locations.raised_at(error.value.__traceback__)
        if within:
            assert (location.file, location.line) == (__file__, divide.__code__.co_firstlineno + 1)
        else:
            assert location[:2] == (file, 2) if is_users else location.file == __file__
