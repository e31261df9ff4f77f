# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What is known of the writes to PSUM: views that have a whole buffer, against their elements."""

import itertools
import random

from nki_mlir.capture.strides import Dim
from nki_mlir.language.current.write_history import _is_row_major_buffer


def test_whole_views__have_each_element_once_in_order() -> None:
    r, complete = random.Random(0), 0
    for _ in range(3000):
        shape = tuple(r.choice((1, 2, 3, 4)) for _ in range(r.randint(2, 3)))
        row = [1, *itertools.accumulate(reversed(shape[2:]), lambda a, b: a * b)][::-1]       # strides of the row
        dims = [Dim(r.choice((1, 1, 1, 0, 2)), r.choice((0, 0, 0, 0, 1)), r.choice((shape[0], shape[0], *shape))),
                *(Dim(0, s if r.random() < 0.9 else s + 1, n if r.random() < 0.9 else r.randint(1, 4))
                  for s, n in zip(row, shape[1:]))]
        touched = [(sum(d.partition * k for d, k in zip(dims, at)), sum(d.free * k for d, k in zip(dims, at)))
                   for at in itertools.product(*(range(d.count) for d in dims))]
        size = row[0] * shape[1]
        expected = touched == [(p, f) for p in range(shape[0]) for f in range(size)]
        assert _is_row_major_buffer(shape, tuple(dims)) == expected or (touched == [(0, f) for f in range(size)] and shape[0] == 1)
        complete += expected
    assert complete > 200
