# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Instructions that consist only of their operation: how each parameter maps to the operation's class.

Both generations generate their functions from these entries and the table of signatures: in one they return a new
tile, in the other they write ``dst``. A parameter that is in no list is the attribute of its name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

from nki_mlir.dialects.catalogue import load
from nki_mlir.dialects.nisa.movement import GROUP
from nki_mlir.dialects.op import REGISTRY, Op
from nki_mlir.language.instructions import engine_name
from nki_mlir.language.signatures.binding import Generation
from nki_mlir.language.signatures.table import signatures
from nki_mlir.scalar.dtypes import UINT32, DType

Extents: TypeAlias = tuple[int, ...]
Shape: TypeAlias = Callable[[list[Extents], dict[str, Any]], Extents]   # by the tiles' shapes and the attributes
Convert: TypeAlias = Callable[[Any, str, str], object]                     # of a value, its instruction and parameter


@dataclass(frozen=True)
class Regular:
    """The entry of an instruction whose operation has its name. Its tiles have the result's shape, unless there is a
    ``shape``: then they are rows of any lengths, as those in ``rows`` always are."""

    does: str
    tiles: dict[str, str]                                               # parameter -> tile
    scalars: dict[str, tuple[str, str]] = field(default_factory=dict)   # parameter -> tile, attribute of a number
    named: dict[str, str] = field(default_factory=dict)                 # parameter -> attribute of another name
    rows: dict[str, str] = field(default_factory=dict)                  # parameter -> tile
    shape: Shape | None = None                                          # of a result that differs from its tiles
    dtype: DType | None = None                                          # of a result that differs from its tiles
    op: str = ""                                                        # the operation, if its name differs
    positions: str = ""                 # a result that has, or is selected by, positions from the first element on
    initial: str = "reduce_init"        # the parameter that ``load_reduce`` writes to the accumulation registers


def columns(count: int) -> Shape:
    """Return the shape function for rows of ``count`` elements."""
    return lambda shapes, attributes: (shapes[0][0], count)


REGULAR = {
    "reciprocal": Regular("1 / data.", {"data": "src"}),
    "tensor_copy": Regular("src, on chip.", {"src": "src"}),
    "scalar_tensor_tensor": Regular(
        "(data op0 operand0) op1 operand1; operand0 is a number or a [P, 1] tile, operand1 a tile.",
        {"data": "src", "operand1": "rhs"}, {"operand0": ("operand0", "imm0")}),
    "tensor_tensor_scan": Regular(
        "r, with r[i] = op1(op0(data0[i], r[i-1]), data1[i]) along the free axis; r[-1] is ``initial``.",
        {"data0": "data0", "data1": "data1"}, {"initial": ("initial", "imm")}),
    "tensor_partition_reduce": Regular(
        "data reduced over its partitions: [1, F...].", {"data": "src"},
        shape=lambda shapes, attributes: (1, *shapes[0][1:])),
    "bn_stats": Regular("[P, 6]: count, mean and variance * count of the even elements, then of the odd ones.",
                        {"data": "src"}, shape=columns(6)),
    "bn_aggr": Regular("[P, 2]: mean and variance of groups given as (count, mean, variance * count).",
                       {"data": "src"}, shape=columns(2)),
    "max8": Regular("[P, 8]: the largest values of each partition, largest first.", {"src": "src"}, shape=columns(8)),
    "nc_find_index8": Regular(
        "[P, 8]: the index of each of 8 values in data, flattened; all ones if it does not occur.",
        {"data": "data", "vals": "vals"}, shape=columns(8), dtype=UINT32, positions="dst"),
    "nc_match_replace8": Regular(
        "data with the first occurrence of each of 8 values replaced; dst_idx gets their indices.",
        {"data": "data"}, rows={"vals": "vals", "dst_idx": "dst_idx"}, positions="dst_idx"),
    "nonzero_with_count": Regular(
        "in partitions 0, 16, ...: the indices of nonzero elements, padding, and their count at the end.",
        {"src": "src"}, named={"index_offset": "base", "padding_val": "padding"}, shape=columns(1)),
    "nc_stream_shuffle": Regular(
        "dst[i] = src[shuffle_mask[i]] in each group of 32 partitions; 255 leaves dst[i].", {"src": "src"},
        named={"shuffle_mask": "shuffle"}),
    "local_gather": Regular(
        "Gathered elements of each partition by indices that 16 partitions share.",
        {"src_buffer": "src", "index": "index"}, named={"num_elem_per_idx": "elements", "num_valid_indices": "valid"},
        shape=lambda shapes, attributes: (shapes[0][0], *shapes[1][1:], GROUP, attributes["elements"])),
    "nc_n_gather": Regular(
        "data[p], flattened, at indices[p, j].", {"indices": "index"}, rows={"data": "src"}, op="gather_flattened"),
    "sequence_bounds": Regular(
        "[1, 2, n]: for each index the first index of its run of equal ids, and one past the last.",
        {"segment_ids": "segment_ids"}, shape=lambda shapes, attributes: (1, 2, prod(shapes[0][1:]))),
    "tensor_scalar_reduce": Regular(
        "data op0 operand0; the registers reduce it and are read into ``reduce_res``.", {"data": "src"},
        {"operand0": ("operand0", "imm0")}, {"reduce_res_negate": "negate"}, op="tensor_scalar_accumulate"),
    "tensor_scalar_cumulative": Regular(
        "r, with r[i] = op1(op0(src[i], imm0), r[i-1]) along the free axis.", {"src": "src"},
        {"imm0": ("operand0", "imm0")}, initial="imm1"),
    "activate2": Regular(
        "op((data op0 imm0) op1 imm1); the Scalar engine's registers follow ``reduce_cmd``.", {"data": "src"},
        {"imm0": ("operand0", "imm0"), "imm1": ("operand1", "imm1"), "relu_param": ("slope", "alpha")}, {"op": "fn"}),
    "exponential": Regular(
        "exp(src - max_value); the registers add it up and are read into ``reduce_res``.", {"src": "src"},
        {"max_value": ("highest", "imm")}),
    "range_select": Regular(
        "on_true_tile where its free index is in the bounds, else on_false_value; the row maximum accumulates.",
        {"on_true_tile": "src"}, named={"comp_op0": "comp0", "comp_op1": "comp1", "range_start": "base",
                                        "on_false_value": "fill"},
        rows={"bound0": "bound0", "bound1": "bound1"}, positions="dst"),
    "select_reduce": Regular(
        "dst = on_true where the predicate is not 0, else on_false; the row maximum accumulates.",
        {"predicate": "predicate", "on_true": "on_true"}, {"on_false": ("on_false", "imm")}),
}
load()


def functions(generation: Generation, texts: dict[str, Convert], maker: Callable[..., object], there: dict[str, object],
              not_given: str = "") -> dict[str, Callable[..., object]]:
    """Generate the functions of a generation for the entries that are not ``there``.

    ``texts`` convert the values of attributes that are names: ``operator``, or by attribute. ``maker(name, class,
    entry)`` returns the function to call with the values of all parameters and the operation's attributes.
    """
    return {name: function(name, entry, generation, texts, maker, not_given) for name, entry in REGULAR.items()
            if name not in there and signatures(f"nki.isa.{name}", generation.name)}


def _converter(cls: type[Op], attribute: str, texts: dict[str, Convert]) -> Convert:
    kind = cls.attributes[attribute]
    if kind is str:
        return texts.get(attribute, texts["operator"])
    if kind is tuple:
        return lambda value, *_: tuple([int(n) for n in value])
    return lambda value, *_: kind(value)


def function(name: str, entry: Regular, generation: Generation, texts: dict[str, Convert], maker: Callable[..., Any],
             not_given: str = "") -> Callable[..., object]:
    """Generate the function of one entry, whose signatures the table has."""
    signature = generation.signature_of(signatures(f"nki.isa.{name}", generation.name)[0], without=not_given)
    names = [n for n, p in signature.parameters.items() if p.kind is not p.KEYWORD_ONLY]
    cls = REGISTRY[f"nisa.{entry.op or name}"]
    defaults = {n: p.default for n, p in signature.parameters.items() if p.default is not p.empty}
    texts = {"engine": lambda value, *_: engine_name(value), **texts}
    attributes = [(n, attribute_values, _converter(cls, attribute_values, texts)) for n in signature.parameters
                  if (attribute_values := entry.named.get(n, n)) in cls.attributes and n not in entry.scalars]
    run = maker(name, cls, entry)

    def call(*values: object, **named: object) -> object:
        given = defaults | named
        given.update(zip(names, values))
        attribute_values = {attribute: convert(value, name, parameter) for parameter, attribute, convert in attributes
                if (value := given[parameter]) is not None or attribute not in cls.defaults}
        return run(given, attribute_values)
    call.__name__ = call.__qualname__ = name
    call.__doc__, call.__signature__ = entry.does, signature        # type: ignore[attr-defined]
    return call
