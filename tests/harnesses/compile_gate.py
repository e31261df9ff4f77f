# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A serving engine: kernels compiled from shapes alone, retried with another frontend, called by a framework's program."""

import base64
import dataclasses
import json
import os
import tempfile

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
from nki._version import __version__
from nki.compiler.frontend import NKIFrontend, ParserFrontend, TracerFrontend, resolve_frontend_cls
from nki.compiler.ncc_driver import CompileOptions, FrameworkConfig, KernelDescriptor, NirResult
from nki.compiler.target import resolve_target
from nki.dtype import float8_e4m3
from nki.framework.compiled import CompileKernel, compile_kernel_to_nir
from nki.framework.kernel import Kernel
from nki.language.buffers import shared_hbm
from nki.language.tensor import NkiTensor

assert __version__ == nki.__version__ and __version__.startswith("0.6.") and float8_e4m3 is not None


@nki.jit
def append(cache, x):
    """Adds x to the cache in place, and returns the cache and twice the sum."""
    rows, columns = x.shape
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    old, new = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=old, src=cache)
    nisa.dma_copy(dst=new, src=x)
    nisa.tensor_tensor(dst=old, data1=old, data2=new, op=nl.add)
    nisa.dma_copy(dst=cache, src=old)
    nisa.tensor_scalar(dst=new, data=old, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=total, src=new)
    return cache, total


@dataclasses.dataclass(frozen=True)
class Traced(CompileKernel):
    """Does what an array framework does: adds fields, and hooks."""

    platform_name: str = "neuron"

    def __post_init__(self):
        super().__post_init__()
        assert self.platform_name

    def _make_trace_cache(self, inputs, compile_opts):
        observed.append(sorted(inputs))
        return super()._make_trace_cache(inputs, compile_opts)

    def _compile_opts(self):
        return dataclasses.replace(super()._compile_opts(), emit_predicted_latency=True)


observed, shape = [], (128, 64)
raw = getattr(append, "func", append)
assert isinstance(append, Kernel) and append.lnc == 1 and append[2].lnc == 2 and append.__doc__.startswith("Adds")
assert {"func", "lnc"} <= {f.name for f in dataclasses.fields(append)} and dataclasses.replace(append, lnc=2).lnc == 2
assert Kernel(raw).func is raw and append.enable_address_rotation().disable_core_barrier_checker().func is raw
assert resolve_target(append, None) in ("trn1", "trn2", "trn3") and issubclass(resolve_frontend_cls(append), NKIFrontend)

inputs = {name: NkiTensor(name=name, shape=shape, dtype=nl.float32, buffer=shared_hbm) for name in ("cache", "x")}
kernel = CompileKernel(func=raw, lnc=1, target="trn2")
for frontend in (ParserFrontend(enable_backend_opt=False), TracerFrontend()):
    try:
        nir = kernel._cached_compile_to_bir(frontend=frontend, inputs=inputs, compile_opts=kernel._compile_opts())
    except RuntimeError as error:
        assert "inner function definitions" in str(error)
        continue
    break
assert isinstance(nir, NirResult) and raw._nki_compile_cache
config = nir.build_config()
assert isinstance(config, FrameworkConfig) and not config.has_collectives
assert json.loads(base64.b64decode(config.backend_config_b64.decode("ascii")))["func_name"] == "append"
assert [tuple(s.shape) for s in config.output_specs] == [shape, shape] and config.operand_output_aliases == {0: 0}
assert isinstance(nir.descriptor, KernelDescriptor) and [s.name for s in nir.descriptor.input_specs] == ["cache", "x"]
assert nir.is_tuple_return and not nir.none_positions and nir.total_time_ns is None and nir.frontend_time >= 0

traced = Traced(raw, lnc=1, target="trn2")
config, key = traced.compile(np.zeros(shape, np.float32), x=np.zeros(shape, np.float32))
assert config.operand_output_aliases == {0: 0} and key == traced.get_cache_key(*[np.zeros(shape, np.float32)] * 2)
assert observed == [["cache", "x"]] * 2 and hash(traced) == hash(dataclasses.replace(traced))
options = CompileOptions(target="trn2", lnc=1, artifacts_dir=tempfile.mkdtemp(), emit_predicted_latency=True)
assert compile_kernel_to_nir(raw, inputs=inputs, compile_opts=options).total_time_ns > 0
for wrong in ({"target": "trn9"}, {"lnc": 3}):
    try:
        CompileOptions(**wrong)
    except ValueError:
        continue
    raise SystemExit(f"{wrong} was taken")
os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = "trn3"
assert resolve_target(append, None) == "trn3"
print("all kernels compiled")
