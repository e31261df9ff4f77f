# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page of the reference for each function: by its purpose, and for instructions by their engine."""

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
    "reductions": ("Reductions and normalisation", "sum prod max min all mean var softmax rms_norm all_reduce "
                   "loop_reduce"),
    "products": ("Products and transposes", "matmul transpose"),
    "shapes": ("Shapes and subscripts", "broadcast_to expand_dims ds par_dim is_sbuf is_psum is_hbm is_on_chip"),
    "loops": ("Loops, launches and printing", "affine_range sequential_range static_range dynamic_range fori_loop "
              "while_loop no_reorder program_id num_programs program_ndim device_print"),
}
INSTRUCTIONS = {
    "tensor-engine": ("Tensor engine: products and transposes", "nc_matmul nc_matmul_mx nc_transpose"),
    "elementwise": ("Elementwise instructions", "activation activate2 exponential tensor_tensor tensor_scalar "
                    "scalar_tensor_tensor reciprocal quantize_mx dropout"),
    "reductions": ("Reductions, scans and statistics", "activation_reduce tensor_reduce tensor_partition_reduce "
                   "tensor_scalar_reduce tensor_scalar_cumulative tensor_tensor_scan select_reduce bn_stats bn_aggr"),
    "copies": ("Copies, constants and selections", "tensor_copy tensor_copy_predicated tensor_copy_dynamic_src "
               "tensor_copy_dynamic_dst memset iota affine_select range_select"),
    "searches": ("Searches, gathers and shuffles", "max8 nc_find_index8 nc_match_replace8 topk nonzero_with_count "
                 "sequence_bounds local_gather nc_n_gather nc_stream_shuffle"),
    "dma": ("Transfers", "dma_copy dma_transpose dma_compute"),
    "random": ("Random numbers", "rng rand2 set_rng_seed rand_get_state rand_set_state"),
    "registers": ("Registers, cores and the machine", "register_alloc register_move register_load register_store "
                  "core_barrier sendrecv get_nc_version get_nc_sub_version"),
}
VIEWS = {"views": (
    "Views of tensors", "ap broadcast expand_dim flatten_dims indirect permute rearrange reinterpret_cast "
                   "reshape reshape_dim select slice squeeze_dim vector_select view")}
COLLECTIVES = {"collectives": (
    "Collectives", "all_reduce all_gather all_gather_v reduce_scatter all_to_all all_to_all_v collective_permute "
    "collective_permute_implicit collective_permute_implicit_reduce rank_id "
    "collective_permute_implicit_current_processing_rank_id")}
GROUPS = {"nki.language": LANGUAGE, "nki.isa": INSTRUCTIONS, "nki.language.NkiTensor": VIEWS,
          "nki.collectives": COLLECTIVES}
# What users write in front of the names.
WRITTEN = {"nki.language": "nl", "nki.isa": "nisa", "nki.language.NkiTensor": "tensor", "nki.collectives": "ncc"}


def names(module: str) -> dict[str, str]:
    """Return the group of each name."""
    found: dict[str, str] = {}
    for group, (_, text) in GROUPS[module].items():
        for name in text.split():
            assert name not in found, f"{module}.{name} is in {found[name]} and {group}"
            found[name] = group
    return found
