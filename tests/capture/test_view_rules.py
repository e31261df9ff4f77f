# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rules of views, compared with what NumPy does with arrays of the same elements."""

import itertools

import numpy as np
import pytest

from nki_mlir.capture.errors import BadReshape
from nki_mlir.capture.view_rules import check_bits, check_order, check_unit
from nki_mlir.scalar.dtypes import BFLOAT16, FLOAT32, UINT8


def accepts(check, *arguments):
    try:
        check(*arguments)
    except BadReshape:
        return False
    return True


def test_orders_are_permutations_that_keep_the_partition_dimension():
    for order in itertools.product(range(-1, 4), repeat=3):
        is_permutation = sorted(order) == [0, 1, 2]
        assert accepts(check_order, order, (2, 3, 4), None) is is_permutation
        for lanes in range(3):
            assert accepts(check_order, order, (2, 3, 4), lanes) is (is_permutation and order[lanes] == lanes)
    assert not accepts(check_order, (0, 1), (2, 3, 4), None)
    with pytest.raises(BadReshape, match=r"\[0, 2\] is not a permutation of 2 dimensions") as error:
        check_order((0, 2), (3, 4), 0)
    assert error.value.advice[1] == "name each dimension, 0 to 1, once"
    with pytest.raises(BadReshape, match=r"the permutation \(1, 0\) moves the partition dimension of \(3, 4\)") as error:
        check_order([1, 0], [3, 4], 0)
    assert error.value.advice[1] == "transpose with nisa.nc_transpose or nisa.dma_transpose"


def test_dimensions_of_one_element():
    for dim, extent in itertools.product(range(3), (0, 1, 2)):
        shape = tuple(extent if k == dim else 5 for k in range(3))
        assert accepts(check_unit, dim, shape) is (extent == 1)
    with pytest.raises(BadReshape, match=r"dimension 1 of \(1, 2\) has more than one element") as error:
        check_unit(1, [1, 2])
    assert error.value.advice[1] == "squeeze dimensions of extent 1"


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16, UINT8], ids=str)
@pytest.mark.parametrize("new", [FLOAT32, BFLOAT16, UINT8], ids=str)
def test_bits_are_read_as_numpy_reads_them(dtype, new):
    for columns, start in itertools.product(range(1, 9), range(5)):
        memory = np.zeros(64, np.uint8)
        part = memory[start * dtype.itemsize:][:columns * dtype.itemsize]
        fits = len(part) % new.itemsize == 0
        aligned = start * dtype.itemsize % new.itemsize == 0
        assert accepts(check_bits, (4, columns), dtype, new, True, ()) is fits
        assert accepts(check_bits, (4, columns), dtype, new, True, (0, start)) is (fits and aligned)
        assert accepts(check_bits, (3, 5, columns), dtype, new, True, ()) is fits
        assert not accepts(check_bits, (4, columns), dtype, new, False, ())
    with pytest.raises(BadReshape, match=r"the last dimension of \(4, 3\) bfloat16 cannot be read as float32"):
        check_bits([4, 3], BFLOAT16, FLOAT32, True, ())
    with pytest.raises(BadReshape, match=r"the elements of \(4, 2\) bfloat16 are not aligned for float32"):
        check_bits([4, 2], BFLOAT16, FLOAT32, True, [2, 3])
