# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The functions of each page of the reference, by purpose. ``language/entries`` has the groups of instructions."""

from nki_mlir.language import entries

LANGUAGE = {
    "memory": ("Loads, stores and copies", "load store load_transpose2d copy gather_flattened atomic_rmw"),
    "creation": ("New tensors and tiles", "ndarray zeros ones full zeros_like empty_like rand random_seed "
                 "shared_constant shared_identity_matrix arange"),
    "arithmetic": ("Arithmetic and comparisons", "add subtract multiply divide maximum minimum power mod fmod abs_max "
                   "abs_min equal not_equal greater greater_equal less less_equal logical_and logical_or logical_xor "
                   "logical_not bitwise_and bitwise_or bitwise_xor left_shift right_shift invert negative where "
                   "static_cast"),
    "functions": ("Functions of one tile", "exp log sin cos tan tanh arctan sqrt rsqrt sigmoid relu gelu gelu_dx "
                  "gelu_apprx_tanh gelu_apprx_sigmoid gelu_apprx_sigmoid_dx silu silu_dx erf erf_dx softplus mish "
                  "square sign abs reciprocal floor ceil trunc dropout"),
    "reductions": ("Reductions and normalization", "sum prod max min all mean var softmax rms_norm all_reduce "
                   "loop_reduce"),
    "products": ("Products and transposes", "matmul transpose"),
    "shapes": ("Shapes and subscripts", "broadcast_to expand_dims ds par_dim is_sbuf is_psum is_hbm is_on_chip"),
    "loops": ("Loops, launches and printing", "affine_range sequential_range static_range dynamic_range fori_loop "
              "while_loop no_reorder program_id num_programs program_ndim device_print"),
}
INSTRUCTIONS = {group.page: (group.title, " ".join(group.entries)) for group in entries.GROUPS}
VIEWS = {"views": (
    "Views of tensors", "ap broadcast expand_dim flatten_dims indirect permute rearrange reinterpret_cast "
                   "reshape reshape_dim select slice squeeze_dim vector_select view")}
COLLECTIVES = {"collectives": (
    "Collectives", "all_reduce all_gather all_gather_v reduce_scatter all_to_all all_to_all_v collective_permute "
    "collective_permute_implicit collective_permute_implicit_reduce rank_id "
    "collective_permute_implicit_current_processing_rank_id")}
GROUPS = {"nki.language": LANGUAGE, "nki.isa": INSTRUCTIONS, "nki.language.NkiTensor": VIEWS,
          "nki.collectives": COLLECTIVES}
# The module as users write it.
WRITTEN = {"nki.language": "nl", "nki.isa": "nisa", "nki.language.NkiTensor": "tensor", "nki.collectives": "ncc"}


def names(module: str) -> dict[str, str]:
    """Return the group of each name."""
    group_of: dict[str, str] = {}
    for group, (_, text) in GROUPS[module].items():
        for name in text.split():
            assert name not in group_of, f"{module}.{name} is in {group_of[name]} and {group}"
            group_of[name] = group
    return group_of
