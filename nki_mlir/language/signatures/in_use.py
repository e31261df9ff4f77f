# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels in use pass beyond any release's signature: names that mean a parameter, and names that mean nothing.

Public code of every release was read for it. What is in neither table, nor in a signature, is an error.
"""

# Function -> groups of names for one parameter. Releases renamed them, or a release took one that it did not list.
SAME: dict[str, tuple[tuple[str, ...], ...]] = {
    "nki.isa.nc_matmul": (("is_moving_onezero", "is_moving_zero"),),
    "nki.isa.sendrecv": (("dma_engine", "use_gpsimd_dma"),),
    "nki.isa.register_move": (("src", "imm"),),
    "nki.isa.dma_copy": (("oob_mode", "mode"),),
    "nki.language.device_print": (("prefix", "print_prefix"), ("x", "tensor")),
    "nki.language.zeros_like": (("a", "x"),),
    "nki.language.empty_like": (("a", "x"),),
    "nki.language.copy": (("src", "x"),),
    "nki.language.broadcast_to": (("src", "x"),),
    "nki.language.expand_dims": (("data", "x"),),
    "nki.language.static_cast": (("input_data", "arr", "x"),),
    "nki.language.NkiTensor.reshape": (("shape", "new_shape"),),
}

# Function -> signatures, as the table writes them, that calls in use follow.
FOLLOWED: dict[str, tuple[tuple[str, str], ...]] = {
    "nki.isa.sendrecv": (
        ("2.27", "(src, dst, send_to_rank, recv_from_rank, pipe_id, use_gpsimd_dma=False, name=None)"),),
    "nki.language.ndarray": (("2.27", "(shape, dtype, buffer=None, name='', address=None)"),),
    "nki.language.matmul": (("2.27", "(x, y, transpose_x=False)"),),
}

# Function -> parameters that every release asks for and calls in use leave out, with what is meant.
LEFT_OUT: dict[str, dict[str, str]] = {f"nki.language.{name}": {"dtype": "float32"}
                                       for name in ("ndarray", "zeros", "ones", "full", "rand")}

# Labels and hints for a scheduler, which change no value: everywhere, and of single functions.
HINTS = ("name", "lazy_initialization", "max_free_vec_size", "directives", "precise_schedule")
IGNORED: dict[str, tuple[str, ...]] = {
    "nki.isa.nc_matmul": ("psumAccumulateFlag", "psum_accumulate_flag", "psum_accumulate_flags"),
    "nki.isa.nc_matmul_mx": ("psumAccumulateFlag", "psum_accumulate_flag", "psum_accumulate_flags"),
    "nki.isa.dma_copy": ("unique_indices",),
    "nki.isa.reciprocal": ("engine",),
    "nki.collectives.collective_permute_implicit_current_processing_rank_id": ("num_channels",),
}


def same(function: str, name: str) -> tuple[str, ...]:
    """The other names of a function's parameter."""
    return tuple(n for group in SAME.get(function, ()) if name in group for n in group if n != name)


def is_ignored(function: str, name: str) -> bool:
    return name in HINTS or name in IGNORED.get(function, ())
