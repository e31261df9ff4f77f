# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The checked-in dialect files: they are what the classes say, and a stock tool reads our IR with them."""

import subprocess
import sys
from pathlib import Path

import pytest

from nki_mlir.bindings import ir
from nki_mlir.cli.translate import main as translate
from nki_mlir.dialects.op import REGISTRY

from .samples import SAMPLES, module_text

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(ir.__file__).parent / "_mlir_libs" / "torch-mlir-opt"
EXPORT = [sys.executable, str(ROOT / "tools" / "export_dialects.py")]


def test_checked_in_files__are_current() -> None:
    done = subprocess.run([*EXPORT, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_export__writes_all_and_check_finds_changes(tmp_path: Path) -> None:
    subprocess.run([*EXPORT, f"--output={tmp_path}"], check=True, capture_output=True)
    assert {f.name for f in tmp_path.iterdir()} == {f.name for f in (ROOT / "dialects").iterdir()}
    (tmp_path / "nki.irdl.mlir").write_text("changed")
    (tmp_path / "old.irdl.mlir").write_text("left over")
    done = subprocess.run([*EXPORT, "--check", f"--output={tmp_path}"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"{tmp_path / name} differs from the op classes. fix: make docs"
                                        for name in ("nki.irdl.mlir", "old.irdl.mlir")]


def test_reference__has_every_operation() -> None:
    text = (ROOT / "dialects" / "reference.md").read_text()
    for name, cls in REGISTRY.items():
        section = text[text.index(f"### `{name}`\n"):].split("\n### ")[0]
        for field in cls.tiles:
            assert f"| `{field.name}` | " in section
        for attribute in cls.attributes:
            assert f"| `{attribute}` | " in section
        for engine in cls.engines:
            assert f"{engine.value} (`{engine.asm}`)" in section


def stock_opt(file: Path, irdl: str) -> subprocess.CompletedProcess:
    if not BINARY.is_file():
        pytest.skip("the bindings came without a torch-mlir-opt")
    return subprocess.run([BINARY, f"--irdl-file={ROOT / 'dialects' / irdl}", file], capture_output=True, text=True,
                          check=False)


@pytest.mark.parametrize("family", ["nki", "nisa"])
def test_stock_opt__reads_every_operation(family: str, tmp_path: Path) -> None:
    samples = {name: s for name, s in SAMPLES.items() if name.startswith(f"{family}.")}
    file = tmp_path / "all.mlir"
    texts = enumerate(module_text(s.make()) for s in samples.values())
    file.write_text("\n".join(t.replace("#map", f"#map{k}_").replace("#set", f"#set{k}_") for k, t in texts))
    # Patterns are an attribute of the nki dialect, so nisa text needs both.
    done = stock_opt(file, "nki.irdl.mlir" if family == "nki" else "all.irdl.mlir")
    assert done.returncode == 0, done.stderr
    for name in samples:
        assert f'"{name}"(' in done.stdout


def test_stock_opt__reads_a_captured_kernel(tmp_path: Path) -> None:
    file = tmp_path / "kernel.mlir"
    assert translate(["--import-python", f"{ROOT / 'examples' / 'average_pool2d.py'}:average_pool2d",
                      "--arg", "64x32x48xf32", "--arg", "4", "-o", str(file)]) == 0
    text = file.read_text()
    assert '"nki.reduce"(' in text and '"nisa.' not in text
    done = stock_opt(file, "nki.irdl.mlir")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"nki.') == text.count('"nki.')


def test_stock_opt__checks_structure(tmp_path: Path) -> None:
    file = tmp_path / "kernel.mlir"
    file.write_text(module_text(SAMPLES["nki.unary"].make()).replace(', fn = "exp"', "").replace('fn = "exp", ', ""))
    done = stock_opt(file, "nki.irdl.mlir")
    assert done.returncode == 1
    assert "attribute \"fn\" is expected but not provided" in done.stderr
