# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What files of a package import, compared with what Python imports."""

import subprocess
import sys
from pathlib import Path

import pytest

from nki_mlir.migration.import_graph import folders_within, module_of, reachable_files, with_package_renamed
from nki_mlir.migration.neighbors import by_stem, imported_files, stem

PACKAGE = {
    "__init__.py": "from . import first\n",
    "first.py": "from .sub.deep import below as b\nimport json, math\n",
    "second.py": "import pack.third as t\nfrom pack.sub import leaf\n",
    "third.py": "x = 3\ndef f():\n    from .fourth import y\n    return y\n",
    "fourth.py": "y = 4\n",
    "unused.py": "import pack.second\n",
    "sub/__init__.py": "from .leaf import z\n",
    "sub/leaf.py": "z = 5\n",
    "sub/deep/__init__.py": "",
    "sub/deep/below.py": "from ... import fourth\nfrom .. import leaf as l\n",
    "sub/deep/other.py": "from ..leaf import z\nfrom pack import second\nfrom . import below\nfrom .... import elsewhere\n",
    "calls.py": "import importlib\nm = importlib.import_module('pack.third')\nn = __import__('x' +\n 'y')\n"
                "from importlib import import_module\no = import_module(name)\np = other.import_module('q')\n",
    "wrong.py": "from . import third\ndef (\n",
    "name_in_package.py": "from pack import first_value, sub\nfrom pack.sub.deep import other as o\nimport packs.third\n",
}


@pytest.fixture
def package(tmp_path):
    for name, text in PACKAGE.items():
        file = tmp_path / "pack" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "elsewhere.py").write_text("")
    (tmp_path / "packs").mkdir()
    (tmp_path / "packs" / "third.py").write_text("")
    return tmp_path / "pack"


def reached(package, name):
    files, _ = reachable_files(package / name, package)
    assert len(set(files)) == len(files)
    return {str(file.relative_to(package)) for file in files}


EVERY = {"__init__.py", "first.py", "sub/deep/below.py", "sub/deep/__init__.py", "sub/__init__.py", "sub/leaf.py", "fourth.py"}


@pytest.mark.parametrize("name, beside", [
    ("first.py", set()), ("second.py", {"second.py", "third.py"}), ("third.py", {"third.py"}), ("fourth.py", set()),
    ("unused.py", {"unused.py", "second.py", "third.py"}), ("sub/leaf.py", set()), ("sub/deep/below.py", set()),
    ("sub/deep/other.py", {"sub/deep/other.py", "second.py", "third.py"}), ("calls.py", {"calls.py"}),
    ("wrong.py", {"wrong.py"}), ("name_in_package.py", {"name_in_package.py", "sub/deep/other.py", "second.py", "third.py"})])
def test_reachable_files(package, name, beside):
    assert reached(package, name) == EVERY | beside


def test_files_are_those_that_python_loads(package):
    (package / "sub/deep/other.py").write_text("from ..leaf import z\nfrom pack import second\nfrom . import below\n")
    for name in ("first", "second", "unused", "sub.leaf", "sub.deep.other"):
        text = (f"import sys; sys.path.insert(0, '.'); import pack.{name}\n"
                "print(*sorted(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'pack'))")
        loaded = subprocess.run([sys.executable, "-c", text], cwd=package.parent, capture_output=True, text=True, check=True)
        files, _ = reachable_files(package / (name.replace(".", "/") + ".py"), package)
        assert {str(f) for f in files} - {str(package / "fourth.py")} == {
            str(Path(p).resolve()) for p in loaded.stdout.split()} - {str(package / "fourth.py")}


def test_calls_that_import(package):
    files, calls = reachable_files(package / "calls.py", package)
    assert [(c.file.name, c.line, c.text) for c in calls] == [
        ("calls.py", 2, "importlib.import_module('pack.third')"), ("calls.py", 3, "__import__('x' + 'y')"),
        ("calls.py", 6, "import_module(name)")]
    assert reachable_files(package / "missing.py", package) == ([], [])


def test_folders(package):
    assert folders_within(package / "sub/deep/below.py", package) == [package / "sub/deep", package / "sub", package]
    assert folders_within(package.parent / "elsewhere.py", package) == []
    outside, _ = reachable_files(package.parent / "elsewhere.py", package)
    assert outside == [package.parent / "elsewhere.py"]


RENAMED = {
    "import pack\n": "import new, new as pack\n",
    "import pack.a as b\n": "import new.a as b\n", "import pack.a\nx = pack.a\n": "import new.a, new as pack\nx = pack.a\n",
    "import os, pack.a as b, packs\n": "import os, new.a as b, packs\n",
    "from pack import a\nimport os\n": "from new import a\nimport os\n", "import os, pack.a\n": "import os, new.a, new as pack\n",
    "from pack import a\n": "from new import a\n", "from pack.a.b import (c,\n    d)\ny = 1\n": "from new.a.b import c, d\ny = 1\n",
    "from . import pack\nfrom packs import a\nimport packs\n": "from . import pack\nfrom packs import a\nimport packs\n",
    "x = 'é'; from pack import a; import pack.b as c\n": "x = 'é'; from new import a; import new.b as c\n",
    "def f():\n    from pack.a import b\n    return b\n": "def f():\n    from new.a import b\n    return b\n",
    "from .pack import a\nfrom ..pack.a import b\n": "from .pack import a\nfrom ..pack.a import b\n",
    "from pack.a import b as c  # why\n": "from new.a import b as c  # why\n", "": "", "x = pack\n": "x = pack\n",
}


@pytest.mark.parametrize("text", RENAMED)
def test_a_package_of_another_name(text):
    assert with_package_renamed(text, "pack", "new") == RENAMED[text]


def test_which_file_a_path_names():
    files = [Path(p) for p in ("/r/a/kernels.py", "/r/b/kernels.py", "/r/b/c/kernels.py", "/r/b/tools/__init__.py",
                               "/r/tools/__init__.py", "/r/b/only.py")]
    named = by_stem(files)
    assert {k: len(v) for k, v in named.items()} == {"kernels": 3, "tools": 2, "only": 1}
    assert [stem(f) for f in files] == ["kernels", "kernels", "kernels", "tools", "tools", "only"]
    for path, importer, file in [
            ("a.kernels", "/r/b/x.py", "/r/a/kernels.py"), ("b.kernels", "/r/a/x.py", "/r/b/kernels.py"),
            ("b.c.kernels", "/r/a/x.py", "/r/b/c/kernels.py"), ("kernels", "/r/b/x.py", "/r/b/kernels.py"),
            ("kernels", "/r/b/c/x.py", "/r/b/c/kernels.py"), ("kernels", "/r/a/x.py", "/r/a/kernels.py"),
            ("tools", "/r/x.py", "/r/tools/__init__.py"), ("tools", "/r/b/x.py", "/r/b/tools/__init__.py"),
            ("b.tools", "/r/x.py", "/r/b/tools/__init__.py"), ("other.only", "/r/x.py", "/r/b/only.py")]:
        assert module_of(path, Path(importer), named) == Path(file), (path, importer)
    assert module_of("b.missing", Path("/r/x.py"), named) is None


def test_files_that_others_import():
    texts = {Path(p): text for p, text in {
        "/r/main.py": "from kernels import f\nimport numpy as np\n", "/r/kernels.py": "import tools.sizes as s\nfrom main import x\n",
        "/r/tools/sizes.py": "N = 3\n", "/r/tools/alone.py": "from kernels import f\n", "/r/tools/__init__.py": ""}.items()}
    assert imported_files([Path("/r/main.py")], texts) == {Path("/r/kernels.py"), Path("/r/tools/sizes.py"),
                                                           Path("/r/tools/__init__.py"), Path("/r/main.py")}
    assert imported_files([Path("/r/tools/sizes.py")], texts) == set()
    assert Path("/r/kernels.py") in imported_files([Path("/r/tools/alone.py")], texts)
