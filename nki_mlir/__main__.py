# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``python -m nki_mlir [OPTION ...] SCRIPT.py ...``: run a script, or a module, that imports the vendor's modules."""

import runpy
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from nki_mlir.capture.replaced_builtins import AnyException
from nki_mlir.capture.tracebacks import leave_out_internal_frames
from nki_mlir.compat import install
from nki_mlir.diagnostics import NkiMlirError

USAGE = """usage: python -m nki_mlir [--torch-xla] [--neuron-device] [--override] (SCRIPT.py | -m MODULE) [ARGUMENT ...]

Run a script that imports neuronxcc.nki, torch_neuronx or jax_neuronx, unmodified; or a module, as in -m pytest tests.

  --torch-xla       also replace torch_xla if it is not installed
  --neuron-device   give PyTorch a device named neuron
  --override        use these names even if the vendor's packages are installed

NKI_MLIR_EXECUTOR=eager|interpreter|jit|isa chooses the executor of kernels (jit)."""


def main(arguments: list[str]) -> int:
    options = {"--torch-xla": False, "--neuron-device": False, "--override": False}
    while arguments and arguments[0] in options:
        options[arguments.pop(0)] = True
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    module = arguments[1] if arguments[0] == "-m" and len(arguments) > 1 else None
    if refusal := mistake(arguments[0], module, options["--neuron-device"]):
        print(refusal, file=sys.stderr)
        return 2
    install(torch_xla=options["--torch-xla"], override=options["--override"])
    if options["--neuron-device"]:
        # start-up: imported on first use
        from nki_mlir.frameworks.torch_device import install as install_device
        install_device()
    try:
        run(arguments, module)
    except NkiMlirError as error:
        print(error, file=sys.stderr)
        return 1
    except AnyException as error:
        leave_out_internal_frames(error)
        raise
    return 0


def mistake(script: str, module: str | None, with_device: bool) -> str:
    """Return the error for arguments that name nothing that can run; "" for others."""
    if module is None and script.startswith("-"):
        return f"error: unknown option {script}\n\n{USAGE}"
    if module is not None and not is_found(module):
        return f"error: no module {module}"
    if module is None and not Path(script).is_file():
        return f"error: no script {script}"
    if with_device and not is_found("torch"):
        return "error: --neuron-device is a device of PyTorch, which is not installed: pip install 'nki_mlir[torch]'"
    return ""


def run(arguments: list[str], module: str | None) -> None:
    """Run the module, or the script that the first argument names, as Python does."""
    if module is not None:
        sys.argv = arguments[1:]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        script = Path(arguments[0])
        sys.path[0] = str(script.resolve().parent)
        runpy.run_path(str(script), run_name="__main__")


def is_found(module: str) -> bool:
    """Return whether the top of a module's name can be imported."""
    with suppress(ValueError):              # the name is empty, or the module has no specification
        return find_spec(module.split(".")[0]) is not None
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
