# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Leaves out ``accumulate=False`` of a product whose destination has no values yet, because it begins there anyway.

before:  scores = nl.ndarray((n, m), ..., buffer=nl.psum)   after:  scores = nl.ndarray((n, m), ..., buffer=nl.psum)
         nisa.nc_matmul(dst=scores, ..., accumulate=False)          nisa.nc_matmul(dst=scores, ...)
"""

from collections.abc import Sequence

import libcst as cst

from nki_mlir.migration.names import dotted, nodes_of


def without_spare_arguments(body: Sequence[cst.BaseStatement], nl: str, nisa: str) -> list[cst.BaseStatement]:
    """Return the statements of a function, in which ``nl`` and ``nisa`` name the packages, without these arguments."""
    block = cst.IndentedBlock(list(body)).visit(_ProductBlocks(nl, nisa))
    assert isinstance(block, cst.IndentedBlock)
    return [statement for statement in block.body if isinstance(statement, cst.BaseStatement)]


class _ProductBlocks(cst.CSTTransformer):
    def __init__(self, nl: str, nisa: str) -> None:
        super().__init__()
        self.nl, self.nisa = nl, nisa

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        """Skip the expressions of a statement: they contain no block."""
        return False

    def leave_IndentedBlock(self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
                            ) -> cst.IndentedBlock:
        """Remove the argument of the first statement that reads a tile which the block creates before it."""
        statements = list(updated_node.body)
        unwritten = set[str]()
        for k, statement in enumerate(statements):
            match statement:
                case cst.SimpleStatementLine(body=[cst.Assign(
                        targets=[cst.AssignTarget(target=cst.Name(value=name))], value=cst.Call() as call)]) if (
                            self._creates_in_psum(call)):
                    unwritten.add(name)
                    continue
                case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Call() as call)] as body) if (
                        dotted(call.func) == f"{self.nisa}.nc_matmul"):
                    arguments = {a.keyword.value: a for a in call.args if a.keyword is not None}
                    target, spare = arguments.get("dst"), arguments.get("accumulate")
                    if target is not None and spare is not None and dotted(target.value) in unwritten and (
                            dotted(spare.value) == "False"):
                        arguments_left = [a for a in call.args if a is not spare]
                        arguments_left[-1] = arguments_left[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                        statements[k] = statement.with_changes(
                            body=[body[0].with_changes(value=call.with_changes(args=arguments_left))])
            if unwritten:
                unwritten.difference_update(n.value for n in nodes_of(statement, cst.Name))
        return updated_node.with_changes(body=statements)

    def _creates_in_psum(self, call: cst.Call) -> bool:
        return dotted(call.func) == f"{self.nl}.ndarray" and any(
            a.keyword is not None and a.keyword.value == "buffer" and dotted(a.value) == f"{self.nl}.psum"
            for a in call.args)
