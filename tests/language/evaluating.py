# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run the tests' kernels on the evaluator of ``tests/oracle``, which shares no code with the executors.

It executes functions from their source, with the evaluator's modules, functions and types instead of those in their
globals.
"""

import enum
import os
import types
from typing import Any

import numpy as np

from nki_mlir.capture.index import Index, Mask
from nki_mlir.language.beta import compiler, isa, language, nki, typing
from nki_mlir.language.kernel import Kernel, unwrap
from nki_mlir.scalar.dtypes import DType

from ..oracle import Outcome, beta, run
from ..oracle import kernel as evaluator
from ..oracle.dtypes import DTYPES
from ..oracle.source import Translator

MODULES = {language: beta.language, isa: beta.isa, nki: beta.nki, compiler: beta.compiler, typing: beta.typing}
OBJECTS = {id(member): getattr(ours, name) for theirs, ours in MODULES.items() for name, member in vars(theirs).items()
           if not name.startswith("_") and hasattr(ours, name)
           and not isinstance(member, (int, float, str, types.ModuleType, type(None)))}


OBJECTS_OF_TESTS = "methods, partial functions and objects of other modules: no function with its own source"
OLDER_VIEWS = "views of the current generation's releases"
NOT_EVALUATED = dict.fromkeys([
    "test_tensors_in_named_tuples_dicts_and_dataclasses", "test_methods_partials_and_callables",
    "test_helpers_in_another_module", "test_decorated_twice_and_wrapped", "test_objects", "test_name_mangling",
    "test_name_mangling__of_kernels_made_in_methods", "test_with_statements",
    "test_objects_of_methods_partials_and_closures", "test_dtypes_compare_in_kernels"], OBJECTS_OF_TESTS) | dict.fromkeys(
    ["test_views", "test_dimensions_of_hbm_move_freely"], OLDER_VIEWS) | {
    "test_sum_of_differences_and_mean": "the last bit of a mean: a product with 1 / n, or a quotient",
    "test_target_is_read_at_launch": "the evaluator has one target",
    "test_queries": "the evaluator has one target",
    "test_functions_of_numbers_only": "functions of numbers without a tile",
    "test_matmul__result_is_float32_in_psum": "asks the product's buffers",
    "test_hbm_view[eager-negative_integer]": "negative numbers in a lambda, of which only the code is known",
    "test_tile_view[eager-negative]": "negative numbers in a lambda, of which only the code is known",
}


FILES_NOT_EVALUATED = {"test_forms_in_use.py": "the evaluator has each function in its newest form"}


class Surroundings:
    """What the evaluator has for an object of the product."""

    def __init__(self) -> None:
        self.translator = Translator(beta.MODULES, self.replace)

    def replace(self, value: Any) -> Any:
        if isinstance(value, types.ModuleType):
            return MODULES.get(value)
        if id(value) in OBJECTS:
            return OBJECTS[id(value)]
        match value:
            case DType():
                return DTYPES[value.name]
            case Kernel():
                return evaluator.Kernel(self.translator.function(value.func), beta, value.grid)
            case Index():
                return index_array(value)
            case Mask():
                return mask_array(value)
            case enum.Enum() if hasattr(beta.isa, type(value).__name__):
                return getattr(getattr(beta.isa, type(value).__name__), value.name)
        return None


def index_array(index: Index) -> np.ndarray:
    """An index without loop variables as the integers that it is."""
    total = np.full((1,) * len(index.shape), index.const, np.int64)
    for axis, (step, count) in enumerate(zip(index.axes, index.shape)):
        total = total + (np.arange(count) * step).reshape([-1 if k == axis else 1 for k in range(len(index.shape))])
    return total


def mask_array(mask: Mask) -> np.ndarray:
    """A mask without loop variables as the booleans that it is."""
    holds = np.ones((), bool)
    for expression, equal in mask.terms:
        values = index_array(expression)
        holds = holds & (values == 0 if equal else values >= 0)
    return ~holds if mask.negated else holds


def is_evaluated() -> bool:
    """Whether the test that runs is one whose kernels the evaluator runs."""
    file, _, test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition("::")
    name = test.split(" ")[0]
    return not {name, name.partition("[")[0]} & NOT_EVALUATED.keys() and (
        file.rpartition("/")[2] not in FILES_NOT_EVALUATED)


def evaluated(kernel: Any, arguments: Any, keywords: Any, grid: Any) -> Outcome:
    """The evaluator's outcome of a test's kernel."""
    chosen, around = unwrap(kernel), Surroundings()
    values = [a.copy() if isinstance(a, np.ndarray) else around.translator.value(a) for a in arguments]
    named = {k: v.copy() if isinstance(v, np.ndarray) else around.translator.value(v) for k, v in keywords.items()}
    function = evaluator.Kernel(around.translator.function(chosen.func), beta)
    return run(function, values, named, generation=beta, grid=chosen.grid if grid is None else grid)
