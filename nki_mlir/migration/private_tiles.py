# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns tensors with a block for each iteration into tiles of the loop's body if an iteration uses only its own block.
If an iteration uses only its part of the first dimensions, the tile keeps the other block dimensions. Each of several
loops, one after the other, gets its own tile.

before:  t = nl.ndarray((n, par_dim(128), 512), ...)    after:  for i in nl.affine_range(n):
         for i in nl.affine_range(n):                               t = nl.ndarray((par_dim(128), 512), ...)
             t[i] = nisa.nc_matmul(...)                             t[...] = nisa.nc_matmul(...)

The current generation has no block dimensions, and one tensor of all blocks may be larger than PSUM, or than the part
of SBUF that a kernel of the beta generation allots to it. The new text is of the beta generation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from nki_mlir.migration.names import Names, children_of
from nki_mlir.migration.tree_transformer import TreeTransformer

MODULE = cst.Module([])
CREATORS = ("nl.ndarray", "nl.zeros")
Use = tuple[cst.Subscript | None, tuple[cst.For, ...]]      # a subscript, None for another use; the loops around it


@dataclass
class BlockTensor:
    """The allocation of a tensor, and what its block indices are in all subscripts."""

    statement: cst.SimpleStatementLine
    name: str
    shape: cst.Tuple
    blocks: int
    around: tuple[cst.For, ...] = ()        # the loops in whose body it is
    loops: tuple[cst.For, ...] = ()         # the loops in whose bodies its tile will be


def with_private_tiles(function: cst.FunctionDef, names: Names, note: Callable[[cst.CSTNode, cst.CSTNode], None]
                       ) -> cst.FunctionDef:
    """Return the function with such tensors allocated in loops; ``note`` gets each node that replaces another one."""
    tensors = list(_tensors(function.body, names, ()))
    private = [tensor for tensor in tensors if _has_private_blocks(tensor, function)]
    if not private:
        return function
    changed = function.visit(_Private(private, note))
    assert isinstance(changed, cst.FunctionDef)
    return changed


def _tensors(body: cst.BaseSuite, names: Names, loops: tuple[cst.For, ...]) -> Iterator[BlockTensor]:
    """Yield the tensors with block dimensions that a block of statements and the loops in it allocate."""
    for statement in body.body:
        if isinstance(statement, cst.SimpleStatementLine) and (tensor := _allocated(statement, names)) is not None:
            tensor.around = loops
            yield tensor
        elif isinstance(statement, cst.For):
            yield from _tensors(statement.body, names, (*loops, statement))


def _allocated(statement: cst.SimpleStatementLine, names: Names) -> BlockTensor | None:
    """Return the tensor in PSUM, or at addresses, with block dimensions that a statement allocates, else None."""
    match statement.body:
        case [cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))],
                         value=cst.Call(func=function, args=arguments))] if names.meaning(function) in CREATORS:
            by_name = {a.keyword.value: a.value for a in arguments if a.keyword is not None}
            shape = by_name.get("shape", arguments[0].value if arguments and arguments[0].keyword is None else None)
            buffer = by_name.get("buffer")
            if not isinstance(shape, cst.Tuple) or buffer is None:
                return None
            memory = names.meaning(buffer.func if isinstance(buffer, cst.Call) else buffer)
            at = [k for k, e in enumerate(shape.elements) if isinstance(e.value, cst.Call)
                  and names.meaning(e.value.func) == "nl.par_dim"]
            if at and at[0] and (memory == "nl.psum" or memory.startswith(("ncc.psum", "ncc.sbuf"))):
                return BlockTensor(statement, name, shape, at[0])
    return None


def _has_private_blocks(tensor: BlockTensor, function: cst.FunctionDef) -> bool:
    """Return whether each iteration uses only its own part of a tensor's first block dimensions, and let ``blocks`` be
    the largest number of such dimensions."""
    for blocks in range(tensor.blocks, 0, -1):
        tensor.blocks = blocks
        if _is_private(tensor, function):
            return True
    return False


def _is_private(tensor: BlockTensor, function: cst.FunctionDef) -> bool:
    """Return whether each iteration of the loops over a tensor's block indices uses only its own block. If loops one
    after the other use the tensor, each iteration of the later ones must assign its block first."""
    uses = list(_uses(function, tensor.name, ()))
    if sum(subscript is None for subscript, _ in uses) != 1:            # except for the assignment, only subscripts
        return False
    depth = len(tensor.around)
    by_loop: dict[int, list[Use]] = {}
    for subscript, loops in uses:
        if subscript is not None:
            if len(loops) <= depth or any(a is not b for a, b in zip(tensor.around, loops)):
                return False
            by_loop.setdefault(id(loops[depth]), []).append((subscript, loops[depth:]))
    owners = [_owner(tensor, reads) for reads in by_loop.values()]
    tensor.loops = tuple(loop for loop in owners if loop is not None)
    return bool(owners) and len(tensor.loops) == len(owners) and all(
        _assigns_first(loop, tensor) for loop in tensor.loops[1:])


def _owner(tensor: BlockTensor, reads: Sequence[Use]) -> cst.For | None:
    """Return the innermost of the loops over the block indices of these subscripts, if each iteration uses only its own
    block, also if another loop around them repeats it; else None."""
    indices = {_block_indices(subscript, tensor.blocks) for subscript, _ in reads if subscript is not None}
    if len(indices) != 1 or "" in (variables := indices.pop()) or len(set(variables)) != tensor.blocks:
        return None
    common = [loop for loop in reads[0][1] if all(any(loop is other for other in loops) for _, loops in reads)]
    by_variable = {loop.target.value: loop for loop in common if isinstance(loop.target, cst.Name)}
    if not all(index in by_variable for index in variables):
        return None
    owner = max((by_variable[index] for index in variables), key=common.index)
    outer = common[:common.index(owner) + 1]
    is_private = _assigns_first(owner, tensor) or all(
        isinstance(loop.target, cst.Name) and loop.target.value in variables for loop in outer)
    changes = _read(tensor.statement) & {n for loop in outer for n in _bound(loop)} - {tensor.name}
    return owner if is_private and not changes else None


def _assigns_first(loop: cst.For, tensor: BlockTensor) -> bool:
    """Return whether the first statement of a loop that names a tensor assigns its complete block."""
    first = next(statement for statement in loop.body.body if tensor.name in _read(statement))
    match first:
        case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Subscript() as target)],
                                                      value=value)]):
            other_items = [MODULE.code_for_node(element.slice).strip() for element in target.slice[tensor.blocks:]]
            return tensor.name in _read(target.value) and tensor.name not in _read(value) and all(
                text in (":", "...") for text in other_items)
    return False


def _uses(node: cst.CSTNode, name: str, loops: tuple[cst.For, ...]) -> Iterator[Use]:
    """Yield each subscript of a name with the loops around it, and None for each other use of the name."""
    if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name) and node.value.value == name:
        yield node, loops
        for element in node.slice:
            yield from _uses(element, name, loops)
    elif isinstance(node, cst.Name):
        if node.value == name:
            yield None, loops
    elif isinstance(node, cst.For):
        yield from _uses(node.iter, name, loops)
        yield from _uses(node.body, name, (*loops, node))
    elif isinstance(node, cst.Attribute):
        yield from _uses(node.value, name, loops)
    else:
        for child in children_of(node):
            if not isinstance(node, cst.Arg) or child is not node.keyword:
                yield from _uses(child, name, loops)


def _block_indices(subscript: cst.Subscript, blocks: int) -> tuple[str, ...]:
    """Return the names of the loops' variables that a subscript has as block indices; "" for any other index."""
    items = [element.slice for element in subscript.slice[:blocks]]
    names = [i.value.value if isinstance(i, cst.Index) and isinstance(i.value, cst.Name) else "" for i in items]
    return (*names, *[""] * (blocks - len(names)))


def _read(node: cst.CSTNode) -> set[str]:
    names = {node.value} if isinstance(node, cst.Name) else set()
    return names.union(*(_read(child) for child in children_of(node)))


def _bound(node: cst.CSTNode) -> set[str]:
    target = node.target if isinstance(node, cst.For | cst.AssignTarget | cst.AugAssign | cst.AnnAssign
                                       | cst.NamedExpr) else None
    names = _read(target) if isinstance(target, cst.Name | cst.Tuple | cst.List) else set()
    return names.union(*(_bound(child) for child in children_of(node)))


class _Private(TreeTransformer):
    def __init__(self, tensors: Sequence[BlockTensor], note: Callable[[cst.CSTNode, cst.CSTNode], None]) -> None:
        super().__init__()
        self.tensors, self.note = tensors, note
        self.by_name = {tensor.name: tensor for tensor in tensors}

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
                 ) -> "cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]":
        result = super().on_leave(original_node, updated_node)
        if isinstance(result, cst.CSTNode) and result is not original_node:
            self.note(original_node, result)
        return result

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
                                  ) -> "cst.SimpleStatementLine | cst.RemovalSentinel":
        is_moved = any(original_node is tensor.statement for tensor in self.tensors)
        return cst.RemoveFromParent() if is_moved else updated_node

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.For:
        moved = [self.of_one_block(t) for t in self.tensors if any(loop is original_node for loop in t.loops)]
        if not moved or not isinstance(updated_node.body, cst.IndentedBlock):
            return updated_node
        return updated_node.with_changes(body=updated_node.body.with_changes(body=[*moved, *updated_node.body.body]))

    def of_one_block(self, tensor: BlockTensor) -> cst.SimpleStatementLine:
        """Return the allocation of a tensor without its block dimensions."""
        elements = [e.with_changes(comma=cst.MaybeSentinel.DEFAULT) for e in tensor.shape.elements[tensor.blocks:]]
        statement = tensor.statement.deep_replace(tensor.shape, tensor.shape.with_changes(elements=elements))
        assert isinstance(statement, cst.SimpleStatementLine)
        self.note(tensor.statement, statement)
        return statement

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
        name = updated_node.value.value if isinstance(updated_node.value, cst.Name) else ""
        if name not in self.by_name:
            return updated_node
        elements = list(updated_node.slice[self.by_name[name].blocks:])
        if not elements:
            elements = [cst.SubscriptElement(cst.Index(cst.Ellipsis()))]
        elements[-1] = elements[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(slice=elements)
