# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data movement instructions: tensor_copy, memset, iota, dma_copy, and sums that DMA engines compute on the way;
stream shuffle, gathers and transposing DMA, which move elements between partitions and positions."""

import numpy as np

from nki_mlir.dialects.access import HBM, SBUF
from nki_mlir.dialects.access_factors import access_factor, slowest
from nki_mlir.dialects.nisa.elementwise import of_tiles
from nki_mlir.dialects.nisa.indirect import IndirectOutOfBounds
from nki_mlir.dialects.nisa.opaque import PartitionWise
from nki_mlir.dialects.nki.movement import Copying, Counting, Filling, Transposing
from nki_mlir.dialects.op import In, InOut, Integers, Iteration, NisaOp, Out
from nki_mlir.dialects.scalar_body import Elementwise, ScalarFunctions, V
from nki_mlir.dialects.target_rules import TargetCheck
from nki_mlir.dialects.verifier import Check
from nki_mlir.machine import Engine, Machine, Work
from nki_mlir.scalar.dtypes import FLOAT32, INT32, TFLOAT32, UINT16, UINT32, DType

VECTOR, SCALAR, GPSIMD, SYNC = Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.SYNC


class TensorCopyOp(NisaOp, Copying, name="tensor_copy", engines=(VECTOR, SCALAR, GPSIMD), mnemonic="COPY",
                   opcode=0x40):
    """dst = src on chip, converted on write. The scalar engine goes through float32, the others keep equal bits."""

    def verify(self, check: Check) -> None:
        check.on_chip_of_one_shape("dst", "src")
        if self.runs_on is GPSIMD:
            check.all_in(("sbuf",), "dst", "src")

    def verify_target(self, check: TargetCheck) -> None:
        if self.engine == SCALAR.value:         # older documents have it on generation 2, newer ones do not
            check.need(3, "'tensor_copy' on the scalar engine", "use nisa.activation(op=nl.copy)", binds_current=True)

    @property
    def compute(self) -> DType | None:
        return FLOAT32 if self.runs_on is SCALAR else None

    def same_on(self, engine: Engine) -> bool:
        return super().same_on(engine) or (self.src.dtype.is_float and self.src.dtype is not TFLOAT32)

    def work(self) -> Work:
        """The engine takes time for each element of ``dst``, which depends on the dtypes and memories of the tiles."""
        law = f"tensor_copy{of_tiles(self.dst, self.src)}"
        return Work(law, self.dst.free_elements, slowest(self.dst, (self.src,)))


class MemsetOp(NisaOp, Filling, name="memset", engines=(VECTOR, GPSIMD), mnemonic="MEMSET", opcode=0x41):
    """dst = value, converted to dst's dtype."""

    def verify(self, check: Check) -> None:
        super().verify(check)
        if self.runs_on is GPSIMD:
            check.spaces("dst", "sbuf")

    def work(self) -> Work:
        """The engine takes time for each element of ``dst``; zeros, and elements of 16 bits, are faster."""
        fast = self.value == 0 or self.dst.dtype.bits == 16
        return Work("memset.fast" if fast else "memset", self.dst.free_elements, access_factor(self.dst))


class IotaOp(NisaOp, Counting, name="iota", engines=(GPSIMD,), mnemonic="IOTA", opcode=0x42):
    """dst[i] = expression(i), affine over dst's axes and the op's symbols, in int32."""

    law = "iota"


class DmaCopyOp(NisaOp, Copying, name="dma_copy", engines=(SYNC, SCALAR, GPSIMD), mnemonic="DMA", opcode=0x43):
    """dst = src between HBM and SBUF, either way or within one, converted on the way. No partition rules."""

    destinations = (SBUF,)

    def verify(self, check: Check) -> None:
        check.all_in(("hbm", "sbuf"), "dst", "src")
        check.same_shape("dst", "src")


class DmaComputeOp(NisaOp, Elementwise, name="dma_compute", engines=(Engine.SYNC, Engine.GPSIMD),
                   mnemonic="DMA_COMPUTE", opcode=0x7D):
    """dst = lhs + rhs in float32, between HBM and SBUF either way."""

    dst: Out
    lhs: In
    rhs: In
    destinations = (SBUF,)

    def verify(self, check: Check) -> None:
        check.all_in((HBM, SBUF), "dst", "lhs", "rhs")
        check.same_shape("dst", "lhs", "rhs")

    def body(self, s: ScalarFunctions[V], lhs: V, rhs: V) -> V:
        return s.alu("add", lhs, rhs)


# -- between partitions and positions
# ------------------------------------------------------------------------------------
QUADRANT, GROUP, INDICES = Machine.quadrant, Machine.gpsimd_group, Machine.gpsimd_indices_max
KEEP = 255


class GatherOutOfBounds(IndirectOutOfBounds):
    why = "a gather reads elements of the same partition, and indices count these elements"
    fix = "correct the indices; nisa.local_gather has num_valid_indices for fewer of them"


class StreamShuffleOp(PartitionWise, name="nc_stream_shuffle", engines=(Engine.VECTOR,), mnemonic="STREAM_SHUFFLE",
                      opcode=0x56):
    """In each group of 32 partitions dst[i] = src[shuffle[i]]; 255 does not change dst[i]."""

    partition_group = QUADRANT
    dst: InOut
    src: In
    shuffle: Integers
    keeps_bits = True
    law = "shuffle"

    def overwrites(self, name: str) -> bool:
        return name == "dst" and KEEP not in self.shuffle[:self.dst.shape[0]]

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src")
        entries = [m for m in self.shuffle if 0 <= m < QUADRANT or m == KEEP]
        check.rule(len(entries) == len(self.shuffle) == QUADRANT,
                   f"takes {QUADRANT} entries of 0..31 or 255, got {len(entries)} such entries of {len(self.shuffle)}",
                   "give a source for each partition of a quadrant; 255 keeps the partition's value")
        partitions = self.src.shape[0]
        sources = [m for m in self.shuffle[:self.dst.shape[0]] if m < QUADRANT]
        check.rule(max(sources, default=0) < partitions,
                   f"the mask must name partitions of src, 0 to {partitions - 1}, or 255, got "
                   f"{max(sources, default=0)}",
                   "name partitions that src has; 255 keeps the partition's value")
        check.rule(self.dst.dtype is self.src.dtype and self.dst.shape[1:] == self.src.shape[1:],
                   f"dst and src must have the same dtype and free shape, got {self.dst.dtype} "
                   f"{list(self.dst.shape)} and {self.src.dtype} {list(self.src.shape)}",
                   "give dst the dtype and the free shape of src")

    def reference(self, dst: np.ndarray, src: np.ndarray) -> np.ndarray:
        result = dst.copy()
        for start in range(0, dst.shape[0], QUADRANT):
            for i, source in enumerate(self.shuffle):
                # A source of fewer partitions is read by every group.
                at = start + source if src.shape[0] > start + source else source
                if source != KEEP and start + i < dst.shape[0]:
                    result[start + i] = src[at]
        return result


class LocalGatherOp(PartitionWise, name="local_gather", engines=(Engine.GPSIMD,), mnemonic="LOCAL_GATHER",
                    opcode=0x57):
    """dst[p, j, e] = src[p, idx[j] + e]; each group of 16 partitions shares the indices in its 16 rows of ``index``."""

    partition_group = GROUP
    dst: Out
    src: In
    index: In
    elements: int = 1
    valid: int = -1
    keeps_bits = True

    def verify(self, check: Check) -> None:
        check.all_in((SBUF,), "src", "dst", "index")
        check.dtype("index", UINT16)
        check.rule(self.src.shape[0] % GROUP == 0 and self.src.shape[0] == self.index.shape[0],
                   f"src and index must have the same number of partitions, a multiple of {GROUP}, got "
                   f"{self.src.shape[0]} and {self.index.shape[0]}",
                   f"fill both up to {-(-max(self.src.shape[0], self.index.shape[0]) // GROUP) * GROUP} partitions")
        check.rule(self.elements in (1, 2, 4, 8, 16, 32),
                   f"gathers 1, 2, 4, 8, 16 or 32 elements for each index, got {self.elements}",
                   "gather with several instructions")
        check.at_most("index", 1, self.index.free_elements, INDICES // GROUP)
        indices = self.index.free_elements * GROUP
        check.rule(self.valid <= indices, f"takes at most the indices that {GROUP} partitions of index have, got "
                   f"{self.valid} for {indices}", "pass the number that index has, or less")
        check.rule(self.dst.dtype is self.src.dtype, f"dst and src must have the same dtype, got {self.dst.dtype} and "
                   f"{self.src.dtype}", "give dst the dtype of src")
        gathered = self.index.free_elements * GROUP * self.elements
        check.rule(self.dst.shape[0] == self.src.shape[0] and self.dst.free_elements == gathered,
                   "dst must have the partitions of src, and elements for each of 16 rows of indices, "
                   f"got {list(self.dst.shape)} for {gathered} elements of {self.src.shape[0]} partitions",
                   f"create it with shape ({self.src.shape[0]}, {gathered})")

    def reference(self, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        p = src.shape[0]
        flat = src.reshape(p, -1)
        columns = index.reshape(p, -1)
        per_row = columns.shape[1] * GROUP
        result = np.zeros((p, per_row, self.elements), src.dtype)
        for g in range(0, p, GROUP):
            indices = columns[g:g + GROUP].flatten(order="F").astype(np.int64)
            count = len(indices) if self.valid < 0 else self.valid
            picked: np.ndarray = indices[:count, None] + np.arange(self.elements)
            if picked.size and picked.max() >= flat.shape[1]:
                raise GatherOutOfBounds(index=int(picked.max()), size=flat.shape[1])
            result[g:g + GROUP, :count] = flat[g:g + GROUP][:, picked]
        return result.reshape(p, *self.dst.shape[1:])

    def work(self) -> Work:
        """The engine takes time for each valid index of 16 partitions. It depends on how many elements an index
        selects, and on their size."""
        e = self.elements
        # The cost that nki.isa.local_gather documents divides by this number. But it has the unit of cycles, and only
        # their product stays within the port of the engine, which moves 4 bytes of a partition in a cycle.
        cycles = ((28 + 4 * e) / (4 * e)) / min(4 / self.src.dtype.itemsize, e)
        count = self.valid if self.valid >= 0 else self.index.free_elements * GROUP
        return Work("gather", count * e * cycles)


class GatherFlattenedOp(PartitionWise, name="gather_flattened", engines=(Engine.GPSIMD,), mnemonic="GATHER_FLAT",
                        opcode=0x58):
    """dst[p, j] = src[p] flattened, at index[p, j]."""

    dst: Out
    src: In
    index: In
    rows_apart = True
    main, table = "index", "src"
    keeps_bits = True

    def verify(self, check: Check) -> None:
        check.on_chip("dst", "src", "index")
        check.dtype("index", UINT32, INT32)
        check.shape("dst", self.index.shape)
        check.same_partitions("src", "index")

    def reference(self, src: np.ndarray, index: np.ndarray) -> np.ndarray:
        p = src.shape[0]
        flat = src.reshape(p, -1)
        columns = index.reshape(p, -1).astype(np.int64)
        if columns.size and not 0 <= columns.min() <= columns.max() < flat.shape[1]:
            wrong = columns[(columns < 0) | (columns >= flat.shape[1])]
            raise GatherOutOfBounds(index=int(wrong[0]), size=flat.shape[1])
        return np.take_along_axis(flat, columns, 1).reshape(index.shape)

    def work(self) -> Work:
        """We assume that the engine takes time to read an index and an element for each element of ``dst``."""
        return Work("gather", 2 * self.dst.free_elements)


class DmaTransposeOp(NisaOp, Transposing, name="dma_transpose", engines=(Engine.SYNC, Engine.GPSIMD),
                     mnemonic="DMA_TRANSPOSE", opcode=0x59):
    """dst = src with its axes permuted, through DMA."""

    permutation: Integers
    destinations = (SBUF,)

    def verify(self, check: Check) -> None:
        check.all_in(("hbm", "sbuf"), "dst", "src")
        check.rule(sorted(self.permutation) == list(range(len(self.src.shape))),
                   f"permutes the axes of src, got {list(self.permutation)} for {len(self.src.shape)} axes",
                   "name each axis once")
        check.shape("dst", tuple(self.src.shape[k] for k in self.permutation))

    def iteration(self) -> Iteration:
        return Iteration(self.src.shape, {"dst": tuple(self.permutation), "src": tuple(range(len(self.src.shape)))})

    def reference(self, src: np.ndarray) -> np.ndarray:
        return src.transpose(self.permutation)
