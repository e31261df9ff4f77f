# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The device ``neuron`` of PyTorch, in child processes: a process cannot unregister it."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from nki_mlir.frameworks import torch_device  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.skipif(not torch_device.available(), reason="torch has no such backends")]

START = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
import torch
from nki_mlir.frameworks.torch_device import install
install()
install()                           # twice changes nothing
from frameworks import kernels
A = torch.arange(512.0).reshape(32, 16)
a, b = A.to("neuron"), torch.ones(32, 16, device="neuron")
"""


def test_tensors(child):
    assert child(START + """
assert a.device == b.device == torch.device("neuron:0") and not a.is_cpu and a.cpu().is_cpu
assert torch.equal((a * 2 + b).cpu(), A * 2 + 1) and (a + b).device.type == "neuron"
for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8, torch.bool):
    ones = torch.ones(2, 3, dtype=dtype)
    assert ones.to("neuron").dtype == torch.empty(2, dtype=dtype, device="neuron").dtype == dtype
    assert ones.to("neuron").cpu().dtype == dtype and ones.to("neuron").T.stride() == (1, 3)
assert a.sum().item() == A.sum().item() and a[0].tolist() == A[0].tolist()
assert repr(torch.ones(2).to("neuron")) == "tensor([1., 1.], device='neuron:0')"
x = a.clone()
assert x.add_(1) is x and torch.equal(x.cpu(), A + 1)
x[:2] = 0
assert torch.equal(x.cpu(), torch.cat([torch.zeros(2, 16), A[2:] + 1]))
assert torch.zeros_like(a).device.type == "neuron" and torch.tensor([1.0], device="neuron").tolist() == [1.0]
try:
    a.numpy()
except TypeError as error:
    assert "use Tensor.cpu() first" in str(error)
torch.neuron.synchronize()
torch.manual_seed(0)
assert torch.neuron.device_count() == 1
print("done")
""") == "done\n"


def test_training(child):
    assert child(START + """
torch.manual_seed(0)
model = torch.nn.Linear(16, 4)
twin = torch.nn.Linear(16, 4)
twin.load_state_dict(model.state_dict())
model = model.to("neuron")
for net, x in ((model, a / 512), (twin, A / 512)):
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        net(x).pow(2).sum().backward()
        optimizer.step()
assert {p.device.type for p in model.parameters()} == {"neuron"}
for p, q in zip(model.parameters(), twin.parameters()):
    torch.testing.assert_close(p.detach().cpu(), q.detach())

import copy, io, pickle
def saved_and_loaded(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)
checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "view": a.t()[1:, ::2]}
for options in {}, {"weights_only": False}, {"map_location": "neuron"}:
    loaded = saved_and_loaded(checkpoint, **options)
    assert {t.device.type for t in (*loaded["model"].values(), loaded["view"])} == {"neuron"}
    assert torch.equal(loaded["view"].cpu(), A.t()[1:, ::2])
loaded = saved_and_loaded(checkpoint, map_location="cpu")
assert {type(t) for t in (*loaded["model"].values(), loaded["view"])} == {torch.Tensor}
assert torch.equal(loaded["model"]["weight"], model.weight.detach().cpu())
for again in saved_and_loaded(model, weights_only=False), pickle.loads(pickle.dumps(model)), copy.deepcopy(model):
    assert type(again.weight) is type(model.weight) and again.weight.requires_grad and len(list(again.parameters())) == 2
    assert torch.equal(again(a).cpu(), model(a).cpu())
twin.load_state_dict(saved_and_loaded(model, weights_only=False, map_location="cpu").state_dict())
model.load_state_dict(saved_and_loaded(twin.state_dict(), map_location="neuron"))
print("done")
""") == "done\n"


def test_kernels(child):
    assert child(START + """
from nki_mlir.frameworks.torch_neuronx import nki_jit
for _ in range(2):
    got = kernels.add[2](a, b)
    assert got.device.type == "neuron" and torch.equal(got.cpu(), A + 1)
table = a.clone()
assert kernels.add_rows(table, b[:8]) is table and torch.equal(table.cpu(), torch.cat([A[:8] + 1, A[8:]]))
out = torch.zeros(32, 16, device="neuron")
nki_jit(kernels.add_into)(a, b, out)
assert torch.equal(out.cpu(), A + 1)

class Added(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return kernels.add[2](x, y)
    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient
x = A.to("neuron").requires_grad_()
(Added.apply(x, b) * x).sum().backward()
assert x.grad.device.type == "neuron" and torch.equal(x.grad.cpu(), 2 * A + 1)
for given in (a, A):
    got = torch.compile(lambda t: kernels.add[2](t, t) * 2, backend="neuron", fullgraph=True)(given)
    assert got.device == given.device and torch.equal(got.cpu(), A * 4)
print("done")
""") == "done\n"


def test_mixed_devices__are_refused_as_by_torch(child):
    assert child(START + """
from nki_mlir.frameworks.torch_neuronx import nki_jit
for operation in (lambda: a + A, lambda: A @ a.t(), lambda: torch.where(a > 0, a, A), lambda: a.add_(A),
                  lambda: torch.nn.functional.linear(a, torch.ones(4, 16)), lambda: torch.cat([a, A]),
                  lambda: kernels.add[2](a, A), lambda: kernels.add_rows(a, A[:8]),
                  lambda: nki_jit(kernels.add_into)(A, A, a)):
    try:
        operation()
    except RuntimeError as error:
        assert "Expected all tensors to be on the same device, but found at least two devices" in str(error), error
    else:
        raise AssertionError("not refused")
assert torch.equal(a.cpu(), A)
assert torch.equal((a + torch.tensor(2.0)).cpu(), A + 2) and torch.equal((torch.tensor(2.0) * a).cpu(), A * 2)
assert torch.equal(a[torch.tensor([3, 1])].cpu(), A[[3, 1]])
x = a.clone()
x[torch.tensor([0, 2])] = 5.0
assert x[0, 0].item() == 5 and torch.equal(x.copy_(A).cpu(), A) and torch.equal(A.clone().copy_(b), torch.ones(32, 16))
import numpy as np
assert torch.equal(kernels.add[2](a, np.ones((32, 16), np.float32)).cpu(), A + 1)
model = torch.nn.Sequential(torch.nn.Linear(16, 4), torch.nn.LayerNorm(4)).to("neuron")
model(a).pow(2).sum().backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
torch.optim.AdamW(model.parameters()).step()
print("done")
""") == "done\n"


def test_backward__stays_in_the_thread_that_asks_for_it(child):
    assert child(START + """
import threading
seen = []
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        seen.append(threading.current_thread())
        return gradient * 2
def step():
    x = torch.ones(4, device="neuron", requires_grad=True)
    Twice.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 4
step()
other = threading.Thread(target=step)
other.start()
other.join()
assert seen == [threading.main_thread(), other]
print("done")
""") == "done\n"


def test_scripts__get_it_on_request(child, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import torch, neuronxcc.nki\nprint(torch.ones(2).to('neuron').device)\n")
    assert child(f"""
import runpy, sys
sys.argv = ["nki_mlir", "--neuron-device", {str(script)!r}]
runpy.run_module("nki_mlir", run_name="__main__")
""") == "neuron:0\n"
