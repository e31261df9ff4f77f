# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How errors read, and the page that lists them."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nki_mlir.diagnostics import Location, NkiMlirError, with_singulars
from nki_mlir.files import name_source

ROOT = Path(__file__).resolve().parents[2]


class TooWide(NkiMlirError):
    code = "NKI-WIDE"
    message = "the tile has {columns} columns, the limit is {limit}"
    why = "a bank holds {limit}"
    fix = "write {{columns}} in parts"


def test_error__with_a_place_shows_the_line(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text("def kernel(x):\n    return wide(x)\n")
    name_source(file)
    error = TooWide(columns=600, limit=512).located(Location(str(file), 2, 11, 18))
    assert str(error) == f"""{file}:2:12: error: the tile has 600 columns, the limit is 512 [NKI-WIDE]
    2 |     return wide(x)
      |            ^^^^^^^
  why: a bank holds 512
  fix: write {{columns}} in parts"""


def test_error__without_user_code_has_no_location() -> None:
    with ThreadPoolExecutor(1) as pool:
        error = pool.submit(TooWide(columns=600, limit=512).here).result()
    assert error.at is None and str(error).startswith("error: the tile has 600 columns")


def test_error__in_a_huge_file_shows_no_line(tmp_path: Path) -> None:
    file = tmp_path / "huge.py"
    with file.open("wb") as stream:
        stream.write(b"wide(x)\n")
        stream.truncate(1 << 40)            # the rest is a hole
    name_source(file)
    error = TooWide(columns=600, limit=512).located(Location(str(file), 1, 0))
    assert str(error).splitlines()[1] == "  why: a bank holds 512"


def test_error__keeps_its_first_place_and_needs_none() -> None:
    first, second = Location("a.py", 1, 0), Location("b.py", 2, 0)
    assert TooWide(columns=1, limit=2).located(first).located(second).at == first
    assert str(NkiMlirError("something went wrong")) == "error: something went wrong"


def test_page__lists_the_errors_that_there_are(tmp_path: Path) -> None:
    page = tmp_path / "errors.md"
    subprocess.run([sys.executable, str(ROOT / "tools" / "error_reference.py"), f"--output={page}"], check=True)
    now, listed = (set(re.findall(r"^## `(.*)`$", f.read_text(), re.MULTILINE))
                   for f in (page, ROOT / "docs" / "errors.md"))
    assert {"NKI-PASS", "NKI-ARG", "err_1d_arange_not_supported"} < listed == now, "make docs writes the page"


def test_error__escapes_what_changes_a_terminal(tmp_path: Path) -> None:
    error = TooWide(columns="\x1b[2J\u202e\r\ud800\x7f\x9b\ta\u00e4", limit=1)
    assert str(error).splitlines()[0] == (
        r"error: the tile has \x1b[2J\u202e\r\ud800\x7f\x9b" "\ta\u00e4 columns, the limit is 1 [NKI-WIDE]")
    assert error.headline.startswith("the tile has \x1b")               # programs read the values as they are


class OfNumber(NkiMlirError):
    message = "{number} of {pair}, {number!r}, {number:,}"
    why = "{number}"


def test_number_of_too_many_digits__has_its_size_in_their_place():
    number = 1 << 3_000_000
    error = OfNumber(number=number, pair=[1, number])
    assert error.headline == ("<int of 3,000,001 bits> of <list with a number of too many digits>, "
                              "<int of 3,000,001 bits>, <int of 3,000,001 bits>")
    assert error.advice == ("<int of 3,000,001 bits>", "")
    assert OfNumber(number=1234567, pair=[1, 2]).headline == "1234567 of [1, 2], 1234567, 1,234,567"


class Counted(NkiMlirError):
    code = "NKI-COUNTED"
    message = "{what}"
    fix = "give {fewest} elements"


@pytest.mark.parametrize("text, shown", [
    ("got 1 arguments, 11 arguments", "got 1 argument, 11 arguments"), ("1 axes: 1 indices", "1 axis: 1 index"),
    ("core 1 waits, axis 1 has 2 elements", "core 1 waits, axis 1 has 2 elements"),
    ("0.1 seconds, 2,1 rows, x.1 rows", "0.1 seconds, 2,1 rows, x.1 rows"),
    ("1 to 1 cores", "1 to 1 cores"), ("128 and 1 partitions", "128 and 1 partitions"),
    ("1 elementsof", "1 elementsof"), ("(1 bytes)", "(1 byte)"),
    ("SBUF is full: 1 tiles that are live at once take 8 bytes", "SBUF is full: 1 tile that is live takes 8 bytes")])
def test_counted_nouns__agree_with_the_number_1(text: str, shown: str) -> None:
    assert with_singulars(text) == shown
    error = Counted(what=text, fewest=1)
    assert error.headline == shown
    assert error.advice == ("", "give 1 element")
    assert Counted(what="", fix="use 1 rows").advice == ("", "use 1 row")
