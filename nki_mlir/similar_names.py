# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Names that users write instead of the language's: misspelled ones, and those of NumPy, PyTorch, JAX and Triton."""

from collections.abc import Iterable

ALIKE = 0.65                    # cutoff of difflib, by which ``sofmax`` is close to ``softmax`` and not to ``max8``
FOREIGN_ALIKE = 0.8             # the cutoff for names of other libraries: ``bf16x`` is close to ``bf16``
LONGEST = 200                   # characters of a name: comparing a longer text takes seconds
# Names of NumPy, PyTorch and Triton, to which difflib finds no name or a wrong one (``sub`` resembles ``sum``).
ELSEWHERE = {"mul": "multiply", "sub": "subtract", "div": "divide", "logical_shift_left": "left_shift",
             "logical_shift_right": "right_shift", "shift_left": "left_shift", "shift_right": "right_shift",
             "shl": "left_shift", "shr": "right_shift", "truediv": "divide", "true_divide": "divide",
             "neg": "negative", "pow": "power", "absolute": "abs", "dot": "matmul", "mm": "matmul", "bmm": "matmul",
             "amax": "max", "amin": "min", "dim": "axis", "out": "dst", "output": "dst", "src": "data",
             "lhst": "stationary", "rhs": "moving", "input": "data", "empty": "ndarray", "tensor": "ndarray",
             "float64": "float32", "double": "float32", "fp32": "float32", "float": "float32", "single": "float32",
             "f32": "float32", "tf32": "tfloat32", "fp16": "float16", "half": "float16", "f16": "float16",
             "bf16": "bfloat16", "float8": "float8_e4m3", "fp8": "float8_e4m3", "int": "int32", "i32": "int32",
             "long": "int64", "short": "int16", "char": "int8", "int64": "int32", "uint64": "uint32",
             "byte": "uint8", "u8": "uint8", "i8": "int8", "uint": "uint32", "boolean": "bool_", "float_": "float32",
             "float128": "float32", "longdouble": "float32", "int_": "int32", "intc": "int32", "intp": "int32",
             "uintc": "uint32", "uintp": "uint32", "ge": "greater_equal", "gt": "greater", "le": "less_equal",
             "lt": "less", "eq": "equal", "ne": "not_equal", "bitwise_not": "invert", "bitwise_invert": "invert",
             "bitwise_left_shift": "left_shift", "bitwise_right_shift": "right_shift", "atan": "arctan",
             "fmax": "maximum", "fmin": "minimum", "fabs": "abs", "sgn": "sign", "fix": "trunc", "average": "mean",
             "array": "ndarray", "asarray": "ndarray", "as_tensor": "ndarray", "broadcast": "broadcast_to",
             "swish": "silu", "square_root": "sqrt", "reciprocal_sqrt": "rsqrt", "inverse_sqrt": "rsqrt",
             "inv_sqrt": "rsqrt", "invsqrt": "rsqrt", "inverse": "reciprocal", "inv": "reciprocal", "variance": "var"}

REDUCTIONS = {"maximum": "max", "minimum": "min", "add": "sum", "multiply": "prod", "logical_and": "all"}


def same_name(name: str, names: Iterable[str]) -> str:
    """Return the name that differs from an unknown one only in upper case or in the order of its words, or the
    language's name for a name of another library; "" if there is none."""
    listed = [*names]
    lowered = {n.lower(): n for n in reversed(listed)}
    lower_name = name.lower()
    words = sorted(lower_name.split("_"))
    return lowered.get(lower_name) or lowered.get(ELSEWHERE.get(lower_name, ""), "") or next(
        (n for n in listed if sorted(n.lower().split("_")) == words), "")


def nearest(name: str, names: Iterable[str], cutoff: float = ALIKE) -> str:
    """Return the name that the user probably meant by an unknown one, or "": the same name, a similar one (the first
    of equally similar ones), or the one for a name of another library that is more similar."""
    from difflib import SequenceMatcher  # start-up: imported on first use
    listed = [*names]
    if len(name) > LONGEST:
        return ""
    if same := same_name(name, listed):
        return same

    def closest(candidates: Iterable[str]) -> tuple[str, float]:
        ratios = {n: SequenceMatcher(None, n.lower(), name.lower()).ratio() for n in candidates}
        best = max(ratios, key=ratios.__getitem__, default="")
        return best, ratios.get(best, 0.0)
    similar, ratio = closest(listed)
    foreign, foreign_ratio = closest(n for n, meant in ELSEWHERE.items() if meant in listed)
    if foreign_ratio > max(ratio, FOREIGN_ALIKE):
        return ELSEWHERE[foreign]
    return similar if ratio >= cutoff else ""


# Names of other libraries to which no single name of the language corresponds, with what computes the same.
_COMPOSED = (
    ("concatenate concat cat hstack vstack dstack stack block append",
     "create a tile of the complete shape with nl.ndarray, and write each part to its slice"),
    ("split chunk array_split hsplit vsplit unbind narrow", "take slices of the tile: t[:, 0:64]"),
    ("reshape squeeze unsqueeze ravel flatten view_as",
     "reshape the tile: t.reshape(shape), which keeps the partitions"),
    ("permute swapaxes moveaxis movedim t mt",
     "transpose tiles with nisa.nc_transpose, and tensors in HBM while they are loaded, with nl.load_transpose2d"),
    ("tensor_add tensor_sub tensor_subtract tensor_mul tensor_multiply tensor_max tensor_maximum tensor_min "
     "tensor_minimum", "use nisa.tensor_tensor with op=nl.add or another operator; with a number, nisa.tensor_scalar"),
    ("reduce reduce_sum reduce_max reduce_min",
     "use nisa.tensor_reduce with op=nl.add or another operator, or nl.sum, nl.max and nl.min"),
    ("dma dma_load dma_store dma_start memcpy", "use nisa.dma_copy(dst=..., src=...)"),
    ("clip clamp hardtanh", "use nl.minimum(nl.maximum(x, low), high)"),
    ("argmax argmin max_index topk top_k sort argsort",
     "nisa.max8 and nisa.nc_find_index8 find the eight largest elements of each row and their indices"),
    ("cumsum cumprod cummax cummin associative_scan scan", "use nisa.tensor_tensor_scan"),
    ("select select_n masked_select", "nl.where(condition, x, y) selects elements; nisa.affine_select selects them by "
                                      "their indices"),
    ("arange", "nisa.iota writes consecutive integers to a tile"),
    ("range", "loops are for i in nl.affine_range(n); nisa.iota writes consecutive integers to a tile"),
    ("fill fill_ full_like ones_like", "create the tile, and fill it with nisa.memset"),
    ("round rint around", "nl.floor of x + 0.5 rounds, halves up"),
    ("sinh", "use (exp(x) - exp(-x)) / 2, with nl.exp"),
    ("cosh", "use (exp(x) + exp(-x)) / 2, with nl.exp"),
    ("arcsin asin", "use nl.arctan of x / sqrt(1 - x * x)"),
    ("erfc", "subtract nl.erf(x) from 1.0"),
    ("logit", "use nl.log of x / (1 - x)"),
    ("relu6", "use nl.minimum(nl.relu(x), 6.0)"),
    ("leaky_relu", "use nl.maximum of x and slope * x, for a slope below 1"),
    ("elu celu selu", "select x or exp(x) - 1 with nl.where(nl.greater(x, 0.0), ...)"),
    ("glu", "use nl.multiply of one half of the elements and nl.sigmoid of the other"),
    ("hardsigmoid", "use nl.minimum(nl.maximum(x / 6 + 0.5, 0.0), 1.0)"),
    ("hardswish", "multiply x by nl.minimum(nl.maximum(x / 6 + 0.5, 0.0), 1.0)"),
    ("quick_gelu", "multiply x by nl.sigmoid of 1.702 * x"),
    ("softsign", "divide x by nl.add(nl.abs(x), 1.0)"),
    ("prelu rrelu", "select x or slope * x with nl.where(nl.greater(x, 0.0), ...)"),
    ("erfinv", "pass what the host computes: no instruction computes the inverse of nl.erf"),
    ("gumbel_softmax", "add noise to x, and use nl.softmax(x, axis)"),
    ("masked_fill", "use nl.where(mask, value, x)"),
    ("logsigmoid log_sigmoid", "negate nl.softplus(nl.negative(x))"),
    ("softmin", "use nl.softmax(nl.negative(x), axis)"),
    ("isinf isfinite", "compare nl.abs(x) with infinity, float('inf')"),
    ("std", "use nl.sqrt(nl.var(x, axis))"),
    ("norm", "use nl.sqrt(nl.sum(nl.square(x), axis))"),
    ("eye identity", "use nl.shared_identity_matrix(n)"),
    ("tril triu", "select elements with nisa.affine_select"),
    ("einsum tensordot vdot inner addmm baddbmm linear", "use nl.matmul, or nisa.nc_matmul"),
    ("repeat repeat_interleave expand expand_as tile", "repeat elements with nl.broadcast_to(x, shape)"),
    ("log2 log10", "multiply nl.log(x) by 1 / math.log(base)"),
    ("exp2", "use nl.exp of nl.multiply(x, math.log(2))"),
    ("log1p", "use nl.log of nl.add(x, 1.0)"),
    ("expm1", "subtract 1.0 from nl.exp(x)"),
    ("log_softmax", "subtract nl.log(nl.sum(nl.exp(x), axis)) from x, both after their maximum is subtracted"),
    ("logsumexp", "use nl.log(nl.sum(nl.exp(x), axis)) after the maximum is subtracted"),
    ("layer_norm layernorm batch_norm batchnorm group_norm instance_norm",
     "nisa.bn_stats and nisa.bn_aggr compute mean and variance; scale with nisa.tensor_scalar"),
    ("any", "nl.max of nl.not_equal(x, 0) is 1 if any element differs from 0"),
    ("count_nonzero nonzero", "nl.sum of nl.not_equal(x, 0) counts the elements that differ from 0"),
    ("vector scalar gpsimd", "engines are nisa.vector_engine, nisa.scalar_engine and nisa.gpsimd_engine"),
    ("isnan", "use nl.not_equal(x, x), which is true for NaN"),
    ("gather take take_along_axis index_select",
     "use nl.gather_flattened in each partition, or load rows by an index tile"),
    ("linspace", "compute it from the integers that nisa.iota writes"),
    ("randn normal randint uniform", "nl.rand draws numbers from 0 to 1"),
    ("pad", "create the larger tile with nl.zeros, and write the elements to a slice of it"),
    ("numpy cpu tolist detach item", "return the tile from the kernel, or print it with nl.device_print"),
    ("clone contiguous", "use nl.copy(t)"),
    ("numel nelement size", "math.prod(t.shape) is the number of its elements"),
    ("to type cast type_as astype float half double long int bool bfloat16 float16 float32",
     "convert it with nl.copy(t, dtype=nl.bfloat16), or another dtype"),
    ("cdiv", "use (a + b - 1) // b"),
    ("at", "write to a slice of the tile, t[...], which is a view of its memory"),
    ("stride data_ptr storage_offset", "index the tensor with slices; the compiler computes the addresses"),
    ("loop for_loop fori_loop while_loop foreach vmap", "write a Python loop: for i in nl.affine_range(n)"),
    ("cond when switch", "write a Python if on constants and program ids, and select elements of tiles with nl.where"),
    ("static_print debug_print", "print tiles with nl.device_print"),
    ("barrier debug_barrier syncthreads synchronize",
     "leave it out: an instruction starts when the instructions that write its operands have ended"),
)
COMPOSED = {name: text for names, text in _COMPOSED for name in names.split()}
