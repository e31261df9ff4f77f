# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A second definition of every operation: NumPy in float64, written from the documents, not from the classes.

A formula takes the operation, for its attributes, and its sources as float64 arrays before anything is written. It
returns the new value of the first destination, or of each destination in a tuple.
"""

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from nki_mlir.dialects.op import Op

BINARY: dict[str, Callable] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b, "average": lambda a, b: (a + b) / 2,
    "maximum": lambda a, b: np.where(a > b, a, b), "minimum": lambda a, b: np.where(a < b, a, b),
    "abs_max": lambda a, b: np.where(abs(a) > abs(b), a, b), "abs_min": lambda a, b: np.where(abs(a) < abs(b), a, b),
    "mod": lambda a, b: a - np.floor(a / b) * b, "fmod": lambda a, b: a - np.trunc(a / b) * b,
    "power": lambda a, b: np.exp(b * np.log(a)),
    "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b, "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b, "less": lambda a, b: a < b, "less_equal": lambda a, b: a <= b,
    "logical_and": lambda a, b: (a != 0) & (b != 0), "logical_or": lambda a, b: (a != 0) | (b != 0),
    "logical_xor": lambda a, b: (a != 0) != (b != 0)}
BITS: dict[str, Callable[[int, int], int]] = {
    "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b,
    "left_shift": lambda a, b: a << b, "right_shift": lambda a, b: a >> b, "arith_shift_right": lambda a, b: a >> b}
UNARY: dict[str, Callable] = {
    "abs": abs, "negative": lambda a: -a, "square": lambda a: a * a, "reciprocal": lambda a: 1 / a,
    "rsqrt": lambda a: 1 / np.sqrt(a), "relu": lambda a: np.where(a > 0, a, 0), "bypass": lambda a: a,
    "logical_not": lambda a: a == 0, "exp": np.exp, "tanh": np.tanh, "sqrt": np.sqrt,
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)), "silu": lambda a: a / (1 + np.exp(-a)),
    "log": np.log, "sin": np.sin, "erf": np.vectorize(math.erf)}
REDUCED: dict[str, Callable] = {
    "add": np.sum, "maximum": np.max, "minimum": np.min, "multiply": np.prod, "average": np.mean,
    "logical_and": lambda a, **k: np.all(a != 0, **k), "logical_or": lambda a, **k: np.any(a != 0, **k)}


def exchanged(op: Op, x: dict) -> tuple:
    """Of a rank by itself: what it sends to itself, and how much."""
    (count,), (start,), *rest = x["metadata"]
    at = int(rest[1][0]) if op.displaced else 0
    dst, counts = x["dst"].copy(), x["metadata"].copy()
    for k in range(int(count)):
        dst[at + k] = x["src"][int(start) + k]
    if not op.counts_known:
        counts[2] = count
    return dst, counts


def apply(name: str, a: Any, b: Any, reverse: bool = False) -> Any:
    """One step of a two-step instruction."""
    if name in UNARY:
        return UNARY[name](a)
    if name in BITS:
        return np.vectorize(lambda x, y: BITS[name](int(x), int(y)))(a, b).astype(np.float64)
    return BINARY[name](b, a) if reverse else BINARY[name](a, b)


def grid(op: Op, label: str) -> list[np.ndarray]:
    return list(np.indices(getattr(op, label).shape))


def affine(form: Any, axes: list[np.ndarray]) -> np.ndarray:
    return sum((c * axes[axis] for axis, c in form.axes), np.full(axes[0].shape, form.const))


def two_steps(op: Any, x: dict) -> np.ndarray:
    value = apply(op.op0, x["src"], x.get("operand0", op.imm0), op.reverse0)
    return apply(op.op1, value, x.get("operand1", op.imm1), op.reverse1)


def activated(op: Any, x: dict) -> np.ndarray:
    return UNARY[op.fn](x["src"] * x.get("scale", op.imm) + x.get("bias", 0.0))


def rows(name: str, value: np.ndarray) -> np.ndarray:
    return REDUCED[name](value, axis=tuple(range(1, value.ndim)), keepdims=True)


def product(op: Any, x: dict) -> np.ndarray:
    result = np.einsum("km,kn->mn", x["stationary"], x["moving"])
    return result + x["dst"] if op.accumulate else result


def product_of_rows(op: Any, x: dict) -> np.ndarray:
    result = np.einsum("krm,krn->mn", x["stationary"], x["moving"])
    return result + x["dst"] if op.accumulate else result


def scan(op: Any, x: dict) -> np.ndarray:
    carry, columns = x.get("initial", np.full((len(x["data0"]), 1), op.imm)), []
    for i in range(x["data0"].shape[1]):
        carry = apply(op.op0, x["data0"][:, i:i + 1], carry, op.reverse0)
        carry = apply(op.op1, carry, x["data1"][:, i:i + 1], op.reverse1)
        columns.append(carry)
    return np.concatenate(columns, 1)


def halves(op: Any, x: dict) -> np.ndarray:
    statistics = []
    for part in (x["src"][:, 0::2], x["src"][:, 1::2]):
        n = part.shape[1]
        count = np.full(len(part), float(n))
        statistics += [count, part.mean(1), part.var(1) * n] if n else [count, count, count]
    return np.stack(statistics, 1)


def merged(op: Any, x: dict) -> np.ndarray:
    """As if all groups were one: moments add up."""
    count, mean, spread = (x["src"][..., k] for k in range(3))
    first = (count * mean).sum(1) / count.sum(1)
    second = (spread + count * mean ** 2).sum(1) / count.sum(1)
    return np.stack([first, second - first ** 2], 1)


def places(op: Any, x: dict) -> np.ndarray:
    """Where each value occurs; the k-th equal value, the k-th time; all ones where it does not."""
    index = getattr(op, "dst_idx", op.dst)
    positions = np.full(x["vals"].shape, 2 ** index.dtype.bits - 1)
    for p, row in enumerate(x["data"]):
        free = list(row)
        for j, wanted in enumerate(x["vals"][p]):
            if wanted in free:
                positions[p, j] = free.index(wanted)
                free[positions[p, j]] = None
    return positions


def replaced(op: Any, x: dict) -> tuple[np.ndarray, np.ndarray]:
    result, where = x["data"].copy(), places(op, x)
    for p, j in np.argwhere(where < x["data"].shape[1]):
        result[p, where[p, j]] = op.imm
    return result, where


def accumulating(op: Any, x: dict, value: np.ndarray) -> tuple[np.ndarray, ...]:
    start = {"add": 0.0, "maximum": -np.inf}[op.reduce_op]
    after = x["accumulator"] if op.reduce_cmd in ("idle", "reduce") else np.full_like(x["accumulator"], start)
    if "reduce" in op.reduce_cmd:
        after = BINARY[op.reduce_op](after, rows(op.reduce_op, value))
    return (value, after, after) if op.reduce_res is not None else (value, after)


def in_range(op: Any, x: dict) -> tuple[np.ndarray, ...]:
    column = op.base + np.arange(x["src"].shape[1])
    inside = BINARY[op.comp0](column, x["bound0"]) & BINARY[op.comp1](column, x["bound1"])
    return accumulating(op, x, np.where(inside, x["src"], op.fill))


def runs(op: Any, x: dict) -> np.ndarray:
    (ids,) = x["segment_ids"]
    bounds = []
    for i, segment in enumerate(ids):
        low = high = i
        while low > 0 and ids[low - 1] == segment:
            low -= 1
        while high < len(ids) and ids[high] == segment:
            high += 1
        bounds.append((low, high) if segment else (len(ids), -1))
    return np.array(bounds, np.float64).T[None]


def shuffled(op: Any, x: dict) -> np.ndarray:
    result = x["dst"].copy()
    for p in range(len(result)):
        source = op.shuffle[p % 32]
        if source != 255 and p // 32 * 32 + source < len(result):
            result[p] = x["src"][p // 32 * 32 + source]
    return result


def gathered_locally(op: Any, x: dict) -> np.ndarray:
    """In each group of 16 partitions: index j is in partition j % 16, column j // 16."""
    picked = np.zeros((len(x["src"]), x["index"].shape[1] * 16, op.elements))
    for p in range(len(picked)):
        for j in range(picked.shape[1]):
            start = int(x["index"][p // 16 * 16 + j % 16, j // 16])
            picked[p, j] = x["src"][p, start:start + op.elements]
    return picked.reshape(op.dst.shape)


def scattered(op: Any, x: dict) -> np.ndarray:
    result = x["dst"].copy()
    for p, row in enumerate(x["index"].astype(int).ravel()):
        result[row] = result[row] + x["src"][p] if op.rmw == "add" else x["src"][p]
    return result


def run_time_places(op: Any, x: dict, piece: str) -> np.ndarray:
    """The flat place of each element; the values of a row, or of all, move it."""
    axes = grid(op, piece)
    offset = np.broadcast_to(x["offset"], (len(axes[0]), x["offset"].shape[1])).astype(int)
    places = affine(op.position, axes)
    for k, (form, scale, extent) in enumerate(zip((op.first, op.second), op.scales, op.extents)):
        moved = offset[:, k].reshape(-1, *(1,) * (places.ndim - 1))
        assert 0 <= (affine(form, axes) + moved).min() and (affine(form, axes) + moved).max() < extent
        places = places + scale * moved
    return places


def dynamic_source(op: Any, x: dict) -> np.ndarray:
    return x["src"].reshape(len(x["src"]), -1)[grid(op, "dst")[0], run_time_places(op, x, "dst")]


def dynamic_target(op: Any, x: dict) -> np.ndarray:
    result = x["dst"].reshape(len(x["dst"]), -1).copy()
    result[grid(op, "src")[0], run_time_places(op, x, "src")] = x["src"]
    return result.reshape(x["dst"].shape)


def transferred_from(op: Any, x: dict) -> np.ndarray:
    return x["src"].reshape(-1)[run_time_places(op, x, "dst")]


def transferred_to(op: Any, x: dict) -> np.ndarray:
    flat = x["dst"].reshape(-1).copy()
    for offset, value in zip(run_time_places(op, x, "src").ravel(), x["src"].ravel()):
        flat[offset] = value if op.rmw == "bypass" else flat[offset] + value
    return flat.reshape(x["dst"].shape)


def activated_twice(op: Any, x: dict) -> tuple[np.ndarray, ...]:
    value = apply(op.op0, x["src"], x.get("operand0", op.imm0), op.reverse0)
    value = apply(op.op1, value, x.get("operand1", op.imm1), op.reverse1)
    if op.fn == "prelu":
        return accumulating(op, x, np.where(value > 0, value, value * x.get("slope", op.alpha)))
    return accumulating(op, x, UNARY[op.fn](value))


def negated_row(op: Any, results: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return (*results[:2], -results[2]) if op.negate and len(results) == 3 else results


def cumulative(op: Any, x: dict) -> tuple[np.ndarray, ...]:
    start = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}[op.op1]
    carry = x["accumulator"] if op.reduce_cmd == "reduce" else np.full_like(x["accumulator"], start)
    value, columns = apply(op.op0, x["src"], x.get("operand0", op.imm0)), []
    for i in range(value.shape[1]):
        carry = BINARY[op.op1](value[:, i:i + 1], carry)
        columns.append(carry)
    results = (np.concatenate(columns, 1), carry)
    return (*results, carry) if op.reduce_res is not None else results


def dynamic_places(op: Any, x: dict, shape: tuple[int, ...]) -> list[tuple[tuple[int, int], int]]:
    """((row, column) of the moved tile, place in its row of the table), one element at a time."""
    index = np.broadcast_to(x["index"].reshape(-1), shape[0]).astype(int)
    return [((p, k), op.start + op.steps[0] * p + op.steps[1] * k + op.scale * index[p]) for p, k in np.ndindex(*shape)]


def read_dynamically(op: Any, x: dict) -> np.ndarray:
    result = np.empty(op.dst.shape)
    for (p, k), column in dynamic_places(op, x, op.dst.shape):
        result[p, k] = x["src"][p if len(x["src"]) > 1 else 0, column]
    return result


def written_dynamically(op: Any, x: dict) -> np.ndarray:
    result = x["dst"].copy()
    for (p, k), column in dynamic_places(op, x, op.src.shape):
        row = p if len(result) > 1 else 0
        result[row, column] = x["src"][p, k] + (result[row, column] if op.rmw == "add" else 0)
    return result


def column_of(op: Any, x: dict, p: int, j: int) -> int:
    """Offset j of a partition's group is in the group's row j % size, column j // size."""
    first = p // op.group * op.group
    return int(x["index"][first + j % op.group, j // op.group])


def columns_scattered(op: Any, x: dict) -> np.ndarray:
    result = x["dst"].copy()
    for p, j in np.ndindex(*x["src"].shape):
        result[p, column_of(op, x, p, j)] = x["src"][p, j]
    return result


def largest(op: Any, x: dict) -> tuple[np.ndarray, np.ndarray]:
    values, places = x["values"].copy(), x["indices"].copy()
    for first in range(0, len(values), 16):
        items = [x["src"][first + i % 16, i // 16] for i in range(op.n)]
        best = sorted(range(op.n), key=lambda i: (-items[i], i))[:values.shape[1]][::-1]
        for rank, i in enumerate(best):
            values[first + rank % 16, rank // 16], places[first + rank % 16, rank // 16] = items[i], i
    return values, places


def nonzero(op: Any, x: dict) -> np.ndarray:
    result = x["dst"].copy()
    for p in range(0, len(result), 16):
        indices = [i + op.base for i, v in enumerate(x["src"][p]) if v]
        result[p] = [*indices, *[op.padding] * (result.shape[1] - 1 - len(indices)), len(indices)]
    return result


MX = {"float8_e4m3fn": (ml_dtypes.float8_e4m3fn, 8), "float8_e5m2": (ml_dtypes.float8_e5m2, 15)}


def scale_partition(k: int) -> int:
    """Where the scale of partition k's group is: four groups at the start of each 32 partitions."""
    return k // 8 // 4 * 32 + k // 8 % 4


def quantized(op: Any, x: dict) -> tuple[np.ndarray, np.ndarray]:
    quads, scales = np.zeros(op.dst.shape), x["dst_scale"].copy()
    dtype, emax = MX[op.element]
    for g, n in np.ndindex(len(quads) // 8, quads.shape[1]):
        block = x["src"][8 * g:8 * g + 8, 4 * n:4 * n + 4]
        exponent = math.floor(math.log2(abs(block).max())) - (emax - 1)
        scales[scale_partition(8 * g), n] = exponent + 127
        for k in range(8):
            quad = (block[k] / 2.0 ** exponent).astype(dtype)
            quads[8 * g + k, n] = int.from_bytes(quad.tobytes(), "little")
    return quads, scales


def unscaled(data: np.ndarray, scale: np.ndarray, element: str) -> np.ndarray:
    """[K, N, 4] real values."""
    values = np.empty((*data.shape, 4))
    for k, n in np.ndindex(*data.shape):
        quad = np.frombuffer(int(data[k, n]).to_bytes(4, "little"), MX[element][0]).astype(np.float64)
        values[k, n] = quad * 2.0 ** (scale[scale_partition(k), n] - 127)
    return values


def mx_product(op: Any, x: dict) -> np.ndarray:
    left = unscaled(x["stationary"], x["stationary_scale"], op.stationary_element)
    right = unscaled(x["moving"], x["moving_scale"], op.moving_element)
    result = np.einsum("kmq,knq->mn", left, right)
    return result + x["dst"] if op.accumulate else result


FORMULAS: dict[str, Callable[[Any, dict], Any]] = {
    "nki.binary": lambda o, x: apply(o.op, x["lhs"], x["rhs"]),
    "nki.binary_scalar": lambda o, x: apply(o.op, x["src"], o.scalar, o.reverse),
    "nki.unary": lambda o, x: UNARY[o.fn](x["src"]),
    "nki.select": lambda o, x: np.where(x["condition"] != 0, x["on_true"], x["on_false"]),
    "nki.matmul": product, "nisa.nc_matmul": product, "nisa.nc_matmul_double_row": product_of_rows,
    **dict.fromkeys(("nki.load", "nki.store", "nki.copy", "nisa.tensor_copy", "nisa.dma_copy"), lambda o, x: x["src"]),
    **dict.fromkeys(("nki.transpose", "nisa.nc_transpose"), lambda o, x: x["src"].T),
    **dict.fromkeys(("nki.memset", "nisa.memset"), lambda o, x: np.full(o.dst.shape, o.value)),
    **dict.fromkeys(("nki.iota", "nisa.iota"), lambda o, x: affine(o.expression, grid(o, "dst"))),
    "nki.reduce": lambda o, x: REDUCED[o.op](x["src"], axis=o.axes, keepdims=True),
    "nisa.tensor_reduce": lambda o, x: REDUCED[o.op](x["src"], axis=o.axes, keepdims=True) * (-1 if o.negate else 1),
    "nisa.tensor_tensor": lambda o, x: apply(o.op, x["lhs"], x["rhs"]),
    "nisa.tensor_scalar": two_steps,
    "nisa.scalar_tensor_tensor": lambda o, x: apply(
        o.op1, apply(o.op0, x["src"], x.get("operand0", o.imm0), o.reverse0), x["rhs"], o.reverse1),
    "nisa.activation": activated,
    "nisa.reciprocal": lambda o, x: 1 / x["src"],
    "nisa.tensor_copy_predicated": lambda o, x: np.where((x["predicate"] != 0) != o.reverse_pred, x["src"], x["dst"]),
    "nisa.affine_select": lambda o, x: np.where(
        (affine(o.predicate, grid(o, "dst")) == 0) if o.equal else (affine(o.predicate, grid(o, "dst")) >= 0),
        x["src"], o.value),
    "nisa.tensor_partition_reduce": lambda o, x: REDUCED[o.op](x["src"], axis=0, keepdims=True),
    "nisa.activation_reduce": lambda o, x: (activated(o, x), rows(o.reduce_op, activated(o, x))),
    "nisa.tensor_scalar_reduce": lambda o, x: (
        value := apply(o.op0, x["src"], x.get("operand0", o.imm0), o.reverse0), rows(o.reduce_op, value)),
    "nisa.tensor_tensor_scan": scan, "nisa.bn_stats": halves, "nisa.bn_aggr": merged,
    "nisa.max8": lambda o, x: np.sort(x["src"], 1)[:, ::-1][:, :8],
    "nisa.nc_find_index8": places, "nisa.nc_match_replace8": replaced,
    "nisa.activation_accumulate": lambda o, x: accumulating(o, x, activated(o, x)),
    "nisa.select_reduce": lambda o, x: accumulating(
        o, x, np.where((x["predicate"] != 0) != o.reverse_pred, x["on_true"], x.get("on_false", o.imm))),
    "nisa.range_select": in_range, "nisa.sequence_bounds": runs, "nisa.nc_stream_shuffle": shuffled,
    "nisa.local_gather": gathered_locally,
    "nisa.gather_flattened": lambda o, x: np.stack([row[i.astype(int)]
                                                    for row, i in zip(x["src"], x["index"])]),
    "nisa.dma_transpose": lambda o, x: x["src"].transpose(o.permutation),
    "nisa.dma_gather": lambda o, x: x["src"][x["index"].astype(int).ravel()],
    "nisa.dma_scatter": scattered,
    "nisa.activate2": activated_twice,
    "nisa.exponential": lambda o, x: accumulating(o, x, np.exp(x["src"] - x.get("highest", o.imm))),
    "nisa.tensor_scalar_accumulate": lambda o, x: negated_row(o, accumulating(
        o, x, apply(o.op0, x["src"], x.get("operand0", o.imm0), o.reverse0))),
    "nisa.tensor_scalar_cumulative": cumulative,
    "nisa.dma_compute": lambda o, x: x["lhs"] + x["rhs"],
    "nisa.dynamic_read": read_dynamically, "nisa.dynamic_write": written_dynamically,
    "nisa.gather_columns": lambda o, x: np.array(
        [[x["src"][p, column_of(o, x, p, j)] for j in range(o.dst.shape[1])] for p in range(len(x["src"]))]),
    "nisa.scatter_columns": columns_scattered, "nisa.topk": largest, "nisa.nonzero_with_count": nonzero,
    "nisa.quantize_mx": quantized, "nisa.nc_matmul_mx": mx_product,
    "nisa.nc_matmul_transpose": lambda o, x: np.einsum("km,kn->mn", x["stationary"], x["moving"]),
    "nisa.core_barrier": lambda o, x: (), "nisa.require_written": lambda o, x: (), "nisa.rank_id": lambda o, x: np.zeros((1, 1)),
    **{f"nisa.{n}": lambda o, x: x["src"] for n in ("sendrecv", "all_reduce", "all_gather", "reduce_scatter",
                                                    "all_to_all", "permute")},
    "nisa.ring_permute": lambda o, x: x["src"] + x.get("other", 0), "nisa.varying_exchange": exchanged,
    "nisa.gpsimd_call": lambda o, x: 2 * x["source0"].T + sum(x[f"source{k}"] for k in range(1, 6)),
    "nisa.dma_dynamic_read": transferred_from, "nisa.dma_dynamic_write": transferred_to,
    "nisa.tensor_copy_dynamic_src": dynamic_source, "nisa.tensor_copy_dynamic_dst": dynamic_target,
}
