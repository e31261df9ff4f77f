# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The pass splits a buffer into its blocks if every use is within one block."""

from nki_mlir.targets.neuron.codegen.allocate_on_chip import allocate
from nki_mlir.targets.neuron.codegen.records import InstructionStep
from nki_mlir.targets.neuron.codegen.split_blocks import split_blocks
from tests.targets.neuron.code_builder import Builder


def blocked(space="psum", uses=(300, 300, 300), clear=True, shape=(128, 3, 300)):
    """A buffer of three blocks; each is written and copied out."""
    b = Builder()
    left, right = (b.on_chip(name, (128, 300)) for name in "lr")
    for t in (left, right):
        b.memset((t, 0, 128, 0, 300), 1)
    total = b.on_chip("total", shape, space)
    if clear:
        b.memset((total, 0, 128, 0, 900), 0)
    for k, width in enumerate(uses):
        b.matmul((total, 0, 128, 300 * k, width), (left, 0, 128, 0, 128), (right, 0, 128, 0, width), True)
    for k, width in enumerate(uses):
        b.tensor_copy((left, 0, 128, 0, width), (total, 0, 128, 300 * k, width))
    return b.code


def names(code):
    return [x.name for x in code.body.buffers]


def test_blocks__get_banks_of_their_own():
    code = blocked()
    split_blocks(code)
    assert names(code) == ["l", "r", "total_0", "total_1", "total_2"]
    assert [x.shape for x in code.body.buffers[2:]] == [(128, 300)] * 3
    allocate(code)
    assert [x.address[1] for x in code.body.buffers[2:]] == [0, 2048, 4096]


def test_constant_over_all_blocks__is_written_block_by_block():
    code = blocked()
    split_blocks(code)
    cleared = [n.op.dst for n in code.body.nodes if isinstance(n, InstructionStep) and n.op.name == "memset"][2:]
    assert [(t.handle.name, t.access.free.const, t.access.dims) for t in cleared] == [
        (f"total_{k}", 0, ((1, 128), (1, 300))) for k in range(3)]


def test_use_of_two_blocks__keeps_the_buffer_whole():
    b = Builder()
    t, u = b.on_chip("t", (128, 2, 8)), b.on_chip("u", (128, 16))
    b.memset((t, 0, 128, 0, 16), 0)
    b.tensor_copy((u, 0, 128, 0, 16), (t, 0, 128, 0, 16))
    split_blocks(b.code)
    assert names(b.code) == ["t", "u"]


def test_moving_place__keeps_the_buffer_whole():
    b = Builder()
    t = b.on_chip("t", (128, 2, 8))
    with b.loop(2) as i:
        b.memset((t, 0, 128, (0, {i: 8}), 8), 0)
    split_blocks(b.code)
    assert names(b.code) == ["t"]


def test_finest_blocks__are_taken():
    b = Builder()
    t = b.on_chip("t", (128, 2, 3, 8))
    for k in range(6):
        b.memset((t, 0, 128, 8 * k, 8), k)
    coarse = b.on_chip("c", (128, 2, 3, 8))
    for k in range(2):
        b.tensor_copy((coarse, 0, 128, 24 * k + 4, 8), (t, 0, 128, 0, 8))
    split_blocks(b.code)
    assert names(b.code) == [f"t_{k}" for k in range(6)] + ["c_0", "c_1"]
    assert [x.shape for x in b.code.body.buffers] == [(128, 8)] * 6 + [(128, 3, 8)] * 2


def test_fixed_address__keeps_the_buffer_whole():
    b = Builder()
    t = b.on_chip("t", (128, 2, 8), address=(0, 64))
    b.memset((t, 0, 128, 0, 8), 0)
    split_blocks(b.code)
    assert names(b.code) == ["t"]
