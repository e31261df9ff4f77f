# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operations that the host runs for compiled programs that run at the same time."""

import numpy as np

from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.targets.cpu.host_operations import OnlyChanges

X = np.arange(512, dtype=np.float32).reshape(64, 8)


@nki.jit
def counted_rows_of_cores(x, count):
    """Write the rows of each core's half one by one; a run reads their number."""
    out = nl.ndarray((64, 8), nl.float32, buffer=nl.shared_hbm)
    core, limit = nl.program_id(0), nisa.register_alloc()
    nisa.register_load(limit, count[0:1, core:core + 1])

    def body(i):
        row = nl.load(x.ap([[8, 1], [1, 8]], offset=core * 256, scalar_offset=i))
        nisa.dma_copy(out.ap([[8, 1], [1, 8]], offset=core * 256, scalar_offset=i), row)
    nl.fori_loop(0, limit, body)
    return out


def test_rows_that_two_cores_write_at_the_same_time_stay():
    kernel = counted_rows_of_cores[2].on("jit")
    for _ in range(60):
        np.testing.assert_array_equal(kernel(X, np.array([[32, 32]], np.int32)), X)
    half = np.where(np.arange(64)[:, None] % 32 < 20, X, 0)
    np.testing.assert_array_equal(kernel(X, np.array([[20, 20]], np.int32)), half)


def test_only_elements_that_change_are_written():
    for dtype in (np.float32, np.int8, np.float16, np.float64):
        memory = np.array([1, -0.0, 3, np.nan, 5, 6]).astype(dtype) if dtype != np.int8 else np.arange(6, dtype=dtype)
        arrays = [np.zeros(2, dtype), memory]
        one = OnlyChanges(arrays, 1)
        assert arrays[1] is not memory
        arrays[1][1:3] = 0, 9                   # what the operation does
        memory[4] = 7                           # what another program does meanwhile
        one.write()
        assert memory[1] == 0 and not np.signbit(memory[1]) and memory[2] == 9 and memory[4] == 7 and memory[5] in (5, 6)
