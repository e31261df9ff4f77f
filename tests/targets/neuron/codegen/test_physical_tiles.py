# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Physical tiles have the bytes of their buffers' addresses; variables have names of their own; spans hold all uses."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest

from nki_mlir.dialects.access import Linear, Tile
from nki_mlir.dialects.isa.instruction import Register
from nki_mlir.dialects.op import FRESH
from nki_mlir.machine import Engine
from nki_mlir.scalar.dtypes import BFLOAT16
from nki_mlir.targets.neuron.codegen.hbm_variables import plain, variables_of
from nki_mlir.targets.neuron.codegen.physical_tiles import PhysicalTiles
from nki_mlir.targets.neuron.codegen.records import Code
from tests.targets.neuron.code_builder import Builder
from tests.targets.neuron.crowded_code import program

ENGINES = [Engine.VECTOR, Engine.SCALAR, Engine.SYNC]


def code_with_addresses(seed: int) -> Code:
    """Buffers at random addresses, some at the same; tiles of one row, of a column, in bfloat16."""
    b, rng = program(seed, 12), np.random.default_rng(seed)
    t = b.on_chip("", (4, 64), dtype=BFLOAT16)
    b.memset((t, 3, 1, (2, {}), 8), 0)
    b.memset((t, 0, 4, 5, 1), 0)
    for buffer in b.code.body.buffers:
        if buffer.space != "hbm":
            buffer.address = int(rng.choice((0, 32, 64))), int(rng.choice((0, 64, 4096)))
    return b.code


def elements(tile: Tile) -> tuple[np.ndarray, np.ndarray]:
    """Return the partition and the first byte in it of each element, or the element in HBM."""
    access = tile.access
    flat = np.asarray(access.free.const)
    for step, count in access.free_dims:
        flat = flat[..., None] + step * np.arange(count)
    if access.partition is None:
        return np.zeros(1), flat * access.dtype.itemsize
    step, count = access.dims[0]
    return access.partition.const + step * np.arange(count), flat * access.dtype.itemsize


@pytest.mark.parametrize("seed", range(3))
def test_instructions__are_on_the_bytes_of_their_buffers(seed: int) -> None:
    code = code_with_addresses(seed)
    ops = [node.op for node in code.body.nodes]
    variables = variables_of(code, (tile.handle for op in ops for _, tile in op.operands()))
    tiles = PhysicalTiles(code.machine, variables)
    spans: dict[object, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    of_access: dict[object, Tile] = {}
    for at, op in enumerate(ops):
        op.extra = {FRESH: False, "other": 1} if at % 3 == 0 else {"other": 1}
        number, symbols = at % 3, (Register(at),)
        instruction = tiles.instruction(op, number, at, symbols, ENGINES[number].value)
        assert type(instruction) is type(op)
        assert (instruction.symbols, instruction.ranges, instruction.engine) == (symbols, (), ENGINES[number].value)
        assert instruction.extra == ({FRESH: True} if at % 3 == 0 else {})
        assert instruction.attribute_values() == op.attribute_values() | {"engine": ENGINES[number].value}
        assert [field.name for field, _ in instruction.operands()] == [field.name for field, _ in op.operands()]
        for (_, physical), (_, tile) in zip(instruction.operands(), op.operands()):
            buffer = tile.handle
            spans[buffer][number].append(at)
            (rows, flat), (old_rows, old_flat) = elements(physical), elements(tile)
            if tile.space == "hbm":
                memory: object = buffer
                assert physical.handle is variables[buffer]
            else:
                memory = tile.space, buffer.address
                assert physical.base_shape[0] == code.machine.partitions
                old_rows, old_flat = old_rows + buffer.address[0], old_flat + buffer.address[1]
            assert (physical.space, physical.dtype) == (tile.space, tile.dtype)
            np.testing.assert_array_equal(rows, old_rows)
            np.testing.assert_array_equal(flat, old_flat)
            assert of_access.setdefault((memory, tile.access), physical) is physical
    live = {(r.name, r.partition, r.byte): r for r in tiles.live_ranges(ENGINES)}
    on_chip = [buffer for buffer in spans if buffer.space != "hbm"]
    assert len(tiles.live_ranges(ENGINES)) == len(on_chip) == len(live)
    for buffer in on_chip:
        entry = live[(plain(buffer.name or "tile"), *buffer.address)]
        assert (entry.space, entry.partitions, entry.size) == (
            buffer.space, buffer.shape[0], buffer.bytes_per_partition)
        assert {*entry.spans} == {(ENGINES[e], min(uses), max(uses)) for e, uses in spans[buffer].items()}


def test_a_row_that_is_read_again_and_again_keeps_its_step() -> None:
    """One partition read for all lanes has step 0; a tile of one partition has step 1."""
    code = code_with_addresses(0)
    tiles = PhysicalTiles(code.machine, {})
    tile = next(tile for _, tile in code.body.nodes[-1].op.operands())
    dims = [tiles.physical(replace(tile, access=replace(tile.access, partition=Linear(), dims=((step, count), (1, 8)))))
            .access.dims for step, count in ((0, 4), (0, 1), (64, 1), (1, 4), (2, 2))]
    assert dims == [((0, 4), (1, 8)), ((0, 1), (1, 8)), ((1, 1), (1, 8)), ((1, 4), (1, 8)), ((2, 2), (1, 8))]


def test_variables__have_plain_names_and_count_by_kind() -> None:
    b = Builder()
    buffers = [b.hbm(name, (4, 4), role) for name, role in (
        ("x", "input"), ("é t", "input"), ("x", "output"), ("x", "local"), ("", "local"), ("unused", "local"))]
    code = b.code
    buffers[0].data = b"\1\2"
    on_chip = b.on_chip("t", (4, 4))
    variables = variables_of(code, [buffers[4], on_chip, buffers[3], buffers[0], buffers[4]])
    assert [*variables] == [*buffers[:3], buffers[4], buffers[3]]
    assert [(v.name, v.kind, v.index) for v in variables.values()] == [
        ("x", "input", 0), ("__t", "input", 1), ("x_2", "output", 0), ("internal", "internal", 0),
        ("x_3", "internal", 1)]
    assert variables[buffers[0]].data == b"\1\2" and variables[buffers[0]].shape == (4, 4)
    assert [plain(name) for name in ("a.b", "_a1", "1a", "", ".a", "a-b c")] == ["a.b", "_a1", "_1a", "_", "_.a", "a_b_c"]
