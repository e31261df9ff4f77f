# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dialects in several MLIR contexts: at once, one after the other, after one has died."""

import gc

import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.mlir_ops import load_dialects, new_context, read_op, shared_context
from nki_mlir.dialects.op import REGISTRY

from .samples import SAMPLES, module_text, tile_operations

TEXT = module_text(SAMPLES["nisa.tensor_scalar"].make())
WRONG = TEXT.replace('op0 = "subtract"', 'op0 = "nonsense"')


def works(context: ir.Context) -> None:
    """Parse, read and print; and the verifier still speaks."""
    with context:
        module = ir.Module.parse(TEXT)
        (operation,) = tile_operations(module)
        assert read_op(operation).op0 == "subtract"
        assert str(module) == TEXT
        with pytest.raises(ir.MLIRError, match="attribute 'op0' of 'tensor_scalar' is 'nonsense'"):
            ir.Module.parse(WRONG)


def test_two_contexts_at_once() -> None:
    first, second = new_context(), new_context()
    for context in (first, second, first, second):
        works(context)
    with first:
        module = ir.Module.parse(TEXT)
    works(second)
    assert str(module) == TEXT and module.operation.verify()
    (operation,) = tile_operations(module)
    assert read_op(operation).full_name() == "nisa.tensor_scalar"


def test_loading_twice__is_harmless() -> None:
    context = new_context()
    for _ in range(2):
        load_dialects(context)
    works(context)


@pytest.mark.usefixtures("only_new_garbage")
def test_context_that_has_died__leaves_nothing_behind() -> None:
    context = new_context()
    works(context)
    del context
    gc.collect()
    works(new_context())


@pytest.mark.usefixtures("only_new_garbage")
def test_contexts_in_turn() -> None:
    for _ in range(6):
        works(new_context())
        gc.collect()


def test_shared_context__is_one() -> None:
    assert shared_context() is shared_context()
    works(shared_context())


def test_ordinary_context__does_not_know_the_operations() -> None:
    with ir.Context(), pytest.raises(ir.MLIRError, match="operation being parsed with an unregistered dialect"):
        ir.Module.parse(TEXT)


def test_unknown_operation_of_a_loaded_dialect() -> None:
    with new_context(), pytest.raises(ir.MLIRError, match=r"unregistered operation 'nki\.frobnicate'"):
        ir.Module.parse('"nki.frobnicate"() : () -> ()')


def test_every_operation__is_registered_with_its_class() -> None:
    context = new_context()
    for name in REGISTRY:
        assert context.is_registered_operation(name)
