# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What single instructions of kernels cost, where the cost is not a function of one tile's elements and dtype alone."""

from collections.abc import Callable

import numpy as np
import pytest

from nki_mlir.dialects.op import Op
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.tensor import NkiTensor
from nki_mlir.language.kernel import describe_array, is_array
from nki_mlir.machine import Engine, machine_named
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.timing.transfers import Transfers
from tests.targets.neuron.code_builder import Builder

P = 128
Use = Callable[[NkiTensor, NkiTensor], None]


def busy_ns(use: Use, shape: tuple[int, ...], *, out: tuple[int, ...], engine: Engine, dtype: str = "float32",
            out_dtype: str | None = None, target: str = "trn2", buffer: str = "sbuf") -> float:
    """The time of the engine's longest instruction."""
    @nki.jit
    def kernel(x):
        source = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=source, src=x)
        result = nl.ndarray(out, dtype=out_dtype or dtype, buffer=getattr(nl, buffer))
        use(result, source)
        if buffer == "psum":
            copy = nl.ndarray(out, dtype=out_dtype or dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=copy, src=result)
            result = copy
        returned = nl.ndarray(out, dtype=out_dtype or dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=returned, src=result)
        return returned

    on = kernel.with_changes(target=target)
    spec = on.specialize(on.bind((np.zeros(shape, dtype),), {}, is_array, describe_array))
    (program,) = neuron.streams(spec.captured, spec.grid, neuron.emission(as_written=True))
    machine = machine_named(target)
    return max(machine.cost(engine, i.work_of(i.op)).busy for i in program.streams[engine]
               if i.queue is None and isinstance(i.op, Op))


def gather(elements: int) -> Use:
    def use(result: NkiTensor, source: NkiTensor) -> None:
        index = nl.ndarray((P, 16), dtype=nl.uint16, buffer=nl.sbuf)
        nisa.memset(dst=index, value=0, engine=nisa.vector_engine)
        nisa.local_gather(dst=result, src_buffer=source, index=index, num_elem_per_idx=elements)
    return use


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
def test_a_gather_moves_no_more_than_the_port_of_the_engine(dtype: str) -> None:
    """4 bytes of a partition in a cycle; gathers of long pieces come close, those of single elements take eight times
    as long."""
    size = {"float32": 4, "bfloat16": 2, "uint8": 1}[dtype]
    times = {}
    for elements in (1, 32):
        ns = busy_ns(gather(elements), (P, 512), out=(P, 256 * elements), engine=Engine.GPSIMD, dtype=dtype)
        times[elements] = (ns * 1.2 - 150) / (256 * elements)       # cycles of an element
        assert times[elements] >= size / 4
    assert times[1] == pytest.approx(8.0)
    assert times[32] == pytest.approx(39 / 32 * size / 4)


def test_a_sum_over_partitions_takes_eight_cycles_for_an_element_of_a_partition() -> None:
    """One element a cycle of all partitions, as in turn, is a sixteenth of what the cores read."""
    def use(result: NkiTensor, source: NkiTensor) -> None:
        nisa.tensor_partition_reduce(dst=result, op=nl.add, data=source)
    ns = busy_ns(use, (P, 512), out=(1, 512), engine=Engine.GPSIMD)
    assert ns == pytest.approx((150 + 8 * 512) / 1.2)


def test_bounds_of_sequences_take_four_cycles_for_an_id() -> None:
    def use(result: NkiTensor, source: NkiTensor) -> None:
        nisa.sequence_bounds(dst=result, segment_ids=source)
    assert busy_ns(use, (1, 512), out=(1, 2, 512), engine=Engine.GPSIMD) == pytest.approx((150 + 4 * 512) / 1.2)


@pytest.mark.parametrize("dtype, passes", [("float32", 2), ("bfloat16", 1)])
def test_a_product_that_transposes_takes_half_of_the_passes(dtype: str, passes: int) -> None:
    def use(result: NkiTensor, source: NkiTensor) -> None:
        nisa.nc_matmul(dst=result, stationary=source, moving=source, is_transpose=True)
    ns = busy_ns(use, (P, P), out=(P, P), engine=Engine.TENSOR, dtype=dtype, buffer="psum")
    assert ns == pytest.approx(passes * (128 + 4) / 2.4)


def test_random_numbers_are_drawn_four_a_cycle_on_trn3() -> None:
    def use(result: NkiTensor, source: NkiTensor) -> None:
        nisa.rng(dst=result, engine=nisa.vector_engine)
    ns = busy_ns(use, (P, 512), out=(P, 512), engine=Engine.VECTOR, target="trn3", out_dtype="uint32")
    assert ns == pytest.approx((512 / 4 + 57) / 1.2)


def test_a_sum_on_the_way_takes_twice_as_long_as_a_copy() -> None:
    @nki.jit
    def kernel(x, y):
        total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        copy = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_compute(dst=total, srcs=[x, y], reduce_op=nl.add)
        nisa.dma_copy(dst=copy, src=y)
        return total, copy

    arrays = (np.zeros((P, 1000), np.float32),) * 2
    spec = kernel.specialize(kernel.bind(arrays, {}, is_array, describe_array))
    (program,) = neuron.streams(spec.captured, spec.grid, neuron.emission(as_written=True))
    transfers = Transfers(machine_named("trn2"))
    taken = {type(i.op).__name__: max(transfers.of(i.op).parts) for stream in program.streams.values() for i in stream
             if i.queue is not None}
    assert set(taken) == {"DmaComputeOp", "DmaCopyOp"}
    # one run on either side, which is divided; a sum has a run for each row
    assert taken["DmaComputeOp"] == pytest.approx(2 * taken["DmaCopyOp"], rel=0.35)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("function", ["floor", "ceil", "trunc"])
def test_functions_that_round_take_the_time_of_six_instructions(target: str, function: str) -> None:
    """No engine has them: the language composes them of copies, comparisons, a difference and a choice."""
    machine, code = machine_named(target), Builder(target)
    tile = code.on_chip("tile", (P, 4096)), 0, P, 0, 4096
    for fn in (function, "sqrt"):
        code.activation(tile, tile, fn)
    rounded, other = (step.op for step in code.code.body.nodes)
    assert 5 * other.busy_ns(machine) < rounded.busy_ns(machine) < 7 * other.busy_ns(machine)
    assert (rounded.function_set, other.function_set) == ("", "sqrt")
