# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The stand-in of torch_xla: training on its device, in one process and in two, has the values of PyTorch."""

import os
import re
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

KERNEL = '''
import neuronxcc.nki as nki, neuronxcc.nki.language as nl
import torch, torch.nn.functional as F
import torch_xla, torch_xla.core.xla_model as xm, torch_xla.runtime as xr
import torch_xla.distributed.xla_multiprocessing as xmp, torch_xla.distributed.parallel_loader as pl

@nki.jit
def squared_relu(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.square(nl.relu(nl.load(x))))
    return out

@nki.jit
def squared_relu_grad(x, dy):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, 2.0 * nl.relu(nl.load(x)) * nl.load(dy))
    return out

class SquaredRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return squared_relu(x)
    @staticmethod
    def backward(ctx, dy):
        return squared_relu_grad(*ctx.saved_tensors, dy.contiguous())
'''

TRAINING = KERNEL + '''
def train(index, steps):
    torch.manual_seed(0)
    inputs, labels = torch.randn(96, 8), torch.randint(0, 4, (96,))
    batches = [(inputs[n:n + 32], {"labels": labels[n:n + 32]}) for n in range(0, 32 * steps, 32)]
    weight = torch.randn(4, 8).to(xm.xla_device()).requires_grad_()
    expected = weight.detach().clone().requires_grad_()
    optimizer, plain = (torch.optim.SGD([w], 0.05) for w in (weight, expected))
    logged = []
    for x, rest in pl.MpDeviceLoader(batches, xm.xla_device()):
        for w, o, f in ((weight, optimizer, SquaredRelu.apply), (expected, plain, lambda y: F.relu(y) ** 2)):
            o.zero_grad()
            loss = F.cross_entropy(f(x @ w.t()), rest["labels"])
            loss.backward()
            xm.optimizer_step(o) if o is optimizer else o.step()
        xm.add_step_closure(logged.append, args=(loss.item(),))
        assert len(logged) < steps                      # closures run when the loader ends the step
    assert len(logged) == steps
    torch.testing.assert_close(weight, expected)
    print("trained", index, steps)

if __name__ == "__main__":
    xmp.spawn(train, args=(3,))
    xmp.spawn(train, args=(2,), nprocs=1)
    torch_xla.launch(train, args=(1,))
    print(xr.world_size(), xr.global_ordinal(), xm.get_ordinal(), torch_xla.device_count(), xr.device_type())
    with torch_xla.step():
        xm.add_step_closure(print, args=("closed",))
        print("open")
    double = torch_xla.compile(lambda x: squared_relu(x) * 2)
    print(double(torch.full((2, 2), 3.0)).sum().item(), xm.all_reduce(xm.REDUCE_SUM, torch.ones(2), scale=0.5).tolist())
    print(xm.mesh_reduce("loss", 2.5, max), [b.tolist() for b in
                                             pl.ParallelLoader([torch.ones(1)], [0]).per_device_loader(torch.device("cpu"))])
    xmp.spawn(train, nprocs=2)
'''

TOGETHER = KERNEL + '''
import torch.distributed as dist, torch_xla.distributed.xla_backend
dist.init_process_group("xla"{address})
r, n = xr.global_ordinal(), xr.world_size()
assert (r, n) == (dist.get_rank(), 2) == (xm.get_ordinal(), xm.xrt_world_size())
torch.manual_seed(5)
data = torch.randn(2, 16, 8)
weight = torch.ones(4, 8) * (r + 1)
model = torch.nn.ParameterList([weight])
xm.broadcast_master_param(model)
assert (model[0] == 1).all()
optimizer = torch.optim.SGD(model, 0.01)
SquaredRelu.apply(data[r] @ model[0].t()).mean().backward()
xm.optimizer_step(optimizer)
whole = torch.ones(4, 8, requires_grad=True)
(F.relu(data.flatten(0, 1) @ whole.t()) ** 2).mean().backward()
torch.testing.assert_close(model[0].data, 1 - 0.01 * whole.grad)
assert xm.all_gather(torch.full((2, 1), float(r)), dim=1).tolist() == [[0, 1], [0, 1]]
assert xm.all_reduce(xm.REDUCE_MAX, torch.tensor([r, -r])).tolist() == [1, 0]
assert xm.all_reduce(xm.REDUCE_SUM, torch.tensor([r + 1.0]), groups=[[0], [1]]).tolist() == [r + 1]
parts = [torch.tensor([float(r)]), torch.tensor([[2.0]])]
assert xm.all_reduce("sum", parts, scale=3.0) is None and parts[0].tolist() == [3] and parts[1].tolist() == [[12]]
assert xm.mesh_reduce("m", r + 1, sum) == 3 and xm.rendezvous("end", bytes([r])) == [bytes([0]), bytes([1])]
xm.master_print("rank", r, "of", n)
'''


def started(script, folder, **environment):
    (folder / "script.py").write_text(script)
    return subprocess.Popen([sys.executable, "-m", "nki_mlir", "--torch-xla", str(folder / "script.py")], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, **environment))


def test_one_process_trains_with_the_values_of_pytorch(tmp_path):
    pytest.importorskip("torch")
    out, err = started(TRAINING, tmp_path).communicate()
    assert out.splitlines() == ["trained 0 3", "trained 0 2", "trained 0 1", "1 0 0 1 CPU", "open", "closed",
                                "72.0 [0.5, 0.5]", "2.5 [[1.0]]"], err
    assert re.search(r"script\.py:\d+:\d+: error: 2 processes are to be started with the stand-in of torch_xla, whose "
                     r"only device is the CPU \[NKI-XLA-PROCESSES\]", err), err
    assert "torchrun --nproc_per_node=2" in err


@pytest.mark.parametrize("address", ["", ', init_method="xla://"'])
def test_two_processes_average_gradients(tmp_path, address):
    pytest.importorskip("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    script = TOGETHER.replace("{address}", address)
    processes = [started(script, tmp_path, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2",
                         MASTER_ADDR="127.0.0.1", MASTER_PORT=port) for r in range(2)]
    results = [p.communicate() for p in processes]
    assert [(out, p.returncode) for (out, _), p in zip(results, processes)] == [("rank 0 of 2\n", 0), ("", 0)], results


PARAMETERS = KERNEL + """
import neuronxcc.nki.typing as nt

@nki.jit
def doubled_into(x, out: nt.mutable_tensor):
    nl.store(out, nl.load(x) * 2)
    return out

@nki.jit
def rest_and_sign(x):
    rest = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    sign = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.shared_hbm)
    nl.store(rest, nl.load(x) - 1)
    nl.store(sign, nl.greater(nl.load(x), 0.0, dtype=nl.int32))
    return rest, sign

def refused(call):
    try:
        call()
    except RuntimeError as error:
        text = str(error).splitlines()
        print(text[0].partition("error: ")[2], "|", text[1].partition("|")[2].strip())

weight = torch.nn.Parameter(torch.full((2, 4), 3.0)).to(xm.xla_device())
for _ in range(2):
    y = squared_relu(weight)
    print(y.requires_grad, y.sum().item())
y += 1
(y.detach() * weight).sum().backward()
print(weight.grad.tolist())
rest, sign = rest_and_sign(weight)
print(rest.requires_grad, sign.requires_grad, sign.sum().item())
refused(lambda: rest.sum().backward())
out = torch.zeros(2, 4)
print(doubled_into(weight, out) is out, out.requires_grad, out.sum().item())
refused(lambda: out.sum().backward())
refused(lambda: doubled_into(torch.ones(2, 4), weight))
refused(lambda: torch.func.grad(lambda x: squared_relu(x).sum())(torch.ones(2, 4)))
with torch.no_grad():
    print(squared_relu(weight).requires_grad)
"""


def test_calls_on_parameters_run_and_their_backward_is_an_error(tmp_path):
    pytest.importorskip("torch")
    out, err = started(PARAMETERS, tmp_path).communicate()
    no_derivative = "and a kernel has no derivative [NKI-TORCH-GRADIENT] |"
    assert out.splitlines() == [
        "True 72.0", "True 72.0", str([[10.0] * 4] * 2), "True False 8",
        f"a backward pass reaches this call of kernel rest_and_sign, {no_derivative} "
        "rest, sign = rest_and_sign(weight)",
        "True True 48.0",
        f"a backward pass reaches this call of kernel doubled_into, {no_derivative} "
        "print(doubled_into(weight, out) is out, out.requires_grad, out.sum().item())",
        "kernel doubled_into updates a tensor that requires grad, and autograd would not see the update "
        "[NKI-TORCH-UPDATE] | refused(lambda: doubled_into(torch.ones(2, 4), weight))",
        f"kernel squared_relu is called with a tensor that requires grad, {no_derivative} "
        "refused(lambda: torch.func.grad(lambda x: squared_relu(x).sum())(torch.ones(2, 4)))",
        "False"], err
