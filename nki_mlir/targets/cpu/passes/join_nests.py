# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""join-nests: fuse nests over the same elements into one, with an output for each tile that later operations read.

before:  add(m, g, t);  divide(t, v, p);  copy(t, mo)
after:   add, divide(m, g, v, p, mo)                  each element of t stays in a register, and t has no memory

before:  set(t, 0);  t += a * b;  copy(t, out)
after:   out = 0 + a * b

Two nests join if the later nest reads, at the same element, a tile that the earlier nest writes or reads. The joint
nest does not store elements that it overwrites later. No other byte that one nest writes may be touched by the other.
Nests in between run before the joint nest. They must touch no byte that the earlier nest writes, and write no byte that
it touches.

Two nests stay apart if values are rounded several times before a long function, as in `fuse-tiles`.
"""

from collections.abc import Iterable
from functools import cache

from nki_mlir.targets.cpu import native_nodes as cpu
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.walk import JointWalk, walk_of


class JoinNests(FunctionPass, name="join-nests"):
    least: int = 4_096          # elements of a nest: with fewer, routines that all kernels share save more
    between: int = 8            # most nests after the first one of a joint nest that may run before the joint nest
    roundings: int = 2          # join no long function after this many roundings to narrow floats; 0: join all
    light: int = 8              # most steps of a nest that joins another one only because both read the same input

    def rewrite(self, function: NativeFunction) -> None:
        users = function.users()
        for block in cpu.blocks(function.body):
            self.block(block, users)

    def block(self, block: cpu.NativeBlock, users: cpu.Users) -> None:
        """Join nests of a block, from the first one on."""
        nodes, start = block.nodes, 0
        dropped, memoized = set[object](), cache(walk_of)
        while start < len(nodes):
            walk = memoized(nodes[start])
            if walk is not None:
                following = ((nodes[k], memoized(nodes[k])) for k in range(start + 1, len(nodes)))
                walk = self.extended(walk, following) if walk.nest.elements >= self.least else None
            joint = walk.joint(users) if walk is not None and len(walk.calls) > 1 else None
            if walk is None or joint is None:
                start += 1
                continue
            dropped |= {tile for tile in walk.written_tiles if tile not in [r.root for r in joint.regions]}
            last = walk.calls[-1]
            end = nodes.index(last, start) + 1
            nodes[start:end] = [joint if other is last else other for other in nodes[start:end]
                                if other is last or other not in walk.calls]
        if dropped:
            nodes[:] = [node for node in nodes if not (isinstance(node, cpu.Allocate) and node.buffer in dropped)]

    def extended(self, walk: JointWalk, following: Iterable[tuple[cpu.Node, JointWalk | None]]) -> JointWalk:
        """Return the walk with the nests among the nodes after it that can join it. Each node is given with its walk.
        """
        passed = list[cpu.NestCall]()
        for node, other in following:
            if isinstance(node, cpu.Allocate):
                continue
            if not isinstance(node, cpu.NestCall) or len(passed) > self.between:
                break
            longer = walk.followed_by(other, self.roundings, self.light) if other is not None else None
            if longer is not None:
                walk = longer
            elif walk.is_independent_of(node):
                passed.append(node)
            else:
                break
        return walk
