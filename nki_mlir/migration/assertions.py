# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites exceptions that kernels raise as assertions, which the vendor's parser reads.

before:  if size % 128:                                     after:  assert not size % 128, f"{size} rows"
             raise ValueError(f"{size} rows")
"""

import libcst as cst

OPPOSITES: dict[type[cst.BaseCompOp], type[cst.BaseCompOp]] = {
    cst.Equal: cst.NotEqual, cst.LessThan: cst.GreaterThanEqual, cst.GreaterThan: cst.LessThanEqual,
    cst.In: cst.NotIn, cst.Is: cst.IsNot}
OPPOSITES |= {opposite: operator for operator, opposite in OPPOSITES.items()}


def text_of(node: cst.Raise) -> cst.BaseExpression | None:
    """Return the text of the assertion that replaces an exception: the exception's only argument, or the name of its
    class. Return None if it has other arguments, or is raised again."""
    match node:
        case cst.Raise(cause=None, exc=cst.Call(args=[cst.Arg(keyword=None, star="", value=value)])):
            return value
        case cst.Raise(cause=None, exc=cst.Call(args=[], func=cst.Name(value=name)) | cst.Name(value=name)):
            return cst.SimpleString(f'"{name}"')
    return None


def raises_alone(node: cst.If) -> tuple[cst.Raise, list[cst.EmptyLine]] | None:
    """Return the ``raise`` of an ``if`` without ``else`` that contains nothing else, and the lines above it; else
    None."""
    match node:
        case cst.If(orelse=None, body=cst.IndentedBlock(body=[cst.SimpleStatementLine(
                leading_lines=lines, body=[cst.Raise() as statement])])):
            return statement, [line for line in lines if line.comment]
        case cst.If(orelse=None, body=cst.SimpleStatementSuite(body=[cst.Raise() as statement])):
            return statement, []
    return None


def negated(test: cst.BaseExpression) -> cst.BaseExpression:
    """Return the opposite of a condition."""
    match test:
        case cst.Comparison(comparisons=[cst.ComparisonTarget(operator=operator) as target]) if (
                type(operator) in OPPOSITES):
            opposite = OPPOSITES[type(operator)]()
            return test.with_changes(comparisons=[target.with_changes(operator=opposite)])
        case cst.UnaryOperation(operator=cst.Not(), expression=inner):
            return inner
        case cst.BooleanOperation(left=left, operator=operator, right=right) if all(
                isinstance(side, cst.Comparison | cst.BooleanOperation) and not side.lpar for side in (left, right)):
            if isinstance(operator, cst.Or) and not isinstance(right, cst.BooleanOperation):
                return test.with_changes(left=negated(left), operator=cst.And(), right=negated(right))
    is_loose = isinstance(test, cst.BooleanOperation | cst.IfExp | cst.Lambda | cst.NamedExpr) and not test.lpar
    inner = test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()]) if is_loose else test
    return cst.UnaryOperation(cst.Not(), inner)
