# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A back end of an array library: kernels that it writes as text, simulated, or compiled and run on tensors of a core."""

import os
import tempfile

import numpy as np

SOURCE = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def r_128_32(data0, data1):
    out = nl.ndarray(data0.shape, dtype=data0.dtype, buffer=nl.shared_hbm)
    a, b = (nl.ndarray(data0.shape, dtype=data0.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=a, src=data0)
    nisa.dma_copy(dst=b, src=data1)
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.maximum)
    nisa.dma_copy(dst=out, src=a)
    return out
"""


class Program:
    """One compiled kernel; with ``core`` it is compiled to a file and loaded there."""

    def __init__(self, name, source, core=None):
        names = {"__name__": "generated"}
        exec(source, names)                     # there is no file of it
        self.kernel, self.core = names[name], core

    def __call__(self, *buffers):
        if self.core is None:
            import nki
            return nki.simulate(self.kernel)(*buffers)
        from nki.compiler.ncc_driver import CompiledKernel, CompileOptions, compile_bir_to_neff
        from nki.framework.compiled import StandaloneKernel, compile_to_bir
        from nki.runtime import SpikeModel, SpikeTensor
        folder = tempfile.mkdtemp()
        standalone = self.kernel._to_subclass(StandaloneKernel)
        names = [f"data{k}" for k in range(len(buffers))]
        options = CompileOptions(target="trn2", lnc=1, artifacts_dir=folder, output_path=os.path.join(folder, "k.neff"))
        bir = compile_to_bir(standalone, inputs=dict(zip(names, buffers)), compile_opts=options, enable_cache=False,
                             frontend=standalone._frontend_cls(enable_backend_opt=standalone._enable_backend_opt))
        neff = compile_bir_to_neff(options, bir, list(buffers), names, [s.name for s in bir.output_specs])
        compiled = CompiledKernel(neff_path=neff.neff_path, target="trn2", lnc=1, artifacts_dir=folder, bir=None)
        assert [s.name for s in compiled.input_specs] == names and os.path.getsize(compiled.neff_path) > 0
        model = SpikeModel.load_from_neff(compiled.neff_path, core_id=self.core)
        tensors = {n: SpikeTensor.from_numpy(b, name=n, core_id=self.core) for n, b in zip(names, buffers)}
        outputs = {t.name: t for t in model.allocate_output_tensors()}
        assert model(inputs=tensors, outputs=outputs) is None
        again = compiled.run(**dict(zip(names, buffers)))
        assert np.array_equal(*again.outputs.values(), next(iter(outputs.values())).numpy()) and again.latency is None
        timed = compiled.benchmark(warmup=1, iterations=3, **dict(zip(names, buffers)))
        assert timed.latency > 0 and timed.benchmark_iterations == 3 and timed.latency_std == 0
        return next(iter(outputs.values())).numpy()


a, b = (np.random.default_rng(k).standard_normal((128, 32)).astype(np.float32) for k in range(2))
for core in (None, 1):
    assert np.array_equal(Program("r_128_32", SOURCE, core)(a, b), np.maximum(a, b))
print("all ops passed")
