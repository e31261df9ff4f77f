# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The mistakes of kernels that the emulated engine finds: a class for each kind.

``kind`` is the name that the sources in ``engine`` and ``include`` report, and ``fields`` names their values.
"""

from nki_mlir.customop.findings import Fault, FoundError, KernelWarning


# -- transfers ---------------------------------------------------------------------------------------------------------
class TransferOutOfBounds(Fault):
    kind, fields = "transfer-range", ("into_tcm", "first", "count", "elements")
    code = "NKI-GPSIMD-TRANSFER"
    message = "a transfer of {count} elements from element {first} on leaves the tensor, which has {elements}"
    why = "offsets count elements of the flat tensor, not bytes; the emulation skipped the transfer"
    fix = "for row r of n elements the offset is r * n"


class TransferBeyondBlock(Fault):
    kind, fields = "tcm-range", ("size", "start", "block", "way")
    code = "NKI-GPSIMD-TCM-RANGE"
    message = "a transfer would {way} {size} bytes at byte {start} of a TCM block of {block} bytes"
    why = "the block is allocated in {other}; the emulation skipped the transfer"
    fix = "end the transfer within the {block} bytes, or allocate a larger block"


class TransferAfterFree(Fault):
    kind, fields = "tcm-freed", ("size", "block", "unused", "way")
    code = "NKI-GPSIMD-TCM-FREED"
    message = "a transfer would {way} {size} bytes of a TCM block that has been freed"
    why = "it was freed in {other}; the emulation skipped the transfer"
    fix = "call tcm_free after the last transfer of the block"


class TransferNotTcm(Fault):
    kind = "tcm-foreign"
    code = "NKI-GPSIMD-TCM-POINTER"
    message = "a transfer uses an address that tcm_malloc did not return"
    fix = "allocate the buffer with torch::neuron::tcm_malloc"


class TransferNull(Fault):
    kind = "tcm-null"
    code = "NKI-GPSIMD-TCM-NULL"
    message = "a transfer uses a null pointer for tightly coupled memory"
    why = "tcm_malloc returns null if the pool of 16,384 bytes has no block of that size left"
    fix = "use smaller blocks, or process a row in parts; compare the result of tcm_malloc with nullptr"


class TransferType(Fault):
    kind, fields = "tcm-type", ("given", "wanted")
    code = "NKI-GPSIMD-TRANSFER-TYPE"
    message = "a transfer moves elements of {given} bytes, and the elements of the tensor have {wanted} bytes"
    fix = "call the functions of the accessor with the element type of the tensor"


# -- loads and stores of the kernel itself -----------------------------------------------------------------------------
class AccessBeyondBlock(Fault):
    kind, fields = "access-range", ("does", "size", "distance", "block")
    code = "NKI-GPSIMD-ACCESS-RANGE"
    message = "the kernel {does} {size} bytes at byte {distance} of a TCM block of {block} bytes"
    why = "the block is allocated in {other}"
    fix = "stay within the {block} bytes, or allocate a larger block"


class AccessAfterFree(Fault):
    kind, fields = "access-freed", ("does", "size", "distance", "block")
    code = "NKI-GPSIMD-ACCESS-FREED"
    message = "the kernel {does} {size} bytes of a TCM block that has been freed"
    why = "it was freed in {other}"
    fix = "call tcm_free after the last use of the block"


class AccessOutsideBlocks(Fault):
    kind, fields = "access-foreign", ("does", "size")
    code = "NKI-GPSIMD-ACCESS-TCM"
    message = "the kernel {does} {size} bytes of tightly coupled memory that is not allocated"
    fix = "use only memory of blocks that torch::neuron::tcm_malloc returned"


class AccessNull(Fault):
    kind, fields = "access-null", ("does", "size", "distance")
    code = "NKI-GPSIMD-ACCESS-NULL"
    message = "the kernel {does} {size} bytes through a null pointer"
    why = "tcm_malloc returns null if the pool of 16,384 bytes has no block of that size left"
    fix = "use smaller blocks; compare the result of tcm_malloc with nullptr"


# -- the pool ----------------------------------------------------------------------------------------------------------
class FreedTwice(Fault):
    kind, fields = "free-twice", ("block",)
    code = "NKI-GPSIMD-FREE-TWICE"
    message = "a TCM block of {block} bytes is freed again"
    why = "it was freed in {other}"
    fix = "call tcm_free once for each block"


class FreeNotTcm(Fault):
    kind = "free-foreign"
    code = "NKI-GPSIMD-FREE"
    message = "tcm_free gets an address that tcm_malloc did not return"
    fix = "pass the address that tcm_malloc returned"


class Leaked(KernelWarning):
    kind, fields = "leak", ("block",)
    code = "NKI-GPSIMD-LEAK"
    message = "this allocation of {block} bytes of tightly coupled memory is never freed"
    why = "the pool of a core has 16,384 bytes and is not emptied between calls on the device"
    fix = "free it with torch::neuron::tcm_free before the kernel returns"


# -- accessors ---------------------------------------------------------------------------------------------------------
class DivisionByZero(Fault):
    kind = "divide"
    code = "NKI-GPSIMD-DIVISION"
    message = "an integer is divided by zero, or the lowest one by -1"
    why = "the quotient is not defined, and the core stops here"
    fix = "test the operands before the division"


class IndexOutOfRange(Fault):
    kind, fields = "index", ("given", "size", "axis")
    code = "NKI-GPSIMD-INDEX"
    message = "index {given} is outside of axis {axis}, which has size {size}"
    fix = "use an index of at least 0 and less than {size}"


class AccessorInMulticore(Fault):
    kind, fields = "multicore-accessor", ("what",)
    code = "NKI-GPSIMD-MULTICORE"
    message = "{what} is opened in multicore mode"
    why = "the caches of the cores are not coherent, so only TCM accessors are allowed"
    fix = "use tcm_accessor(), or build the library with multicore=False"


class AccessorType(Fault):
    kind, fields = "accessor-type", ("dtype_given", "dtype")
    code = "NKI-GPSIMD-ACCESSOR-TYPE"
    message = "an accessor of {dtype_given} elements is opened on a tensor of {dtype}"
    fix = "open the accessor with the C++ type of {dtype}"


class AccessorRank(Fault):
    kind, fields = "accessor-rank", ("given", "rank")
    code = "NKI-GPSIMD-ACCESSOR-RANK"
    message = "an accessor of {given} dimensions is opened on a tensor that has {rank}"
    fix = "open an accessor of {rank} dimensions"


class StreamEnd(Fault):
    kind, fields = "stream-end", ("does", "elements")
    code = "NKI-GPSIMD-STREAM-END"
    message = "a stream {does} more than the {elements} elements of its tensor"
    fix = "stop after {elements} elements"


class StreamClosed(Fault):
    kind, fields = "stream-closed", ("does",)
    code = "NKI-GPSIMD-STREAM-CLOSED"
    message = "the kernel {does} through a stream that is closed"
    fix = "call close() after the last element"


class AccessorsNotCoherent(FoundError):
    """The texts of accessors and streams that are open together on one tensor, for both policies that report them."""

    fields = ("what", "elements", "reads", "writes")
    code = "NKI-GPSIMD-COHERENCE"
    message = "{what} is opened while {elements} element accessors, {reads} read and {writes} write streams are open"
    why = "a tensor has any number of element accessors, or of read streams, or one write stream at a time"
    fix = "close the others first, or set_accessor_coherence_policy(torch::CoherencyEnforcer::INCOHERENT_QUIET)"


class Incoherent(AccessorsNotCoherent, Fault):
    kind = "coherence"


class IncoherentVerbose(AccessorsNotCoherent, KernelWarning):
    kind = "coherence-verbose"


# -- results -----------------------------------------------------------------------------------------------------------
class NoDestination(Fault):
    kind = "no-dst"
    code = "NKI-GPSIMD-DESTINATION"
    message = "a multicore kernel returns without having called get_dst_tensor()"
    why = "each core writes its part of one tensor; values that cores return are ignored"
    fix = "write to the tensor that get_dst_tensor() returns, and return it"


class WrongResult(Fault):
    kind = "result"
    code = "NKI-GPSIMD-RESULT"
    message = "the results of the kernel and of its shape function differ: {text}"
    fix = "return a tensor with the shape function's shape and dtype, or correct the shape function"


class Unwritten(KernelWarning):
    kind, fields = "unwritten", ("missing", "elements", "first")
    code = "NKI-GPSIMD-UNWRITTEN"
    message = "{missing} of the {elements} elements of the output are never written, first element {first}"
    why = "they have no value; the first write is in {other}"
    fix = "write all {elements} elements, also the last ones if blocks or cores do not divide the tensor"


class Overlapping(KernelWarning):
    kind, fields = "overlap", ("elements", "begin", "a", "b")
    code = "NKI-GPSIMD-OVERLAP"
    message = "more than one core writes {elements} elements of the output"
    why = "cores {a} (in {other}) and {b} both write element {begin}; which value remains is not defined"
    fix = "give each core its own part; offsets count elements of the flat tensor"


class WritesInput(Fault):
    kind = "writes-input"
    code = "NKI-GPSIMD-INPUT"
    message = "the kernel writes a tensor that is an argument"
    why = "arguments are read-only, so the emulation skipped the write"
    fix = "write to the tensor of get_dst_tensor(), or to a tensor that the kernel creates"


# -- sizes, dtypes, operands -------------------------------------------------------------------------------------------
class TooManyTensorDims(Fault):
    kind, fields = "dims", ("rank",)
    code = "NKI-GPSIMD-DIMS"
    message = "a tensor has {rank} dimensions; it can have at most 8"
    fix = "join some of the dimensions"


class LongDim(Fault):
    kind, fields = "long-dim", ("size", "rank", "longest")
    code = "NKI-GPSIMD-DIMS"
    message = "a dimension of a tensor of {rank} dimensions is {size}; it must be at most {longest}"
    why = "sizes are up to 4,294,967,295 in up to 4 dimensions, and up to 65,535 in up to 8"
    fix = "divide the tensor, or use at most 4 dimensions"


class NegativeSize(Fault):
    kind, fields = "negative-size", ("size",)
    code = "NKI-GPSIMD-DIMS"
    message = "a dimension of a tensor is {size}; it must be 0 or more"
    fix = "correct the size that the code computes"


class NoSuchDim(Fault):
    kind, fields = "size-range", ("given", "rank")
    code = "NKI-GPSIMD-DIM"
    message = "the code reads dimension {given} of a tensor with {rank} dimensions"
    fix = "read a dimension less than {rank}"


class NoDtype(Fault):
    kind = "no-dtype"
    code = "NKI-GPSIMD-OPTIONS"
    message = "a tensor is created without a dtype"
    fix = "create a tensor: torch::zeros(size, torch::kFloat)"


class OperandShapes(Fault):
    kind = "operand-shapes"
    code = "NKI-GPSIMD-OPERANDS"
    message = "the operands of an elementwise function, or its result, have different shapes"
    why = "these functions do not broadcast"
    fix = "give the operands and the result the same shape"


class ResultType(Fault):
    kind, fields = "result-type", ("dtype_computed", "dtype")
    code = "NKI-GPSIMD-RESULT-TYPE"
    message = "a function that computes {dtype_computed} writes a result of {dtype}"
    fix = "give the result the dtype {dtype_computed}"


class BitwiseType(Fault):
    kind, fields = "bitwise-type", ("dtype",)
    code = "NKI-GPSIMD-BITWISE"
    message = "a bitwise function reads a tensor of {dtype}"
    fix = "use integers"


class FractionalAlpha(Fault):
    kind = "alpha"
    code = "NKI-GPSIMD-ALPHA"
    message = "alpha is not an integer, and the tensors are integers"
    fix = "pass an integer, or convert the tensors to floats"


class NegativePower(Fault):
    kind, fields = "negative-power", ("exponent",)
    code = "NKI-GPSIMD-POWER"
    message = "a tensor of integers is raised to the power {exponent}"
    fix = "use a fractional exponent, -1.0 for -1: the result is of float32"


class NoReturn(Fault):
    kind = "no-return"
    code = "NKI-GPSIMD-RETURN"
    message = "a function ends without returning its result"
    fix = "return the tensor, also if get_dst_tensor() was called"


class UndefinedTensor(Fault):
    kind = "undefined-tensor"
    code = "NKI-GPSIMD-UNDEFINED"
    message = "an undefined torch::Tensor is used"
    fix = "assign a tensor to it first, such as torch::zeros(size, torch::kFloat)"


# -- shape functions, and what users check themselves ------------------------------------------------------------------
class DataInShape(Fault):
    kind = "shape-data"
    code = "NKI-GPSIMD-SHAPE-DATA"
    message = "a shape function uses the elements of a tensor"
    why = "a shape function runs before the data exist: its tensors have sizes and dtypes only"
    fix = "compute the shape from sizes, dtypes and numbers"


class DestinationInShape(Fault):
    kind = "dst-in-shape"
    code = "NKI-GPSIMD-SHAPE-DST"
    message = "get_dst_tensor() is called outside of a kernel"
    fix = "call it in a kernel"


class TcmInShape(Fault):
    kind = "tcm-in-shape"
    code = "NKI-GPSIMD-SHAPE-TCM"
    message = "tightly coupled memory is used outside of a kernel"
    fix = "allocate it in a kernel"


class CheckFailed(Fault):
    kind = "check"
    code = "NKI-GPSIMD-CHECK"
    message = "{text}"


class Thrown(Fault):
    kind = "exception"
    code = "NKI-GPSIMD-EXCEPTION"
    message = "the operator's code throws: {text}"


class PrintedOnCore(KernelWarning):
    kind = "printf-core"
    code = "NKI-GPSIMD-PRINTF"
    message = "the device does not show what this kernel prints on cores other than 0"
    fix = "if (get_cpu_id() == 0) printf(...)"
