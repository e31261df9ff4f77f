# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``nki.language`` in every release that changed a name, as the documents of that release write it."""

HISTORY = """\
[nki.language]
DType
    2.32   constant = str
MemoryRegion
    2.29   enum {sbuf='sbuf', psum='psum', private_hbm='private_hbm', shared_hbm='shared_hbm'}
NKIObject
    2.27   class
    2.30   class init(**kwargs)
NkiTensor
    2.29   class(NKIObject)
    2.30   class(NKIObject) init(shape, dtype, storage, buffer=MemoryRegion.sbuf, name='', pattern=None, offset=0,
            scalar_offset=None, vector_offset=None, indirect_dim=0) attributes{sim_value, device_value}
    2.31   class(NKIObject) init(shape, dtype, storage, buffer=sbuf, name='') attributes{reinterpret_cast}
    2.32   class(NKIObject) init(shape, dtype, storage, buffer=sbuf, name='') attributes{shape, strides, offset, name,
            dtype, buffer, ndim, size, reinterpret_cast}
abs invert rsqrt
    2.20   (x, dtype=None, mask=None, **kwargs)
    2.21   (x, *, dtype=None, mask=None, **kwargs)
    2.27   (x, dtype=None)
abs_max abs_min
    2.30   (x, y, dtype=None)
add bitwise_and bitwise_or bitwise_xor divide maximum minimum multiply power subtract
    2.20   (x, y, dtype=None, mask=None, **kwargs)
    2.21   (x, y, *, dtype=None, mask=None, **kwargs)
    2.27   (x, y, dtype=None)
affine_range
    2.20   (*args)
    2.21   (*args, **kwargs)
    2.27   (start, stop=None, step=1)
all
    2.20   (x, axis, dtype=bool, mask=None, **kwargs)
    2.21   (x, axis, *, dtype=bool, mask=None, **kwargs)
    2.27   -
    2.29   (x, axis, dtype=None)
all_reduce
    2.20   (x, op, program_axes, dtype=None, mask=None, parallel_reduce=True, asynchronous=False, **kwargs)
    2.21   (x, op, program_axes, *, dtype=None, mask=None, parallel_reduce=True, asynchronous=False, **kwargs)
    2.27   -
arange
    2.20   (*args)
    2.27   -
arctan erf erf_dx exp gelu gelu_apprx_tanh gelu_dx log mish relu sigmoid sign sin softplus sqrt square tanh
    2.20   (x, dtype=None, mask=None, **kwargs)
    2.21   (x, *, dtype=None, mask=None, **kwargs)
    2.27   token
    2.29   (x, dtype=None)
atomic_rmw
    kinds  SCALAR value
    2.20   (dst, value, op, mask=None, **kwargs)
    2.21   (dst, value, op, *, mask=None, **kwargs)
    2.27   -
average
    2.31   constant
bfloat16
    2.20   constant = np.dtype('bfloat16')
    2.27   constant = 'bfloat16'
bfp16
    2.26   class attributes{min}
    2.27   -
bool_
    2.20   constant = np.bool_
    2.27   constant = 'bool'
broadcast_to
    current TENSOR x, EXTENTS shape
    2.22   (src, *, shape, **kwargs)
    2.27   -
    2.29   (x, shape, dtype=None)
bypass prelu
    2.30   constant
ceil cos floor negative transpose trunc
    2.20   (x, dtype=None, mask=None, **kwargs)
    2.21   (x, *, dtype=None, mask=None, **kwargs)
    2.27   -
    2.29   (x, dtype=None)
copy
    2.20   (src, mask=None, dtype=None, **kwargs)
    2.21   (src, *, mask=None, dtype=None, **kwargs)
    2.27   token
    2.29   (x, dtype=None)
device_print
    current NAME print_prefix, TENSOR tensor
    2.20   (prefix, x, mask=None, **kwargs)
    2.21   (prefix, x, *, mask=None, **kwargs)
    2.27   (print_prefix, tensor)
dropout
    2.20   (x, rate, dtype=None, mask=None, **kwargs)
    2.21   (x, rate, *, dtype=None, mask=None, **kwargs)
    2.27   -
    2.29   (x, rate, dtype=None)
ds
    kinds  START start, INDEX size
    2.21   (start, size)
dynamic_range
    kinds  INTEGER step
    2.29   (start, stop=None, step=1)
empty_like
    kinds  TILE a
    current TENSOR x
    2.22   (a, dtype=None, *, buffer=None, name='', **kwargs)
    2.27   -
    2.29   (x, dtype=None, buffer=None, name='')
equal greater greater_equal less less_equal logical_and logical_or logical_xor not_equal
    2.20   (x, y, dtype=bool, mask=None, **kwargs)
    2.21   (x, y, *, dtype=bool, mask=None, **kwargs)
    2.27   (x, y, dtype=bool)
    2.29   (x, y, dtype=None)
expand_dims
    current TENSOR x, INTEGER axis
    2.20   (data, axis)
    2.27   -
    2.29   (x, axis)
finfo
    2.20   (dtype)
    2.27   -
float16 float32 int16 int32 int8 uint16 uint32 uint8
    2.20   constant = np.{}
    2.27   constant = '{}'
float4_e2m1fn_x4 float8_e4m3fn_x4 float8_e5m2_x4
    2.27   constant = '{}'
float8_e4m3
    2.20   constant = np.dtype('|V1')
    2.22   constant = np.dtype('float8_e4m3')
    2.27   constant = 'float8_e4m3'
float8_e4m3fn
    2.28   constant = 'float8_e4m3fn'
float8_e5m2
    2.21   constant = np.dtype('float8_e5m2')
    2.27   constant = 'float8_e5m2'
float8_e8m0fnu
    2.31   constant
    2.32   constant: DType
fmod mod
    2.22   (x, y, dtype=None, mask=None, **kwargs)
    2.27   -
    2.29   (x, y, dtype=None)
fori_loop
    2.32   (lower, upper, body_fun, step=1)
fp32
    2.23   class attributes{min}
    2.27   -
full
    2.20   (shape, fill_value, dtype, buffer=None, name='', **kwargs)
    2.21   (shape, fill_value, dtype, *, buffer=None, name='', **kwargs)
    2.27   -
    2.29   (shape, fill_value, dtype, buffer=MemoryRegion.sbuf, name='')
gather_flattened
    current TENSOR data indices, INTEGER axis
    2.25   (data, indices, *, mask=None, dtype=None, **kwargs)
    2.27   -
    2.29   (data, indices, axis=0, dtype=None)
gelu_apprx_sigmoid
    2.26   (x, *, dtype=None, mask=None, **kwargs)
    2.27   (x, dtype=None)
gelu_apprx_sigmoid_dx
    2.28   (x, dtype=None)
gemm_grid gemm_stationary_grid
    2.20   ()
    2.27   -
hbm
    2.20   constant
    2.27   constant = 'hbm'
    2.29   constant = MemoryRegion.private_hbm
is_hbm is_on_chip is_psum is_sbuf
    2.29   (buffer)
left_shift right_shift
    2.21   (x, y, *, dtype=None, mask=None, **kwargs)
    2.27   (x, y, dtype=None)
load load_transpose2d
    current TENSOR src
    2.20   (src, mask=None, dtype=None, **kwargs)
    2.21   (src, *, mask=None, dtype=None, **kwargs)
    2.27   -
    2.29   (src, dtype=None)
logical_not
    2.20   (x, dtype=bool, mask=None, **kwargs)
    2.21   (x, *, dtype=bool, mask=None, **kwargs)
    2.27   (x, dtype=bool)
    2.29   (x, dtype=None)
loop_reduce
    kinds  TILE x, INDICES loop_indices
    2.20   (x, op, loop_indices, dtype=None, mask=None, **kwargs)
    2.21   (x, op, loop_indices, *, dtype=None, mask=None, **kwargs)
    2.27   -
matmul
    current TENSOR x y
    2.20   (x, y, transpose_x=False, mask=None, **kwargs)
    2.21   (x, y, *, transpose_x=False, mask=None, **kwargs)
    2.27   -
    2.29   (x, y, transpose_x=False)
max mean min prod sum
    2.20   (x, axis, dtype=None, mask=None, keepdims=False, **kwargs)
    2.21   (x, axis, *, dtype=None, mask=None, keepdims=False, **kwargs)
    2.27   -
    2.29   (x, axis, dtype=None, keepdims=False)
mgrid par_dim
    2.20   constant
    2.27   -
nc spmd_dim
    2.21   constant
    2.27   -
ndarray
    2.20   (shape, dtype, buffer=None, name='', **kwargs)
    2.21   (shape, dtype, *, buffer=None, name='', **kwargs)
    2.27   (shape, dtype, buffer=None, name='')
    2.29   (shape, dtype, buffer=MemoryRegion.sbuf, name='', address=None)
no_reorder
    2.29   ()
num_programs
    2.20   (axes=None)
    2.29   (axes=0)
ones
    2.20   (shape, dtype, buffer=None, name='', **kwargs)
    2.21   (shape, dtype, *, buffer=None, name='', **kwargs)
    2.27   -
    2.29   (shape, dtype, buffer=MemoryRegion.sbuf, name='')
private_hbm psum sbuf shared_hbm
    2.20   constant
    2.27   constant = '{}'
    2.29   constant = MemoryRegion.{}
program_id
    kinds  INTEGER axis
    2.20   (axis)
    2.29   (axis=0)
program_ndim
    2.20   ()
rand
    2.20   (shape, dtype=np.float32, **kwargs)
    2.27   -
    2.29   (shape, dtype, buffer=MemoryRegion.sbuf, name='')
random_seed
    2.20   (seed, mask=None, **kwargs)
    2.21   (seed, *, mask=None, **kwargs)
    2.27   -
    2.29   (seed)
reciprocal
    2.22   (x, *, dtype=None, mask=None, **kwargs)
    2.27   (x, dtype=None)
rms_norm
    beta   DIVISOR n
    current NUMBER n
    2.20   (x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None, mask=None, **kwargs)
    2.21   (x, w, axis, n, epsilon=1e-06, *, dtype=None, compute_dtype=None, mask=None, **kwargs)
    2.27   -
    2.29   (x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None)
sequential_range
    2.20   (*args)
    2.21   (*args, **kwargs)
    2.27   (start, stop, step)
    2.29   (start, stop=None, step=1)
shared_constant
    kinds  ARRAY constant
    2.20   (constant, dtype=None, **kwargs)
    2.27   (constant, dtype=None)
    2.29   (constant)
    2.29.1 -
    2.30   (constant)
shared_identity_matrix
    beta   COUNT n
    current INTEGER n
    2.21   (n, dtype=np.uint8, **kwargs)
    2.27   (n, dtype='uint8')
    2.29   (n, dtype='uint8', dst=None)
    2.30   (n, dtype=uint8, dst=None)
silu silu_dx
    2.21   (x, *, dtype=None, mask=None, **kwargs)
    2.27   token
    2.29   (x, dtype=None)
softmax
    2.20   (x, axis, dtype=None, compute_dtype=None, mask=None, **kwargs)
    2.21   (x, axis, *, dtype=None, compute_dtype=None, mask=None, **kwargs)
    2.27   -
    2.29   (x, axis=-1, dtype=None)
static_cast
    kinds  ARRAY arr input_data
    2.20   (arr, dtype)
    2.26   (input_data, dtype)
    2.27   -
static_range
    2.20   (*args)
    2.27   (start, stop=None, step=1)
store
    current TENSOR dst value
    2.20   (dst, value, mask=None, **kwargs)
    2.21   (dst, value, *, mask=None, **kwargs)
    2.27   -
    2.29   (dst, value)
tan
    2.21   (x, *, dtype=None, mask=None, **kwargs)
    2.27   -
    2.29   (x, dtype=None)
tfloat32
    2.20   constant = np.dtype('|V4')
    2.27   constant = 'tfloat32'
tile_size
    2.20   class attributes{bn_stats_fmax, gemm_moving_fmax, gemm_stationary_fmax, pmax, psum_fmax}
    2.21   class attributes{bn_stats_fmax, gemm_moving_fmax, gemm_stationary_fmax, pmax, psum_fmax, psum_min_align,
            sbuf_min_align}
    2.26   class attributes{bn_stats_fmax, gemm_moving_fmax, gemm_stationary_fmax, pmax, psum_fmax, psum_min_align,
            sbuf_min_align, total_available_sbuf_size}
    2.27   class(NKIObject) attributes{pmax, psum_fmax, gemm_stationary_fmax, gemm_moving_fmax, bn_stats_fmax,
            psum_min_align, sbuf_min_align, total_available_sbuf_size}
    2.29   class attributes{bn_stats_fmax, gemm_moving_fmax, gemm_stationary_fmax, pmax, psum_fmax, psum_min_align,
            sbuf_min_align, total_available_sbuf_size}
    2.30   class attributes{pmax, psum_fmax, psum_fmax_bytes, psum_num_banks, sbuf_size_bytes, sbuf_fmax,
            sbuf_fmax_bytes, gemm_stationary_fmax, gemm_moving_fmax, bn_stats_fmax, psum_min_align, sbuf_min_align,
            total_available_sbuf_size}
    2.31   class attributes{pmax, psum_fmax, psum_bank_fmax, psum_bank_fmax_bytes, psum_num_banks, sbuf_size_bytes,
            sbuf_fmax, sbuf_fmax_bytes, gemm_stationary_fmax, gemm_moving_fmax, bn_stats_fmax, psum_min_align,
            sbuf_min_align, total_available_sbuf_size}
    2.32   class(NKIObject) attributes{pmax, psum_fmax, psum_bank_fmax, psum_bank_fmax_bytes, gemm_stationary_fmax,
            gemm_moving_fmax, bn_stats_fmax, psum_min_align, sbuf_min_align, psum_num_banks, sbuf_size_bytes,
            sbuf_fmax, sbuf_fmax_bytes, total_available_sbuf_size}
var
    2.20   (x, axis, dtype=None, mask=None, **kwargs)
    2.21   (x, axis, *, dtype=None, mask=None, **kwargs)
    2.27   -
    2.29   (x, axis, dtype=None, keepdims=False)
where
    kinds  SCALAR condition x y
    2.20   (condition, x, y, dtype=None, mask=None, **kwargs)
    2.21   (condition, x, y, *, dtype=None, mask=None, **kwargs)
    2.27   -
    2.29   (condition, x, y, dtype=None)
while_loop
    2.32   (init, body_fun)
zeros
    2.20   (shape, dtype, buffer=None, name='', **kwargs)
    2.21   (shape, dtype, *, buffer=None, name='', **kwargs)
    2.27   (shape, dtype, buffer=None, name='')
    2.29   (shape, dtype, buffer=MemoryRegion.sbuf, name='')
zeros_like
    kinds  TILE a
    current TENSOR x
    2.20   (a, dtype=None, buffer=None, name='', **kwargs)
    2.21   (a, dtype=None, *, buffer=None, name='', **kwargs)
    2.27   -
    2.29   (x, dtype=None, buffer=None, name='')
"""
