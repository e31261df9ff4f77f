# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vendor module names: importable where the vendor's packages are absent, never before installed ones unasked.

Each case runs in its own process, since it changes what can be imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nki_mlir.__main__ import main
from nki_mlir.compat import executables

ROOT = Path(__file__).parent.parent.parent


def python(code: str, *paths: Path) -> subprocess.CompletedProcess:
    search = ":".join(map(str, (*paths, ROOT)))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={"PYTHONPATH": search, "PATH": "/usr/bin:/bin"})


def test_names_do_not_exist_before():
    done = python("import neuronxcc.nki")
    assert done.returncode == 1 and "ModuleNotFoundError" in done.stderr


@pytest.mark.share(3)
@pytest.mark.parametrize("statement", [
    "import neuronxcc.nki as nki; nki.language.add; nki.isa.activation; nki.compiler.sbuf; nki.typing.tensor",
    "from neuronxcc import nki; nki.jit",
    "from neuronxcc.nki.language import par_dim, bfloat16",
    "from neuronxcc.nki.typing import tensor, mutable_tensor",
    "from neuronxcc.nki.language.constants import sizeinbytes; assert sizeinbytes('bfloat16') == 2",
    "from neuronxcc.nki.isa.constants import oob_mode; oob_mode.skip",
    "from neuronxcc.nki.isa.neuron_isa import dma_copy",
    "from neuronxcc.starfish.support.dtype import static_cast, bfloat16; assert static_cast(1.5, bfloat16) == 1.5",
    "from neuronxcc.starfish.support.util import allclose; assert allclose([1, 2], [1, 2.01], rtol=1e-2, verbose=1)",
    "from neuronxcc.starfish.support.util import allclose; assert not allclose([1, 2], [1, 2.1])",
    "from neuronxcc.nki.compiler.backends.neuron.indexing import TileIndex",
    "import neuronxcc.nki.errors as e; assert e.err_unsupported_memory.code == 'err_unsupported_memory'",
    "import nki, nki.language as nl, nki.isa as nisa; nl.add; nisa.dma_copy; nki.jit",
    "import neuronxcc.nki.language as a, nki.language as b; assert a is not b",
    "import numpy as np, neuronxcc.nki.language as nl; assert np.ones(3, dtype=nl.float8_e5m2).itemsize == 1",
])
def test_statement_works_once_installed(statement):
    done = python(f"from nki_mlir.compat import install; install(); install(); {statement}")
    assert done.returncode == 0, done.stderr


def test_torch_xla_only_on_request():
    asks = "import importlib.util as u; print(u.find_spec('torch_xla') is not None)"
    assert python(f"from nki_mlir.compat import install; install(); {asks}").stdout.strip() == "False"
    assert python(f"from nki_mlir.compat import install; install(torch_xla=True); {asks}").stdout.strip() == "True"


def installed_vendor_package(folder: Path) -> None:
    package = folder / "neuronxcc" / "nki"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("ORIGIN = 'vendor'\n")
    (package / "language.py").write_text("ORIGIN = 'vendor'\n")


@pytest.mark.parametrize("override, expected", [(False, "vendor"), (True, "ours")])
def test_an_installed_package_wins_unless_told_otherwise(tmp_path, override, expected):
    installed_vendor_package(tmp_path)
    done = python(f"from nki_mlir.compat import install; install(override={override}); import neuronxcc.nki.language as nl;"
                  "print(getattr(nl, 'ORIGIN', 'ours'))", tmp_path)
    assert done.stdout.strip() == expected, done.stderr


def test_uninstall_takes_the_names_back():
    done = python("from nki_mlir.compat import install, uninstall; install(); import neuronxcc.nki; uninstall();"
                  "import neuronxcc.nki.language")
    assert done.returncode == 1 and "ModuleNotFoundError" in done.stderr


def test_a_script_s_own_error_and_arguments(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, neuronxcc.nki\nprint(sys.argv[1:], __name__)\n")
    done = subprocess.run([sys.executable, "-m", "nki_mlir", str(script), "a", "--b"], capture_output=True, text=True,
                          cwd=ROOT)
    assert done.stdout.strip() == "['a', '--b'] __main__"


def test_a_kernel_mistake_in_a_script_is_no_traceback(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import numpy as np\nimport neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n"
                      "@nki.jit\ndef f(x):\n    nl.exp(x)\nf(np.ones((2, 2), np.float32))\n")
    done = subprocess.run([sys.executable, "-m", "nki_mlir", str(script)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{script}:6:5: error: Expected operand 'x' of 'exp'"), done.stderr
    assert "Traceback" not in done.stderr


def test_missing_script():
    done = subprocess.run([sys.executable, "-m", "nki_mlir", "nowhere.py"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2 and "no script nowhere.py" in done.stderr
    for name in ("nowhere", ".", "nowhere.below"):
        done = subprocess.run([sys.executable, "-m", "nki_mlir", "-m", name], capture_output=True, text=True, cwd=ROOT)
        assert (done.returncode, done.stderr) == (2, f"error: no module {name}\n")


def test_device_of_a_framework_that_is_not_installed(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["--neuron-device", __file__]) == 2
    assert "not installed: pip install 'nki_mlir[torch]'" in capsys.readouterr().err


def test_a_module_runs_as_a_script_does(tmp_path):
    (tmp_path / "test_user.py").write_text(
        "import sys\nimport neuronxcc.nki as nki\n\ndef test_it():\n    assert nki.jit(test_it).__name__ == 'test_it'\n")
    done = subprocess.run([sys.executable, "-m", "nki_mlir", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_user.py"],
                          capture_output=True, text=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def test_import__is_not_of_a_directory_of_that_name(tmp_path):
    """Such as a checkout beside a script."""
    (tmp_path / "nki_mlir").mkdir()
    (tmp_path / "script.py").write_text("import nki_mlir; print(nki_mlir.__file__)")
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, cwd=tmp_path)
    assert Path(done.stdout.strip()).name == "__init__.py", done.stdout + done.stderr


@pytest.mark.parametrize("collects", [True, False])
def test_import__looks_for_no_garbage_and_leaves_the_collector_as_it_was(collects):
    done = python(f"import gc, sys; import numpy, nki_mlir.compat; {'' if collects else 'gc.disable()'}\n"
                  "runs = []; gc.callbacks.append(lambda phase, info: runs.append(info['generation']))\n"
                  "nki_mlir.compat.install(); from nki.language import add\n"
                  "print(sum(g > 0 for g in runs), 'nki_mlir.language.kernel' in sys.modules, gc.isenabled())")
    assert done.stdout.split() == ["0", "True", str(collects)], done.stderr


@pytest.mark.parametrize("freezes", [True, False])
def test_import__leaves_frozen_what_is_frozen_and_collectable_what_is_not(freezes):
    done = python(f"import gc, weakref, nki_mlir.compat; {'gc.freeze()' if freezes else ''}\n"
                  "class Node: pass\n"
                  "node = Node(); node.itself = node; gone = weakref.ref(node); count = gc.get_freeze_count()\n"
                  "nki_mlir.compat.install(); from nki.language import add; del node; gc.collect()\n"
                  "print(gone() is None, abs(gc.get_freeze_count() - count) < 1000, count > 1000)")
    assert done.stdout.split() == ["True", "True", str(freezes)], done.stderr


def test_import__makes_its_objects_old():
    """Later collections of young objects visit those of the program, not those of the import."""
    done = python("import gc, numpy, nki_mlir.compat; nki_mlir.compat.install(); looked = []\n"
                  "def look(phase, info):\n"
                  "    if phase == 'start': looked.append(len(gc.get_objects(info['generation'])))\n"
                  "gc.callbacks.append(look); from nki.language import add\n"
                  "kept = [[] for _ in range(20_000)]; print(0 < max(looked) < 20_000)")
    assert done.stdout.split() == ["True"], done.stderr


@pytest.mark.parametrize("make", [lambda script: script.write_bytes(b"\xff\xfe"), os.mkfifo,
                                  lambda script: os.symlink("/dev/zero", script)], ids=["bytes", "FIFO", "link to a device"])
def test_scripts_that_something_else_replaced_are_written_again(make, tmp_path):
    executables.write_executables(tmp_path, ["neuron-profile"])
    script = tmp_path / "neuron-profile"
    text = script.read_text()
    script.unlink()
    make(script)
    executables.write_executables(tmp_path, ["neuron-profile"])
    assert not script.is_symlink() and script.read_text() == text and os.access(script, os.X_OK)
