# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops around a product of tiles as one matrix product.

before:  for i, j:  total = 0;  for s:  left = a[s, i];  right = b[s, j];  total += left.T @ right;  out[i, j] = total
after:   out = a.T @ b

A loop around one operation becomes an axis of it. A copy of a tile is removed if its readers can read the source; a
tile of sums is removed if the sums can be accumulated at the destination of their copy. Products of adjacent pieces,
such as smaller tiles at the edges, become one product. If more than one operation would remain, the loops stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nki_mlir.dialects.access import Linear
from nki_mlir.targets.cpu import forwarding
from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.native_nodes import Allocate, Compute, NativeLoop, Node, ScratchBuffer
from nki_mlir.targets.cpu.schedule import reach_of
from nki_mlir.waist.nest import Nest, Operand
from nki_mlir.waist.overlap import ByteRegion
from nki_mlir.waist.recognize import is_copy


@dataclass(frozen=True, eq=False)
class LoopNest:
    """A nest on the regions of its operands, in which surrounding loops have become axes.

    For a product, ``fresh`` says that its sums start from 0. ``finish`` is a nest of one input that computes the stored
    value of each sum; the product's output is then where this value is stored.
    """

    nest: Nest
    regions: tuple[ByteRegion, ...]
    is_product: bool
    fresh: bool = False
    finish: Nest | None = None

    @property
    def roots(self) -> list[object]:
        return [region.root for region in self.regions]

    @property
    def reads(self) -> list[object]:
        return self.roots[:len(self.nest.inputs)]

    @property
    def target(self) -> object:
        return self.regions[-1].root

    @property
    def is_plain(self) -> bool:
        """Whether each element of the one output depends only on the elements of the inputs at its position."""
        nest = self.nest
        return len(nest.outputs) == 1 and not (nest.mask or nest.forms or nest.reduced or nest.uses(nest.first_output))


def can_be_flat(node: Node) -> bool:
    """Return whether each loop of a node can become an axis."""
    return _flat([node]) is not None


def as_one_product(nodes: Sequence[Node]) -> LoopNest | None:
    """Return the one product that all nodes compute together, on memory from outside, with sums that start from 0; else
    None."""
    flat = _flat(nodes)
    if flat is None or len(flat) != 1 or not flat[0].fresh or any(isinstance(r, ScratchBuffer) for r in flat[0].roots):
        return None
    return replace(flat[0], nest=flat[0].nest.simplified)


def _flat(nodes: Sequence[Node]) -> list[LoopNest] | None:
    """Return the nests of nodes, with each loop as an axis; None if a loop cannot be an axis."""
    nests: list[LoopNest] = []
    for node in nodes:
        if isinstance(node, Compute):
            nests.append(LoopNest(node.nest, tuple(node.regions), contraction_of(node.nest) is not None))
        elif isinstance(node, NativeLoop) and node.span:
            inner = _flat(node.body.nodes)
            if inner is None or not _can_part(inner):
                return None
            for inner_nest in inner:
                grown = _with_axis(inner_nest, node.slot, node.span)
                if grown is None:
                    return None
                nests.append(grown)
        elif not isinstance(node, Allocate):
            return None
    return _sums_in_place(_without_copies(nests))


def _can_part(items: Sequence[LoopNest]) -> bool:
    """Return whether a loop around the items can be split into one loop around each: none of them touches memory that
    another one writes."""
    return all(a is b or a.target not in b.roots for a in items for b in items)


def _with_axis(loop_nest: LoopNest, slot: int, span: range) -> LoopNest | None:
    """Return a nest and the loop around it as one nest, if iterations write different elements or add to the same ones;
    else None."""
    nest, regions, operands = loop_nest.nest, [], []
    if not (loop_nest.is_plain or loop_nest.is_product):
        return None
    for operand, region in zip(nest.operands, loop_nest.regions):
        step = dict(region.offset.symbols).get(slot, 0)
        stride, remainder = divmod(step * span.step, operand.dtype.itemsize)
        if remainder:
            return None
        operands.append(Operand(operand.dtype, (stride, *operand.strides)))
        regions.append(replace(region, offset=region.offset.substitute(slot, span.start)))
    reduced = {a + 1 for a in nest.reduced}
    if not operands[-1].strides[0]:
        if loop_nest.fresh or not loop_nest.is_product:
            return None
        reduced.add(0)
    inputs = len(nest.inputs)
    grown = replace(nest, extents=(len(span), *nest.extents), reduced=frozenset(reduced),
                    inputs=tuple(operands[:inputs]), outputs=tuple(operands[inputs:]))
    if not forwarding.writes_once(grown):
        return None
    return replace(loop_nest, nest=grown, regions=tuple(regions))


# -- copies ------------------------------------------------------------------------------------------------------------
def _without_copies(items: list[LoopNest]) -> list[LoopNest]:
    """Let products read the source of a copy that nothing writes in between, if all later users of the copy can."""
    remaining: list[LoopNest | None] = [*items]
    written = {item.target for item in items}
    users: dict[object, list[int]] = {}
    for number, item in enumerate(items):
        for root in dict.fromkeys(item.roots):
            users.setdefault(root, []).append(number)
    for number in range(len(items)):
        copy = remaining[number]
        assert copy is not None
        if not is_copy(copy.nest) or not isinstance(copy.target, ScratchBuffer) or not written.isdisjoint(copy.reads):
            continue
        changed = {n: _reading_source(user, copy) for n in users[copy.target]
                   if n > number and (user := remaining[n]) is not None}
        if changed and all(changed.values()):
            users.setdefault(copy.reads[0], []).extend(changed)
            for n, user in [*changed.items(), (number, None)]:
                remaining[n] = user
    return [item for item in remaining if item is not None]


def _reading_source(user: LoopNest, copy: LoopNest) -> LoopNest | None:
    if not (user.is_product or is_copy(user.nest)) or user.target == copy.target or copy.reads[0] == user.target:
        return None
    nest, regions = user.nest, list(user.regions)
    for k in range(len(nest.inputs)):
        if regions[k].root is copy.target:
            forwarded = forwarding.reading_source(nest, k, regions[k], copy)
            if forwarded is None:
                return None
            nest, regions[k] = forwarded
    return replace(user, nest=nest, regions=tuple(regions))


# -- sums --------------------------------------------------------------------------------------------------------------
def _sums_in_place(items: list[LoopNest]) -> list[LoopNest]:
    """Accumulate sums at the destination of their copy, instead of in a tile that is zeroed first and copied at the
    end. Join pieces of a product."""
    k = 0
    while k + 1 < len(items):
        joined = (_started(items[k], items[k + 1]) or _stored(items[k], items[k + 1])
                  or _continued(items[k], items[k + 1]))
        if joined is None:
            k += 1
        else:
            items = [*items[:k], joined, *items[k + 2:]]
            k = max(k - 1, 0)
    return items


def _started(fill: LoopNest, product: LoopNest) -> LoopNest | None:
    """Return the product with sums that start from 0 instead of the values of its output, if the fill sets exactly
    these values to 0; else None."""
    if not product.is_product or product.fresh or not forwarding.is_zero_fill(fill.nest):
        return None
    fills = writes_alike(fill, product) if isinstance(product.target, ScratchBuffer) else (
        fill.regions[-1] == product.regions[-1]
        and forwarding.writes_all_between(fill) and forwarding.writes_all_between(product)
        and reach_of(fill.nest, 0) == reach_of(product.nest, len(product.nest.inputs)))
    return replace(product, fresh=True) if fills else None


def writes_alike(fill: LoopNest, product: LoopNest) -> bool:
    """Return whether a fill writes all of a product's tile, or the elements of it that the product writes."""
    return forwarding.zeroed_tile(fill) is product.target or (
        fill.regions[-1] == product.regions[-1] and not fill.nest.mask and not product.nest.mask
        and forwarding.written_elements(fill.nest) == forwarding.written_elements(product.nest))


def _stored(product: LoopNest, copy: LoopNest) -> LoopNest | None:
    """Return the product with the output of the nest after it, which computes each stored value; None if that nest has
    another form."""
    nest, finish = copy.nest, product.finish
    if not (product.fresh and copy.is_plain and copy.reads == [product.target] and copy.target not in product.roots
            and isinstance(product.target, ScratchBuffer)) or (finish is not None and nest.steps):
        return None
    if nest.steps:
        finish = nest
    stored = forwarding.writing_target(product.nest, product.regions[-1], copy)
    if stored is None:
        return None
    return replace(product, nest=stored[0], finish=finish, regions=(*product.regions[:-1], stored[1]))


# -- pieces ------------------------------------------------------------------------------------------------------------
def _continued(first: LoopNest, second: LoopNest) -> LoopNest | None:
    """Return two products as one, if the second one continues the first one along its rows, columns or summed axis;
    else None."""
    if not (first.is_product and second.is_product and first.target is second.target) or (
            first.target in (*first.reads, *second.reads)):
        return None
    a, b = first.nest.simplified, second.nest.simplified
    if len(a.extents) != len(b.extents) or replace(b, extents=a.extents) != a:
        return None
    uneven = [axis for axis, (n, other) in enumerate(zip(a.extents, b.extents)) if n != other]
    axis = next((axis for axis in uneven or range(len(a.extents)) if len(uneven) < 2
                 and _follows(second, first, a, axis)), None)
    if axis is None or (second.fresh or first.finish or second.finish if axis in a.reduced else
                        first.fresh != second.fresh or not _finish_alike(first.finish, second.finish)):
        return None
    extents = (*a.extents[:axis], a.extents[axis] + b.extents[axis], *a.extents[axis + 1:])
    return replace(first, nest=replace(a, extents=extents))


def _follows(second: LoopNest, first: LoopNest, nest: Nest, axis: int) -> bool:
    """Return whether all operands of the second product begin where those of the first one end along an axis. ``nest``
    has the operands of the first one."""
    return all(
        before.root is after.root and after.offset == before.offset.plus(
            Linear(operand.strides[axis] * nest.extents[axis] * operand.dtype.itemsize))
        for operand, before, after in zip(nest.operands, first.regions, second.regions))


def _finish_alike(finish: Nest | None, other: Nest | None) -> bool:
    """Return whether two nests of one input compute the same function of each element."""
    def function(nest: Nest | None) -> object:
        return nest and (nest.steps, nest.results, [operand.dtype for operand in nest.operands])
    return function(finish) == function(other)
