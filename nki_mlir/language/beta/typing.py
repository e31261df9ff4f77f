# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.typing`` (``nt``): annotations."""


from nki_mlir.capture.tensor import View
from nki_mlir.diagnostics import KernelError
from nki_mlir.language.arguments import Described
from nki_mlir.language.beta.calls import shown
from nki_mlir.language.loops import Unconditional


class tensor(Described):
    """An annotation: of a variable, the shape its value must have; of a parameter, what its argument is.

    Example:
        @nki.jit
        def doubled(x: tensor[[4, 8], nl.float32]):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            tile: tensor[4, 8] = nl.load(x)
            nl.store(out, tile * 2)
            return out
        assert np.array_equal(doubled(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
    """

    def __class_getitem__(cls, dims: object) -> "tensor":
        annotation, dims = cls(), dims if isinstance(dims, tuple) else (dims,)
        if isinstance(dims[0], (tuple, list)):
            annotation.annotated_dtype = dims[1] if len(dims) > 1 else None
            dims = tuple(dims[0])
        annotation.annotated_shape = dims
        return annotation


class mutable_tensor:
    """An annotation of a parameter, also called ``mutable``: the kernel may update it in place.

    Example:
        @nki.jit
        def double_in_place(x: mutable_tensor):
            nl.store(x, nl.load(x) * 2)
            return x
        assert np.array_equal(double_in_place(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
    """


mutable = mutable_tensor


class TileIndex:
    """An annotation of a parameter of a helper: the index of a tile.

    Example:
        def helper(x, at: TileIndex):
            return x[at]
        assert helper([1, 2], 1) == 2
    """


class BadScalar(KernelError, TypeError):
    code = "NKI-SCALAR"
    message = "nt.scalar is given {found}; it takes True, or a tile of one element"
    fix = "set the condition to scalar(True) before the loop, and to scalar(tile) at the end of its body"


def scalar(value: object) -> object:
    """Return a run-time scalar of a [1, 1] tile, as the condition of a device loop.

    Arguments:
        value: a [1, 1] tile; True, before the loop, for its first condition

    Result:
        A condition for ``while``.

    Errors:
        A tile of several elements, and any other value, are errors.

    Example:
        @nki.jit
        def counted(x):
            out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
            left, rounds = nl.load(x), nl.zeros((1, 1), dtype=nl.int32)
            goes_on = scalar(True)
            while goes_on:
                rounds[...] = nl.add(rounds, 1)
                left[...] = nl.subtract(left, 1)
                goes_on = scalar(left)
            nl.store(out, rounds)
            return out
        assert counted(np.array([[3]], np.int32))[0, 0] == 3
    """
    if value is True:
        return Unconditional()
    if not isinstance(value, View) or any(n != 1 for n in value.shape):
        raise BadScalar(found=shown(value)).here()
    return value


__all__ = ["TileIndex", "mutable", "mutable_tensor", "scalar", "tensor"]
