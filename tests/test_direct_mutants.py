# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``tools/direct_mutants.py`` names for each mutant the test that fails with it, whatever code the mutant changes."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tools.mutant_results import entries_of
from tools.seeding import ROOT

TESTS = """
import subprocess
import sys

import numpy as np

from nki_mlir.scalar.sums import ORDERED, ordered, product, reduced_in_order

BEFORE = ordered("max")                     # runs at the import


def test_product__has_all_rows(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_SUMS", "device")
    assert product(np.array([[1.0], [2.0]]), np.array([[3.0], [4.0]])) == 11


def test_sums__are_ordered_for_known_operators():
    assert not BEFORE
    assert ORDERED["multiply"] is np.multiply
    assert reduced_in_order("add", np.arange(4)) == 6


def test_aliases__are_imported_by_a_test():
    from nki_mlir.scalar.tokens import ALIASES
    assert ALIASES["sum"] == "add"


def test_averages__of_another_process():
    program = "import numpy as np; from nki_mlir.scalar.sums import reduced_in_order as f; print(f('average', np.array([2.0, 4.0])))"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).split() == ["3.0"]

"""
CHANGES = [
    ("scalar/sums.py", "total += np", "total -= np"),                                         # a function
    ("scalar/sums.py", "if not in_device_order()", "if in_device_order()"),                   # no test sees it
    ("scalar/sums.py", '"multiply": np.multiply', '"multiply": np.add'),                      # code of the module
    ("scalar/sums.py", "name in ORDERED and in_device_order()", "True"),                      # it ran before the tests
    ("scalar/sums.py", "total += np.multiply.outer(left_row, right_row)", "while True: pass"),
    ("scalar/sums.py", "totals / flat.dtype", "totals * flat.dtype"),                         # another process runs it
    ("scalar/sums.py", '"average": np.add', '"average": np.subtract'),                        # it imports it
    ("cli/opt.py", "if options.reduce:", "if not options.reduce:"),                           # the FileCheck test sees it
    ("scalar/tokens.py", '"sum": "add"', '"sum": "subtract"'),
    ("scalar/sums.py", "from nki_mlir.environment import EnvironmentVariable", "import nothing_of_this_name"),
]
PROGRAM = """
import json, sys
from pathlib import Path
from tools import direct_mutants
from tools.seeding import replacing

direct_mutants.LEAST = 0
changes = [replacing(*change) for change in json.loads(sys.argv[1])]
file = Path(sys.argv[2]).parent / "results"
print(json.dumps({change.new: outcome.test
                  for change, outcome in direct_mutants.outcomes(changes, sys.argv[2:], 2, "", file)}))
"""


FILECHECK = """
// RUN: nki-opt %s | FileCheck %s
// RUN: not nki-opt --no-such-option %s 2>&1 | FileCheck %s --check-prefix=OPTION
// CHECK: module
// OPTION: --no-such-option
"""


def run(changes: list[tuple[str, str, str]], *files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM, json.dumps(changes), *map(str, files)], cwd=ROOT, text=True,
                          capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)


def test_outcomes__name_the_test_that_fails(tmp_path: Path) -> None:
    (tmp_path / "test_sums.py").write_text(TESTS)
    (tmp_path / "names.mlir").write_text(FILECHECK)
    failures = json.loads(run(CHANGES, tmp_path / "test_sums.py", tmp_path / "names.mlir").stdout)
    assert {new: test.rpartition("::")[2] for new, test in failures.items()} == {
        "total -= np": "test_product__has_all_rows",
        "if in_device_order()": "",
        '"multiply": np.add': "test_sums__are_ordered_for_known_operators",
        "True": "test_sums__are_ordered_for_known_operators",
        "while True: pass": "does not end",
        "totals * flat.dtype": "test_averages__of_another_process",
        '"average": np.subtract': "test_averages__of_another_process",
        "if not options.reduce:": "RUN 1",
        '"sum": "subtract"': "test_aliases__are_imported_by_a_test",
        "import nothing_of_this_name": "the import"}
    reached = {entry["test"].rpartition("::")[2]: entry["reached"] for entry in entries_of(tmp_path / "results")
               if "reached" in entry}
    assert reached == {"test_product__has_all_rows": [0, 1, 4], "test_sums__are_ordered_for_known_operators": [5],
                       "test_averages__of_another_process": [], "test_aliases__are_imported_by_a_test": [8],
                       "RUN 1": [7], "RUN 2": []}


def test_outcomes__are_refused_if_each_test_fails_without_a_change(tmp_path: Path) -> None:
    (tmp_path / "test_wrong.py").write_text("def test_wrong():\n    assert 1 == 2\n")
    process = run(CHANGES[:1], tmp_path / "test_wrong.py")
    assert process.returncode == 1
    assert "assert 1 == 2" in process.stderr
    assert "the tests fail without a change" in process.stderr
