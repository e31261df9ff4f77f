# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A stand-in for ``torch_xla.runtime``: each process has one device, the CPU."""

import os

from nki_mlir.compat.torch_xla_exchange import number_of_processes as number_of_processes
from nki_mlir.compat.torch_xla_exchange import rank

_device_types = ["CPU"]


def world_size() -> int:
    return number_of_processes()


def process_count() -> int:
    return number_of_processes()


def global_device_count() -> int:
    return number_of_processes()


def global_runtime_device_count() -> int:
    return number_of_processes()


def local_process_count() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def local_device_count() -> int:
    return local_process_count()


def addressable_device_count() -> int:
    return 1


def addressable_runtime_device_count() -> int:
    return 1


def global_ordinal() -> int:
    return rank()


def process_index() -> int:
    return rank()


def local_ordinal() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def device_type() -> str:
    """Return the type that the script has set, or "CPU"."""
    return os.environ.get("PJRT_DEVICE", _device_types[-1])


def set_device_type(pjrt_device: str) -> None:
    _device_types[:] = [pjrt_device]


def is_spmd() -> bool:
    """Return False: no tensor is divided among devices."""
    return False


def initialize_cache(path: str, readonly: bool = False) -> None:
    """Do nothing: compiled kernels are in the directory of ``NKI_MLIR_CACHE_DIR``."""
