# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bad values at the functions that users call: one error at their line, without frames of the toolchain."""

import importlib

import numpy as np
import pytest

import nki_mlir
from nki_mlir.compat import install
from nki_mlir.language.beta import language as beta_language
from nki_mlir.language.beta import nki as beta
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki

from ..caught_errors import error_of

X = np.ones((4, 8), np.float32)
CYCLIC: list = [1]
CYCLIC.append(CYCLIC)
NESTED: list = []
for _ in range(100_000):
    NESTED = [NESTED]


def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


def copied_twice(x, y):
    out = nl.ndarray(y.shape, dtype=y.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


KERNEL = nki.jit(copied)
TWICE = nki.jit(copied_twice)


@beta.jit
def beta_copied(x):
    out = beta_language.ndarray(x.shape, dtype=x.dtype, buffer=beta_language.shared_hbm)
    beta_language.store(out, beta_language.load(x))
    return out


@pytest.fixture(scope="module")
def lowered():
    return KERNEL.lower(X)


@pytest.fixture(autouse=True)
def short_tracebacks(monkeypatch):
    monkeypatch.delenv("NKI_MLIR_TRACEBACK", raising=False)


EXECUTORS = "use one of eager, interpreter, jit, isa"
OF_KERNELS = {
    "executor": (lambda: KERNEL.on("bad"), "there is no executor named 'bad'", EXECUTORS),
    "executor, beta": (lambda: beta_copied.on("bad"), "there is no executor named 'bad'", EXECUTORS),
    "executor, number": (lambda: KERNEL.on(3), "there is no executor of type int", EXECUTORS),
    "schedule": (lambda: KERNEL.with_schedule(3), "the edges of a schedule are 3",
                 "write with_schedule([(name, dependency)])"),
    "edge": (lambda: KERNEL.with_schedule([3]), "Schedule edge must be a pair", "write (name, dependency)"),
}


@pytest.mark.parametrize("name", OF_KERNELS)
def test_methods_of_kernels(name):
    call, headline, fix = OF_KERNELS[name]
    error = error_of(call)
    assert (error.headline, error.advice[1]) == (headline, fix)


@pytest.mark.parametrize("grid", [CYCLIC, (CYCLIC, 2), NESTED], ids=["cyclic", "within a tuple", "nested"])
@pytest.mark.parametrize("kernel", [KERNEL, beta_copied], ids=["current", "beta"])
def test_launch_grids_without_an_end(kernel, grid):
    error = error_of(lambda: kernel[grid](X))
    assert error.headline == "the sequences of a launch grid contain themselves, or are nested more than 8 deep"
    assert error.advice[1] == "give one sequence of positive integers, for example kernel[2, 4]"


NESTED_OF_LAUNCHES = {(((1,),),): (1,), ((((((((1,),),),),),),),): (1,)}


@pytest.mark.parametrize("grid", NESTED_OF_LAUNCHES)
@pytest.mark.parametrize("kernel", [KERNEL, beta_copied], ids=["current", "beta"])
def test_launch_grids_may_be_nested(kernel, grid):
    assert kernel[grid].grid == NESTED_OF_LAUNCHES[grid] and np.array_equal(kernel[grid](X), X)


@pytest.mark.parametrize("folder", ["/dev/null/x", None, 3, "a\0b", "\ud800", "a" * 5_000])
def test_folders_of_profiles(lowered, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    profile = lowered.profile()
    error = error_of(lambda: profile.write(folder))
    assert error.headline.startswith("a profile cannot be written into ")
    assert error.advice[1] == "name a directory that can be written to; it is created if it does not exist"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", [3, "yes", None, X, CYCLIC], ids=["int", "str", "NoneType", "ndarray", "list"])
@pytest.mark.parametrize("method", ["time", "profile"])
def test_options_of_times(lowered, method, value):
    error = error_of(lambda: getattr(lowered, method)(as_written=value))
    assert error.headline == f"{method}() takes True or False as as_written, got a value of type {type(value).__name__}"
    assert error.advice[1] == f"write {method}(as_written=True), or leave the option out"


def test_levels_and_numbers_of_modules(lowered):
    assert error_of(lambda: lowered.as_text(3)).headline == "there is no level of type int"
    assert error_of(lambda: lowered.as_text("x")).headline == "there is no level named 'x'"
    assert error_of(lambda: lowered.module("nki", X)).headline == (
        "there is no module of type ndarray at the nki level: the kernel has 1")


@pytest.mark.parametrize("on", ["jit", "interpreter", "eager", "isa"])
def test_a_lowered_kernel_is_no_tensor(lowered, on):
    text = "parameter x is of type Lowered, and the kernel reads its shape"
    assert error_of(lambda: beta_copied.on(on)(lowered)).headline == text
    assert error_of(lambda: KERNEL.on(on)(lowered)).headline == text
    error = error_of(lambda: TWICE.on(on)(X, lowered))
    assert error.headline == "parameter y is of type Lowered, and the kernel reads its shape"
    assert error.advice[1] == "pass an array, for example np.zeros((128, 512), np.float32)"


def test_one_of_two_objects_of_a_type_is_not_named(lowered):
    with pytest.raises(AttributeError, match="'Lowered' object has no attribute 'shape'"):
        TWICE(lowered, KERNEL.lower(X))


OF_OPT = {
    "a word": ("x", "<module>:1:1: error: custom op 'x' is unknown (tried 'builtin.x' as well)",
               "pass the text of a module, such as kernel.lower(x).as_text('nki')"),
    "half a module": ("module {\n", "<module>:1:9: error: expected operation name in quotes",
                      "pass the text of a module, such as kernel.lower(x).as_text('nki')"),
    "a file": (__file__, "<module>:1:1: error: expected operation name in quotes",
               f"pass the text of the file: Path({__file__!r}).read_text()"),
    "a file that is missing": ("kernel.mlir", "<module>:1:1: error: Dialect `kernel' not found for custom op 'kernel.mlir' ",
                               "pass the text of the file: Path('kernel.mlir').read_text()"),
}


@pytest.mark.parametrize("name", OF_OPT)
def test_texts_that_are_no_modules(name):
    text, reason, fix = OF_OPT[name]
    error = error_of(lambda: nki_mlir.opt(text))
    assert error.headline == f"nki_mlir.opt gets a text that is not a valid module: {reason}"
    assert error.advice[1] == fix and "[NKI-OPT-MODULE]" in str(error)


def test_passes_that_do_not_exist():
    error = error_of(lambda: nki_mlir.opt("module {}", "nki-to-linal"))
    assert error.headline == "there is no pass named 'nki-to-linal'"
    assert error.advice[1] == "write nki-to-linalg, or use a pass that nki-opt --help lists"
    nested = error_of(lambda: nki_mlir.opt("module {}", "func.func(nosuch)"))
    assert nested.headline == "there is no pass named 'nosuch'"
    option = error_of(lambda: nki_mlir.opt("module {}", "canonicalize{x=1}"))
    assert option.headline.startswith("canonicalize{x=1}: ") and option.headline.endswith("no such option x")


def tuned(space: object = None, reference: object = None, **options: object) -> object:
    return nki_mlir.tune(KERNEL, {"grid": [1]} if space is None else space, [X], reference, **options)


OF_TUNE = {
    "a tolerance that does not exist": (lambda: tuned(reference=lambda x: x + 9, tolerance={"rtol": 1e-5}),
                                        "the tolerance of nki_mlir.tune has rtol", "use absolute, relative, relative_l2"),
    "a tolerance without an end": (lambda: tuned(reference=lambda x: x + 9, tolerance={"relative": float("nan")}),
                                   "the tolerance of nki_mlir.tune has nan as relative",
                                   "give a finite number that is not negative"),
    "no trial": (lambda: tuned(trials=0), "nki_mlir.tune makes 0 trials", "give a number of 1 or more"),
    "a name that is no text": (lambda: tuned({3: [1, 2]}), "the space is not understood: the name of a parameter is 3",
                               "write {'TILE': [128, 256, 512], 'BUFFERS': range(1, 5)}, or --space TILE=128,256,512 "
                               "--space BUFFERS=1..4"),
    "no result is right": (lambda: tuned(reference=lambda x: x + 9), "none of 1 choice computes right results; the first: ",
                           "make the kernel pass nki-score before you tune it"),
    "a reference of another shape": (lambda: tuned(reference=lambda x: x[:2]),
                                     "none of 1 choice computes right results; the first: the results' shapes differ from",
                                     "make the kernel pass nki-score before you tune it"),
}


@pytest.mark.parametrize("name", OF_TUNE)
def test_searches(name):
    call, headline, fix = OF_TUNE[name]
    error = error_of(call)
    assert error.headline.startswith(headline) and error.advice[1] == fix


def test_extents_of_specs_are_integers():
    for shape in ((4.0, 8), (np.int64(4), np.float32(8)), [4, 8]):
        spec = nki_mlir.spec(shape)
        assert spec.shape == (4, 8) and {*map(type, spec.shape)} == {int} and repr(spec) == "spec((4, 8), 'float32')"


@pytest.mark.parametrize("name", ["nki.language", "neuronxcc.nki.language"])
def test_names_of_types_that_are_nearly_right(name):
    install()
    language = importlib.import_module(name)
    error = error_of(lambda: language.bf16x)
    assert error.headline.endswith("has no attribute 'bf16x'; did you mean bfloat16?")
    assert error.advice[1] == "write bfloat16"
