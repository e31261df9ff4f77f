# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pages of ``nl`` and of the methods of ``NkiTensor``: arguments, results and rules.

P are partitions, F elements of a partition, over all free axes. Where the generations differ, a text is ``beta |
current``. Functions of one form share a page: ``{formula}`` stands for the function's formula, in NumPy and
``scipy.special``. Methods return views, which copy nothing.
"""

from nki_mlir.language.entries.entry import Page

TILE = "[P, F...] in SBUF or PSUM"
COMMON = {
    "x": TILE, "data": TILE, "a": "a tensor in any memory",
    "axis": "free axes, counted from the front or the back | the last free axes, counted from the front or the back",
    "dtype": "the result's dtype; x's by default",
    "mask": "a condition on loop variables and indices; by default all elements are active",
    "keepdims": "True keeps reduced axes, with extent 1; False drops them, but keeps one free axis",
    "compute_dtype": "the dtype of intermediate values; float32 by default",
    "shape": "the tensor's extents; in SBUF and PSUM the partition is the first",
    "name": "the tensor's name in IR and messages",
    "buffer": "the memory: nl.sbuf, nl.psum, nl.hbm or nl.shared_hbm",
    "args": "integers: stop; start, stop; or start, stop, step",
    "start": "the first value; without stop, the number of values, which start at 0",
    "stop": "the end, which is excluded",
    "step": "the increment, not 0",
}
IN_HBM = "A tile in HBM is an error."
MOVED = "More than 128 partitions, and a mask or tile of the wrong shape, are errors. | " \
        "More than 128 partitions, and a tile of the wrong shape or in the wrong memory, are errors."
SHAPE = "An extent that is not a positive integer, and more than 128 partitions on chip, are errors. | " \
        "An extent that is not a positive integer, and a buffer that is not a memory, are errors."
PROMOTED = "the result's dtype; by default the promotion of both dtypes, where a number counts as int32 or float32 | " \
           "the result's dtype; by default the promotion of the tiles' dtypes; a number's dtype does not count"
PAIR = {"x": f"{TILE}, or a number", "dtype": PROMOTED,
        "y": "a tile or a number; shapes broadcast as in NumPy | "
             "a tile of x's shape or a number; a tile [P, 1] is repeated, with a warning"}
UNLIKE = "Shapes that do not broadcast and tiles in HBM are errors. | " \
         "Tiles of different shapes and tiles in HBM are errors."
BITS = "Tiles of floats are errors. " + UNLIKE.replace("| ", "| Tiles of floats are errors. ")
AXES = "Axis 0, the partition, is an error. | Axis 0, the partition, and axes that are not the last ones are errors."
FILLED = "A buffer in HBM is an error: create the tensor with nl.ndarray and write it with nl.store. | " + SHAPE.split(
    " | ")[1]
OF_LIKE = " | A buffer that is not a memory is an error."
LIKE = {"x": "a tensor in any memory", "dtype": "the dtype of the elements; the tensor's by default",
        "buffer": "the memory; nl.sbuf by default | the memory; the tensor's by default"}

GRID = "An axis that the launch does not have is an error. | A call outside of a kernel is an error."
ELEMENTWISE = ("tensor_tensor", "tensor_scalar")
PAGES: dict[str, Page] = {
    "add subtract multiply": Page(
        ELEMENTWISE, PAIR, "{formula} of each element, in float32 and rounded once; of 32-bit integers exactly, "
        "modulo 2^32.", UNLIKE),
    "maximum minimum power": Page(
        ELEMENTWISE, PAIR, "{formula} of each element, in float32 and rounded once.", UNLIKE),
    "divide mod fmod": Page(
        ELEMENTWISE, PAIR, "{formula} of each element, in float32 and rounded once. | {formula} of each element, in "
        "float32 and rounded once. A warning says that no device has the operator.", UNLIKE),
    "abs_max abs_min": Page(ELEMENTWISE, PAIR, "{formula} of each element, from NeuronCore-v4 on.",
                            "A machine before NeuronCore-v4, tiles of different shapes and tiles in HBM are errors."),
    "bitwise_and bitwise_or bitwise_xor left_shift": Page(ELEMENTWISE, PAIR, "{formula} of each element's bits.", BITS),
    "right_shift": Page(ELEMENTWISE, PAIR, "{formula} of each element's bits, filled with zeros.", BITS),
    "equal not_equal greater greater_equal less less_equal logical_and logical_or logical_xor": Page(
        ELEMENTWISE, PAIR | {"dtype": "the result's dtype; bool by default | " + PROMOTED.split(" | ")[1]},
        "1 where {formula} holds, else 0.", UNLIKE),
    "exp log sin cos tan tanh arctan sqrt rsqrt sigmoid relu gelu gelu_dx gelu_apprx_tanh gelu_apprx_sigmoid "
    "gelu_apprx_sigmoid_dx silu silu_dx erf erf_dx softplus mish square sign abs floor ceil trunc": Page(
        ("activation",), {}, "{formula} of each element, in float32 and rounded once.", IN_HBM),
    "reciprocal": Page(
        ("reciprocal",), {}, "{formula} of each element, in float32 and rounded once. Wide tiles use the activation "
                             "instruction.",
        IN_HBM),
    "negative": Page(("tensor_scalar",), {}, "{formula} of each element, in float32 and rounded once.", IN_HBM),
    "logical_not": Page(("tensor_scalar",), {"dtype": "the result's dtype; bool by default | the result's dtype; x's "
        "by default"},
                        "1 where {formula} holds, else 0.", IN_HBM),
    "invert": Page(("tensor_scalar",), {}, "{formula}: all bits of each element inverted.",
                   "A tile of floats is an error."),
    "sum prod max min": Page(("tensor_reduce",), {}, "{formula} over the axes, in float32 and rounded once.", AXES),
    "all": Page(("tensor_reduce",), {"dtype": "the result's dtype; bool by default | the result's dtype; x's by "
                                              "default"},
                "1 where all elements along the axes are nonzero, else 0.", AXES),
    "mean": Page(("tensor_reduce", "tensor_scalar"), {
        "dtype": "the result's dtype; x's by default, float32 for integers | the result's dtype; x's by default"},
        "The sum over the axes divided by the number of their elements, in float32.", AXES),
    "var": Page(("tensor_reduce", "tensor_scalar", "activation"), {
        "keepdims": "has no effect: the result keeps the axes, with extent 1"},
        "The mean of the squared differences from the mean over the axes, in float32.", AXES),
    "softmax": Page(("tensor_reduce", "tensor_scalar", "activation"), {},
                    "exp(x - m) / its sum over the axes, with m the maximum, in float32 and rounded once.", AXES),
    "rms_norm": Page(("activation", "tensor_reduce", "tensor_scalar", "tensor_tensor"), {
        "w": "weights of x's shape, or of a shape that broadcasts to it, such as [P, 1]",
        "n": "the divisor of the sum of squares", "epsilon": "added to the sum of squares / n"},
        "x / sqrt(sum of x * x over the axes / n + epsilon) * w, in float32 and rounded once.", AXES),
    "where": Page(("tensor_copy_predicated",), {
        "condition": "a tile is [P, F...] of any dtype; any value but 0 is true",
        "x": "the values where condition is true",
        "y": "the values elsewhere",
        "dtype": "the result's dtype; by default the promotion of x's and y's | "
        "the result's dtype; x's by default, y's if x is a number"}, "x where the condition is true, else y.", UNLIKE),
    "dropout": Page(("dropout",), {"rate": "the probability of 0, from 0 to 1; a tile is [P, 1]"},
                    "x with elements set to 0 at random; the others are not scaled.",
                    "A probability outside of 0 to 1 is an error."),
    "gather_flattened": Page(("gather_flattened",), {
        "indices": "[P, I...] of uint32, which count elements in a partition of data", "axis": "0",
        "dtype": "the result's dtype; data's by default"},
        "[P, I...]: the elements of each partition of data, flattened, at its indices.",
        "A tile in HBM, and indices that are not 32-bit integers, are errors."),
    "matmul": Page(("nc_matmul",), {
        "x": "[M, K], or [K, M] with transpose_x; M and K at most 128", "y": "[K, N], N at most 512",
        "transpose_x": "True: x is [K, M], as the engine needs it; False: nl.transpose runs first, at its cost"},
        "[M, N] float32 in PSUM: x @ y, or x.T @ y, summed in float32.",
        "Larger operands, and different K, are errors."),
    "transpose": Page(("nc_transpose",), {"x": "[P, F] in SBUF or PSUM, F at most 128"},
                      "[F, P] in SBUF: x with its axes exchanged. | [F, P] in PSUM: x with its axes exchanged.",
                      "More than two axes, and more than 128 elements along one, are errors."),
    "load": Page(("dma_copy",), {"src": "[P, F...] in HBM, P at most 128; a tile of indices may select rows",
                                 "dtype": "the result's dtype; src's by default"},
                 "A new tile [P, F...] in SBUF with src's elements, converted to dtype.", MOVED),
    "load_transpose2d": Page(("dma_copy",), {"src": "[F, P] in HBM", "dtype": "the result's dtype; src's by default"},
                             "A new tile [P, F] in SBUF: src with its axes exchanged.", MOVED),
    "store": Page(("dma_copy",), {
        "dst": "[P, F...] in HBM; a tile of indices may select rows",
        "value": "[P, F...] in SBUF or PSUM, or a number | [P, F...] in SBUF or PSUM"},
        "None. dst gets value's elements, converted to its dtype.", MOVED),
    "copy": Page(("tensor_copy",), {"src": TILE, "dtype": "the result's dtype; the operand's by default"},
                 "A new tile in SBUF with the elements, bit for bit unless dtype converts them.", IN_HBM),
    "broadcast_to": Page(("tensor_copy",), {"shape": "the result's shape; each extent of x is the same or 1"},
                         "A new tile in which x is repeated along its axes of extent 1; x itself if it has the shape.",
                         "A shape to which x does not broadcast, and one with more or fewer axes, are errors."),
    "expand_dims": Page((), {"axis": "the index of the new axis, 1 or more"},
                        "A view with one more axis, of extent 1; nothing is copied.",
                        "An axis that the result does not have is an error. | "
                        "Axis 0, the partition, and one that the result does not have, are errors."),
    "ndarray": Page((), {"dtype": "the dtype of the elements",
        "address": "(partition, byte) on chip; by default the compiler chooses"},
                    "A tensor of that shape whose elements are not set.", SHAPE),
    "zeros ones": Page(("memset",), {"dtype": "the dtype of the elements"},
        "A tensor whose elements are all {formula}.", FILLED),
    "full": Page(("memset",), {"fill_value": "converted to dtype", "dtype": "the dtype of the elements"},
                 "A tensor whose elements are all fill_value.", FILLED),
    "zeros_like": Page(("memset",), LIKE, "A tensor of that shape whose elements are all 0.",
                       FILLED.split(" | ")[0] + OF_LIKE),
    "empty_like": Page((), LIKE, "A tensor of that shape whose elements are not set.",
                       "More than 128 partitions on chip are an error." + OF_LIKE),
    "rand": Page(("rand",), {"dtype": "the dtype of the elements"},
        "A tile of random numbers, uniform from 0 to below 1.", SHAPE),
    "random_seed": Page(("random_seed",), {"seed": "a number of 32 bits, or a [1, 1] tile | a [1, 1] tile of 32-bit "
        "integers"},
                        "None. The random numbers that follow are the same in each run.",
                        "A tile of several elements is an error."),
    "shared_constant": Page((), {"constant": "an array of NumPy | an array of NumPy, or the path of a .npy file",
                                 "dtype": "the tensor's dtype; the array's by default"},
                            "A tensor in HBM with the values, which every program of a launch sees; 64-bit numbers "
                            "become 32-bit ones.", "An argument that is not an array of numbers is an error."),
    "shared_identity_matrix": Page((), {
        "n": "the number of rows | the number of rows, 1 to 128", "dst": "[n, n] in SBUF; gets the matrix",
        "dtype": "the dtype of the elements"},
                                   "The identity matrix [n, n] in HBM. | The identity matrix [n, n] in SBUF.",
                                   "An n that is not a positive integer is an error. | An n outside of 1 to 128 is an "
                                   "error."),
    "ds": Page((), {"start": "the first element | the first element, which may also be a register",
        "size": "how many elements"},
               "A slice: t[..., ds(start, size)] selects the elements from start to start + size - 1.",
               "A slice that ends beyond the tensor is an error."),
    "affine_range": Page((), {}, "A loop whose iterations may run in any order. | A range; the loop unrolls.",
                         "A write, other than +=, to a tensor from outside of the loop at an index without its "
                         "variable is an error. | Bounds that are not integers are errors."),
    "sequential_range": Page((), {}, "A loop whose iterations run in order. | A range, whose loop unrolls; for bounds "
                             "in registers a dynamic_range.",
                             "Bounds that are not integers are errors. | Bounds that are neither integers nor "
                             "registers are errors."),
    "static_range": Page((), {}, "A loop that unrolls: its variable is a Python int.",
                         "Bounds that are not integers are errors."),
    "dynamic_range": Page((), {"start": "the first value, or without stop the number of values: an int or a register",
                               "stop": "an int or a register", "step": "1 or more"},
                          "A loop that runs on the device; its variable is a register that cannot be written.",
                          "break, return, and Python values that an iteration changes are errors."),
    "fori_loop": Page((), {"lower": "an int or a register", "upper": "an int or a register",
                           "body_fun": "takes the register i and returns None; tensors carry state from one iteration "
                                       "to the next",
                           "step": "1 or more"},
                      "None. body_fun runs for i = lower, lower + step, ... below upper.",
                      "A body that returns something, and one that changes Python values, are errors."),
    "while_loop": Page((), {"init": "a register, which the loop does not change; no iteration runs if it is 0",
                            "body_fun": "takes the loop's register, and returns the next one"},
                       "None. body_fun runs until it returns a register that is 0.",
                       "A body that returns no register is an error."),
    "no_reorder": Page((), {}, "A context manager. Instructions inside start in the order in which they are written.",
                       "A dynamic loop inside is an error."),
    "program_id": Page((), {"axis": "an axis of the launch | an axis of the launch; the index is 0 along an axis "
                                    "that it does not have"},
                       "This program's number along the axis, from 0.", GRID),
    "num_programs": Page((), {"axes": "axes of the launch; all by default | an axis of the launch"},
                         "How many programs run along the axes.", GRID),
    "program_ndim": Page((), {}, "How many axes the launch has. | 1 if the kernel is launched with a grid in "
                                 "brackets, else 0.", "None."),
    "par_dim": Page((), {"x": "an extent"}, "x itself.", "None."),
    "device_print": Page((), {"prefix": "a text printed before the tensor",
        "print_prefix": "a text printed before the tensor",
                              "tensor": "a tensor in SBUF or HBM"}, "None. The simulator prints the tensor.",
                         "A prefix that is not a string is an error."),
    "is_sbuf is_psum is_hbm is_on_chip": Page((), {"buffer": "a memory, such as nl.sbuf or t.buffer"},
                                              "True or False.", "A buffer that is not a memory is an error."),
    "arange": Page((), {"args": "integers: stop, or start and stop"},
                   "An index with one axis; [:, None] and [None, :] say along which axis it counts.",
                   "A third bound is an error."),
    "static_cast": Page((), {"input_data": "a number or an array of NumPy", "dtype": "the result's dtype"},
                        "The number or array, converted as the machine converts it.",
                        "A value that is not a dtype is an error."),
    "atomic_rmw": Page(("dma_scatter",), {"dst": "rows in HBM, which a tile of indices selects",
        "value": "[P, F] in SBUF",
                                          "op": "np.add, the only operator"},
                       "None. value is added to the rows; a row whose index occurs twice gets both.",
                       "A dst without a tile of indices is an error."),
    "all_reduce": Page(("all_reduce",), {"op": "an operator, such as nl.add", "program_axes": "axes of the launch",
                                         "parallel_reduce": "has no effect", "asynchronous": "has no effect"},
                       "x folded by op over all programs along the axes; each program gets the result.",
                       "An axis that the launch does not have is an error."),
    "loop_reduce": Page(("tensor_tensor",), {"op": "an operator, such as nl.add",
                                             "loop_indices": "the variables of loops that contain the call"},
                        "x folded by op over the iterations of the loops; assign it to a tile that was created "
                        "outside of them.",
                        "An op that is not an operator is an error."),
}
BETA_PAGES = {
    "broadcast_to": Page((), {"src": TILE, "shape": "the result's shape"},
                         "A view in which src is repeated along its axes of extent 1; nothing is copied.",
                         "A shape to which src does not broadcast, as in NumPy, is an error."),
}
FORMULAS = {
    "add": "x + y", "subtract": "x - y", "multiply": "x * y", "divide": "x / y", "maximum": "np.maximum(x, y)",
    "minimum": "np.minimum(x, y)", "power": "x ** y", "mod": "np.mod(x, y)", "fmod": "np.fmod(x, y)",
    "abs_max": "np.where(np.abs(x) > np.abs(y), x, y)", "abs_min": "np.where(np.abs(x) < np.abs(y), x, y)",
    "bitwise_and": "x & y", "bitwise_or": "x | y", "bitwise_xor": "x ^ y", "left_shift": "x << y",
    "right_shift": "x >> y", "equal": "x == y", "not_equal": "x != y", "greater": "x > y", "greater_equal": "x >= y",
    "less": "x < y", "less_equal": "x <= y", "logical_and": "np.logical_and(x, y)",
    "logical_or": "np.logical_or(x, y)", "logical_xor": "np.logical_xor(x, y)", "exp": "np.exp(x)", "log": "np.log(x)",
    "sin": "np.sin(x)", "cos": "np.cos(x)", "tan": "np.tan(x)", "tanh": "np.tanh(x)", "arctan": "np.arctan(x)",
    "sqrt": "np.sqrt(x)", "rsqrt": "1 / np.sqrt(x)", "sigmoid": "expit(x)", "relu": "np.maximum(x, 0)",
    "gelu": "x * ndtr(x)", "gelu_dx": "ndtr(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)",
    "gelu_apprx_tanh": "x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))) / 2",
    "gelu_apprx_sigmoid": "x * expit(1.702 * x)",
    "gelu_apprx_sigmoid_dx": "expit(1.702 * x) * (1 + 1.702 * x * expit(-1.702 * x))", "silu": "x * expit(x)",
    "silu_dx": "expit(x) * (1 + x * expit(-x))", "erf": "erf(x)", "erf_dx": "2 / np.sqrt(np.pi) * np.exp(-x * x)",
    "softplus": "np.log1p(np.exp(x))", "mish": "x * np.tanh(np.log1p(np.exp(x)))", "square": "x * x",
    "sign": "np.sign(x)", "abs": "np.abs(x)", "reciprocal": "1 / x", "floor": "np.floor(x)", "ceil": "np.ceil(x)",
    "trunc": "np.trunc(x)", "negative": "-x", "logical_not": "x == 0", "invert": "~x", "sum": "np.sum(x)",
    "prod": "np.prod(x)", "max": "np.max(x)", "min": "np.min(x)", "zeros": "0", "ones": "1",
}


# -- methods of tensors ------------------------------------------------------------------------------------------------
COMMON_OF_VIEWS = {
    "dim": "the dimension, counted from 0", "step": "1 or more", "size": "its new extent", "dtype": "the view's dtype",
    "shape": "extents; one may be -1", "start": "the first element", "end": "the end, which is excluded",
}
ON_CHIP = "Dimension 0 on chip, the partition, is an error."
VIEWS = {
    "slice": Page((), {}, "The elements start, start + step, ... below end of the dimension.",
                  "A part beyond the dimension, and an empty one, are errors."),
    "select": Page((), {"index": "an integer, or known at run time: a register or a [1, 1] tile of integers"},
                   "One element of the dimension, which is dropped; on chip dimension 0 stays, of extent 1.",
                   "An integer beyond the dimension is an error; a run-time index beyond it is one when the program "
                   "runs."),
    "vector_select": Page((), {"dim": "0", "vector_offset": "[N, 1] of 32-bit integers in SBUF"},
                          "The N rows of a tensor in HBM at these indices, as an operand of a DMA.",
                          "A tensor on chip, and a dim other than 0, are errors."),
    "permute": Page((), {"dims": "all dimensions in their new order"}, "The dimensions in that order.",
                    "Dims that are not each dimension once, and on chip a new position for dimension 0, are errors."),
    "broadcast": Page((), {}, "A view in which the dimension, of extent 1, is repeated.",
                      "A dimension whose extent is not 1 is an error. " + ON_CHIP),
    "expand_dim": Page((), {"dim": "the index of the new dimension"}, "A view with one more dimension, of extent 1.",
        ON_CHIP),
    "squeeze_dim": Page((), {}, "A view without the dimension, which has extent 1.",
                        "A dimension whose extent is not 1 is an error. " + ON_CHIP),
    "reshape_dim": Page((), {}, "A view in which the dimension is split into several.",
                        "Extents whose product is not the dimension's are errors. " + ON_CHIP),
    "flatten_dims": Page((), {"start_dim": "the first", "end_dim": "the last, which is included"},
                         "A view in which the dimensions are merged.",
                         "Dimensions whose steps do not nest are errors. " + ON_CHIP),
    "reshape": Page((), {}, "The same elements in another shape.",
                    "More elements, in HBM also fewer, and a shape that needs a copy, are errors."),
    "rearrange": Page((), {
        "src_pattern": "a name for each dimension, or a tuple of names for the parts of one",
        "dst_pattern": "the names in their new order; a tuple of names is one dimension",
        "fixed_sizes": "extents by name; one of each tuple may be left out"},
        "The dimensions split, reordered and merged.",
        "Patterns with different names, and an order that needs a copy, are errors."),
    "view": Page((), {}, "The same bits as another dtype; the last extent changes with the size of an element.",
                 "A last dimension that does not divide, or is not dense, is an error."),
    "ap": Page((), {
        "pattern": "one pair for each dimension, outermost first, in elements of the storage; on chip partitions "
                   "first",
        "offset": "elements added to the view's start",
        "scalar_offset": "a register or a [1, 1] tile, added at run time, in steps of indirect_dim",
        "vector_offset": "[N, 1] of integers: a row of a tensor in HBM for each",
        "indirect_dim": "the dimension that scalar_offset counts"},
        "An access pattern on the complete storage, whatever the view's shape is.",
        "A pattern beyond the storage is an error where it is used; two run-time offsets in one call are an error."),
    "indirect": Page((), {
        "index": "[P, K] of integers in SBUF: 16 partitions share a list of offsets, offset i at [i % 16, i // 16]",
        "num_elem": "how many offsets are used; all by default"},
        "Columns of a tensor on chip, one for each offset, from NeuronCore-v4 on.",
        "A machine before NeuronCore-v4, and a tensor in HBM, are errors."),
}
VIEWS["reinterpret_cast"] = VIEWS["view"]
