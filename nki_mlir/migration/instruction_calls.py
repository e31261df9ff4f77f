# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewrites calls of ``nisa`` for the current generation, in which the first argument is the destination.

An instruction that returned a new tile gets one that is created before it, or the tensor that its result was
assigned to.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import libcst as cst
import numpy as np

from nki_mlir.language.current import isa as current_isa
from nki_mlir.machine import Machine
from nki_mlir.migration import terms
from nki_mlir.migration.calls import BINARY, DESTINATIONS, HAVE_DESTINATION, Arguments, Calls, Recipe
from nki_mlir.migration.creation_calls import shape_items
from nki_mlir.migration.diagonals import pattern
from nki_mlir.migration.elementwise import FLOATING
from nki_mlir.migration.expressions import LeftForAPerson
from nki_mlir.migration.facts import PSUM, SBUF, Fact, IndexFact, MaskFact, NumberFact, Shape, TensorFact, promoted
from nki_mlir.migration.language_calls import axes_of, largest, last_axes, reduced
from nki_mlir.migration.operation_text import LATER_ROWS, OperationText
from nki_mlir.migration.product_masks import K, M, N, masked_factors
from nki_mlir.migration.views import clamped

INSTRUCTIONS: dict[str, Recipe] = {}
FP32_MIN = "-3.4028234663852886e+38"
DMA_TRANSPOSE_AXES = {2: [1, 0], 3: [2, 1, 0], 4: [3, 1, 2, 0]}       # of a source, by its rank
TOKENS = {"op", "op0", "op1", "reduce_op", "comp_op0", "comp_op1", "cmp_op"}


class InstructionForm(NamedTuple):
    """An instruction: the operand whose shape and dtype its result has, or the columns and the dtype of the result."""

    like: str
    columns: int = 0
    dtype: str = ""


LIKE = {"activation": "data", "activation_reduce": "data", "tensor_scalar": "data", "tensor_scalar_reduce": "data",
        "scalar_tensor_tensor": "data", "tensor_copy": "src", "reciprocal": "data", "dropout": "data",
        "tensor_tensor_scan": "data0", "range_select": "on_true_tile", "nc_match_replace8": "data"}
NOUNS_OF_RESULTS = {"tensor_copy": "copied", "tensor_tensor_scan": "scan"}
TOTALS = {"add": "total", "maximum": "largest", "max": "largest", "minimum": "smallest", "min": "smallest"}
FORMS = {name: InstructionForm(like) for name, like in LIKE.items()} | {
    "bn_stats": InstructionForm("data", 6), "bn_aggr": InstructionForm("data", 2), "max8": InstructionForm("src", 8),
    "nc_find_index8": InstructionForm("data", 8, "nl.uint32")}


def recipe(*names: str) -> Callable[[Recipe], Recipe]:
    """Decorate a function that rewrites calls of these functions of ``nisa``."""
    def add(function: Recipe) -> Recipe:
        for name in names:
            INSTRUCTIONS[f"nisa.{name}"] = function
        return function
    return add


def operands(a: Arguments, name: str, replaced: dict[str, str], like: TensorFact | None = None) -> str:
    """Return ``, name=value`` in the order of the newest signature. Operands are cut to the partitions of ``like``,
    which a mask may have cut."""
    calls, parts = a.calls, []
    parameters = list(inspect.signature(getattr(current_isa, name)).parameters)
    unknown = [n for n in a.nodes if n not in (*parameters, "dtype", "engine") and n not in replaced]
    if unknown:
        raise LeftForAPerson(f"nisa.{name} has no {unknown[0]}")
    for parameter in parameters[1:]:
        if parameter in replaced:
            parts.append(f", {parameter}={replaced[parameter]}" if replaced[parameter] else "")
        elif parameter not in a:
            continue
        elif parameter in TOKENS:
            parts.append(f", {parameter}={a.token(parameter)}")
        elif isinstance(a.fact(parameter), TensorFact):
            text, tensor = _values(a) if parameter == "vals" else a.tensor(parameter)
            if like is not None and like.shape is not None and tensor.shape is not None:
                rows = like.like((like.shape[0], *tensor.shape[1:]))
                text, tensor = calls.shortened(text, tensor, rows)
                if (a.mask is None or a.selects_no_box) and tensor.rank == like.rank:
                    _keep_elements(a, parameter, tensor, like)
            parts.append(f", {parameter}={text}")
        else:
            parts.append(f", {parameter}={a.text(parameter)}")
    return "".join(parts)


def _values(a: Arguments) -> tuple[str, TensorFact]:
    """Return the eight values of each row that an instruction searches for. A mask only cuts their rows."""
    mask = a.mask
    a.mask = mask and replace(mask, bounds=tuple(b for b in mask.bounds if b.axis == -b.rank))
    operand = a.tensor("vals")
    a.mask = mask
    return operand


def _keep_elements(a: Arguments, parameter: str, tensor: TensorFact, like: TensorFact) -> None:
    """Let an operand, or the operand that shapes the result, keep all elements along axes where a mask has cut one of
    them so that their extents differ."""
    assert tensor.shape is not None and like.shape is not None
    different = [k for k, (x, y) in enumerate(zip(tensor.shape, like.shape)) if x != y and x != "1" and (
        k == 0 or y != "1")]
    for node in (a.nodes[parameter], *(n for n in a.nodes.values() if a.calls.fact(n) == like)):
        a.calls.keep_elements(node, different)


def _name_of_result(a: Arguments, name: str) -> str:
    """Return a name for the tile that an instruction writes: after its last operator, if the text shows that."""
    if name in NOUNS_OF_RESULTS:
        return NOUNS_OF_RESULTS[name]
    called = (a.token(n).rpartition(".") for n in ("op1", "op0", "op") if n in a)
    package, _, operator_name = next(called, ("", "", ""))
    if package != a.calls.nl:
        return name
    if name in ("tensor_reduce", "tensor_partition_reduce"):
        return TOTALS.get(operator_name, name)
    return "product" if (name, operator_name) == ("tensor_tensor", "multiply") else operator_name


def instruction(a: Arguments, name: str, shape: Shape, like: str, dtype: str, memory: str = SBUF, hint: str = "",
                shape_text: str = "", source: TensorFact | None = None, **replaced: str) -> OperationText:
    """Return the result of an instruction with a destination."""
    calls = a.calls
    meaning = a.dtype_meaning or dtype
    fact = TensorFact(memory, shape, meaning if meaning.startswith("nl.") or calls.stable(meaning or "0") else "",
                  base=True)
    arguments = operands(a, name, replaced, source)

    def write_to(dst: str, target: TensorFact) -> list[str]:
        return [f"{calls.nisa}.{name}(dst={dst}{arguments})"]
    is_known = shape is not None and "?" not in shape
    text = calls.shape_text(fact, like) if is_known or not shape_text else shape_text
    kind = (a.dtype or dtype).replace("nl.", f"{calls.nl}.", 1) or terms.dtype_of(like)
    return OperationText(fact, "", write_to, text, kind, hint or _name_of_result(a, name), operands=(like,))


def regular(calls: Calls, a: Arguments) -> OperationText:
    """Rewrite a call of an instruction of the table."""
    name = a.function.partition(".")[2]
    form = FORMS[name]
    text, source = a.tensor(form.like)
    unselected = terms.literal(a.text("on_false_value", FP32_MIN)) if name == "range_select" else None
    if unselected is not None and np.float32(unselected) != np.float32(FP32_MIN):
        raise LeftForAPerson("nisa.range_select with an on_false_value: the current generation always writes the least "
                             "float32")
    values, cut = a.fact("vals"), text                              # a mask may have cut the rows of the values
    if isinstance(values, TensorFact) and values.shape is not None and source.shape is not None:
        cut, source = calls.shortened(text, source, source.like((values.shape[0], *source.shape[1:])))
    elif isinstance(values, TensorFact) and values.shape is not None and values.shape[0] in calls.counts():
        cut = f"{terms.factor(text)}[0:{values.shape[0]}]"
    replaced, text = {form.like: cut} if cut != text else {}, cut
    if form.columns:
        part = re.search(r"\[0:(\w+)\]$", text)
        rows = source.shape[0] if source.shape is not None and source.shape[0] != "?" else (
            part[1] if part is not None else f"{terms.factor(text)}.shape[0]")
        return instruction(a, name, (rows, str(form.columns)), text, form.dtype or source.dtype, source=source,
                           **replaced)
    result = instruction(a, name, source.shape, text, source.dtype, source=source, **replaced)
    if "dst_idx" in a:
        calls.report.changed(calls.line, "the indices of equal values come in another order in the current generation")
    if name.startswith("activation") and not a.dtype and a.token("op").rpartition(".")[2] in FLOATING:
        result.fact = replace(result.fact, floating=True)
    return result


for _name in FORMS:
    INSTRUCTIONS[f"nisa.{_name}"] = regular


@recipe("tensor_tensor")
def tensor_tensor(calls: Calls, a: Arguments) -> OperationText:
    """Rewrite the call with both operands in one shape."""
    pair = a.tensor("data1"), a.tensor("data2")
    first, second, fact = calls.in_one_shape(*pair)
    dtype = promoted(*(t.dtype for _, t in pair))
    result = instruction(a, "tensor_tensor", fact.shape, first, dtype or pair[0][1].dtype, data1=first, data2=second)
    name = a.token("op").rpartition(".")[2]
    if dtype or a.dtype or pair[0][1].dtype == pair[1][1].dtype or name not in BINARY:
        return result
    calls.report.changed(calls.line, "a function of nl chooses the dtype of the result, which the text does not show")
    result.fact, result.expression = replace(result.fact, dtype=""), f"{calls.nl}.{name}({first}, {second})"
    return result


@recipe("tensor_reduce")
def tensor_reduce(calls: Calls, a: Arguments) -> OperationText:
    """Rewrite a reduction, whose axes become the last free axes. Only ``nl.mean`` computes means."""
    if a.token("op").endswith(".average") and "negate" not in a:
        a.function, a.nodes["x"] = "nl.mean", a.nodes.pop("data")
        mean = calls.recipes["nl.mean"](calls, a)
        assert isinstance(mean, OperationText)
        return mean
    text, source = a.tensor("data")
    any_selected = None
    if a.mask is not None and a.selects_no_box:
        any_selected = calls.some_selected(a.mask, source, lambda tile: largest(calls, a, tile, source))
        text, source = calls.selected(text, source, a.mask, a.token("op").rpartition(".")[2])
    axes, keep = axes_of(a), a.text("keepdims", "False") == "True"
    data, shown = last_axes(calls, text, source, axes, keep)
    shape = reduced(source, axes, keep)
    rows = f"({terms.factor(text)}.shape[0], 1)"
    if shape is None and source.shape is None and axes not in ([1], [-1]):
        raise LeftForAPerson("a reduction of a tile whose rank is unknown")
    result = instruction(a, "tensor_reduce", shape, text, source.dtype, shape_text=rows, data=data,
                         axis=shown or a.text("axis"))
    result.some_selected = any_selected
    return result


@recipe("nc_matmul")
def nc_matmul(calls: Calls, a: Arguments) -> OperationText:
    """Rewrite a product, which goes to PSUM."""
    (x, left), (y, right) = masked_factors(a, {"stationary": (K, M), "moving": (K, N)})
    shape: Shape = None
    if left.shape is not None and len(left.shape) == 2:
        shape = (left.shape[1], *(right.shape[1:] if right.shape is not None else ("?",)))
    moving = f"{terms.factor(y)}.shape[1]" if right.shape is None else ", ".join(
        f"{terms.factor(y)}.shape[{k}]" if s == "?" else s for k, s in enumerate(right.shape) if k)
    stationary = f"{terms.factor(x)}.shape[1]" if left.shape is None or left.shape[1] == "?" else left.shape[1]
    shape_text = f"({stationary}, {moving})"
    mode = a.text("perf_mode")
    if mode[:1] in ("'", '"'):
        mode = f"{calls.nisa}.matmul_perf_mode.{'double_row' if 'double_row' in mode else mode[1:-1]}"
    arguments = operands(a, "nc_matmul", {"stationary": x, "moving": y, "perf_mode": mode})
    fact = TensorFact(PSUM, shape, "nl.float32", base=True)
    result = OperationText(fact, "", None, shape_text, f"{calls.nl}.float32", "product", operands=(x, y))

    def accumulated(dst: str, accumulate: str = "") -> list[str]:
        return [f"{calls.nisa}.nc_matmul(dst={dst}{arguments}{accumulate})"]

    def write_to(dst: str, target: TensorFact) -> list[str]:
        if target is fact:
            return accumulated(dst)
        if target.memory == PSUM:
            return accumulated(dst, "" if "is_transpose" in a else ", accumulate=False")
        return through_tile(calls, result, dst)
    result.write_to, result.product = write_to, accumulated
    return result


def through_tile(calls: Calls, result: OperationText, dst: str) -> list[str]:
    """Return statements that write a new tile, in a memory and a dtype that the instruction can write, and copy it."""
    name = calls.fresh_name(result.name)
    return [*calls.allocated(name, result), f"{calls.nisa}.tensor_copy(dst={dst}, src={name})"]


def converted(calls: Calls, transposition: OperationText, dtype: str, meaning: str) -> OperationText:
    """Return a transposition whose result has another dtype: a copy converts it."""
    fact = replace(transposition.fact, dtype=meaning if meaning.startswith("nl.") or calls.stable(meaning) else "")
    result = replace(transposition, fact=fact, dtype=dtype)

    def write_to(dst: str, target: TensorFact) -> list[str]:
        calls.report.changed(calls.line, "the transpose goes through another tile, because it does not convert")
        if target is fact or target.dtype == fact.dtype != "":
            return through_tile(calls, transposition, dst)
        name = calls.fresh_name(result.name)
        return [*calls.allocated(name, result), f"{calls.nisa}.tensor_copy(dst={dst}, src={name})"]
    result.write_to = write_to
    return result


@recipe("nc_transpose")
def nc_transpose(calls: Calls, a: Arguments) -> OperationText:
    """Transpose on the Tensor engine into PSUM, or on the Vector engine if the call names it."""
    text, source = a.tensor("data")
    shape = source.shape[::-1] if source.shape is not None and len(source.shape) == 2 else None
    on_vector = "vector" in a.text("engine")
    dtype, meaning = a.dtype.replace("nl.", f"{calls.nl}.", 1), a.dtype_meaning
    converts = bool(dtype) and meaning != source.dtype
    if converts:
        del a.nodes["dtype"]
    factor = terms.factor(text)
    shape_text = f"({factor}.shape[1], {factor}.shape[0])"
    transposition = instruction(a, "nc_transpose", shape, text, source.dtype, SBUF if on_vector else PSUM, "transposed",
                       shape_text)
    write, fact = transposition.write_to, transposition.fact
    assert write is not None

    def write_to(dst: str, target: TensorFact) -> list[str]:
        if target is fact or ((target.memory == PSUM or on_vector) and target.dtype in (source.dtype, "")):
            return write(dst, target)
        return through_tile(calls, transposition, dst)
    transposition.write_to = write_to
    return converted(calls, transposition, dtype, meaning) if converts else transposition


@recipe("tensor_partition_reduce")
def partition_reduce(calls: Calls, a: Arguments) -> OperationText:
    """Rewrite a reduction over partitions, whose result is one row."""
    text, source = a.tensor("data")
    shape = ("1", *source.shape[1:]) if source.shape is not None else None
    return instruction(a, "tensor_partition_reduce", shape, text, source.dtype,
                       shape_text=f"(1, {terms.factor(text)}.shape[1])")


@recipe("memset")
def memset(calls: Calls, a: Arguments) -> OperationText:
    """Rewrite the creation of a tile with one value."""
    items, _, text = shape_items(calls, a.nodes["shape"])
    fact = TensorFact(SBUF, tuple(items) if items else None, a.dtype_meaning, base=True)
    value, engine = a.text("value"), a.passed("engine")

    def write_to(dst: str, target: TensorFact) -> list[str]:
        return [f"{calls.nisa}.memset(dst={dst}, value={value}{engine})"]
    return OperationText(fact, "", write_to, text or calls.shape_text(fact, ""), a.dtype, "filled")


@recipe("iota")
def iota(calls: Calls, a: Arguments) -> OperationText:
    """Rewrite an index that a kernel uses as data as ``nisa.iota``, which writes its values into a tile."""
    fact = a.fact("expr")
    index = fact if isinstance(fact, IndexFact) else IndexFact(a.text("expr"), ())
    if len(index.axes) == 1:
        raise LeftForAPerson("an index vector of one axis")
    index = clamped(index, a.mask)
    shape = tuple(axis.extent for axis in index.axes) or ("1", "1")
    steps, multiplier, offset = pattern(index)
    numbers = TensorFact(SBUF, shape, a.dtype_meaning, base=True)
    offset_argument = f", offset={offset}" if offset != "0" else ""
    along = f", channel_multiplier={multiplier}" if multiplier != "0" else ""

    def write_to(dst: str, target: TensorFact) -> list[str]:
        return [f"{calls.nisa}.iota(dst={dst}, pattern={steps}{offset_argument}{along})"]
    return OperationText(numbers, "", write_to, f"({', '.join(shape)})", a.dtype, "numbers")


@recipe("affine_select")
def affine_select(calls: Calls, a: Arguments) -> OperationText:
    """Rewrite the predicate as a pattern, a multiplier and an offset that the instruction compares with 0."""
    fact = a.fact("pred")
    if not isinstance(fact, MaskFact) or not fact.comparisons or not fact.is_known or fact.is_selected:
        raise LeftForAPerson("nisa.affine_select with a predicate that the text does not show to be a comparison")
    comparisons = [replace(c, index=clamped(c.index, a.mask)) for c in fact.comparisons]
    text, source = a.tensor("on_true_tile")
    selected = text
    if source.memory == PSUM:
        calls.report.changed(calls.line, "the tile is copied to SBUF, because the GpSimd engine cannot read PSUM")
        selected = f"{calls.nl}.copy({text})"
    if source.shape is None or "?" in source.shape or not (a.dtype or calls.plain(source)):
        text = selected = calls.named(selected, "operand")      # the shape or the dtype of the result reads it, too

    def write_to(dst: str, target: TensorFact) -> list[str]:
        return calls.selecting(dst, selected, a.text("on_false_value"), comparisons)
    selection = TensorFact(SBUF, source.shape, a.dtype_meaning or source.dtype, base=True)
    dtype = (a.dtype or source.dtype).replace("nl.", f"{calls.nl}.", 1) or terms.dtype_of(text)
    return OperationText(selection, "", write_to, calls.shape_text(selection, text), dtype, "selected")


@recipe("local_gather")
def local_gather(calls: Calls, a: Arguments) -> OperationText:
    """Rewrite a gather, which returns sixteen results for each column of indices."""
    (text, source), (index_text, index) = a.tensor("src_buffer"), a.tensor("index")
    per_index = a.text("num_elem_per_idx", "1")
    if index.shape is not None:
        return instruction(a, "local_gather", (*index.shape, "16", per_index), text, source.dtype)
    index_text = calls.named(index_text, "index")
    return instruction(a, "local_gather", None, text, source.dtype, index=index_text,
                       shape_text=f"{index_text}.shape + (16, {per_index})")


@recipe("sequence_bounds")
def sequence_bounds(calls: Calls, a: Arguments) -> OperationText:
    """Rewrite the search for the start and the end of each segment."""
    text, source = a.tensor("segment_ids")
    columns = source.shape[1] if source.shape is not None and source.shape[1] != "?" else (
        f"{terms.factor(text)}.shape[1]")
    return instruction(a, "sequence_bounds", ("1", "2", columns), text, source.dtype)


@recipe("dma_transpose")
def dma_transpose(calls: Calls, a: Arguments) -> OperationText:
    """Rewrite a transfer that permutes dimensions. It does not convert in the current generation: a copy does."""
    text, source = a.tensor("src")
    axes = axes_of(a, "axes") or DMA_TRANSPOSE_AXES.get(source.rank or 2, [1, 0])
    shape = tuple(source.shape[k] for k in axes) if source.shape is not None else None
    dtype, meaning = a.dtype.replace("nl.", f"{calls.nl}.", 1), a.dtype_meaning
    converts = bool(dtype) and meaning != source.dtype
    if converts:
        del a.nodes["dtype"]
    transposition = instruction(a, "dma_transpose", shape, text, source.dtype, hint="transposed",
                                shape_text=f"({', '.join(f'{terms.factor(text)}.shape[{k}]' for k in axes)})")
    write, fact = transposition.write_to, transposition.fact
    assert write is not None
    if converts:
        return converted(calls, transposition, dtype, meaning)

    def write_to(dst: str, target: TensorFact) -> list[str]:
        if target is fact or target.dtype in (source.dtype, ""):
            return write(dst, target)
        calls.report.changed(calls.line, "the transpose goes through another tile, because the DMA that transposes "
                                         "does not convert")
        return through_tile(calls, transposition, dst)
    return replace(transposition, write_to=write_to)


# -- what had a destination --------------------------------------------------------------------------------------------
@recipe("dma_copy")
def dma_copy(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return the copy, or ``dma_compute`` if it accumulates."""
    (dst, target), (src, source) = a.tensor("dst"), a.tensor("src")
    drop_refused_mode(calls, a, (dst, src), target.dtype == source.dtype != "")
    if source.memory == PSUM:
        src = f"{calls.nl}.copy({src})"
    if "dst_rmw_op" in a:
        calls.report.changed(calls.line, "a DMA that accumulates becomes nisa.dma_compute")
        dst = calls.named(dst, "updated")
        return calls.new(f"{calls.nisa}.dma_compute(dst={dst}, srcs=[{src}, {dst}], "
                         f"reduce_op={a.token('dst_rmw_op')})", Fact())
    mode = a.passed("oob_mode")
    return calls.new(f"{calls.nisa}.dma_copy(dst={dst}, src={src}{mode}{a.passed('dge_mode')})", Fact())


def drop_refused_mode(calls: Calls, a: Arguments, views: tuple[str, str], is_alike: bool) -> None:
    """Leave out the ``dge_mode`` of a transfer between ``views`` that the current generation refuses: ``none`` for
    addresses that are known at run time only, ``hwdge`` for a tile of addresses, or unless the dtypes are alike."""
    mode = a.text("dge_mode").rpartition(".")[2]
    has_tile = any(re.search(r"\bvector_(offset=|select\()", view) for view in views)
    has_address = has_tile or any("scalar_offset=" in view for view in views)
    if (mode == "none" and has_address) or (mode == "hwdge" and (has_tile or not is_alike)):
        del a.nodes["dge_mode"]
        calls.report.changed(calls.line, f"dge_mode {mode} is left out: the current generation refuses it here")


def with_destination(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return the call with the destination as its first argument."""
    return call_with_destination(calls, a, a.function.partition(".")[2])


def call_with_destination(calls: Calls, a: Arguments, name: str) -> cst.BaseExpression:
    """Return the call of an instruction of this name whose first argument is the destination."""
    _, target = a.tensor("dst")
    dtype = a.nodes.pop("dtype", None)
    if dtype is not None and calls.code(dtype) != "None" and calls.text(dtype) != target.dtype:
        raise LeftForAPerson(f"nisa.{name} with a dtype: the dtype of its destination decides")
    written, after = dict[str, str](), list[str]()
    for parameter in DESTINATIONS:
        if parameter in a:
            written[parameter], copies = calls.updated(*a.tensor(parameter))
            after += copies
    call = calls.new(f"{calls.nisa}.{name}(dst={written['dst']}{operands(a, name, written)})", Fact())
    if after:
        calls.loops[id(call)] = "\n".join([calls.text(call), *after])
    return call


def _refuse_later_rows(a: Arguments) -> None:
    """Leave the call to a person if its mask excludes the first rows and no engine may start at the row after them: a
    DMA, which may start at any row, cannot read the position from a tile."""
    for bound in a.mask.bounds if a.mask is not None else ():
        if bound.low and bound.axis == -bound.rank:
            first, count = terms.number(bound.low), terms.number(bound.high)
            if first is None or count is None or not Machine.legal_start_partition(first, count):
                raise LeftForAPerson(LATER_ROWS)


@recipe("tensor_copy_dynamic_src")
def copied_from_the_run_time(calls: Calls, a: Arguments) -> OperationText:
    """Return a copy of a view at the position that a tile of one element holds."""
    _refuse_later_rows(a)
    text, source = a.tensor("src")
    return instruction(a, "tensor_copy", source.shape, text, source.dtype, hint="copied")


@recipe("tensor_copy_dynamic_dst")
def copied_to_the_run_time(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return a copy to a view at the position that a tile of one element holds."""
    _refuse_later_rows(a)
    if a.mask is None:
        calls.keep_elements(a.nodes["src"], range(a.tensor("src")[1].rank or 0))
    return call_with_destination(calls, a, "tensor_copy")


@recipe("get_nc_version")
def get_nc_version(calls: Calls, a: Arguments) -> cst.BaseExpression:
    """Return the call, whose result is a number."""
    return calls.new(f"{calls.nisa}.get_nc_version()", NumberFact())


for _name in HAVE_DESTINATION:
    if _name.startswith("nisa."):
        INSTRUCTIONS.setdefault(_name, with_destination)
