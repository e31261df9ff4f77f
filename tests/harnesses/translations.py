# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Translations of modules of PyTorch, checked against them: right, wrong, and one that does not compile, with its text."""

import json
import time

import nki
import nki.isa as nisa
import nki.language as nl
import torch

SOURCE = """
@nki.jit
def nki_kernel(x, weight):
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scale = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
    tile = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=scale, src=weight.broadcast_to((rows, columns)))
    nisa.tensor_tensor(dst=tile, data1=tile, data2=scale, op=nl.OPERATION)
    nisa.activation(dst=tile, data=tile, op=nl.relu)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 64).reshape(1, 64))

    def forward(self, x):
        return torch.relu(x * self.weight)


def evaluate(source, model, inputs):
    names = {"nki": nki, "nl": nl, "nisa": nisa}
    result = {"compiled": False, "correct": False, "error": "", "seconds": None}
    try:
        exec(source, names)
        kernel = next(v for v in list(names.values()) if isinstance(v, nki.Kernel))
        began = time.perf_counter()
        got = kernel(*inputs, model.weight.detach())
        result |= {"compiled": True, "seconds": time.perf_counter() - began}
        with torch.no_grad():
            result["correct"] = torch.allclose(got, model(*inputs), rtol=1e-4, atol=1e-4)
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
    return result


torch.manual_seed(0)
model, inputs = Model(), [torch.randn(128, 64)]
right, wrong, broken = (evaluate(SOURCE.replace("OPERATION", name), model, inputs) for name in ("multiply", "add", "no_such"))
assert right["correct"] and wrong["compiled"] and not wrong["correct"] and not broken["compiled"], (right, wrong, broken)
assert "no_such" in broken["error"]
print(json.dumps({"fast_1": sum(r["correct"] for r in (right, wrong, broken)) / 3}))
print("all translations judged")
