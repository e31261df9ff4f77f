# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules and names that public code imports and no list of signatures has."""

import subprocess
import sys

import numpy as np
import pytest

from nki_mlir.compat import Stub, VendorOnly
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current import nki
from nki_mlir.language.current.errors import NkiIndexError, NkiValidationError

IMPORTS = """
from neuronxcc.nki.language import par_dim, range, unique_name, nc, tile_size
from neuronxcc.nki import trace, jit, baremetal, benchmark, profile, simulate_kernel, tensor
from neuronxcc.nki.typing import tensor, mutable_tensor, mutable
import neuronxcc.nki.kernels, neuronxcc.nki.nccl
from neuronxcc.nki.kernels.attention import flash_fwd, flash_attn_bwd
from neuronxcc.nki._private_kernels.mlp import mlp_isa_kernel
from neuronxcc.nki._private.private_api import sendrecv
from neuronxcc.nki._pre_prod_kernels import ActFnType, NormType
import neuronxcc.nki._pre_prod_kernels.attention_token_gen as token_gen
from neuronxcc.nki.compiler import force_auto_alloc, skip_middle_end_transformations, enable_stack_allocator
from neuronxcc.nki.compiler.backends.neuron.dimensions import CCPipeline
from neuronxcc.nki.isa.constants import oob_mode, dge_mode, engine
from neuronxcc.nki.isa.neuron_isa import oob_mode
from neuronxcc.starfish.penguin.targets.nki.TileKernel import GenericKernel
from neuronxcc.starfish.support.dtype import bfloat16
import nki.dtype
from nki.dtype import bfloat16, float8_e4m3
from nki.typing import tensor, mutable_tensor, mutable
from nki.isa.constants import oob_mode, dge_mode, matmul_perf_mode, engine
from nki.isa import dge_mode, engine, sendrecv, matmul_perf_mode
from nki.language import NKIObject, affine_range, arange, mgrid, nc, spmd_dim, par_dim, range, unique_name, fp32
from nki.meta import tensor
from nki import simulate, cpu_simulate, jit, tensor, trace
from nki.compiler import enable_stack_allocator, skip_middle_end_transformations
from nki.compiler.kernel_builder import compile_kernel
from nki.compiler.frontend import NKIFrontend
from nki.compiler.ncc_driver import CompileOptions, CompiledKernel
from neuronxcc.nki.language.iterators import sync_program
from nki.experimental import while_loop
import nki.kernels, nki._private_kernels.attention
from torch_neuronx import nki_jit
from torch_neuronx.nki_hop import wrap_nki
"""


def test_import_forms():
    """In its own process: the modules are those of the vendor's names."""
    pytest.importorskip("torch")
    lines = "".join(f"exec({line!r}, {{}})\n" for line in IMPORTS.strip().splitlines())
    script = "import nki_mlir.compat\nnki_mlir.compat.install()\n" + lines
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_vendors_kernels_are_names_until_they_are_called():
    script = """
import nki_mlir.compat
nki_mlir.compat.install()
import neuronxcc.nki as nki
from neuronxcc.nki._pre_prod_kernels import NormType
from neuronxcc.nki._private_kernels.mlp import mlp_isa_kernel
from neuronxcc.starfish.penguin.targets.nki.TileKernel import GenericKernel
class Mine(GenericKernel):
    pass
kernel = nki.jit(mlp_isa_kernel)
print(Mine().__class__.__name__, repr(NormType.RMS_NORM), mlp_isa_kernel[2].__name__)
for call in (lambda: mlp_isa_kernel[2](1), lambda: kernel()):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, error.headline)
nki_mlir.compat.uninstall()
import sys
print([n for n in sys.modules if n.startswith("neuronxcc")])
try:
    import neuronxcc.nki._private_kernels
except ImportError:
    print("gone")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    error = ("VendorOnly neuronxcc.nki._private_kernels.mlp.mlp_isa_kernel is private to the vendor, and this toolchain "
             "does not have it")
    assert done.stdout.splitlines() == [
        "Mine <neuronxcc.nki._pre_prod_kernels.NormType.RMS_NORM, which is the vendor's> mlp_isa_kernel",
        error, error, "[]", "gone"], done.stderr


def test_text_of_the_error():
    with pytest.raises(VendorOnly) as raised:
        Stub("neuronxcc.nki.kernels.attention.flash_fwd")()
    assert str(raised.value).splitlines()[-2:] == [
        "  why: the vendor does not document its private modules and kernels",
        "  fix: call a kernel whose source you have, with nki.jit"]


# -- index vectors in the current generation ---------------------------------------------------------------------------
X = (np.random.default_rng(0).permutation(16 * 32) % 101).astype(np.float32).reshape(16, 32)


def test_index_vectors(on):
    @nki.jit
    def kernel(x):
        i_p, i_f = nl.arange(16)[:, None], nl.arange(8)[None, :]
        tile = nl.load(x[i_p, 2 * i_f + 1])
        mesh = nl.mgrid[0:16, 0:8]
        rows_of_x = nl.load(x)
        summed = nl.ndarray((16, 8), x.dtype)
        nisa.tensor_tensor(summed[i_p, i_f], tile[mesh.p, mesh.x], rows_of_x[mesh.p, 31 - 3 * mesh.x], op=nl.add)
        rows = nl.ndarray((4, 4, 8), x.dtype)
        p, a, f = nl.arange(4)[:, None, None], nl.arange(4)[None, :, None], nl.arange(8)[None, None, :]
        nisa.dma_copy(rows, x[4 * p + a, f])
        return summed, rows
    summed, rows = kernel.on(on)(X)
    np.testing.assert_array_equal(summed, X[:, 1:16:2] + X[:, 31 - 3 * np.arange(8)])
    np.testing.assert_array_equal(rows, X[:, :8].reshape(4, 4, 8))


@pytest.mark.parametrize("use, error, text", [
    (lambda t: t[nl.arange(17)[:, None], nl.arange(8)[None, :]], NkiIndexError, "indices 0 to 16 of dimension 0"),
    (lambda t: t[nl.arange(16)[:, None], nl.arange(8)[None, :] - 1], NkiIndexError, "indices -1 to 6 of dimension 1"),
    (lambda t: t[nl.arange(16)[:, None], 0:8], NkiValidationError, "mixes slices with index tensors"),
    (lambda t: t[nl.arange(16), nl.arange(16)], NkiValidationError, "index tensor of one dimension"),
    (lambda t: t[nl.arange(16)[None, :], nl.arange(16)[None, :]], NkiValidationError, "is the partition's"),
    (lambda t: t[nl.arange(16)[:, None], nl.arange(16)[:, None]], NkiValidationError, "varies along the partition"),
])
def test_index_vectors_that_describe_no_view(on, use, error, text):
    @nki.jit
    def kernel(x):
        return nl.copy(use(nl.load(x)))
    with pytest.raises(error, match=text):
        kernel.on(on)(X)
