# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of JAX that random graphs draw: one function for each."""

from math import prod

from . import common_rules as common
from .common_rules import NUMBERS, ranked
from .writer import FLOATS, SMALL, GraphWriter, Skip, Value

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


@rule
def outer_product(w: GraphWriter):
    """No dim is summed; a batch dim is or is not shared."""
    a = w.value(lambda v: len(v.shape) == 2 and v.size <= 512, dtypes=("float32", "bfloat16"))
    shared = w.below(2)
    b = w.value(shape=(a.shape[0], w.pick(2, 5)) if shared else (w.pick(2, 5),), dtypes=(a.dtype,))
    form = w.pick("bi,bj->bij", "bi,bj->ijb") if shared else w.pick("bi,j->bij", "bi,j->jib")
    sizes = dict(zip("bij", (*a.shape, b.shape[-1])))
    return w.let(f"jnp.einsum('{form}', {a.text}, {b.text})", tuple(sizes[c] for c in form[-3:]), a.dtype, SMALL ** 2)


@rule
def gradient_of_a_product(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) == 2, dtypes=("float32",))
    b = w.value(shape=(a.shape[1], w.pick(1, 5, 16)), dtypes=("float32",))
    return w.let(f"jax.grad(lambda u: (jnp.maximum(u @ {b.text}, 0) * 2).sum())({a.text})", a.shape, "float32",
                 2 * SMALL * b.shape[1])


# -- order -------------------------------------------------------------------------------------------------------------
@rule
def sort(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) > 0 and v.size <= 2048 and max(v.shape) <= 33,
                dtypes=("float32", "int32", "bfloat16"))
    axis = w.below(len(a.shape))
    if w.below(2):
        return w.let(f"jnp.sort({a.text}, axis={axis}, descending={bool(w.below(2))})", a.shape, a.dtype)
    return w.let(f"jnp.argsort({a.text}, axis={axis}).astype(jnp.int32)", a.shape, "int32", a.shape[axis])


@rule
def largest(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) > 0 and v.size <= 2048 and v.shape[-1] <= 33, dtypes=("float32", "int32"))
    k, which = 1 + w.below(a.shape[-1]), w.below(2)
    return w.let(f"jax.lax.top_k({a.text}, {k})[{which}]", (*a.shape[:-1], k), "int32" if which else a.dtype,
                 a.shape[-1])


@rule
def running_extreme(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32", "int32"))
    return w.let(f"jax.lax.{w.pick('cummax', 'cummin')}({a.text}, axis={w.below(len(a.shape))})", a.shape, a.dtype)


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


@rule
def scatter(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) == 2 and v.size <= 4096, dtypes=("float32", "int32"))
    index = w.value(lambda v: len(v.shape) == 1 and v.size <= 17, dtypes=("int32",))
    b = w.value(shape=(*index.shape, a.shape[1]), dtypes=(a.dtype,))
    name = w.pick("add", "max", "min", "set")
    target = f"{a.text}.at[{index.text}]" if name != "set" else f"{a.text}.at[jnp.arange({index.size}) % {a.shape[0]}]"
    if name == "set" and index.size > a.shape[0]:
        raise Skip
    return w.let(f"{target}.{name}({b.text})", a.shape, a.dtype, SMALL * (1 + index.size))


@rule
def elements_by_index(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) == 2 and v.size <= 4096, dtypes=("float32", "int32", "bfloat16"))
    index = w.value(shape=(a.shape[0], w.pick(1, 3)), dtypes=("int32",))
    return w.let(f"jnp.take_along_axis({a.text}, jnp.abs({index.text}) % {a.shape[1]}, 1)", index.shape, a.dtype)


@rule
def window(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) >= 2 and min(v.shape[-2:]) >= 2, dtypes=("float32", "bfloat16"))
    sizes = [1] * (len(a.shape) - 2) + [1 + w.below(2), 2]
    step = w.pick(1, 2)
    strides = [1] * (len(a.shape) - 2) + [step, step]
    shape = tuple((n - k) // s + 1 for n, k, s in zip(a.shape, sizes, strides))
    start, fn = w.pick(("-jnp.inf", "max"), ("jnp.inf", "min"), ("0.0", "add"))
    return w.let(f"jax.lax.reduce_window({a.text}, jnp.{a.dtype}({start}), jax.lax.{fn}, {sizes}, {strides}, 'VALID')",
                 shape, a.dtype, 4 * SMALL)


@rule
def convolution(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) == 3 and v.shape[2] >= 3 and v.size <= 4096, dtypes=("float32",))
    b = w.value(shape=(w.pick(1, 3), a.shape[1], w.pick(1, 3)), dtypes=("float32",))
    step = w.pick(1, 2)
    return w.let(f"jax.lax.conv_general_dilated({a.text}, {b.text}, ({step},), 'VALID')",
                 (a.shape[0], b.shape[0], (a.shape[2] - b.shape[2]) // step + 1), "float32",
                 SMALL ** 2 * a.shape[1] * b.shape[2])


@rule
def convolution_of_an_image(w: GraphWriter):
    lines, pixels, channels, rows, columns = w.pick(3, 4, 7), w.pick(4, 6, 9), w.pick(32, 64), w.pick(1, 3), w.pick(2, 3)
    a = w.value(shape=(w.pick(1, 2), lines, pixels, channels), dtypes=("float32",))
    b = w.value(shape=(rows, columns, channels, w.pick(1, 4)), dtypes=("float32",))
    down, right, padding = w.pick(1, 2), w.pick(1, 2), w.pick(0, 1, 2)
    sizes = [(n + padding + 1 - k) // s + 1 for n, k, s in ((lines, rows, down), (pixels, columns, right))]
    return w.let(f"jax.lax.conv_general_dilated({a.text}, {b.text}, ({down}, {right}), (({padding}, 1),) * 2, "
                 "dimension_numbers=('NHWC', 'HWIO', 'NHWC'))", (a.shape[0], *sizes, b.shape[3]), "float32",
                 SMALL ** 2 * rows * columns * channels)


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


@rule
def loop_of_products(w: GraphWriter):
    """What the loop carries is a product, whose rows are stored as well."""
    a = w.value(lambda v: len(v.shape) == 2 and v.shape[1] <= 33, dtypes=("float32",))
    b = w.value(shape=(a.shape[1], a.shape[1]), dtypes=("float32",))
    which = w.below(2)
    return w.let(f"jax.lax.scan(lambda c, _: (jnp.clip(c @ {b.text}, -4, 4), c[0] + 1), {a.text}, None, 2)[{which}]",
                 (2, a.shape[1]) if which else a.shape, "float32", 2 * SMALL)


@rule
def loop_until(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32", "int32"))
    text = (f"jax.lax.while_loop(lambda s: (jnp.max(s[0]) < 3) & (s[1] < 3), lambda s: (s[0] + 1, s[1] + 1), "
            f"({a.text}, 0))[0]")
    return w.let(text, a.shape, a.dtype, 2 * SMALL)


@rule
def rows_of_a_loop(w: GraphWriter):
    """Each iteration reads a row and updates another one of what the loop carries."""
    a = w.value(lambda v: len(v.shape) == 2 and v.shape[0] <= 17, dtypes=("float32", "int32", "bfloat16"))
    n = a.shape[0]
    return w.let(f"jax.lax.fori_loop(0, {n}, lambda i, v: v.at[{n - 1} - i].set(jnp.minimum(v[i], v[{n - 1} - i])), "
                 f"{a.text})", a.shape, a.dtype)


@rule
def mapped(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) >= 2, dtypes=("float32", "int32"))
    text = w.pick("jnp.sum(u * 2, axis=-1)", "u[0] - u[-1]", "jnp.max(u, axis=0)")
    inner = a.shape[1:-1] if "axis=-1" in text else a.shape[2:]
    return w.let(f"jax.vmap(lambda u: {text})({a.text})", (a.shape[0], *inner), a.dtype, 2 * SMALL * a.shape[-1])
