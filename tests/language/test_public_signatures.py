# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Public functions show the newest signature of their generation, from the table that their calls are bound by."""

import ast
import importlib
import inspect
import pydoc
from pathlib import Path

import pytest

from nki_mlir.diagnostics import InternalError
from nki_mlir.language.beta.calls import BETA
from nki_mlir.language.current.calls import CURRENT
from nki_mlir.language.signatures.binding import bound
from nki_mlir.language.signatures.table import LEFT_OUT, histories, signatures

ROOT = Path(__file__).parent.parent.parent
GENERATIONS = {"beta": BETA, "current": CURRENT}
ABSENT = {"nki.isa.attention_kernel", "nki.isa.attention_kernel_cache", "nki.isa.builtin_custom_op",
          "nki.language.gemm_grid", "nki.language.gemm_stationary_grid"}       # in stubs, on no page
NAMES = [(generation, name) for generation in GENERATIONS for name in histories()
         if name.rpartition(".")[0] in ("nki", "nki.language", "nki.isa", "nki.collectives")
         and name not in ABSENT and signatures(name, generation)]


def public(generation, name):
    module, _, last = name.rpartition(".")
    home = importlib.import_module(f"nki_mlir.language.{generation}.{module.removeprefix('nki').strip('.') or 'nki'}")
    return getattr(home, last)


@pytest.mark.parametrize("generation, name", NAMES)
def test_signature_is_the_newest_one(generation, name):
    newest, shown = signatures(name, generation)[0], inspect.signature(public(generation, name))
    named = [p for p in shown.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    wanted = [(p.name, p.keyword_only) for p in newest.parameters]
    assert [(p.name, p.kind is p.KEYWORD_ONLY) for p in named][:len(wanted)] == wanted
    if not name.startswith("nki.isa") and name.count(".") == 1:
        return                          # decorators and launchers have further options
    assert {p.name for p in named[len(wanted):]} <= set(newest.described)
    for mine, theirs in zip(named, newest.parameters):
        expected = mine.empty if theirs.default is None else GENERATIONS[generation].default(theirs.default)
        assert mine.default is expected or mine.default == expected, mine.name


@pytest.mark.parametrize("generation, name", NAMES)
def test_help_shows_it(generation, name):
    function = public(generation, name)
    text = "".join(pydoc.plain(pydoc.render_doc(function)).split())      # Python 3.13 breaks long signatures
    signature = "".join(str(inspect.signature(function)).split())
    assert f"{name.rpartition('.')[2]}{signature}" in text or name.count(".") == 1
    assert inspect.getdoc(function), "it says what it does"


def test_help_names_functions_that_are_defaults():
    """Without their addresses, which differ from process to process."""
    select, limited, of_beta = (public(*function) for function in (
        (CURRENT.name, "nki.isa.affine_select"), (CURRENT.name, "nki.isa.range_select"),
        (BETA.name, "nki.isa.range_select")))
    assert "cmp_op=nl.equal" in pydoc.render_doc(select)
    assert "reduce_op=nl.maximum" in pydoc.render_doc(limited)
    assert "reduce_op=np.amax" in pydoc.render_doc(of_beta)
    assert inspect.signature(select).parameters["cmp_op"].default is public(CURRENT.name, "nki.language.equal")


def test_help_says_what_parameters_take():
    from nki_mlir.language.current import isa
    text = inspect.getdoc(isa.tensor_scalar)
    assert text.startswith("Set dst = (data op0 operand0) op1 operand1")
    assert "data: a tile" in text and "operand0: a number, a tile or None" in text and "reverse0: True exchanges" in text


def test_a_function_cannot_have_another_default_than_the_table():
    def reciprocal(dst, data, name="mine"):
        """dst = 1 / data."""
    with pytest.raises(InternalError, match="has defaults of name that are not the table's"):
        bound(reciprocal, "nki.isa.reciprocal", CURRENT)


def test_what_calls_may_leave_out_is_shown_as_required():
    from nki_mlir.language.current import language as nl
    for name in LEFT_OUT:
        parameter = inspect.signature(getattr(nl, name.rpartition(".")[2])).parameters["dtype"]
        assert parameter.default is parameter.empty


def test_editors_see_the_newest_signatures():
    import sys
    sys.path.insert(0, str(ROOT / "tools"))
    import stubs
    for name, text in stubs.files().items():
        assert (ROOT / "typings" / name).read_text() == text, f"{name} differs. fix: make docs"
    texts = stubs.files()
    for generation, name in NAMES:
        module, _, last = name.rpartition(".")
        package = "nki" if generation == "current" else "neuronxcc/nki"
        tree = ast.parse(texts[f"{package}/{module.removeprefix('nki').strip('.') or '__init__'}.pyi"])
        if inspect.isclass(public(generation, name)) or name.count(".") == 1:
            continue
        signature = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == last).args
        newest = signatures(name, generation)[0]
        assert [a.arg for a in signature.args] == list(newest.positional)
        assert [a.arg for a in signature.kwonlyargs] == [p.name for p in newest.parameters if p.keyword_only]
