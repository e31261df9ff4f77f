# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of capturing a kernel: indices, masks, scopes, control flow, unknown names."""

from collections.abc import Iterable, Mapping

import numpy as np

from nki_mlir.diagnostics import KernelError, NkiMlirError
from nki_mlir.similar_names import COMPOSED, nearest, same_name


class OutOfScope(KernelError):
    code = "err_local_variable_used_out_of_scope"
    message = "tensor {name} was created inside a loop or branch that has ended"
    why = "a tensor that a loop or branch allocates ends with it: each iteration allocates another"
    fix = "create it before the loop or branch and write it in place: t[...] = value; in nki by dst=t"

    @property
    def advice(self) -> tuple[str, str]:
        why, fix = super().advice
        is_parallel = self.values.get("is_parallel", False)         # parallel iterations may not write the same tensor
        return why, fix + "; make the loop an nl.sequential_range" * is_parallel


class OfAnotherCall(KernelError):
    code = "NKI-TENSOR-OF-ANOTHER-CALL"
    message = "tensor {name} was created in another call or program of a kernel, which has ended"
    why = "only tensors that a call returns outlive it; a global or an attribute kept this one"
    fix = "return it from that kernel, and pass it to this one as a parameter"


class NoRoomForTensor(KernelError, MemoryError):
    code = "NKI-HOST-ROOM"
    message = "a tensor of shape {shape} of {dtype} takes {bytes} bytes, which this machine cannot allocate"
    fix = "correct the shape, or work on a part of the tensor at a time"


class AnnotationMismatch(KernelError):
    code = "err_annotation_shape_mismatch"
    message = "the annotation says {annotated}, but the value has shape {shape}"
    fix = "correct the annotation or the index expression"


class ArangeInCondition(KernelError):
    code = "err_control_flow_condition_depending_on_arange"
    message = "a Python condition depends on nl.arange or nl.mgrid, which has {size} values at once"
    fix = "pass the condition as mask= of the operation; join several with &, not with 'and'"


class UnsupportedMask(KernelError):
    code = "err_unsupported_expression_in_mask"
    message = "{what}"
    fix = "{instead}"

    def __init__(self, *, instead: str = "write the mask as affine comparisons joined by &", **values: str) -> None:
        super().__init__(instead=instead, **values)


class NotAffine(KernelError):
    code = "NKI-AFFINE"
    message = "{what}"
    why = "an index is a sum of constants times loop variables and index tensors"
    fix = "compute it on Python integers (nl.static_range), or as a tile with nisa.iota"


class WrongIndexType(NotAffine):
    message = "{value!r} is not an index"

    @property
    def advice(self) -> tuple[str, str]:
        if "float" in type(self.values["value"]).__name__:
            return "", "divide with //, or round with math.ceil or math.floor"
        return super().advice


class IndexShapes(NotAffine):
    message = "index tensors of shapes {first} and {second} do not broadcast"
    fix = "give the partition nl.arange(n)[:, None], and the free axis nl.arange(n)[None, :]"


class TensorName(KernelError, ValueError):
    code = "NKI-TENSOR-NAME"
    message = "a tensor has the name {name}, which has half of a surrogate pair"
    why = "the IR stores names as UTF-8, which has no such character"
    fix = "write the character itself, or another name"


class DividedByZero(KernelError, ZeroDivisionError):
    code = "NKI-ZERO-DIVISION"
    message = "{what} is {operation} {by}"
    fix = "use a divisor that is not 0"


class TensorTruth(KernelError, ValueError):
    code = "err_ambiguous_tensor_truth_value"
    message = "the truth value of a tensor is ambiguous"
    fix = ("select with nl.where, nl.maximum or nl.minimum; use & | ~ on tiles, `is None` for optional tensors, and "
           "mask= for conditions on indices")


class DynamicControlFlow(KernelError):
    code = "err_dynamic_control_flow_not_supported"
    message = "a Python condition depends on the value of a tile, which only the device knows"
    fix = "select with nl.where, or mask the operation"


class DeviceValue(KernelError, TypeError):
    code = "NKI-DEVICE-VALUE"
    message = "Python needs the value of a tile, which only the device knows"
    fix = "compute with the tile itself, or pass the number to the kernel as a constant"


class AssignToIndex(KernelError):
    code = "err_cannot_assign_to_index"
    message = "an index tensor cannot be assigned to"
    fix = "create a tile from it with nisa.iota, and write the tile"


class OneDimensionalArange(KernelError):
    code = "err_1d_arange_not_supported"
    message = "a one-dimensional index tensor cannot index a tensor"
    fix = "give it the tile's dimensions: nl.arange(n)[:, None] for partitions, nl.arange(n)[None, :] for the free axis"


class MixedIndexing(KernelError):
    code = "err_unsupported_mixing_basic_advanced_tensor_indexing"
    message = "a subscript mixes slices with index tensors"
    fix = "write every subscript as an index tensor (nl.arange, nl.mgrid), or every one as a slice"


class MGridCall(KernelError, TypeError):
    code = "NKI-TYPE"
    message = "nl.mgrid {what}; it takes slices in brackets"
    fix = "write nl.mgrid[0:128, 0:512]"


class TooManySubscripts(KernelError, IndexError):
    code = "NKI-SUBSCRIPT"
    message = "a tensor of {rank} dimensions is indexed by {given} subscripts"
    fix = "give at most one subscript for each dimension"


class BeyondIndex(KernelError, IndexError):
    code = "NKI-SUBSCRIPT"
    message = "subscript {at} is outside of an index tensor's axis with {extent} positions"
    fix = "use {least} to {largest}"

    def __init__(self, *, at: int, extent: int) -> None:
        super().__init__(at=at, extent=extent, least=-extent, largest=extent - 1)


class IteratedIndex(KernelError, TypeError):
    code = "NKI-SUBSCRIPT"
    message = "a loop iterates over an index, which is one number"
    fix = "loop over nl.affine_range(n)"


class BadSubscript(KernelError, TypeError):
    code = "NKI-SUBSCRIPT"
    message = "{item} of type {kind} cannot be a subscript"
    fix = "use integers, slices, nl.ds, nl.arange or nl.mgrid; None only on index tensors"

    @property
    def advice(self) -> tuple[str, str]:
        if self.values["kind"] == "NoneType":
            return "", "insert a dimension with reshape, which moves no elements: t.reshape(shape)"
        return ("", "divide with //, or round with math.ceil or math.floor") if "float" in self.values["kind"] else (
            super().advice)


class EmptySubscript(KernelError):
    code = "NKI-EMPTY"
    message = "a subscript of tensor {name} selects no elements: it has shape {shape}"
    fix = "skip the operation with a Python if when the slice is empty"


class MaskedView(UnsupportedMask):
    message = "a tile with a mask attached is {what}"
    fix = "attach the mask last: tile.reshape(...)[mask]"


class LoopBound(KernelError, ValueError):
    code = "NKI-RANGE"
    message = "a bound of the loop is a number of {bits} bits; loops of the device count in 64 bits"
    fix = "correct the bounds, or write a loop that ends by break as a while"


class UnrollLimit(KernelError):
    code = "NKI-UNROLL-LIMIT"
    message = "the loop at {site} must be unrolled because {why}, and exceeds the limit of {limit} iterations"
    fix = "make the loop body the same for every iteration, or raise the limit: nki.jit(unroll_limit=...)"


class ImmutableParameter(KernelError):
    code = "err_cannot_update_immutable_parameter"
    message = "the input tensor {name} is written, but it is immutable"
    fix = ("write to a tensor created with nl.ndarray(..., buffer=nl.shared_hbm) and return it, "
           "or annotate it nt.mutable_tensor")


class MutableNotReturned(KernelError):
    code = "err_mutable_parameter_not_returned"
    message = "the mutable parameter {name} is written, but not returned"
    fix = "return it with the kernel's results"


class OutsideKernel(KernelError):
    code = "err_nki_api_outside_of_nki_kernel"
    message = "{name} was called outside of a kernel"
    fix = "call it in a function decorated with nki.jit, and run that"


class UnexpectedOutputDependencies(KernelError):
    code = "err_unexpected_output_dependencies"
    message = "Unexpected output dependencies, missing indices in the dst access: {missing}"
    why = "iterations of nl.affine_range and programs of a grid are independent, but each of them writes {name} here"
    fix = "index {name} with {missing}, accumulate with +=, or make the loop an nl.sequential_range"
    programs: tuple[int, ...] = ()              # the grid's axes, if it misses only these


class SharedHbmInside(KernelError):
    code = "err_shared_hbm_must_in_kernel_level"
    message = "a shared_hbm tensor is allocated inside a loop, a branch or an inlined kernel"
    fix = "allocate it at the top level of the kernel, before the loop, branch or call that uses it"


class SharedTensorsDiffer(KernelError):
    code = "NKI-PROGRAMS-DIFFER"
    message = "Tensor {name} has mismatched shape or dtype across program instances: {here}, and {first} in another one"
    why = "the programs of a grid share it: each allocates the same memory"
    fix = "make the tensor alike in all programs, and select with subscripts"


class NestedGrid(KernelError):
    code = "err_nested_kernel_with_spmd_grid"
    message = "a kernel calls {name} with its own launch grid"
    fix = "call it without a grid: the calling kernel's grid is the only one"


class RankTooSmall(KernelError):
    code = "NKI-RANK"
    message = "Insufficient rank: on-chip tensors have a partition and a free dimension, got shape {shape}"
    fix = "use ({extent}, 1)"


class TooManyDimensions(KernelError):
    code = "err_exceed_max_supported_dimension"
    message = "'{op}' takes tiles of at most {limit} dimensions, got {rank}"
    fix = "reshape the tile, or work on slices of it"


class BlockTensorNotTile(KernelError):
    code = "err_failed_to_infer_tile_from_local_tensor"
    message = "a tensor of shape {shape}, whose partition dimension is not the first, is used as one tile"
    fix = "index its block dimensions first: t[i] gives a tile"


class PartitionsNotFirst(BlockTensorNotTile):
    message = "a tile of {count} partitions is used as one of shape {shape}, whose first dimension is the partition"
    why = "the first dimension of an on-chip tensor is its partition dimension, unless nl.par_dim marks another one"
    fix = "mark that dimension where the other tensor is created: nl.par_dim({count})"


class BlockDimensionsWarning(DeprecationWarning):
    """``err_leading_dimension_of_tensor_must_be_partition``: block dimensions work, but are deprecated."""


class WhileEntry(KernelError, ValueError):
    code = "err_while_loop_requires_unconditional_entry"
    message = "a while loop whose condition is the value of a tile does not start with scalar(True)"
    why = "such a loop runs on the device, which knows the condition at the end of each iteration, not before the first"
    fix = "set the condition to scalar(True) before the loop, and to scalar(tile) at the end of its body"


class CarriedState(KernelError):
    code = "NKI-WHILE-STATE"
    message = "an iteration of a device loop changes Python variables that the next one reads: {names}"
    why = "the loop's body is captured once; only tensors created before the loop carry values to the next iteration"
    fix = "create a tensor before the loop and write it in place: t[...] = value; in nki by dst=t"


class BadReshape(KernelError):
    code = "NKI-RESHAPE"
    message = "{what}"
    fix = "keep the partition dimension and the number of elements; copy the tile first where its elements are strided"


class BadBroadcast(BadReshape):
    code = "NKI-SHAPE"
    message = "shape {shape} does not broadcast to {wanted}"
    fix = "give both the same shape, or extents of 1 where elements repeat"


ZERO_STEP_FIX = "give a step of 1 or more, or leave it out"


class BadStep(KernelError):
    code = "NKI-SLICE-STEP"
    message = "a slice has step {step}; steps must be positive"
    fix = "reverse with an index: tile[i_p, last - i_f], where i_p, i_f = nl.mgrid[...]"

    @property
    def advice(self) -> tuple[str, str]:
        return super().advice if self.values["step"] else ("", ZERO_STEP_FIX)


class BadSliceSize(KernelError):
    code = "NKI-SLICE-SIZE"
    message = "nl.ds takes a size of at least 0, got {size}"
    fix = "give the number of elements; to go backwards, index with last - nl.arange(size)"


class TwoEllipses(KernelError, IndexError):
    code = "NKI-SUBSCRIPT"
    message = "a subscript can have one ellipsis (...) at most"
    fix = "write : for the other dimensions"


class UnknownName(NkiMlirError, AttributeError):
    code = "NKI-NAME"
    message = "{owner} has no attribute '{missing}'{meant}"
    fix = "{instead}"

    @property
    def name(self) -> str:
        """The code of the error. Python assigns the name that the lookup missed, and would print its own suggestion
        once more."""
        return self.code

    @name.setter
    def name(self, requested: str) -> None:
        pass


FEW = 16                            # an error lists this many names, if none is near


def unknown(owner: str, name: str, names: Iterable[str], instead: Mapping[str, str], functions: Iterable[str] = ()
            ) -> AttributeError:
    """Return the error for an attribute that ``owner`` lacks. Its fix is the entry of ``instead``, a function of nl
    that computes on ``owner`` (``functions`` lists them), or the closest of ``names``.

    Names with a leading underscore, which Python itself looks up, get a plain ``AttributeError``.
    """
    if name.startswith("_"):
        return AttributeError(f"{owner} has no attribute '{name}'")
    listed = [n for n in names if not n.startswith("_")]
    function = same_name(name, functions)
    fix = instead.get(name) or (f"call nl.{function}" if function else "")
    suggestion = "" if fix else same_name(name, listed)
    if not fix and not suggestion:
        fix = COMPOSED.get(name.lower(), "")
        if not fix and name in np.__all__:              # NumPy's ``median`` is no misspelled ``mean``
            fix = "the device has no such function: write it with those that dir() lists, or call it on the host"
        suggestion = "" if fix else nearest(name, listed)
    fix = fix or ("use " + " or ".join([*filter(None, [", ".join(listed[:-1])]), *listed[-1:]]) if len(listed) <= FEW
                  else "use a name that dir() lists")
    error = UnknownName(owner=owner, missing=name, meant=f"; did you mean {suggestion}?" if suggestion else "",
                        instead=f"write {suggestion}" if suggestion else fix)
    error.here()
    return error
