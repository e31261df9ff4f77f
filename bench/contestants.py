# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How each library runs a case: a function returns, in a separate process, a call without arguments.

The call returns when its result is available. If a library keeps data on a device, they are copied there before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from case import Case

Call = Callable[[], Any]


def nki_mlir(case: Case) -> Call:
    return lambda: case.kernel(*case.arrays)


def numpy(case: Case) -> Call:
    return lambda: case.formula(np, *case.arrays)


def torch_eager(case: Case) -> Call:
    import torch
    tensors = [torch.from_numpy(a) if a.dtype.name != "bfloat16" else
               torch.from_numpy(a.astype(np.float32)).to(torch.bfloat16) for a in case.arrays]
    return lambda: case.torch(*tensors)


def torch_compile(case: Case) -> Call:
    import torch
    compiled = torch.compile(case.torch, dynamic=False)
    return torch_eager(Case(**vars(case) | {"torch": compiled}))


def jax_jit(case: Case) -> Call:
    import jax
    import jax.numpy as jnp
    arrays = [jax.device_put(a) for a in case.arrays]
    compiled = jax.jit(lambda *a: case.formula(jnp, *a))
    return lambda: jax.block_until_ready(compiled(*arrays))


def iree(case: Case) -> Call:
    """Compile the module that JAX exports for this machine."""
    import iree.compiler
    import iree.runtime
    import jax
    import jax.numpy as jnp
    module = jax.export.export(jax.jit(lambda *a: case.formula(jnp, *a)))(*case.arrays).mlir_module()
    binary = iree.compiler.compile_str(module, input_type="stablehlo", target_backends=["llvm-cpu"],
                                       extra_args=["--iree-llvmcpu-target-cpu=host"])
    config = iree.runtime.Config("local-task")
    context = iree.runtime.SystemContext(config=config)
    loaded = iree.runtime.VmModule.copy_buffer(context.instance, binary)
    context.add_vm_module(loaded)
    arrays = [iree.runtime.asdevicearray(config.device, a) for a in case.arrays]
    main = context.modules[loaded.name].main
    return lambda: main(*arrays)


CONTESTANTS: dict[str, Callable[[Case], Call]] = {
    "nki_mlir": nki_mlir, "numpy": numpy, "torch": torch_eager, "torch.compile": torch_compile, "jax.jit": jax_jit,
    "iree": iree}
