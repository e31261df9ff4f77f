# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predicts the times that a device would measure for the calibration kernels, with the timed machine."""

from collections.abc import Sequence
from types import ModuleType

from nki_mlir.calibration.measurements import KERNELS, Measurement, source_of
from nki_mlir.compat import install
from nki_mlir.language.kernel import Kernel, describe_array, is_array
from nki_mlir.targets import neuron


def kernels_of(generation: str) -> ModuleType:
    """Import the printed file as a module, after the vendor's module names are installed."""
    install(executables=False)
    module, file = ModuleType(f"calibration_{generation}"), source_of(generation)
    module.__file__ = str(file)
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), vars(module))
    return module


def predicted(generation: str, target: str, as_written: bool = True,
              kernels: Sequence[str] = KERNELS) -> list[Measurement]:
    """Return the predictions of all cases of the kernels of a generation on a target, for streams as the vendor's
    compiler orders them, or in the default mode."""
    module, predictions = kernels_of(generation), []
    for kernel, reps, elements, dtype in module.CASES:
        assert isinstance(kernel, Kernel)
        if kernel.__name__ not in kernels:
            continue
        on = kernel.with_changes(target=target)
        array = module.argument(kernel, reps, elements, dtype)
        spec = on.specialize(on.bind((array, reps), {}, is_array, describe_array))
        programs = neuron.streams(spec.captured, spec.grid, neuron.emission(as_written))
        total = neuron.timed(programs, as_written).total_ns
        predictions.append(Measurement(kernel.__name__, reps, elements, total))
    return predictions
