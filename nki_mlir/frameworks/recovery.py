# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Extracts kernels from a module that calls them: StableHLO text, bytecode or portable artifact, HLO text or protobuf.

    for kernel in kernels_in(Path("program.hlo_module.pb").read_bytes()):
        print(kernel.name, kernel(a, b))

Each custom call carries the kernel's complete IR, so a module runs without the kernel's Python source.
"""

import base64
import re
from typing import Any

from nki_mlir.alone import alone
from nki_mlir.bindings import Context, Module, ir, load
from nki_mlir.frameworks.hlo import configs_of_proto, configs_of_text
from nki_mlir.frameworks.registry import Callee, callee_from, checked, run_on_arrays, storage
from nki_mlir.graph.custom_call import TARGET, KernelRecord
from nki_mlir.graph.upstream import BadModule, graph_context
from nki_mlir.language.kernel import default_executor
from nki_mlir.language.results import assemble
from nki_mlir.text_limits import check_text
from nki_mlir.transforms.link_kernels import calls_of, config_of

BYTECODE = b"ML\xefR"                       # the first bytes of MLIR bytecode and of portable artifacts


class RecoveredKernel:
    """A kernel that was read from a module. If called with NumPy arrays, it returns the kernel's results.

    Arguments:
        callee: the kernel's entry in the registry of callees

    Errors:
        Arrays whose number, shapes or dtypes differ from the kernel's are errors.

    Example:
        kernel, = kernels_in(jax.jit(nki.jit(double)).lower(jnp.ones((4, 8), jnp.float32)).as_text())
        assert kernel.name == "double" and np.array_equal(kernel(np.ones((4, 8), np.float32)), np.full((4, 8), 2.0))
    """

    def __init__(self, callee: Callee) -> None:
        self.callee = callee

    @property
    def record(self) -> KernelRecord:
        """The kernel's record, as the module has it: name, grid, operands, results and IR."""
        return self.callee.record

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def grid(self) -> tuple[int, ...]:
        return self.record.grid

    def __call__(self, *arrays: object) -> Any:
        """Run the kernel on NumPy arrays. It updates copies of operands, never the caller's arrays."""
        expected = [(spec.shape, storage(spec)) for spec in self.record.operands]
        results = run_on_arrays(self.callee, checked(arrays, expected, self.name))
        return assemble(self.record.structure, [results[n] for n in self.record.form.returned])

    def __repr__(self) -> str:
        return f"<kernel {self.name} on a grid of {self.grid}>"


@alone
def kernels_in(module: str | bytes) -> list[RecoveredKernel]:
    """Return the kernels that a module calls, without duplicates, in the order of their first calls.

    Arguments:
        module: StableHLO (text, MLIR bytecode, a portable artifact as ``jax.export`` writes) or HLO (text, or an
            ``HloModuleProto``)

    Result:
        A list of RecoveredKernel.

    Errors:
        ``BadModule`` if the module cannot be read, ``BadConfig`` if the config of a call has an unknown form.

    Example:
        text = jax.jit(nki.jit(double)).lower(jnp.ones((4, 8), jnp.float32)).as_text()
        assert [kernel.name for kernel in kernels_in(text)] == ["double"]
    """
    callees = [callee_from(config, default_executor()) for config in configs_in(module)]
    return [RecoveredKernel(callee) for callee in dict.fromkeys(callees)]


@alone
def configs_in(module: str | bytes) -> list[str]:
    """Return the config of every kernel call in a module of any of the forms that ``kernels_in`` takes."""
    if isinstance(module, str):
        is_hlo = module.lstrip().startswith("HloModule")
        return configs_of_text(module) if is_hlo else configs_of_stablehlo(module)
    return configs_of_stablehlo(module) if module.startswith(BYTECODE) else configs_of_proto(module)


def configs_of_stablehlo(source: str | bytes) -> list[str]:
    """Return the configs of a StableHLO module's custom calls, in order. Search the bytes of bytecode that another
    build of MLIR wrote."""
    context = graph_context()
    with context, ir.Location.unknown():
        try:
            module = read(source, context)
        except (ir.MLIRError, ValueError) as error:
            if isinstance(source, bytes):
                return configs_of_bytecode(source)
            raise BadModule(what=f"it does not parse: {str(error).splitlines()[0]}") from None
        return [config_of(call) for call in calls_of(module, TARGET)]


def read(source: str | bytes, context: Context) -> Module:
    """Parse a module: text, bytecode, or a portable artifact, which has its version where bytecode has the producer."""
    if isinstance(source, bytes) and source[4:32].find(b"StableHLO_v") >= 0:
        module: Module = load("_mlir_libs._stablehlo").deserialize_portable_artifact(context, source)
        return module
    if isinstance(source, str):
        check_text(source)
    return ir.Module.parse(source, context)


def configs_of_bytecode(source: bytes) -> list[str]:
    """Return the configs in the bytecode of another build of MLIR. Only that build parses it, but it stores strings as
    they are.

    The search may match other strings; ``read_record`` rejects them later.
    """
    start = base64.b64encode(b'{"kernel_version": ')[:-4]
    matches = re.findall(start + rb"[A-Za-z0-9+/]+=*", source)
    if not matches:
        raise BadModule(what="it is bytecode of another version of MLIR, and no call of a kernel is found in it")
    return [config.decode() for config in matches]


__all__ = ["RecoveredKernel", "kernels_in"]
