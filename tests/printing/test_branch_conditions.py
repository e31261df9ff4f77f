# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Conditions of run-time loops, which move into the branches that contain the loops, or stay where they are."""

import re

import pytest

from nki_mlir.bindings import Module, ir
from nki_mlir.printing.branch_conditions import set_in_branches

TILE = 'memref<1x1xi32, "sbuf">'
ALLOC = f'%c = "memref.alloc"() {{operandSegmentSizes = array<i32: 0, 0>}} : () -> {TILE}'
FILL, COPY = f'"nki.memset"(%c) : ({TILE}) -> ()', f'"nisa.tensor_copy"(%c, %s) : ({TILE}, {TILE}) -> ()'
USE, OTHER = f'"t.use"(%c) : ({TILE}) -> ()', '"t.none"() : () -> ()'
LOAD = f'''
    %z = "t.zero"() : () -> index
    %v = "memref.load"(%c, %z, %z) : ({TILE}, index, index) -> i32'''
READ = f'"t.read"(%s) : ({TILE}) -> ()'
LOOP = f'''
  "scf.while"() ({{{LOAD}
    %t = "t.test"(%v) : (i32) -> i1
    "scf.condition"(%t) : (i1) -> ()
  }}, {{
    "nki.memset"(%c) : ({TILE}) -> ()
    "scf.yield"() : () -> ()
  }}) : () -> ()'''
WITHOUT_SET = LOOP.replace(f'"nki.memset"(%c) : ({TILE}) -> ()', OTHER)
WITHOUT_TEST = LOOP.replace(LOAD, '%v = "t.value"() : () -> i32')


def branch(then, otherwise, condition="%p"):
    yielded = '\n"scf.yield"() : () -> ()'
    return f'"scf.if"({condition}) ({{{then}{yielded}}}, {{{otherwise}{yielded if otherwise else ""}}}) : (i1) -> ()'


def lines_after(*body, run=set_in_branches):
    """The lines of a function's text after the conditions have been set in the branches."""
    context = ir.Context()
    context.allow_unregistered_dialects = True
    text = "\n".join(body)
    with context:
        module = Module.parse(f'''
"func.func"() ({{
^bb0(%p: i1, %q: i1, %s: {TILE}):
  {text}
  "func.return"() : () -> ()
}}) {{function_type = (i1, i1, {TILE}) -> (), sym_name = "f"}} : () -> ()''')
        run(module)
        printed = str(module)
        module.operation.verify()
    return [line.strip() for line in printed.splitlines()]


def is_moved(*body):
    """Whether the tile is allocated in branches alone; else the function is as before."""
    after, before = lines_after(*body), lines_after(*body, run=lambda module: None)
    if after == before:
        return False
    first = next(line for line in after if "memref.alloc" in line or line.startswith("scf.if"))
    assert first.startswith("scf.if")
    return True


@pytest.mark.parametrize("setting", [FILL, COPY], ids=["fill", "copy"])
def test_each_branch_gets_a_tile(setting):
    lines = lines_after(ALLOC, OTHER, setting, branch(LOOP, LOOP + OTHER))
    name = setting.split("(")[0]
    assert not any("alloc" in line or name in line for line in lines[:lines.index('"t.none"() : () -> ()')])
    then, otherwise = "\n".join(lines).split("} else {")
    for part in (then, otherwise):
        allocated, = re.findall(r"(%\w+) = memref.alloc", part)
        body = part[part.index("memref.alloc"):]
        assert body.splitlines()[1].startswith(f"{name}({allocated}")
        used = re.findall(r"memref.load (%\w+)\[|\"nki.memset\"\((%\w+)\)", body)
        assert {a or b for a, b in used} == {allocated} and "memref.load" in body


def test_branch_without_the_loop__has_no_tile():
    lines = lines_after(ALLOC, FILL, branch(OTHER, LOOP))
    then, otherwise = "\n".join(lines).split("} else {")
    assert "alloc" not in then and "alloc" in otherwise
    assert is_moved(ALLOC, FILL, branch(LOOP, ""))


@pytest.mark.parametrize("body", [
    (ALLOC, branch(LOOP, LOOP)),                                        # nothing sets it
    (ALLOC, FILL, FILL, branch(LOOP, LOOP)),
    (ALLOC, FILL, USE, branch(LOOP, "")),                               # something else uses it
    (ALLOC, FILL, branch(LOOP, ""), USE),
    (ALLOC, FILL, branch(LOOP, ""), branch(LOOP, "")),
    (ALLOC, FILL),
    (ALLOC, FILL, LOOP),
    (ALLOC, branch(LOOP, ""), FILL),                                    # it is set behind the branch
    (ALLOC, FILL, branch(USE, USE)),                                    # no loop tests it
    (ALLOC, FILL, branch(LOAD, "")),
    (ALLOC, FILL, branch(WITHOUT_TEST, "")),
    (ALLOC, f'"nki.memset"(%c, %s) : ({TILE}, {TILE}) -> ()', branch(LOOP, "")),
    (ALLOC, f'"nki.copy"(%c) : ({TILE}) -> ()', branch(LOOP, "")),
    (ALLOC, f'"t.set"(%c) : ({TILE}) -> ()', branch(LOOP, "")),
    (ALLOC, f'"nki.copy"(%s, %c) : ({TILE}, {TILE}) -> ()', branch(LOOP, "")),      # it is read, not set
    (ALLOC, COPY, READ, branch(LOOP, "")),                              # the source is used before the branch
    (ALLOC, COPY, branch(READ, "", "%q"), branch(LOOP, ""))], ids=range(17))
def test_condition_stays(body):
    assert not is_moved(*body)


@pytest.mark.parametrize("body", [
    (ALLOC, READ, COPY, branch(LOOP, "")), (ALLOC, COPY, branch(LOOP, ""), READ),
    (ALLOC, COPY, OTHER, branch(LOOP + READ, "")), (ALLOC, FILL, branch(branch(LOOP, "", "%q"), "")),
    (ALLOC, FILL, branch(WITHOUT_SET, ""))], ids=range(5))
def test_condition_moves(body):
    assert is_moved(*body)


def test_only_tiles_of_one_integer():
    floats = {TILE: "memref<1x1xf32>", "-> i32": "-> f32", "(i32) -> i1": "(f32) -> i1"}
    body = "\n".join([ALLOC, FILL, branch(LOOP, "")])
    for old, new in floats.items():
        body = body.replace(old, new)
    assert is_moved(ALLOC, FILL, branch(LOOP, "")) and not is_moved(body)
