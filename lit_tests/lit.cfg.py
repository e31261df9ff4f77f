# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Configuration of the FileCheck tests: run with ``lit lit_tests``."""

import os
import shutil
import sys

import lit.formats

from nki_mlir.targets.runtime import host

config.name = "nki_mlir"  # noqa: F821
config.test_format = lit.formats.ShTest(execute_external=False)  # noqa: F821
config.suffixes = [".mlir", ".py", ".nkiasm"]  # noqa: F821
config.excludes = ["lit.cfg.py", "Inputs"]  # noqa: F821
config.test_source_root = os.path.dirname(__file__)  # noqa: F821
root = os.path.dirname(config.test_source_root)  # noqa: F821
# Tests of Python that run at the same time read the files of lit_tests.
config.test_exec_root = os.path.join(root, "build", "lit")  # noqa: F821
config.environment["PYTHONPATH"] = root  # noqa: F821
if any(shutil.which(name) for name in ("g++", "c++", "clang++")):
    config.available_features.add("cxx")  # noqa: F821
if host.lanes() == 16:
    config.available_features.add("avx512")  # noqa: F821
run = f"{sys.executable} -m"
if server := os.environ.get("NKI_MLIR_WARM"):       # most of the time of these tests would be imports
    config.environment["NKI_MLIR_WARM"] = server  # noqa: F821
    run = f"{sys.executable} -S -E {os.path.join(root, 'tools', 'warm_client.py')}"
config.substitutions += [  # noqa: F821
    ("nki-opt", f"{run} nki_mlir.cli.opt"),
    ("nki-run", f"{run} nki_mlir.cli.run"),
    ("nki-translate", f"{run} nki_mlir.cli.translate"),
    ("FileCheck", f"{run} filecheck"),
    ("%pairs", "PAIRS" if host.multiplies_pairs() else "APART"),
    ("%dots", "DOTS" if host.adds_word_products() else "APART"),
    ("%words", "WORDS" if host.lanes() == 16 else "SPREAD"),
    ("%python", sys.executable),
    ("%root", root),
]
