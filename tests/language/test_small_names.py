# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names of a line or two: sizes of dtypes, numbers of cores, marks of the order, targets of options."""

import numpy as np
import pytest

from nki_mlir.capture.builder import active
from nki_mlir.language.beta import compiler, constants, enums, isa, nki, support
from nki_mlir.language.beta import language as nl
from nki_mlir.language.current import dtype as current_dtype
from nki_mlir.language.current import isa as current_isa
from nki_mlir.language.current import language as current_nl
from nki_mlir.language.current import nki as current_nki
from nki_mlir.language.current.compile_options import CompileOptions
from nki_mlir.language.current.compiler import Frontend, resolve_target


@pytest.mark.parametrize(("name", "size"), [
    ("float32", 4), ("int32", 4), ("uint32", 4), ("float16", 2), ("bfloat16", 2), ("int16", 2), ("uint16", 2), ("int8", 1),
    ("uint8", 1), ("bool_", 1), ("float8_e4m3", 1), ("float8_e5m2", 1), ("tfloat32", 4)])
def test_bytes_of_dtypes(name, size):
    assert constants.sizeinbytes(getattr(nl, name)) == size


@pytest.mark.parametrize(("module", "language"), [(support, nl), (current_dtype, current_nl)], ids=["beta", "current"])
def test_modules_of_dtypes__have_those_of_the_language(module, language):
    assert {"float32", "bfloat16", "int32"} < {*module.__all__} & {*language.DTYPES}
    for name in module.__all__:
        if name in language.DTYPES:
            assert getattr(module, name) is getattr(language, name)


@pytest.mark.parametrize(("module", "name"), [
    (current_isa, "nki.isa"), (current_nl, "nki.language"), (isa, "nki.isa"), (nl, "nki.language")])
def test_documentation_of_modules__is_their_own(module, name):
    assert module.__doc__.startswith("``") and "\n" not in name and module.__doc__.module == name
    assert name.rpartition(".")[2] in module.__doc__.partition("\n")[0]


def test_generations_of_cores():
    assert {version.name: int(version) for version in enums.nc_version} == {"gen2": 2, "gen3": 3, "gen4": 4}


def test_order__is_marked_within_blocks_alone():
    marks = []

    @nki.jit
    def kernel(x):
        def mark():
            marks.append(bool(active("a test").properties.get("no_reorder")))
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        mark()
        with compiler.no_reorder():
            mark()
            with compiler.no_reorder():
                mark()
            mark()
        mark()
        with compiler.no_reorder():
            mark()
        mark()
        nl.store(out, nl.load(x))
        return out
    kernel.on("eager")(np.ones((4, 8), np.float32))
    assert marks == [False, True, True, True, False, True, False]


def plain(x):
    return x


def test_targets__are_those_of_options_or_kernels():
    for target, name in (("trn1", "trn1"), ("trn2", "trn2"), ("gen4", "trn3"), ("trn3", "trn3")):
        kernel = current_nki.jit(plain, platform_target=target)
        assert resolve_target(kernel) == name
        assert resolve_target(kernel, "trn1") == "trn1"
        assert CompileOptions().launched(kernel).platform == kernel.platform
        assert CompileOptions(target="trn1").launched(kernel).platform == ("trn1" if name != "trn1" else kernel.platform)


def test_cores__are_those_of_options_or_kernels():
    kernel = current_nki.jit(plain)
    assert not kernel.grid
    assert not CompileOptions(lnc=1).launched(kernel).grid and not CompileOptions().launched(kernel).grid
    assert CompileOptions(lnc=2).launched(kernel).grid == (2,)
    assert CompileOptions().launched(kernel[2]).grid == CompileOptions(lnc=2).launched(kernel[2]).grid == (2,)
    assert CompileOptions(lnc=1).launched(kernel[2]).grid == (1,)


def test_frontends__compile_with_the_options_of_their_call(monkeypatch):
    calls = []
    monkeypatch.setattr("nki_mlir.language.current.compiler.captured", lambda *arguments: calls.append(arguments))
    Frontend(True).compile(len, {"x": 1}, "trn1", 2, "folder", output_names=["y"])
    Frontend().compile(len)
    (first, second) = calls
    assert first[:2] + first[3:] == (len, {"x": 1}, {}, ["y"]) and second[:2] + second[3:] == (len, (), {}, ())
    assert (first[2].target, first[2].lnc, first[2].artifacts_dir) == ("trn1", 2, "folder")
    assert (second[2].target, second[2].lnc, second[2].artifacts_dir) == (None, None, None)
