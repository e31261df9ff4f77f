# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of JAX that random graphs draw: one function for each."""

from math import prod

from . import common_rules as common
from .common_rules import NUMBERS, ranked
from .writer import FLOATS, SMALL, GraphWriter, Value

RULES = []


def rule(function):
    RULES.append(function)
    return function


def axes_of(w: GraphWriter, value: Value) -> tuple[int, ...]:
    return tuple(a for a in range(len(value.shape)) if w.below(2)) or (w.below(len(value.shape)),)


# -- elementwise -------------------------------------------------------------------------------------------------------
rule(common.binary("jnp", add="add", multiply="multiply", subtract="subtract"))
rule(common.of_a_number("{0} + {1}", "{0} * {1}", "jnp.maximum({0}, {1})"))
rule(common.spread)


@rule
def unary(w: GraphWriter):
    a = w.value(dtypes=(*FLOATS, "int32", "int8"))
    return w.let(f"jnp.{w.pick('negative', 'abs', 'sign', 'square')}({a.text})", a.shape, a.dtype, SMALL ** 2)


rule(common.rounding("jnp"))


@rule
def bits(w: GraphWriter):
    a = w.value(dtypes=("int32", "uint8", "bool"))
    b = w.value(shape=a.shape, dtypes=(a.dtype,))
    return w.let(f"{a.text} {w.pick('&', '|', '^')} {b.text}", a.shape, a.dtype, 2 * SMALL)


@rule
def comparison(w: GraphWriter):
    a = w.value(dtypes=NUMBERS)
    b = w.value(shape=a.shape, dtypes=(a.dtype,))
    return w.let(f"{a.text} {w.pick('<', '<=', '==', '!=', '>', '>=')} {b.text}", a.shape, "bool")


@rule
def select(w: GraphWriter):
    a = w.value(dtypes=NUMBERS)
    b, c = w.value(shape=a.shape, dtypes=(a.dtype,)), w.value(shape=a.shape, dtypes=("bool",))
    return w.let(f"jnp.where({c.text}, {a.text}, {b.text})", a.shape, a.dtype)


@rule
def cast(w: GraphWriter):
    a, dtype = w.value(), w.pick(*NUMBERS)
    if dtype == "uint8" and a.dtype not in ("uint8", "bool"):
        return w.let(f"jnp.abs({a.text}).astype(jnp.uint8)", a.shape, dtype)
    return w.let(f"{a.text}.astype(jnp.{dtype})", a.shape, dtype)


@rule
def division_of_integers(w: GraphWriter):
    a = w.value(dtypes=("int32",))
    return w.let(f"{a.text} {w.pick('//', '%')} {w.pick(2, 3, -3)}", a.shape, a.dtype)


# -- what rounds -------------------------------------------------------------------------------------------------------
@rule
def transcendental(w: GraphWriter):
    a = w.value(dtypes=FLOATS)
    w.rounded(f"{w.pick('jnp.exp', 'jnp.tanh', 'jax.nn.gelu', 'jax.nn.silu', 'jnp.sin', 'jax.nn.sigmoid')}"
              f"({a.text} * {w.pick(0.25, 0.5)})", a.dtype)


@rule
def normalization(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32",))
    text = w.pick("jax.nn.softmax({0} * 0.25, axis={1})", "jax.nn.log_softmax({0} * 0.25, axis={1})",
                  "({0} - jnp.mean({0}, {1}, keepdims=True)) * jax.lax.rsqrt(jnp.var({0}, {1}, keepdims=True) + 1.0)",
                  "jax.nn.logsumexp({0} * 0.5, axis={1})", "{0} / (2.0 + jnp.sum(jnp.abs({0}), {1}, keepdims=True))")
    w.rounded(text.format(a.text, w.below(len(a.shape))), a.dtype)


# -- reductions --------------------------------------------------------------------------------------------------------
@rule
def reduction(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32", "int32"))
    axes, keep = axes_of(w, a), bool(w.below(2))
    name = w.pick("sum", "max", "min")
    shape = tuple(1 if k in axes else n for k, n in enumerate(a.shape) if keep or k not in axes)
    limit = SMALL * prod(a.shape[k] for k in axes) if name == "sum" else SMALL
    return w.let(f"jnp.{name}({a.text}, axis={axes}, keepdims={keep})", shape, a.dtype, limit)


@rule
def reduction_of_16_bits(w: GraphWriter):
    a = w.value(ranked, dtypes=("bfloat16", "float16", "int8", "uint8"))
    axes = axes_of(w, a)
    shape = tuple(n for k, n in enumerate(a.shape) if k not in axes)
    return w.let(f"jnp.{w.pick('max', 'min')}({a.text}, axis={axes})", shape, a.dtype)


rule(common.any_or_all("jnp.any({0}, axis={1})", "jnp.all({0}, axis={1})"))


@rule
def argument_of_extreme(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32", "int32", "bfloat16"))
    axis = w.below(len(a.shape))
    return w.let(f"jnp.{w.pick('argmax', 'argmin')}({a.text}, axis={axis}).astype(jnp.int32)",
                 a.shape[:axis] + a.shape[axis + 1:], "int32", max(a.shape))


@rule
def running_sum(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32", "int32"))
    axis = w.below(len(a.shape))
    return w.let(f"jnp.cumsum({a.text}, axis={axis})", a.shape, a.dtype, SMALL * a.shape[axis])


# -- products ----------------------------------------------------------------------------------------------------------
@rule
def product(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) == 2, dtypes=("float32", "bfloat16", "float16", "int32"))
    b = w.value(shape=(a.shape[1], w.pick(1, 5, 16, 130)), dtypes=(a.dtype,))
    return w.let(f"{a.text} @ {b.text}", (a.shape[0], b.shape[1]), a.dtype, SMALL ** 2 * a.shape[1])


@rule
def batched_product(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) == 3, dtypes=("float32", "bfloat16"))
    n, i, k = a.shape
    form, shape = w.pick(("bik,bjk->bij", (n, 6, k)), ("bik,bkj->bij", (n, k, 6)), ("bik,bkj->jbi", (n, k, 6)))
    b = w.value(shape=shape, dtypes=(a.dtype,))
    out_shape = (6, n, i) if form.endswith("jbi") else (n, i, 6)
    return w.let(f"jnp.einsum('{form}', {a.text}, {b.text})", out_shape, a.dtype, SMALL ** 2 * k)


@rule
def mixed_product(w: GraphWriter):
    """Of 16 bits, summed in float32."""
    a = w.value(lambda v: len(v.shape) == 2, dtypes=("bfloat16", "float16"))
    b = w.value(shape=(w.pick(3, 16), a.shape[1]), dtypes=(a.dtype,))
    text = f"jax.lax.dot_general({a.text}, {b.text}, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)"
    return w.let(text, (a.shape[0], b.shape[0]), "float32", SMALL ** 2 * a.shape[1])


# -- shapes ------------------------------------------------------------------------------------------------------------
rule(common.transpose("jnp.transpose({0}, {1})"))
rule(common.reshape("jnp.reshape({0}, {1})"))


@rule
def broadcast(w: GraphWriter):
    a, extra = w.value(lambda v: v.size <= 2048), w.pick(2, 3, 5)
    return w.let(f"jnp.broadcast_to({a.text}, {(extra, *a.shape)})", (extra, *a.shape), a.dtype)


rule(common.slice_of("{start}:{stop}:{step}"))


@rule
def reversal(w: GraphWriter):
    a = w.value(ranked)
    return w.let(f"jnp.flip({a.text}, axis={w.below(len(a.shape))})", a.shape, a.dtype)


rule(common.concatenation("jnp.concatenate([{0}, {1}], axis={2})"))


@rule
def padding(w: GraphWriter):
    a = w.value(ranked, dtypes=NUMBERS)
    sides = [(w.below(3), w.below(3)) for _ in a.shape]
    shape = tuple(n + low + high for n, (low, high) in zip(a.shape, sides))
    return w.let(f"jnp.pad({a.text}, {sides}, constant_values={w.pick(0, 1, 3)})", shape, a.dtype)


@rule
def iota(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32", "int32"))
    axis = w.below(len(a.shape))
    return w.let(f"{a.text} + jax.lax.broadcasted_iota(jnp.{a.dtype}, {a.shape}, {axis})", a.shape, a.dtype,
                 SMALL + a.shape[axis])


# -- places known when it runs -----------------------------------------------------------------------------------------
@rule
def rows_by_index(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) == 2)
    index = w.value(lambda v: len(v.shape) == 1 and v.size <= 64, dtypes=("int32",))
    return w.let(f"jnp.take({a.text}, jnp.abs({index.text}) % {a.shape[0]}, axis=0)", (*index.shape, a.shape[1]),
                 a.dtype)


@rule
def slice_at_run_time(w: GraphWriter):
    a = w.value(ranked)
    axis = w.below(len(a.shape))
    start = w.value(shape=(1,), dtypes=("int32",))
    size = 1 + w.below(a.shape[axis])
    return w.let(f"jax.lax.dynamic_slice_in_dim({a.text}, {start.text}[0], {size}, axis={axis})",
                 tuple(size if k == axis else n for k, n in enumerate(a.shape)), a.dtype)


@rule
def update_at_run_time(w: GraphWriter):
    a = w.value(ranked)
    axis = w.below(len(a.shape))
    start, size = w.value(shape=(1,), dtypes=("int32",)), 1 + w.below(a.shape[axis])
    b = w.value(shape=tuple(size if k == axis else n for k, n in enumerate(a.shape)), dtypes=(a.dtype,))
    return w.let(f"jax.lax.dynamic_update_slice_in_dim({a.text}, {b.text}, {start.text}[0], axis={axis})", a.shape,
                 a.dtype)


# -- loops and branches ------------------------------------------------------------------------------------------------
@rule
def loop(w: GraphWriter):
    a = w.value(dtypes=("float32", "int32"))
    return w.let(f"jax.lax.fori_loop(0, {w.pick(2, 3)}, lambda i, v: v * -1 + i, {a.text})", a.shape, a.dtype,
                 3 * SMALL)


@rule
def scan(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) > 1 and v.shape[0] <= 33, dtypes=("float32", "int32"))
    return w.let(f"jax.lax.scan(lambda c, v: (jnp.maximum(c, v), c - v), {a.text}[0], {a.text})[1]", a.shape, a.dtype,
                 2 * SMALL)


@rule
def branch(w: GraphWriter):
    a = w.value(dtypes=("float32", "int32"))
    which = w.value(shape=(1,), dtypes=("int32", "float32"))
    return w.let(f"jax.lax.cond({which.text}[0] > 0, lambda v: v + 1, lambda v: v * 2, {a.text})", a.shape, a.dtype,
                 2 * SMALL)
