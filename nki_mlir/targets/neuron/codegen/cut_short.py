# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code whose loops run fewer iterations: a window of it, on which an order is timed."""

from nki_mlir.targets.neuron.codegen.records import Block, Branch, Code, Loop, While, nodes_in
from nki_mlir.targets.neuron.codegen.unroll_loops import written_out


def cut_short(rolled: Code, instructions: int) -> Code:
    """Return the code without the last iterations of the loops that run most instructions. It runs about
    ``instructions``, or more if each loop has one iteration left."""
    body = rolled.body
    while (remaining := written_out(body)) > instructions:
        loops = [node for node in nodes_in(body)
                 if isinstance(node, Loop) and len(node.span) > 1 and written_out(node.body)]
        if not loops:
            break
        largest = max(loops, key=lambda loop: len(loop.span) * written_out(loop.body))
        per_iteration = written_out(largest.body)
        other_instructions = remaining - len(largest.span) * per_iteration
        iterations = min(max(1, round((instructions - other_instructions) / per_iteration)), len(largest.span) - 1)
        body = with_span(body, largest, largest.span[:iterations])
        if iterations > 1:
            break
    return Code(rolled.name, rolled.machine, rolled.globals, body, rolled.grid, rolled.programs)


def with_span(block: Block, loop: Loop, span: range) -> Block:
    """Return the block with other iterations of one of its loops."""
    nodes: list[object] = []
    for node in block.nodes:
        match node:
            case Loop():
                nodes.append(Loop(node.variable, span if node is loop else node.span, with_span(node.body, loop, span),
                                  node.location, node.attributes))
            case Branch():
                nodes.append(Branch(node.condition, with_span(node.then, loop, span),
                                    with_span(node.otherwise, loop, span), node.location))
            case While():
                nodes.append(While(with_span(node.test, loop, span), node.condition, with_span(node.body, loop, span),
                                   node.location))
            case _:
                nodes.append(node)
    return Block(nodes, block.buffers)
