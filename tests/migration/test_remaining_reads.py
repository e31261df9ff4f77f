# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names that a file still reads after its functions are rewritten."""

import libcst as cst
import pytest

from nki_mlir.migration.remaining_reads import reads

FILE = """
import module
from package import helper
def rewritten(a):
    return {old}
def kept(b):
    return {kept}
value = {rest}
"""


def functions_of(tree: cst.Module) -> dict[str, cst.FunctionDef]:
    return {node.name.value: node for node in tree.body if isinstance(node, cst.FunctionDef)}


@pytest.mark.parametrize("name, read", [("helper", "helper(1)"), ("module.helper", "module.helper(1)"),
                                        ("helper", "[helper for b in c]")])
@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("rest", [False, True])
def test_reads__in_new_texts_and_in_what_stays(name: str, read: str, old: bool, new: bool, kept: bool, rest: bool) -> None:
    """Neither an import nor the old text of a rewritten function reads the name; other functions' new texts do."""
    tree = cst.parse_module(FILE.format(**{part: read if has else "other(2)" for part, has in (
        ("old", old), ("kept", kept), ("rest", rest))}))
    functions = {"rewritten": functions_of(tree)["rewritten"]}
    text = f"def rewritten(a):\n    return {read if new else 'other(3)'}\n"
    rewrites = functions_of(cst.parse_module(text))
    assert reads(name, tree, functions, rewrites) is (new or kept or rest)
    assert reads(name, tree, functions, rewrites, but="rewritten") is (kept or rest)
    assert reads(name, tree, functions, {}) is (kept or rest)
    assert reads(name, tree, {}, {}) is (old or kept or rest)


def test_attribute_is_not_a_read_of_a_function() -> None:
    """``nl.store`` is another function than the file's ``store``."""
    tree = cst.parse_module("def kernel(a):\n    nl.store(a)\n")
    assert not reads("store", tree, {}, {}) and not reads("store", tree, {}, functions_of(tree))
    assert reads("helpers.store", tree, {}, {})
