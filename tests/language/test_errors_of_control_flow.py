# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documented errors of scope, conditions and iterations, and kernels that only look like those mistakes."""

import numpy as np
import pytest

from nki_mlir.capture import errors
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki

from .documented import Cases, X, output, raises_documented
from .running import run

CASES = Cases()
case = CASES.add


# -- scope and control flow --------------------------------------------------------------------------------------------
@case(errors.OutOfScope, "err_local_variable_used_out_of_scope", "tensor tile")
def tensor_of_a_loop_used_after_it(x):
    out = output()
    for i in nl.affine_range(4):
        tile = nl.load(x[:, nl.ds(i * 128, 128)])
    nl.store(out[:, 0:128], tile)                           # here
    return out


@case(errors.OutOfScope, "err_local_variable_used_out_of_scope")
def tensor_of_a_branch_used_after_it(x):
    out = output((4, 128, 512))
    for i in nl.affine_range(4):
        if i < 2:
            tile = nl.load(x)
        else:
            tile = nl.zeros((128, 512), nl.float32)
        nl.store(out[i], tile)                              # here
    return out


@case(errors.TensorTruth, "err_ambiguous_tensor_truth_value", python=ValueError)
def truth_of_a_tensor(x):
    tile = nl.load(x)
    if tile:                                                # here
        return


@case(errors.TensorTruth, "err_ambiguous_tensor_truth_value", python=ValueError)
def negation_of_a_tensor(x):
    tile = nl.load(x)
    return not (tile > 0)                                   # here


@case(errors.DynamicControlFlow, "err_dynamic_control_flow_not_supported")
def truth_of_a_value(x):
    c = nl.load(x[0, 0])
    if c:                                                   # here
        return


@case(errors.DynamicControlFlow, "err_dynamic_control_flow_not_supported")
def truth_of_a_comparison_of_values(x):
    c = nl.load(x[0, 0])
    while c < 3:                                            # here
        c += 1


@case(errors.DeviceValue, "NKI-DEVICE-VALUE", python=TypeError)
def value_as_a_python_number(x):
    c = nl.load(x[0, 0])
    return float(c)                                         # here


@case(errors.DeviceValue, "NKI-DEVICE-VALUE", python=TypeError)
def values_as_an_array(x):
    tile = nl.load(x)
    return np.asarray(tile)                                 # here


@case(errors.DeviceValue, "NKI-DEVICE-VALUE", python=TypeError)
def value_as_a_list_index(x):
    c = nl.load(x[0, 0])
    return [1, 2][c]                                        # here


@case(errors.ArangeInCondition, "err_control_flow_condition_depending_on_arange")
def condition_of_an_index_tensor(x):
    for j0 in nl.affine_range(4):
        if j0 * 512 + nl.arange(512)[None, :] > 2048:       # here
            return


@case(errors.ArangeInCondition, "err_control_flow_condition_depending_on_arange")
def truth_of_an_index_tensor(x):
    p, f = nl.mgrid[0:128, 0:512]
    return 1 if p else 2                                    # here


@case(errors.UnsupportedMask, "err_unsupported_expression_in_mask")
def mask_that_is_not_affine(x):
    p, f = nl.arange(128)[:, None], nl.arange(512)[None, :]
    nl.load(x[p, f], mask=(f % 4) < 2)                      # here


@case(errors.UnexpectedOutputDependencies, "err_unexpected_output_dependencies",
      "Unexpected output dependencies, missing indices in the dst access: i")
def iterations_that_write_one_place(x):
    a = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.int8, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        a[0] = 0                                            # here


@case(errors.UnexpectedOutputDependencies, "err_unexpected_output_dependencies", "missing indices in the dst access: j, i")
def nested_iterations_that_write_one_place(x):
    out = output()
    for i in nl.affine_range(4):
        for j in nl.affine_range(4):
            nl.store(out, nl.load(x))                       # here


@case(errors.UnexpectedOutputDependencies, "err_unexpected_output_dependencies")
def sum_that_is_no_accumulation(x):
    a, b = nl.zeros((128, 512), nl.float32), nl.load(x)
    for i in nl.affine_range(4):
        a[...] = nl.add(a, b)                               # here


@case(errors.UnexpectedOutputDependencies, "err_unexpected_output_dependencies", "program_id(0)",
      grid=2)
def programs_that_write_one_place(x):
    out = output()
    nl.store(out, nl.load(x) + nl.program_id(0))            # here
    return out


@pytest.mark.parametrize("function, error, name, text, options", CASES)
def test_documented_error(on, function, error, name, text, options):
    raises_documented(on, function, error, name, text, options)


# -- kernels that only look like mistakes ------------------------------------------------------------------------------
@nki.jit
def independent_by_condition(x):
    """One iteration alone writes."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    last, mask = nl.zeros((128, 512), nl.float32), nl.zeros((128, 512), nl.float32)
    for i in nl.affine_range(4):
        if i == 2:
            last[...] = nl.load(x) * (i + 1)
        mask[...] = nl.load(x, mask=i < 1)
    nl.store(out, last + mask)
    return out


@nki.jit
def independent_by_a_quotient(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[:, nl.ds((i % 2) * 256 + (i // 2) * 128, 128)],
                 nl.load(x[:, nl.ds((i % 2) * 256 + (i // 2) * 128, 128)]) * 4)
    return out


@nki.jit
def temporary_of_the_loop(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        tile = nl.ndarray((128, 128), nl.float32)
        tile[...] = nl.load(x[:, nl.ds(i * 128, 128)])
        for _ in nl.sequential_range(2):
            tile[...] = nl.add(tile, tile)
        nl.store(out[:, nl.ds(i * 128, 128)], tile)
    return out


@nki.jit
def several_accumulations(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), nl.float32)
    for i in nl.affine_range(4):
        total[...] += nl.load(x)
        total *= 1.0
        total -= 0.0
    nl.store(out, total)
    return out


@pytest.mark.parametrize("kernel, factor", [(independent_by_condition, 4), (independent_by_a_quotient, 4),
                                            (temporary_of_the_loop, 4), (several_accumulations, 4)],
                         ids=lambda k: getattr(k, "__name__", ""))
def test_independent_iterations(on, kernel, factor):
    np.testing.assert_array_equal(run(on, kernel, X), X * factor)
