# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The example of each name of the beta generation migrates whole, and the new kernel gives the old one's values.

The examples are those of ``help()``; ``make fuzz`` runs them.
"""

import warnings

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.language.signatures.table import BETA
from nki_mlir.migration.files import migrated

from ..language import surface_beta
from ..language.example_kernels import example_of
from .test_migration import as_kernel, bound_keywords, copied, flat, loaded

EXECUTORS = ("eager", "interpreter", "jit", "isa")
HEAD = """import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def example({parameters}):
    {body}


launched = example{launch}
"""
LEFT = {"all_reduce": "nl.all_reduce", "range_select": "on_false_value"}        # docs/migration.md
SUMS = {"tensor_scalar_reduce"}         # which native code adds in another order


@pytest.mark.share(8)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("module, name", [(f"nki.{m}", n) for m in ("language", "isa")
                                          for n in surface_beta.MODULES[m]])
def test_example_of_a_name_migrates(module, name, tmp_path, monkeypatch):
    install()
    example = example_of(module, name, BETA)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", example.target)
    # Other than in beta, the queue of DMA transfers is not the sync engine.
    lines = [line for line in "\n".join(example.body()).splitlines() if line != "assert nisa.dma_engine is nisa.engine.sync"]
    file = tmp_path / f"old_{name}.py"
    file.write_text(HEAD.format(parameters=", ".join(f"{tile}_in" for tile in example.inputs),
                                body="\n    ".join(lines),
                                launch=f"[{example.grid}]" if example.grid else ""))
    result, = migrated(file, "2.32")
    if name in LEFT:
        assert LEFT[name] in str(result.report) and not result.report.is_complete
        return
    assert result.report.is_complete, result.report
    new = tmp_path / f"new_{name}.py"
    new.write_text(result.new)
    old_kernel, new_kernel = loaded(file, file.stem).launched, loaded(new, new.stem).launched
    for on in EXECUTORS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = flat(old_kernel.run(copied(example.arrays), {}, on))
            got = flat(as_kernel(new_kernel).run(copied(example.arrays), bound_keywords(new_kernel), on))
        assert len(got) == len(wanted)
        for one, other in zip(map(np.asarray, got), map(np.asarray, wanted)):
            assert one.shape == other.shape and one.dtype == other.dtype, f"{on}\n{result.new}"
            np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=3e-7,
                                       atol=1e-5 * (on == "jit" and name in SUMS), err_msg=f"{on}\n{result.new}")
