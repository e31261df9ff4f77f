# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every documented name exists with its documented parameters, under the vendor's module names, too."""

import inspect
import subprocess
import sys

import numpy as np
import pytest

from nki_mlir.language.current import collectives, isa, language

BINARY = """add subtract multiply divide maximum minimum power fmod mod abs_max abs_min equal not_equal less less_equal
    greater greater_equal bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and logical_or
    logical_xor"""
UNARY = """invert logical_not abs square exp log sqrt rsqrt reciprocal sin cos tan arctan ceil floor trunc negative sign
    tanh sigmoid relu gelu gelu_dx gelu_apprx_sigmoid gelu_apprx_sigmoid_dx gelu_apprx_tanh silu silu_dx softplus mish
    erf erf_dx copy"""
LANGUAGE = {
    "ndarray": "shape dtype buffer name address", "zeros": "shape dtype buffer name", "ones": "shape dtype buffer name",
    "full": "shape fill_value dtype buffer name", "zeros_like": "x dtype buffer name",
    "empty_like": "x dtype buffer name", "rand": "shape dtype buffer name", "random_seed": "seed",
    "shared_constant": "constant dtype", "shared_identity_matrix": "n dtype dst", "load": "src dtype",
    "load_transpose2d": "src dtype", "store": "dst value", "matmul": "x y transpose_x", "transpose": "x dtype",
    "softmax": "x axis dtype", "rms_norm": "x w axis n epsilon dtype compute_dtype", "dropout": "x rate dtype",
    "where": "condition x y dtype", "all": "x axis dtype", "broadcast_to": "x shape dtype", "expand_dims": "x axis",
    "gather_flattened": "data indices axis dtype", "ds": "start size", "affine_range": "start stop step",
    "sequential_range": "start stop step", "static_range": "start stop step", "dynamic_range": "start stop step",
    "fori_loop": "lower upper body_fun step", "while_loop": "init body_fun", "no_reorder": "", "program_id": "axis",
    "num_programs": "axes", "program_ndim": "", "device_print": "print_prefix tensor", "is_hbm": "buffer",
    "is_on_chip": "buffer", "is_psum": "buffer", "is_sbuf": "buffer", "par_dim": "x", "unique_name": "name",
    **{n: "x axis dtype keepdims" for n in ("sum", "max", "min", "mean", "prod", "var")},
    **{n: "x y dtype" for n in BINARY.split()}, **{n: "x dtype" for n in UNARY.split()},
}
OTHER_LANGUAGE = """DType MemoryRegion NKIObject NkiTensor tile_size bool_ int8 int16 int32 uint8 uint16 uint32 float16
    float32 bfloat16 tfloat32 float8_e4m3 float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e5m2_x4 float8_e4m3fn_x4
    float4_e2m1fn_x4
    sbuf psum hbm private_hbm shared_hbm average prelu bypass range bool tensor"""
ISA = {
    "nc_matmul": "dst stationary moving is_stationary_onezero is_moving_onezero is_transpose accumulate tile_position "
                 "tile_size perf_mode name",
    "nc_matmul_mx": "dst stationary moving stationary_scale moving_scale tile_position tile_size accumulate name",
    "nc_transpose": "dst data engine name",
    "activation": "dst op data bias scale reduce_op reduce_res reduce_cmd name",
    "activation_reduce": "dst op data reduce_op reduce_res bias scale name",
    "activate2": "dst op data imm0 imm1 op0 op1 relu_param reverse0 reverse1 reduce_op reduce_res reduce_cmd name",
    "tensor_reduce": "dst op data axis negate keepdims name", "tensor_partition_reduce": "dst op data name",
    "tensor_tensor": "dst data1 data2 op engine name",
    "tensor_tensor_scan": "dst data0 data1 initial op0 op1 reverse0 reverse1 name",
    "scalar_tensor_tensor": "dst data op0 operand0 op1 operand1 reverse0 reverse1 name",
    "tensor_scalar": "dst data op0 operand0 reverse0 op1 operand1 reverse1 engine name",
    "tensor_scalar_reduce": "dst data op0 operand0 reduce_op reduce_res reverse0 reduce_cmd reduce_init "
                            "reduce_res_negate name",
    "tensor_scalar_cumulative": "dst src op0 op1 imm0 imm1 reduce_cmd name", "tensor_copy": "dst src engine name",
    "tensor_copy_predicated": "dst src predicate reverse_pred name",
    "exponential": "dst src max_value reduce_res reduce_cmd reduce_init name", "reciprocal": "dst data name",
    "quantize_mx": "dst src dst_scale name", "iota": "dst pattern offset channel_multiplier name",
    "dropout": "dst data prob name",
    "affine_select": "dst pattern channel_multiplier on_true_tile on_false_value cmp_op offset name",
    "range_select": "dst on_true_tile comp_op0 comp_op1 bound0 bound1 reduce_cmd reduce_res reduce_op range_start "
                    "on_false_value name",
    "select_reduce": "dst predicate on_true on_false reduce_res reduce_cmd reduce_op reverse_pred name",
    "sequence_bounds": "dst segment_ids name", "memset": "dst value engine name", "bn_stats": "dst data name",
    "bn_aggr": "dst data name", "local_gather": "dst src_buffer index num_elem_per_idx num_valid_indices name",
    "nc_n_gather": "dst data indices name", "dma_copy": "dst src priority oob_mode dge_mode engine name",
    "dma_transpose": "dst src axes priority dge_mode oob_mode name",
    "dma_compute": "dst srcs reduce_op scales unique_indices oob_mode name", "max8": "dst src name",
    "nc_find_index8": "dst data vals name", "nc_match_replace8": "dst data vals imm dst_idx name",
    "nc_stream_shuffle": "dst src shuffle_mask name", "core_barrier": "data cores engine name",
    "sendrecv": "src dst send_to_rank recv_from_rank pipe_id dma_engine name", "rng": "dst engine name",
    "rand2": "dst min max name", "rand_set_state": "src_seeds engine name", "rand_get_state": "dst engine name",
    "set_rng_seed": "src_seeds name", "nonzero_with_count": "dst src index_offset padding_val name",
    "topk": "val_dst idx_dst src n name", "register_alloc": "x", "register_move": "dst src", "register_load": "dst src",
    "register_store": "dst src", "get_nc_version": "", "get_nc_sub_version": "",
    "tensor_copy_dynamic_src": "dst src engine name", "tensor_copy_dynamic_dst": "dst src engine name",
}
OTHER_ISA = """tensor_engine vector_engine scalar_engine gpsimd_engine unknown_engine engine reduce_cmd dge_mode
    oob_mode matmul_perf_mode nc_version dma_engine NkiInstruction NkiValidationError VirtualRegister"""
COLLECTIVES = {
    "all_reduce": "srcs dsts replica_group op priority name",
    "all_gather": "srcs dsts replica_group collective_dim priority name",
    "all_gather_v": "srcs dsts replica_group metadata_tensor recv_counts_known has_rdispls priority name",
    "reduce_scatter": "srcs dsts replica_group collective_dim op priority name",
    "all_to_all": "srcs dsts replica_group collective_dim priority name",
    "all_to_all_v": "srcs dsts replica_group metadata_tensor recv_counts_known has_rdispls priority name",
    "collective_permute": "srcs dsts source_target_pairs priority name",
    "collective_permute_implicit": "srcs_by_channel dsts_by_channel replica_group channel_ids priority name",
    "collective_permute_implicit_reduce": "srcs0_by_channel srcs1_by_channel dsts_by_channel replica_group op "
                                          "channel_ids priority name",
    "collective_permute_implicit_current_processing_rank_id": "iteration_id replica_group channel_id name",
    "rank_id": "name",
}


@pytest.mark.parametrize("module, table", [(language, LANGUAGE), (isa, ISA), (collectives, COLLECTIVES)])
def test_functions_have_the_documented_parameters(module, table):
    for name, parameters in table.items():
        assert list(inspect.signature(getattr(module, name)).parameters) == parameters.split(), name
        assert getattr(module, name).__name__ == name


def test_other_names_exist():
    for module, names in ((language, OTHER_LANGUAGE), (isa, OTHER_ISA)):
        for name in names.split():
            assert hasattr(module, name), name


def test_defaults():
    defaults = {n: p.default for n, p in inspect.signature(isa.range_select).parameters.items()}
    assert defaults["reduce_cmd"] is isa.reduce_cmd.reset_reduce and defaults["on_false_value"] == -3.4028235e38
    assert inspect.signature(language.shared_identity_matrix).parameters["dtype"].default is language.uint8
    assert inspect.signature(language.ndarray).parameters["buffer"].default is language.sbuf


def test_dtypes_are_numpy_dtypes_and_names():
    assert str(language.bfloat16) == "bfloat16" and language.float32 == "float32" and language.float32 == np.float32
    assert np.ones(3, language.float8_e5m2).astype(language.float16).dtype == np.float16
    assert {language.float16: 1}[language.float16] == 1
    packed = (language.float8_e4m3fn_x4, language.float8_e5m2_x4, language.float4_e2m1fn_x4)
    assert [d.itemsize for d in packed] == [4, 4, 2]
    assert language.float8_e4m3fn_x4 != language.uint32 and language.float8_e8m0fnu.itemsize == 1


def test_enums():
    assert isa.vector_engine is isa.engine.vector and isa.engine.dma.value == 4
    assert isa.nc_version.gen3 >= isa.nc_version.gen2 and not isa.nc_version.gen4 < isa.nc_version.gen3
    assert isa.get_nc_version() is isa.nc_version.gen4 and isa.get_nc_sub_version() == 0
    assert [m.value for m in (isa.dge_mode.unknown, isa.dge_mode.none, isa.reduce_cmd.load_reduce)] == [0, 3, 4]


def test_vendor_module_names_work_in_a_fresh_process():
    program = """
from nki_mlir import compat
compat.install()
import nki, nki.language as nl, nki.isa as nisa, nki.collectives as ncc, nki.typing as nt
from nki.language import NKIObject
from nki.isa import sendrecv, oob_mode
from nki.isa.constants import dge_mode
from nki.collectives import ReplicaGroup
from nki.compiler.kernel_builder import compile_kernel
import nki.compiler, nki.meta
assert nki.dtype and nki.tensor.zeros and nki.meta.tensor and nt.mutable_tensor and oob_mode is nisa.oob_mode
import sys
assert not any(m.startswith("torch_mlir") for m in sys.modules)
import neuronxcc.nki.language
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_tile_size(monkeypatch):
    t = language.tile_size
    assert (t.pmax, t.psum_fmax, t.gemm_moving_fmax, t.psum_num_banks) == (128, 512, 512, 8)
    assert (t.sbuf_fmax_bytes, t.sbuf_fmax, t.sbuf_size_bytes) == (245752, 61438, 33554432)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert (t.total_available_sbuf_size, t.sbuf_size_bytes) == (212984, 29360128)
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    assert t.psum_num_banks == 7


def test_objects():
    class Config(language.NKIObject):
        rows: int
        scale: float = 2.0

        def __post_init__(self):
            self.double = self.rows * 2
    made = Config(rows=3)
    assert (made.rows, made.scale, made.double) == (3, 2.0, 6) and made == Config(3) and made != Config(4)
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        Config(other=1)
