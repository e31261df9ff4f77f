# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes compiled kernels to files at capture: for profilers, and to the cache where programs expect the files of a
framework's compiler.

``NEURON_RT_INSPECT_ENABLE=1`` makes it write ``neff_<hash>.neff`` and ``<hash>_vnc_0.ntff`` below
``NEURON_RT_INSPECT_OUTPUT_DIR``; ``NEURON_COMPILE_CACHE_URL`` says where the cache is.
"""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from nki_mlir.alone import alone
from nki_mlir.diagnostics import NkiMlirError
from nki_mlir.files import write_file

if TYPE_CHECKING:
    from nki_mlir.language.specialization import Specialization

CACHE = "/var/tmp/neuron-compile-cache"
OFF = ("", "0")


@alone
def leave_for_profilers(capture: "Specialization") -> None:
    """Write the compiled kernel and its trace if the environment enables that."""
    if os.environ.get("NEURON_RT_INSPECT_ENABLE", "") in OFF or os.environ.get(
            "NEURON_RT_INSPECT_DEVICE_PROFILE", "1") in OFF:
        return
    folder = Path(os.environ.get("NEURON_RT_INSPECT_OUTPUT_DIR") or "output") / f"i-model_pid_{os.getpid()}"
    name = capture.key[:16]
    try:
        write_all({folder / f"neff_{name}.neff": packed(capture), folder / f"{name}_vnc_0.ntff": trace_of(capture)})
    except NkiMlirError as error:
        warnings.warn(f"no profile of {capture.name}: {error.headline}", stacklevel=2)


@alone
def leave_in_cache(capture: "Specialization") -> None:
    """Write the compiled kernel to the cache, as a framework of lazy tensors does. Ignore a kernel that does not
    compile, and a folder that cannot be written."""
    number, digest = int(capture.key[:15], 16), capture.key[16:24]
    folder = Path(os.environ.get("NEURON_COMPILE_CACHE_URL") or CACHE) / "nki_mlir" / f"MODULE_{number}+{digest}"
    try:
        write_all({folder / "model.neff": packed(capture)})
    except (NkiMlirError, OSError):
        return


def packed(capture: "Specialization") -> bytes:
    from nki_mlir.targets.neuron.format.artifacts import pack_kernel  # start-up: loads MLIR
    return pack_kernel(capture.optimized.streams)


def trace_of(capture: "Specialization", execution: int = 1) -> bytes:
    """Return the NTFF of one execution."""
    from nki_mlir.targets.neuron.format.artifacts import NtffContent, digest_of, pack_trace  # start-up: loads MLIR
    from nki_mlir.targets.neuron.profile.vendor_summary import vendor_summary  # start-up: loads MLIR
    profile = capture.optimized.profile
    digest = digest_of(packed(capture))
    return pack_trace(NtffContent(capture.name, digest, execution, 0, vendor_summary(profile), profile))


def write_all(files: dict[Path, bytes]) -> None:
    """Write files, and create their folders."""
    for file, data in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, data)
