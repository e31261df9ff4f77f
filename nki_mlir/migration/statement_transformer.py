# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Base of transformers that rewrite statements, and need not visit the expressions in them."""

import libcst as cst

from nki_mlir.migration.tree_transformer import TreeTransformer

WITH_STATEMENTS = (cst.Module, cst.BaseSuite, cst.BaseStatement, cst.Else, cst.ExceptHandler, cst.ExceptStarHandler,
                   cst.Finally, cst.MatchCase)


class StatementTransformer(TreeTransformer):
    """Transforms statements. It visits only statements and blocks, because libcst copies each node that a transformer
    visits."""

    def on_visit(self, node: cst.CSTNode) -> bool:
        return super().on_visit(node) and isinstance(node, WITH_STATEMENTS)
