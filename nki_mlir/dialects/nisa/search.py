# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Search instructions: the eight largest values, their places, and replacing them."""


import numpy as np

from nki_mlir.dialects.nisa.partitionwise import PartitionWise
from nki_mlir.dialects.op import In, Op, Out, Results
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine
from nki_mlir.scalar.dtypes import UINT16, UINT32

EIGHT, LONGEST = 8, Machine.search_max


def check_length(op: Op, check: Check, label: str) -> None:
    n = getattr(op, label).free_elements
    check.rule(EIGHT <= n <= LONGEST, f"takes {EIGHT} to {LONGEST} values a partition in {label}, got {n}",
               "divide longer rows; fill shorter ones up, for maxima with the lowest number")


class Max8Op(PartitionWise, name="max8", engines=(Engine.VECTOR,), mnemonic="MAX8", opcode=0x53):
    """dst[p] = the 8 largest values of src[p], largest first."""

    dst: Out
    src: In
    rows_apart = True
    law, walked = "search", "src"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        check_length(self, check, "src")
        check.shape("dst", (self.src.shape[0], EIGHT))

    def reference(self, src: np.ndarray) -> np.ndarray:
        flat = src.reshape(src.shape[0], -1)
        return -np.sort(-flat, axis=1)[:, :EIGHT]


def find_each(data: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Place of each value in the flattened rows; the k-th equal value takes the k-th occurrence, -1 without one."""
    p = data.shape[0]
    flat, wanted = data.reshape(p, -1), values.reshape(p, -1)
    found = np.full(wanted.shape, -1, np.int64)
    taken = np.zeros(flat.shape, np.bool_)
    rows = np.arange(p)
    for j in range(wanted.shape[1]):
        hit = (flat == wanted[:, j:j + 1]) & ~taken
        place = hit.argmax(1)
        exists = hit[rows, place]
        found[exists, j] = place[exists]
        taken[rows[exists], place[exists]] = True
    return found


class FindIndex8Op(PartitionWise, name="nc_find_index8", engines=(Engine.VECTOR,), mnemonic="FIND_INDEX8", opcode=0x54):
    """dst[p, j] = where vals[p, j] first occurs in the flattened data[p], both as float32; equal ones take the next."""

    dst: Out
    data: In
    vals: In
    rows_apart = True
    law, walked = "search", "data"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "data", "vals")
        check_length(self, check, "data")
        check.shape("vals", (self.data.shape[0], EIGHT))
        check.shape("dst", (self.data.shape[0], EIGHT))
        check.dtype("dst", UINT32, UINT16)

    def reference(self, data: np.ndarray, vals: np.ndarray) -> np.ndarray:
        return find_each(data, vals).astype(self.dst.dtype.numpy)


class MatchReplace8Op(PartitionWise, name="nc_match_replace8", engines=(Engine.VECTOR,), mnemonic="MATCH_REPLACE8",
                      opcode=0x55):
    """dst = data with the first occurrence of each of the 8 values replaced by ``imm``; dst_idx gets the places."""

    dst: Out
    dst_idx: Out | None
    data: In
    vals: In
    imm: float
    rows_apart = True
    law, walked = "search", "data"

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "dst_idx", "data", "vals")
        check_length(self, check, "data")
        check.shape("vals", (self.data.shape[0], EIGHT))
        check.same_shape("dst", "data")
        if self.dst_idx is not None:
            check.dtype("dst_idx", UINT32, UINT16)

    def reference(self, data: np.ndarray, vals: np.ndarray) -> Results:
        places = find_each(data, vals)
        made = data.reshape(data.shape[0], -1).copy()
        row, j = np.nonzero(places >= 0)
        made[row, places[row, j]] = self.imm
        if self.dst_idx is None:
            return made.reshape(data.shape)
        return made.reshape(data.shape), places.astype(self.dst_idx.dtype.numpy).reshape(
            -1, *self.dst_idx.shape[1:])
