# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each parameter takes: a value of another kind is an error at the kernel's line that says what is taken."""

import inspect
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from nki_mlir.capture.errors import UnsupportedMask, WrongIndexType
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.nisa.random import BadProbability
from nki_mlir.dialects.verifier import BrokenRule, WrongAttribute
from nki_mlir.language import framework_tensors, instructions, product_rules
from nki_mlir.language.beta import compiler as ncc
from nki_mlir.language.beta import isa as nisa
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.beta import typing as nt
from nki_mlir.language.beta.calls import BETA, BadCall, BadParameter
from nki_mlir.language.creation import NotAnInteger, UnknownDtype
from nki_mlir.language.framework_tensors import HostArray
from nki_mlir.language.signatures.kinds import KINDS
from nki_mlir.language.signatures.kinds import REFUSED as NOT_TAKEN
from nki_mlir.language.tensor import BadNewAxis

from .running import numbers, run

X = numbers(16, 8)
FUNCTIONS = {name: f for module in (nl, nisa) for name, f in vars(module).items()
             if inspect.isfunction(f) and hasattr(f, "record")}                 # of dropout and reciprocal, nisa's
CHECKED = [(name, p) for name, f in FUNCTIONS.items() for p in inspect.signature(f).parameters
           if (kind := f.record.kind(p)) is not None and kind.description]


def failing(body, *kinds):
    """The error of a body on a tile, which has its place in this file."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        body(nl.load(x))
        nl.store(out, 0)
        return out
    with pytest.raises(KernelError) as caught:
        run("eager", kernel, X)
    assert type(caught.value) in kinds, caught.value
    assert caught.value.at is not None and caught.value.at.file == __file__
    return caught.value


def test_every_parameter_with_a_kind_is_checked():
    assert len(CHECKED) > 250
    for name, parameter in CHECKED:
        error = failing(lambda t, n=name, p=parameter: called_with(n, p, object()), BadParameter, UnknownDtype, NotAnInteger)
        if type(error) is BadParameter:
            assert error.values["function"] == name and error.values["parameter"] == parameter


def called_with(name, parameter, value):
    """The function with its required parameters, and this one first, so that it is the one that is refused."""
    required = [n for n, p in inspect.signature(FUNCTIONS[name]).parameters.items() if p.default is p.empty]
    return FUNCTIONS[name](**{parameter: value} | {n: value for n in required if n != parameter})


ENUMERATIONS = {"engine": (nisa.engine, "tensor_copy"), "reduce_cmd": (nisa.reduce_cmd, "activation"),
                "oob_mode": (nisa.oob_mode, "dma_copy"), "dge_mode": (nisa.dge_mode, "dma_transpose")}


@pytest.mark.parametrize("parameter", ENUMERATIONS)
def test_enumerations(parameter):
    members, function = ENUMERATIONS[parameter]
    take = KINDS[parameter].make(BETA.values)
    assert all(take(m) is m and take(m.name) is m and take(m.value) is m and take(np.int32(m.value)) is m for m in members)
    assert take(99) is take(True) is take("fastest") is NOT_TAKEN
    error = failing(lambda t: called_with(function, parameter, "fastest"), BadParameter)
    for m in members:
        assert f"nisa.{parameter}.{m.name}" in str(error)


T = np.float32
REFUSED = {
    "axis: float": (lambda t: nl.sum(t, axis=1.0), BadParameter),
    "axis: None": (lambda t: nl.max(t, axis=None), BadParameter),
    "axis: floats": (lambda t: nisa.tensor_reduce(np.add, t, [1, 2.0]), BadParameter),
    "keepdims: text": (lambda t: nl.mean(t, 1, keepdims="no"), BadParameter),
    "an array for a tile": (lambda t: nisa.tensor_copy(X), HostArray),
    "an array for a scalar": (lambda t: nisa.tensor_scalar(t, np.add, X), HostArray),
    "None for a tile": (lambda t: nisa.select_reduce(dst=t, predicate=None, on_true=t, on_false=0.0), BadParameter),
    "a dtype that is none": (lambda t: nl.exp(t, dtype="float99"), UnknownDtype),
    "a tile for a dtype": (lambda t: nl.exp(t, dtype=t), BadParameter),
    "an array for a dtype": (lambda t: nl.copy(t, dtype=X), BadParameter),
    "shape: quotient": (lambda t: nl.zeros((32 / 2, 8), T), NotAnInteger),
    "shape of a view": (lambda t: t.reshape((16, 4.0, 2)), NotAnInteger),
    "par_dim": (lambda t: nl.par_dim(1.5), NotAnInteger),
    "nc": (lambda t: nl.nc(1.5), NotAnInteger),
    "spmd_dim": (lambda t: nl.spmd_dim("a", 2), NotAnInteger),
    "loop": (lambda t: nl.affine_range(4 / 2), NotAnInteger),
    "loop without bounds": (lambda t: nl.sequential_range(), nl.BadRange),
    "arange": (lambda t: nl.arange(4.0), WrongIndexType),
    "multi_buffer": (lambda t: ncc.multi_buffer(0), NotAnInteger),
    "mod_alloc": (lambda t: ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(0,)), BadParameter),
    "alloc": (lambda t: ncc.sbuf.alloc(3), BadParameter),
    "buffer": (lambda t: nl.ndarray((16, 8), T, buffer=["sbuf"]), nl.UnknownBuffer),
    "expand_dims": (lambda t: nl.expand_dims(t, 7), BadNewAxis),
    "scalar": (lambda t: nt.scalar(t), nt.BadScalar), "scalar of a row": (lambda t: nt.scalar(t[0:1, :]), nt.BadScalar),
    "scalar of a column": (lambda t: nt.scalar(t[:, 0:1]), nt.BadScalar),
    "a missing argument": (lambda t: nl.add(t), BadCall),
    "too many arguments": (lambda t: nl.exp(t, None, None, t), BadCall),
    "a tile where release 2.20 has the dtype": (lambda t: nl.exp(t, t), BadParameter),
    "bits of a fraction": (lambda t: nl.bitwise_and(nl.copy(t, dtype=nl.int32), 1.5), BrokenRule),
    "bits of a fraction, nisa": (lambda t: nisa.tensor_scalar(nl.copy(t, dtype=nl.int32), np.bitwise_and, 1.5), BrokenRule),
    "operand1 without op1": (lambda t: nisa.tensor_scalar(t, np.add, 1.0, operand1=2.0), instructions.UnpairedOperand),
    "op1 without operand1": (lambda t: nisa.tensor_scalar(t, np.add, 1.0, op1=np.add), instructions.UnpairedOperand),
    "probability": (lambda t: nl.dropout(t, 1.5), BadProbability),
    "seed": (lambda t: nl.random_seed(1.5), BadParameter),
    "engine of a transpose": (lambda t: nisa.nc_transpose(t, engine=nisa.gpsimd_engine), WrongAttribute),
    "tile_position alone": (lambda t: nisa.nc_matmul(t, t, tile_position=(0, 0)), product_rules.BadPosition),
    "tile_size": (lambda t: nisa.nc_matmul(t, t, tile_position=(0, 0), tile_size=(48, 64)), product_rules.BadPosition),
    "tile_position": (lambda t: nisa.nc_matmul(t, t, tile_position=(32, 0), tile_size=(64, 64)), product_rules.BadPosition),
    "dtype of a destination": (lambda t: nisa.select_reduce(
        dst=t, predicate=nl.ones((16, 8), nl.uint8), on_true=t, on_false=0.0, dtype=nl.bfloat16),
        instructions.DestinationDtype),
    "a mask without the first places": (lambda t: nisa.nc_find_index8(
        data=t[nl.arange(16)[:, None], nl.arange(8)[None, :]], vals=t, mask=nl.arange(8)[None, :] > 1), UnsupportedMask),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    failing(*REFUSED[what])


def test_the_form_of_a_call_is_shown():
    assert "add(x, y, dtype=None, mask=None)" in str(failing(lambda t: nl.add(t), BadCall))
    assert "keepdims is 'no'; it takes True or False" in str(failing(*REFUSED["keepdims: text"]))


def test_one_buffer_is_a_factor_of_multi_buffer():
    assert [ncc.multi_buffer(factor).factor for factor in (1, 2, 5)] == [1, 2, 5]


def test_tensors_of_frameworks__are_instances_of_the_classes_of_those_that_are_imported(monkeypatch):
    class Tensor:
        pass
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor))
    assert framework_tensors.is_framework_tensor(Tensor())
    assert not framework_tensors.is_framework_tensor(np.zeros(2)) and not framework_tensors.is_framework_tensor(Tensor)
