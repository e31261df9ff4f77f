# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every documented name exists with its documented parameters, under the vendor's module names, too."""

import inspect
import subprocess
import sys

import numpy as np
import pytest

from nki_mlir.language.current import collectives, isa, language
from tests.signatures import documented, parameters, table

BINARY = """add subtract multiply divide maximum minimum power fmod mod abs_max abs_min equal not_equal less less_equal
    greater greater_equal bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and logical_or
    logical_xor"""
UNARY = """invert logical_not abs square exp log sqrt rsqrt reciprocal sin cos tan arctan ceil floor trunc negative sign
    tanh sigmoid relu gelu gelu_dx gelu_apprx_sigmoid gelu_apprx_sigmoid_dx gelu_apprx_tanh silu silu_dx softplus mish
    erf erf_dx copy"""
LANGUAGE = dict.fromkeys(BINARY.split(), "x, y, dtype=None") | dict.fromkeys(UNARY.split(), "x, dtype=None") | table("""
    ndarray(shape, dtype, buffer=MemoryRegion.sbuf, name='', address=None)
    zeros|ones|rand(shape, dtype, buffer=MemoryRegion.sbuf, name='')
    full(shape, fill_value, dtype, buffer=MemoryRegion.sbuf, name='')
    zeros_like|empty_like(x, dtype=None, buffer=None, name='')
    random_seed(seed)
    shared_constant(constant)
    shared_identity_matrix(n, dtype=uint8, dst=None)
    load|load_transpose2d(src, dtype=None)
    store(dst, value)
    matmul(x, y, transpose_x=False)
    transpose(x, dtype=None)
    softmax(x, axis=-1, dtype=None)
    rms_norm(x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None)
    dropout(x, rate, dtype=None)
    where(condition, x, y, dtype=None)
    sum|max|min|mean|prod|var(x, axis, dtype=None, keepdims=False)
    all(x, axis, dtype=None)
    broadcast_to(x, shape, dtype=None)
    expand_dims(x, axis)
    gather_flattened(data, indices, axis=0, dtype=None)
    ds(start, size)
    affine_range|sequential_range|static_range|dynamic_range(start, stop=None, step=1)
    fori_loop(lower, upper, body_fun, step=1)
    while_loop(init, body_fun)
    no_reorder()
    program_id(axis=0)
    num_programs(axes=0)
    program_ndim()
    device_print(print_prefix, tensor)
    is_hbm|is_on_chip|is_psum|is_sbuf(buffer)
    par_dim(x)
    unique_name(name)
""")
OTHER_LANGUAGE = """DType MemoryRegion NKIObject NkiTensor tile_size bool_ int8 int16 int32 uint8 uint16 uint32 float16
    float32 bfloat16 tfloat32 float8_e4m3 float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e5m2_x4 float8_e4m3fn_x4
    float4_e2m1fn_x4
    sbuf psum hbm private_hbm shared_hbm average prelu bypass range bool tensor"""
ISA = table("""
    nc_matmul(dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False,
              accumulate=None, tile_position=(), tile_size=(), perf_mode=matmul_perf_mode.none, name=None)
    nc_matmul_mx(dst, stationary, moving, stationary_scale, moving_scale, tile_position=None, tile_size=None,
                 accumulate=None, name=None)
    nc_transpose(dst, data, engine=engine.unknown, name=None)
    activation(dst, op, data, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=reduce_cmd.idle,
               name=None)
    activation_reduce(dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0, name=None)
    activate2(dst, op, data, imm0, imm1, op0, op1, relu_param=0.0, reverse0=False, reverse1=False, reduce_op=None,
              reduce_res=None, reduce_cmd=reduce_cmd.idle, name=None)
    tensor_reduce(dst, op, data, axis, negate=False, keepdims=False, name=None)
    tensor_partition_reduce(dst, op, data, name=None)
    tensor_tensor(dst, data1, data2, op, engine=engine.unknown, name=None)
    tensor_tensor_scan(dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False, name=None)
    scalar_tensor_tensor(dst, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, name=None)
    tensor_scalar(dst, data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False,
                  engine=engine.unknown, name=None)
    tensor_scalar_reduce(dst, data, op0, operand0, reduce_op, reduce_res=None, reverse0=False,
                         reduce_cmd=reduce_cmd.reset_reduce, reduce_init=None, reduce_res_negate=False, name=None)
    tensor_scalar_cumulative(dst, src, op0, op1, imm0, imm1=None, reduce_cmd=reduce_cmd.reset_reduce, name=None)
    tensor_copy(dst, src, engine=engine.unknown, name=None)
    tensor_copy_predicated(dst, src, predicate, reverse_pred=False, name=None)
    exponential(dst, src, max_value=0.0, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_init=0.0, name=None)
    reciprocal|bn_stats|bn_aggr(dst, data, name=None)
    quantize_mx(dst, src, dst_scale, name=None)
    iota(dst, pattern, offset=0, channel_multiplier=0, name=None)
    dropout(dst, data, prob, name=None)
    affine_select(dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op=equal, offset=0, name=None)
    range_select(dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.reset_reduce,
                 reduce_res=None, reduce_op=maximum, range_start=0, on_false_value=-3.4028235e+38, name=None)
    select_reduce(dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_op=maximum,
                  reverse_pred=False, name=None)
    sequence_bounds(dst, segment_ids, name=None)
    memset(dst, value, engine=engine.unknown, name=None)
    local_gather(dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, name=None)
    nc_n_gather(dst, data, indices, name=None)
    dma_copy(dst, src, priority=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, engine=engine.unknown,
             name=None)
    dma_transpose(dst, src, axes=None, priority=None, dge_mode=dge_mode.unknown, oob_mode=oob_mode.error, name=None)
    dma_compute(dst, srcs, reduce_op, scales=None, unique_indices=True, oob_mode=oob_mode.error, name=None)
    max8(dst, src, name=None)
    nc_find_index8(dst, data, vals, name=None)
    nc_match_replace8(dst, data, vals, imm, dst_idx=None, name=None)
    nc_stream_shuffle(dst, src, shuffle_mask, name=None)
    core_barrier(data, cores, engine=engine.gpsimd, name=None)
    sendrecv(src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine=dma_engine.dma, name=None)
    rng(dst, engine=engine.vector, name=None)
    rand2(dst, min, max, name=None)
    rand_set_state(src_seeds, engine=engine.gpsimd, name=None)
    rand_get_state(dst, engine=engine.gpsimd, name=None)
    set_rng_seed(src_seeds, name=None)
    nonzero_with_count(dst, src, index_offset=0, padding_val=-1, name=None)
    topk(val_dst, idx_dst, src, n, name=None)
    register_alloc(x=None)
    register_move|register_load|register_store(dst, src)
    get_nc_version()
    get_nc_sub_version()
    tensor_copy_dynamic_src|tensor_copy_dynamic_dst(dst, src, engine=engine.unknown, name=None)
""")
OTHER_ISA = """tensor_engine vector_engine scalar_engine gpsimd_engine unknown_engine engine reduce_cmd dge_mode
    oob_mode matmul_perf_mode nc_version dma_engine NkiInstruction NkiValidationError VirtualRegister"""
COLLECTIVES = table("""
    all_reduce(srcs, dsts, replica_group, op, priority=None, name=None)
    all_gather|all_to_all(srcs, dsts, replica_group, collective_dim, priority=None, name=None)
    all_gather_v|all_to_all_v(srcs, dsts, replica_group, metadata_tensor, recv_counts_known=False, has_rdispls=False,
                              priority=None, name=None)
    reduce_scatter(srcs, dsts, replica_group, collective_dim, op, priority=None, name=None)
    collective_permute(srcs, dsts, source_target_pairs, priority=None, name=None)
    collective_permute_implicit(srcs_by_channel, dsts_by_channel, replica_group, channel_ids=[0], priority=None,
                                name=None)
    collective_permute_implicit_reduce(srcs0_by_channel, srcs1_by_channel, dsts_by_channel, replica_group, op,
                                       channel_ids=[0], priority=None, name=None)
    collective_permute_implicit_current_processing_rank_id(iteration_id, replica_group, channel_id=0, name=None)
    rank_id(name=None)
""")


@pytest.mark.parametrize("module, names", [(language, LANGUAGE), (isa, ISA), (collectives, COLLECTIVES)])
def test_functions_have_the_documented_parameters_and_defaults(module, names):
    for name, text in names.items():
        assert parameters(getattr(module, name)) == documented(text), name
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
import nki.compiler, nki.dtype, nki.meta
assert nki.dtype.bfloat16 == nl.bfloat16
assert nki.dtype and nki.tensor.zeros and nki.meta.tensor and nt.mutable_tensor and oob_mode is nisa.oob_mode
import sys
assert not any(m.startswith("torch_mlir") for m in sys.modules)
import neuronxcc.nki.language
import numpy as np, nki.tensor as ntensor, nki.meta.tensor
from nki.tensor import full
assert (ntensor.identity(3, dtype=nl.int8) == np.eye(3)).all() and ntensor.identity(3, dtype=nl.int8).dtype == np.int8
assert nki.tensor is ntensor and ntensor.ones((2, 3), nl.bfloat16).dtype == nl.bfloat16.numpy
assert ntensor.arange(0, 1, 0.5).tolist() == [0.0, 0.5] and full(2, 7).dtype == np.int32 and ntensor.eye(2).dtype == np.float32
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_tile_size(monkeypatch):
    monkeypatch.setenv("NKI_MLIR_STRICT", "1")
    t = language.tile_size
    assert (t.pmax, t.psum_bank_fmax, t.gemm_moving_fmax, t.psum_num_banks) == (128, 512, 512, 8)
    with pytest.warns(UserWarning, match="psum_fmax is deprecated, use psum_bank_fmax"):
        assert t.psum_fmax == t.psum_bank_fmax
    assert (t.sbuf_fmax_bytes, t.sbuf_fmax, t.sbuf_size_bytes) == (245752, 61438, 33554432)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert (t.sbuf_fmax_bytes, t.sbuf_size_bytes) == (212984, 29360128)
    with pytest.warns(UserWarning, match="total_available_sbuf_size is deprecated, use sbuf_fmax_bytes"):
        assert t.total_available_sbuf_size == t.sbuf_fmax_bytes
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    assert t.psum_num_banks == 7


def test_objects():
    class Config(language.NKIObject):
        rows: int
        scale: float = 2.0

        def __post_init__(self):
            self.double = self.rows * 2
    config = Config(rows=3)
    assert (config.rows, config.scale, config.double) == (3, 2.0, 6) and config == Config(3) and config != Config(4)
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        Config(other=1)
