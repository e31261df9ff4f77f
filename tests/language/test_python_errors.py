# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Python's errors in kernels: the same exception, with a note that says the fix; and calls that take no array."""

import subprocess
import sys

import numpy as np
import pytest

from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.beta import nki as beta_nki
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.lowered import UnnamedOption
from nki_mlir.language.python_errors import fix_of, with_fix

X = np.arange(16, dtype=np.float32).reshape(4, 4)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have no notes")
def test_a_fix__is_noted_once():
    error = NameError("name 'np' is not defined")
    assert with_fix(with_fix(error)) is error
    assert error.__notes__ == ["fix: import it: import numpy as np"]
    assert not hasattr(with_fix(NameError("of a program")), "__notes__")


def assigned_in_a_branch(x):
    if x.shape[0] > 9:
        rows = 1
    return rows


def assigned_around(x):
    def inner():
        return rows
    if x.shape[0] > 9:
        rows = 1
    return inner()


def unknown(x):
    return rows                                                     # noqa: F821


def sum_with_none(x):
    tile = None
    return tile + 1


def element_of_none(x):
    tile = None
    return tile[0]


def loop_over_a_number(x):
    for _ in x.shape[0]:
        pass


def division(x):
    return x.shape[0] // (x.shape[1] - 4)


def beyond_a_list(x):
    return [1, 2][x.shape[0]]


def beyond_a_shape(x):
    return x.shape[2]


def unpacked(x):
    _, _, columns = x.shape
    return columns


def added_to_a_list(x):
    tiles = [x, x]
    return tiles + 1


def rows_of_a_tile(x):
    tile = nl.ndarray((4, 4), nl.float32, buffer=nl.sbuf)
    first, second = tile
    return first


ERRORS = [
    (added_to_a_list, TypeError, r"compute with each element: \[t \+ 1 for t in tiles\]"),
    (rows_of_a_tile, ValueError, "a shape has an extent for each dimension, a tile a row for each partition"),
    (assigned_in_a_branch, UnboundLocalError, "assign rows on every path that leads here: before the condition or"),
    (assigned_around, NameError, "assign rows on every path"), (unknown, NameError, "assign or import rows"),
    (sum_with_none, TypeError, "a value is None here"),
    (element_of_none, TypeError, "a value is None here: assign a tensor or a number to it"),
    (loop_over_a_number, TypeError, r"iterate over a range, for example nl.affine_range"),
    (division, ZeroDivisionError, "check the divisor, which is 0 for these shapes or constants"),
    (beyond_a_list, IndexError, "use an index below the length"),
    (beyond_a_shape, IndexError, r"x.shape\[k\] needs a k below len"),
    (unpacked, ValueError, "a shape has an extent for each dimension"),
]


@pytest.mark.parametrize("function, kind, fix", ERRORS, ids=[function.__name__ for function, *_ in ERRORS])
def test_python_errors__say_their_fix(function, kind, fix):
    with pytest.raises(kind, match=r"[a-z]") as caught:
        nki.jit(function)(X)
    assert type(caught.value) is kind
    with pytest.raises(kind, match=fix):
        raise kind(fix_of(caught.value))
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == [f"fix: {fix_of(caught.value)}"]


@pytest.mark.parametrize("error, fix", [
    (NameError("name 'nl' is not defined"), "import it: import nki.language as nl"),
    (NameError("name 'nisa' is not defined"), "import it: import nki.isa as nisa"),
    (NameError("name 'np' is not defined"), "import it: import numpy as np"),
    (UnboundLocalError("local variable 't' referenced before assignment"), "assign t on every path that leads here: "
     "before the condition or the loop that may assign it"),
    (KeyError("a"), ""), (ValueError("no"), ""), (TypeError("f() takes 1 argument"), ""), (AssertionError(), ""),
    (TypeError("'<' not supported between instances of 'NoneType' and 'int'"), "a value is None here: assign a tensor "
     "or a number to it, or pass one for the parameter")])
def test_fixes(error, fix):
    assert fix_of(error) == fix


def test_errors_of_users_have_no_note():
    def kernel(x):
        raise ValueError("too many columns")
    with pytest.raises(ValueError, match="too many columns") as caught:
        nki.jit(kernel)(X)
    assert not hasattr(caught.value, "__notes__")


def test_the_command_prints_the_fix(tmp_path):
    file = tmp_path / "k.py"
    file.write_text("from nki_mlir.language.current import nki\n\n@nki.jit\ndef k(x):\n    return None + x.shape[0]\n")
    done = subprocess.run([sys.executable, "-m", "nki_mlir.cli.run", f"{file}:k", "--arg", "4x4xf32"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "error: TypeError: unsupported operand" in done.stderr
    assert "\n  fix: a value is None" in done.stderr


# -- arguments ---------------------------------------------------------------------------------------------------------
@nki.jit
def copied(x):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=y, src=tile)
    return y


@pytest.mark.parametrize("method", ["time", "profile"])
@pytest.mark.parametrize("value, fix", [(X, r"give arrays to kernel.lower\(...\), and options by name"),
                                        (True, r"\(as_written=True\)")])
def test_times_and_profiles__take_options_by_name(method, value, fix):
    with pytest.raises(UnnamedOption, match=rf"{method}\(\) takes keyword arguments only[^$]*{fix}"):
        getattr(copied.lower(X), method)(value)


def test_a_profile_is_written_by_its_result():
    with pytest.raises(UnnamedOption, match=r"write the profile to a folder with profile\(\).write\('folder'\)"):
        copied.lower(X).profile("folder")


def calls_of(function, *arguments):
    """Call a function; return its result, and how many Python functions ran."""
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        count += event == "call"
    sys.setprofile(counted)
    try:
        return function(*arguments), count
    finally:
        sys.setprofile(None)


def test_many_numbers__are_copied_at_once():
    """An argument that is a list of numbers is a constant, which is copied at once; its key reads each number."""
    @nki.jit
    def first(x, y):
        tile = nl.ndarray((4, 4), nl.float32, buffer=nl.sbuf)
        nisa.memset(tile, x[0] + len(x))
        nisa.dma_copy(dst=y, src=tile)
        x[0] = 7.0
        return y
    numbers = [0.5] * 200_000
    _, few = calls_of(first, [0.5] * 10, np.zeros((4, 4), np.float32))
    result, many = calls_of(first, numbers, np.zeros((4, 4), np.float32))
    assert result[0, 0] == 200_000.5 and numbers[0] == 0.5 and many < few + 5 * len(numbers)

    def refused(values):
        with pytest.raises(TypeError, match=r"pass np.array\(the list, np.float32\)"):
            copied(values)
    refused([0.5] * 10)
    assert calls_of(refused, numbers)[1] < 4 * len(numbers)


def test_tiles_of_indices_have_a_partition_for_each():
    @nki.jit
    def gathered(x, i):
        y = nl.ndarray((4, 4), x.dtype, buffer=nl.shared_hbm)
        rows = nl.ndarray((1, 4), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rows, src=i)
        nisa.dma_copy(dst=y, src=x.ap([[4, 4], [1, 4]], vector_offset=rows))
        return y
    with pytest.raises(NkiMlirError, match=r"a tile of indices must have shape \[N, 1\], got \(1, 4\)"):
        gathered(X, np.array([[3, 1, 2, 0]], np.int32))


@pytest.mark.parametrize("start, size, hint", [(2, 4, True), (2, 3, True), (1, 4, True), (3, 2, False), (2, 5, False)])
def test_a_stop_in_place_of_a_size__has_a_hint(start, size, hint):
    @nki.jit
    def part(x):
        tile = nl.ndarray((4, 4), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, nl.ds(start, size)])
        return tile
    with pytest.raises(IndexError, match="index out of range") as caught:
        part(X)
    text = f"nl.ds({start}, {size}) takes a start and a size, so {start} up to {size} is nl.ds({start}, {size - start})"
    assert (text in str(caught.value)) == hint


def test_a_stop_in_place_of_a_size__has_a_hint_in_both_generations():
    """The hint of the beta generation needs ``ds`` in the line: other indices may have such a range, too."""
    @beta_nki.jit
    def sliced(x):
        out = beta_nl.ndarray((4, 2), dtype=x.dtype, buffer=beta_nl.shared_hbm)
        beta_nl.store(out, beta_nl.load(x[:, beta_nl.ds(2, 4)]))
        return out

    @beta_nki.jit
    def by_vectors(x):
        out = beta_nl.ndarray((4, 4), dtype=x.dtype, buffer=beta_nl.shared_hbm)
        p, f = beta_nl.arange(4)[:, None], beta_nl.arange(4)[None, :]
        beta_nl.store(out, beta_nl.load(x[p, f + 2]))
        return out
    hint = r"nl.ds\(2, 4\) takes a start and a size, so 2 up to 4 is nl.ds\(2, 2\)"
    with pytest.raises(IndexError, match=hint):
        sliced(X)
    with pytest.raises(IndexError, match=r"keeps the index below 4$"):
        by_vectors(X)
