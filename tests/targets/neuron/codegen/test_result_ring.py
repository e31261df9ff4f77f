# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PSUM in program order: the vendor's order of products, in which a result waits for the room of the one before."""

import pytest

from nki_mlir.machine import Engine
from nki_mlir.targets.neuron.codegen.engine_choice import EngineChoice
from nki_mlir.targets.neuron.codegen.result_ring import ResultRing, owners_in_ring
from nki_mlir.targets.neuron.codegen.schedule_instructions import Schedules
from nki_mlir.targets.neuron.codegen.scheduling_order import Order
from tests.targets.neuron.code_builder import Builder

ROUNDS = 6


def products_behind_a_small_one(products: int) -> Builder:
    """Each round computes a small product, whose copy is the left side of the others; all results are evicted."""
    b = Builder()
    x = b.hbm("x", (128, 512), "input")
    left, right = b.on_chip("left", (128, 128)), b.on_chip("right", (128, 512))
    b.copy((left, 0, 128, 0, 128), (x, 0, 128, 0, 128))
    b.copy((right, 0, 128, 0, 512), (x, 0, 128, 0, 512))
    for n in range(ROUNDS):
        small, copied = b.on_chip(f"small{n}", (128, 128), "psum"), b.on_chip(f"copied{n}", (128, 128))
        b.matmul((small, 0, 128, 0, 128), (left, 0, 128, 0, 128), (left, 0, 128, 0, 128))
        b.activation((copied, 0, 128, 0, 128), (small, 0, 128, 0, 128))
        for k in range(products):
            total, result = b.on_chip(f"total{n}_{k}", (128, 512), "psum"), b.on_chip(f"result{n}_{k}", (128, 512))
            b.matmul((total, 0, 128, 0, 512), (copied, 0, 128, 0, 128), (right, 0, 128, 0, 512))
            b.activation((result, 0, 128, 0, 512), (total, 0, 128, 0, 512))
    return b


def order_of_products(b: Builder, written: bool, ahead: int) -> list[int]:
    """Return the products in the order in which the tensor engine starts them, by their number in the program."""
    schedules = Schedules(b.code, EngineChoice(b.code.machine, written=written))
    graph = schedules.parts[0][0][2]
    of_tensor = [k for k, choices in enumerate(graph.choices) if choices[0].engine is Engine.TENSOR]
    return [of_tensor.index(k) for k in schedules.arrangement(Order(ahead=ahead)).runs[0] if k in of_tensor]


@pytest.mark.parametrize("ahead", [0, 50, 300])
def test_a_product_waits_behind_those_whose_results_fill_psum(ahead: int) -> None:
    b = products_behind_a_small_one(8)
    assert order_of_products(b, True, ahead) == list(range(9 * ROUNDS))
    optimized = order_of_products(b, False, 300)
    assert optimized.index(9) < optimized.index(1)              # the second small one, before the first large one


def test_a_product_overtakes_those_that_wait_if_psum_has_room() -> None:
    order = order_of_products(products_behind_a_small_one(2), True, 0)
    assert order.index(3) < order.index(1) and sorted(order) == list(range(3 * ROUNDS))


def test_a_result_has_room_once_the_ones_before_it_are_released() -> None:
    graph = Schedules(products_behind_a_small_one(8).code).parts[0][0][2]
    psum = sorted([n for n, space in enumerate(graph.space) if space == 1], key=graph.first.__getitem__)
    ring = ResultRing(owners_in_ring(graph, 16384))
    assert [ring.has_room(buffer) for buffer in psum[:10]] == [True] * 8 + [False] * 2        # 512 + 7 x 2048 bytes
    ring.release(psum[1])                                       # behind one that is in use
    assert not ring.has_room(psum[8])
    ring.release(psum[0])
    assert [ring.has_room(buffer) for buffer in psum[8:11]] == [True, True, False]
    assert ring.has_room(graph.buffers[0][0])                 # in SBUF


def test_a_ring_goes_on_behind_a_sum_that_is_live_longer() -> None:
    """In three banks, one of which a sum keeps, each product takes the bytes of the last but one before it."""
    b = Builder()
    x = b.hbm("x", (128, 512), "input")
    left, right = b.on_chip("left", (128, 128)), b.on_chip("right", (128, 512))
    b.copy((left, 0, 128, 0, 128), (x, 0, 128, 0, 128))
    b.copy((right, 0, 128, 0, 512), (x, 0, 128, 0, 512))
    total = b.on_chip("total", (128, 512), "psum")
    b.matmul((total, 0, 128, 0, 512), (left, 0, 128, 0, 128), (right, 0, 128, 0, 512))
    for n in range(8):
        product, result = b.on_chip(f"product{n}", (128, 512), "psum"), b.on_chip(f"result{n}", (128, 512))
        b.matmul((product, 0, 128, 0, 512), (left, 0, 128, 0, 128), (right, 0, 128, 0, 512))
        b.activation((result, 0, 128, 0, 512), (product, 0, 128, 0, 512))
    last = b.on_chip("last", (128, 512))
    b.activation((last, 0, 128, 0, 512), (total, 0, 128, 0, 512))
    graph = Schedules(b.code).parts[0][0][2]
    psum = sorted([n for n, space in enumerate(graph.space) if space == 1], key=graph.first.__getitem__)
    owners = owners_in_ring(graph, 3 * 2048)
    ring = ResultRing(owners)
    assert [owners[buffer] for buffer in psum] == [[], [], [], *([psum[n]] for n in range(1, 7))]
    ring.release(psum[1])
    assert [ring.has_room(buffer) for buffer in psum[:5]] == [True] * 4 + [False]
