# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""reuse-tiles: write a large tile over the tile that it is computed from, if nothing reads the source again.

before:  scores = q.T @ k;  weights = exp(scores);  out += weights @ v
after:   scores = q.T @ k;  scores = exp(scores);  out += scores @ v

One tile occupies less of the caches than two. The pass changes tiles that products write or read: other passes shrink
other tiles to chunks of rows, or remove their memory.
"""

from collections.abc import Sequence, Set

from nki_mlir.targets.cpu.contraction import contraction_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.native_nodes import Allocate, Compute, RoutineCall, ScratchBuffer, blocks, calls_in, on_buffer
from nki_mlir.waist.overlap import elements_apart


class ReuseTiles(FunctionPass, name="reuse-tiles"):
    least: int = 131_072        # least bytes of a tile: smaller ones stay in the caches

    def rewrite(self, function: NativeFunction) -> None:
        new_calls: dict[RoutineCall, Compute] = {}
        users_of = function.users()
        for block in blocks(function.body):
            inside = {*calls_in(*block.nodes)}
            allocated = {node.buffer for node in block.nodes if isinstance(node, Allocate) and not node.buffer.zeroed}
            for node in [node for node in block.nodes if isinstance(node, Compute)]:
                call = node
                while call in new_calls:
                    call = new_calls[call]
                for source, target in self.pairs_of(call, allocated):
                    if one_is_needed(call, users_of[source], users_of[target]) and all(
                            [user in inside for user in (call, *users_of[source], *users_of[target])]):
                        changed: dict[RoutineCall, Compute] = {
                            user: on_buffer(user, target, source) for user in users_of[target]
                            if isinstance(user, Compute)}
                        function.replace_calls(changed)
                        new_calls |= changed
                        block.nodes[:] = block.without({target})
                        allocated.remove(target)
                        users_of, inside = function.users(), {*calls_in(*block.nodes)}
                        break

    def pairs_of(self, call: Compute, allocated: Set[ScratchBuffer]) -> list[tuple[ScratchBuffer, ScratchBuffer]]:
        """List pairs of allocated tiles of which a computation reads the first, and writes each element of the second
        at the element that it reads."""
        inputs, pairs = len(call.nest.inputs), []
        if call.nest.forms or call.streams or contraction_of(call.nest) is not None:
            return []
        roots = [region.root for region in call.regions]
        for source, operand in zip(call.regions[:inputs], call.nest.inputs):
            for n, target in enumerate(call.regions[inputs:], inputs):
                other = call.nest.operands[n]
                if (isinstance(source.root, ScratchBuffer) and isinstance(target.root, ScratchBuffer)
                        and source.root in allocated and target.root in allocated and source.root is not target.root
                        and source.root.size == target.root.size >= self.least
                        and source.offset == target.offset and operand.strides == other.strides
                        and operand.dtype.itemsize == other.dtype.itemsize
                        and roots.count(source.root) == roots.count(target.root) == 1
                        and elements_apart(operand.strides, call.nest.extents)):
                    pairs.append((source.root, target.root))
        return pairs


def one_is_needed(call: Compute, source_users: Sequence[RoutineCall], target_users: Sequence[RoutineCall]) -> bool:
    """Return whether a computation is the last user of its source and the first user of its target, and all users are
    computations, at least one of them a product."""
    if source_users[-1] is not call or target_users[0] is not call:
        return False
    users = [*source_users, *target_users]
    return all([isinstance(user, Compute) for user in users]) and any(
        [isinstance(user, Compute) and contraction_of(user.nest) is not None for user in users])
