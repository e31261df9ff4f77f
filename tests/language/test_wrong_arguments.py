# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arguments that are not tensors or of no element type: the error names the parameter and what to pass."""

import numpy as np
import pytest

import nki_mlir
import nki_mlir.language.beta.language as nl
from nki_mlir.cli import opt, run
from nki_mlir.language.arguments import ElementType, NoShape, NoTensor
from nki_mlir.language.beta import nki
from nki_mlir.scalar.dtypes import dtype_of


@nki.jit
def exponential(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.exp(nl.load(x)))
    return out


@pytest.mark.parametrize("on", ["eager", "jit", "interpreter", "isa"])
@pytest.mark.parametrize(("value", "shown", "instead"), [
    (None, "None", "an array, for example np.zeros((128, 512), np.float32)"),
    ([1, 2], "[1, 2]", "nki_mlir.spec((1, 2), 'float32') for a tensor of that shape, or an array"),
    ((4, 8), "(4, 8)", "nki_mlir.spec((4, 8), 'float32') for a tensor of that shape, or an array"),
    ("x" * 99, "of type str", "an array, for example np.zeros((128, 512), np.float32)")])
def test_a_constant_where_the_kernel_reads_a_tensor(on, value, shown, instead):
    with pytest.raises(NoTensor) as error:
        exponential.on(on)(value)
    lines = str(error.value).splitlines()
    assert lines[0].endswith(f"error: parameter x is {shown}, and the kernel reads its shape [NKI-ARGUMENT]")
    assert "x.shape" in lines[1] and lines[-1] == f"  fix: pass {instead}"


@nki.jit
def first_rows(x, other):
    out = nl.ndarray((4, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(
        other[0:4, :]))
    return out


@nki.jit
def writes_rows(x, other):
    other[0:4, :] = nl.load(x)


@pytest.mark.parametrize("on", ["eager", "jit", "interpreter", "isa"])
@pytest.mark.parametrize("kernel", [first_rows, writes_rows])
@pytest.mark.parametrize("value", [None, 3, (1, 2), [1.5]])
def test_a_constant_of_which_the_kernel_takes_elements(on, kernel, value):
    with pytest.raises(NoTensor) as error:
        kernel.on(on)(np.zeros((4, 4), np.float32), value)
    lines = str(error.value).splitlines()
    assert lines[0].endswith(f"error: parameter other is {value}, and the kernel reads its elements [NKI-ARGUMENT]")
    assert "other[0:4, :]" in lines[1] and lines[-1].startswith("  fix: pass ")


def test_other_errors_of_elements_stay_pythons():
    @nki.jit
    def of_a_variable(x, other):
        rows = None
        nl.load(rows[0:4])

    @nki.jit
    def by_name(x, other):
        return other["scale"]
    x = np.zeros((4, 4), np.float32)
    for kernel, value, text in [(of_a_variable, None, "'NoneType' object is not subscriptable"),
                                (by_name, [1.5], "list indices must be integers or slices, not str")]:
        with pytest.raises(TypeError, match=text) as error:
            kernel(x, value)
        assert type(error.value) is TypeError


def test_errors_of_a_librarys_subscript_stay_its_own():
    """The library's function has a local of the argument's name, and the user's line subscripts the argument."""
    names = {}
    exec(compile("""
class Table:
    def __getitem__(table, rows):
        raise TypeError("no such rows")
""", np.__file__, "exec"), names)

    @nki.jit
    def kernel(x, table):
        return table[0:4]
    with pytest.raises(TypeError, match=r"^no such rows$") as error:
        kernel.on("eager")(np.zeros((4, 4), np.float32), names["Table"]())
    assert type(error.value) is TypeError


def test_lowering_for_a_shape_says_spec():
    with pytest.raises(NoTensor, match=r"parameter x is \(4, 4\), and the kernel reads its shape"):
        exponential.lower((4, 4))


def test_other_errors_of_attributes_stay_pythons():
    @nki.jit
    def wrong(x, settings):
        return settings.missing
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'missing'"):
        wrong(np.zeros((4, 4), np.float32), None)


def test_an_array_of_float64_says_how_to_convert_it():
    with pytest.raises(ElementType) as error:
        exponential(np.zeros((4, 4)))
    assert "float64 is not an element type; the nearest is float32" in str(error.value)
    assert str(error.value).endswith("fix: convert it first, for example with x.astype(np.float32)")
    with pytest.raises(ElementType, match="the nearest is float32"):
        nki_mlir.spec((4, 4), "float64")


@pytest.mark.parametrize("shape, says", [
    ((-1, 3), "a tensor of shape (-1, 3): an extent is -1"), ((1.5, 3), "a tensor of shape (1.5, 3): an extent is 1.5"),
    ("24", "a tensor of shape '24': it is a text"), (("x",), "a tensor of shape ('x',): invalid literal"),
    (128, "a tensor of shape 128: 'int' object is not iterable")])
def test_shape_of_a_description__has_integers(shape, says):
    with pytest.raises(NoShape) as error:
        nki_mlir.spec(shape)
    assert says in str(error.value)
    assert str(error.value).endswith("fix: give a tuple of extents that are integers of 0 or more, for example (128, 512)")


@pytest.mark.parametrize(("name", "says"), [
    ("float64", "the nearest is float32: the device has no 64-bit floats"), ("bfloat61", "the nearest is bfloat16"),
    ("<U5", "its elements are text, and have to be numbers"), (object, "its elements are Python objects"),
    ("complex64", "the device has no complex numbers: pass the real and the imaginary part"),
    (">f4", "float32 in the byte order of this machine is one"), ("no", "the language has floats of 8, 16 and 32 bits")])
def test_a_name_of_no_element_type_names_the_nearest(name, says):
    with pytest.raises(TypeError, match=says):
        dtype_of(name)


@pytest.mark.parametrize(("command", "option", "nearest"), [
    (opt, "--lower-to-lnalg", "--lower-to-linalg"), (opt, "--cannonicalize", "--canonicalize"),
    (run, "--compar", "--compare"), (run, "--profle=x", "--profile")])
def test_a_misspelled_option_names_the_nearest(command, option, nearest, capsys):
    with pytest.raises(SystemExit, match="2"):
        command.main([option, "examples/mlir/tensor_add.mlir"])
    assert f"; did you mean {nearest}?" in capsys.readouterr().err
