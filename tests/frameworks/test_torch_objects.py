# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Objects with a kernel's options as arguments in torch.compile and torch.export."""

from dataclasses import dataclass
from enum import Enum

import pytest

torch = pytest.importorskip("torch")

from nki_mlir.language.current import isa as nisa  # noqa: E402
from nki_mlir.language.current import language as nl  # noqa: E402
from nki_mlir.language.current import nki  # noqa: E402

pytestmark = pytest.mark.torch

X = torch.arange(20.0).reshape(4, 5)


class Sign(Enum):
    KEPT = 1.0
    CHANGED = -1.0


@dataclass
class Options(nl.NKIObject):
    scale: float
    sign: Sign = Sign.KEPT


@dataclass(frozen=True)
class Frozen(nl.NKIObject):
    scale: float
    sign: Sign = Sign.KEPT


@dataclass
class Plain:
    scale: float
    sign: Sign = Sign.KEPT


class Constructed(nl.NKIObject):
    def __init__(self, scale, sign=Sign.KEPT):
        self.scale, self.sign = scale, sign


class Declared(nl.NKIObject):
    scale: float
    sign: Sign = Sign.KEPT


CLASSES = (Options, Frozen, Plain, Constructed, Declared)


@nki.jit
def scaled(x, options, more=()):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for one in (options, *more):
        nisa.tensor_scalar(tile, tile, nl.multiply, one.scale * one.sign.value)
    nl.store(out, tile)
    return out


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.mark.share(4)
@pytest.mark.parametrize("cls", CLASSES)
def test_options_from_outside_and_inside_of_the_graph(cls):
    options = cls(2.0, Sign.CHANGED)
    outside = torch.compile(lambda x: scaled(x, options), backend="eager", fullgraph=True)
    torch.testing.assert_close(outside(X), X * -2)
    inside = torch.compile(lambda x: scaled(x, cls(3.0), more=[options, options]), backend="eager", fullgraph=True)
    torch.testing.assert_close(inside(X), X * 12)


@pytest.mark.share(3)
@pytest.mark.parametrize("cls", [c for c in CLASSES if c is not Frozen])
def test_changed_options_compile_again(cls):
    options = cls(2.0)
    compiled = torch.compile(lambda x: scaled(x, options), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X), X * 2)
    options.scale = 5.0
    torch.testing.assert_close(compiled(X), X * 5)
    options.sign = Sign.CHANGED
    torch.testing.assert_close(compiled(X), X * -5)


@pytest.mark.parametrize("strict", [True, False])
def test_export_with_options(strict):
    class Module(torch.nn.Module):
        def forward(self, x):
            return scaled(x, Options(2.0), more=(Frozen(0.5, Sign.CHANGED),))
    program = torch.export.export(Module(), (X,), strict=strict)
    torch.testing.assert_close(program.module()(X), -X)
