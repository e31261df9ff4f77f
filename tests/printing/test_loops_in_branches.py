# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops that contain only a branch on the program: the text with the loops in the branches, and those that stay."""

import pytest

from nki_mlir.bindings import Module, ir
from nki_mlir.printing.loops_in_branches import move_loops_into_branches

USE, OTHER = '"t.use"(%i) : (index) -> ()', '"t.other"(%i) : (index) -> ()'
CONDITION = "%p = arith.cmpi eq, %id, %c0 : index"


def lines_after(*body, run=move_loops_into_branches):
    """The lines of a kernel's body after the pass, without its constants."""
    context = ir.Context()
    context.allow_unregistered_dialects = True
    text = "\n".join(body)
    with context, ir.Location.unknown():
        module = Module.parse(f'''
func.func @f(%x: memref<4xf32, "hbm"> {{nki.name = "x"}}, %id: index {{nki.program_id = 0 : i64}})
    attributes {{nki.grid = [2], nki.results = []}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  {text}
  return
}}''')
        run(module)
        assert module.operation.verify()
        return [line.strip() for line in str(module).splitlines() if "arith.constant" not in line][2:-3]


def loop(*body, over="%i"):
    return "\n".join([f"scf.for {over} = %c0 to %c4 step %c1 {{", *body, "}"])


def branch(then, otherwise="", condition="%p"):
    return f"scf.if {condition} {{\n{then}\n}}" + (f" else {{\n{otherwise}\n}}" if otherwise else "")


def test_each_branch_gets_the_loop():
    assert lines_after(loop(CONDITION, branch(USE, OTHER))) == [
        "%0 = arith.cmpi eq, %arg1, %c0 : index", "scf.if %0 {", "scf.for %arg2 = %c0 to %c4 step %c1 {",
        '"t.use"(%arg2) : (index) -> ()', "}", "} else {", "scf.for %arg2 = %c0 to %c4 step %c1 {",
        '"t.other"(%arg2) : (index) -> ()', "}", "}"]


def test_a_branch_without_operations_gets_none():
    lines = ["%0 = arith.cmpi eq, %arg1, %c0 : index", "scf.if %0 {", "scf.for %arg2 = %c0 to %c4 step %c1 {",
             '"t.use"(%arg2) : (index) -> ()', "}"]
    assert lines_after(loop(CONDITION, branch(USE))) == [*lines, "}"]


def test_inner_loops_first():
    inner = '"t.use"(%i, %j) : (index, index) -> ()'
    assert lines_after(loop(loop(CONDITION, branch(inner), over="%j"))) == [
        "%0 = arith.cmpi eq, %arg1, %c0 : index", "scf.if %0 {", "scf.for %arg2 = %c0 to %c4 step %c1 {",
        "scf.for %arg3 = %c0 to %c4 step %c1 {", '"t.use"(%arg2, %arg3) : (index, index) -> ()', "}", "}", "}"]


def test_variables_in_nested_operations_are_those_of_the_copies():
    lines = lines_after('%q = "t.flag"() : () -> i1', loop(CONDITION, branch("\n".join(["scf.if %q {", USE, USE, "}"]), OTHER)))
    assert lines.count('"t.use"(%arg2) : (index) -> ()') == 2 and lines.count("scf.if %0 {") == 1


def test_values_of_several_conditions():
    lines = lines_after(loop("%s = arith.addi %id, %c1 : index", "%p = arith.cmpi eq, %s, %c4 : index", branch(USE)))
    assert lines[:3] == ["%0 = arith.addi %arg1, %c1 : index", "%1 = arith.cmpi eq, %0, %c4 : index", "scf.if %1 {"]


@pytest.mark.parametrize("body", [
    loop(CONDITION, OTHER, branch(USE)),                                        # something beside the branch
    loop(CONDITION, branch(USE), branch(OTHER)),
    loop("%p = arith.cmpi eq, %i, %c0 : index", branch(USE)),                   # the variable decides
    loop("%s = arith.addi %id, %i : index", "%p = arith.cmpi eq, %s, %c0 : index", branch(USE)),
    loop(loop("%p = arith.cmpi eq, %n, %c0 : index", branch(USE)), over="%n"),  # that of another loop decides
    loop("%s = arith.addi %i, %c1 : index", CONDITION, branch('"t.use"(%s) : (index) -> ()')),
    loop(USE), loop(CONDITION, loop('"t.use"(%p) : (i1) -> ()', over="%j")), CONDITION + "\n" + branch("\"t.none\"() : () -> ()"),
    "%r = scf.for %i = %c0 to %c4 step %c1 iter_args(%a = %c0) -> (index) {\n" + CONDITION + "\n" + branch(USE) + "\nscf.yield %a : index\n}",
    loop(CONDITION, "%v = scf.if %p -> (index) {\nscf.yield %i : index\n} else {\nscf.yield %c0 : index\n}")], ids=range(11))
def test_loops_that_stay(body):
    assert lines_after(body) == lines_after(body, run=lambda module: None)
