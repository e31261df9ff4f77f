# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""An autotuner: compiles undecorated functions in child processes, runs them by an executor with a trace, and reads figures from it."""

import dataclasses
import json
import os
import subprocess
import tempfile
from concurrent.futures import ProcessPoolExecutor

import nki.isa as nisa
import nki.language as nl
import numpy as np
from nki.compiler.driver import CompileOptions, compile_bir_to_neff, compile_to_bir
from nki.compiler.frontend import TracerFrontend
from nki.compiler.ncc_driver import extract_perf_metrics
from nki.framework.kernel import Kernel
from nkipy.core.backend.hlo import HLOModule, HLOTensor
from nkipy.runtime import BaremetalExecutor, CompiledKernel


def scaled(x, columns):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for c in range(0, x.shape[1], columns):
        tile = nl.ndarray((x.shape[0], columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, c:c + columns])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[:, c:c + columns], src=tile)
    return out


SHAPE = (128, 64)


def compiled(columns):
    """The file of one choice."""
    folder = tempfile.mkdtemp()
    kernel = Kernel(scaled)
    options = CompileOptions(target="trn2", lnc=1, output_path=os.path.join(folder, "file.neff"), artifacts_dir=folder)
    options = options.set_pipeline_options("enable-instruction-scheduling=true")
    bir, described = compile_to_bir(kernel, frontend=TracerFrontend(), compile_opts=options, output_names=["hbm_tensor_0"],
                                    inputs={"x": np.zeros(SHAPE, np.float32), "columns": columns})
    names = [spec.name for spec in described.input_specs]
    compile_bir_to_neff(options, bir, [np.zeros(spec.shape, spec.dtype) for spec in described.input_specs], names,
                        [spec.name for spec in described.output_specs])
    assert names == ["x"] and not os.path.exists(os.path.join(folder, "log-neuron-cc.txt"))
    return os.path.join(folder, "file.neff")


@dataclasses.dataclass
class Traced:
    _code: HLOModule


if __name__ == "__main__":
    listed = subprocess.run(["neuron-ls", "--json-output"], capture_output=True, text=True, timeout=10, check=True)
    assert sum(device["nc_count"] for device in json.loads(listed.stdout)) > 0
    with ProcessPoolExecutor(2) as pool:
        files = dict(zip((8, 64), pool.map(compiled, (8, 64))))
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    module = HLOModule(name="scaled")
    module.add_parameter(SHAPE, np.float32, name="x")
    module.set_results([HLOTensor(shape=SHAPE, dtype=np.float32, name="hbm_tensor_0")])
    times = {}
    for columns, file in files.items():
        os.chdir(tempfile.mkdtemp())
        work = os.path.abspath("artifacts")         # the run creates it
        with BaremetalExecutor(verbose=0) as executor:
            result = executor.run(CompiledKernel(Traced(module), file), x, save_trace=True, artifacts_dir=work)
        assert np.array_equal(result, x * 2)
        figures = extract_perf_metrics(file, os.path.join(work, "profile.ntff"))
        assert figures["mfu_estimated_percent"] >= 0 and "mbu_estimated_percent" in figures
        times[columns] = figures["total_time"]
    assert times[64] < times[8]
    print("best:", min(times, key=times.get))
