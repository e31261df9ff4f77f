# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""form-products: replace loops that compute a large matrix product by one product on packed operands.

before:  for i, j:  total = 0;  for s:  total += a[s, i].T @ b[s, j];  out[i, j] = total
after:   panels of a;  for blocks of columns:  panels of b;  out += panels of a @ panels of b

A note of the function lists the blocks of a product, and the bytes that they move beyond each cache.
"""

from nki_mlir.targets.cpu import function as cpu
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.loop_products import as_one_product, can_be_flat
from nki_mlir.targets.cpu.packed_products import PackedProduct, PackingOptions, can_pack, gains_alone


class FormProducts(FunctionPass, name="form-products"):
    worth: int = 16_777_216     # multiplications of a product: with fewer, packing costs more than it saves
    parts: int = 16             # most computations and blocks of a function that is searched
    tile_rows: int = 0          # rows of a register tile; here and below, the host decides where an option is 0
    tile_vectors: int = 0       # vectors in a row of a register tile
    depth: int = 0              # most positions of the summed axis in a block
    rows: int = 0               # most rows of a block
    columns: int = 0            # most columns of a block
    packed: int = 67_108_864    # bytes that are packed of a factor at a time
    pairs: int = -1             # 1: multiply bfloat16 in pairs where the host can, -1: where that is fastest
    amx: int = -1               # the same for tile registers
    apart: int = 1_048_576      # bytes of a factor, above which a product without loops around it is packed
    high: int = 256             # least rows of such a product of float32

    @property
    def packing(self) -> PackingOptions:
        return PackingOptions(self.tile_rows, self.tile_vectors, self.depth, self.rows, self.columns, self.packed,
                              self.pairs, self.amx, self.apart, self.high)

    def rewrite(self, function: cpu.NativeFunction) -> None:
        nodes = function.body.nodes
        parts = [k for k, node in enumerate(nodes) if is_part(node)]
        end = len(parts) if len(parts) <= self.parts else 0
        while end:
            start = self.packed_up_to(function, parts[:end])
            end = end - 1 if start is None else start

    def packed_up_to(self, function: cpu.NativeFunction, parts: list[int]) -> int | None:
        """If some parts up to the last one are a product, pack it, and return the number of its first part; else return
        None."""
        nodes = function.body.nodes
        last_node = nodes[parts[-1]]
        if not can_be_flat(last_node):
            return None
        for start in range(len(parts) - 1, -1, -1):
            together = nodes[parts[start]:parts[-1] + 1]
            product = as_one_product(together)
            if product is not None and can_pack(product, self.worth, self.packing) and (
                    {*product.reads} <= function.only_read) and (
                    not isinstance(last_node, cpu.RoutineCall) or gains_alone(product, self.packing)):
                calls = [call for call in cpu.calls_in(*together) if isinstance(call, cpu.Compute | cpu.Spread)]
                buffers = {region.root for call in calls for region in call.regions
                           if isinstance(region.root, cpu.ScratchBuffer)}
                if any(user not in calls for buffer, users in function.users().items() if buffer in buffers
                       for user in users):
                    return None                 # a tile is read later on
                block = cpu.NativeBlock([node for node in together
                                         if isinstance(node, cpu.Allocate) and node.buffer not in buffers])
                with function.inside(block):
                    PackedProduct(function, product, self.packing).write()
                nodes[:] = [n for n in [*nodes[:parts[start]], *block.nodes, *nodes[parts[-1] + 1:]]
                            if not isinstance(n, cpu.Allocate) or n.buffer not in buffers]
                return start
        return None


def is_part(node: cpu.Node) -> bool:
    """Whether a node may be a part of a product: a computation, or a block of them."""
    return isinstance(node, cpu.Compute | cpu.Spread) or not isinstance(
        node, cpu.RoutineCall | cpu.Allocate | cpu.NativeLoad | cpu.TileCall)
