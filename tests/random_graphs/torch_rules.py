# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operations of PyTorch that random graphs draw: one function for each."""

from math import prod

from . import common_rules as common
from .common_rules import NUMBERS, ranked
from .writer import FLOATS, SMALL, GraphWriter, Skip

RULES = []


def rule(function):
    RULES.append(function)
    return function


# -- elementwise -------------------------------------------------------------------------------------------------------
rule(common.binary("torch", add="add", multiply="mul", subtract="sub"))
rule(common.of_a_number("{0} + {1}", "{0} * {1}", "torch.clamp({0}, min={1})", "torch.clamp({0}, max={1})",
                        "{1} * {0}"))
rule(common.spread)


@rule
def promoted(w: GraphWriter):
    """Of two dtypes."""
    a = w.value(dtypes=("bfloat16", "int32", "int8", "bool", "int64"))
    b = w.value(shape=a.shape, dtypes=("float32",))
    return w.let(f"{a.text} {w.pick('+', '*')} {b.text}", a.shape, "float32", SMALL ** 2)


@rule
def unary(w: GraphWriter):
    a = w.value(dtypes=(*FLOATS, "int32", "int8", "int64"))
    return w.let(f"torch.{w.pick('neg', 'abs', 'sign', 'square', 'relu')}({a.text})", a.shape, a.dtype, SMALL ** 2)


rule(common.rounding("torch"))


@rule
def bits(w: GraphWriter):
    a = w.value(dtypes=("int32", "uint8", "bool", "int64"))
    b = w.value(shape=a.shape, dtypes=(a.dtype,))
    return w.let(f"{a.text} {w.pick('&', '|', '^')} {b.text}", a.shape, a.dtype,
                 SMALL if a.dtype == "bool" else 2 * SMALL)


@rule
def comparison(w: GraphWriter):
    a = w.value(dtypes=NUMBERS)
    other = w.value(shape=a.shape, dtypes=(a.dtype,)).text if w.below(2) else "1"
    return w.let(f"{a.text} {w.pick('<', '<=', '==', '!=', '>', '>=')} {other}", a.shape, "bool")


@rule
def select(w: GraphWriter):
    a = w.value(dtypes=NUMBERS)
    b, c = w.value(shape=a.shape, dtypes=(a.dtype,)), w.value(shape=a.shape, dtypes=("bool",))
    form = w.pick("torch.where({c}, {a}, {b})", "{a}.masked_fill({c}, 2)", "torch.where(~{c}, {b}, {a})")
    return w.let(form.format(a=a.text, b=b.text, c=c.text), a.shape, a.dtype)


@rule
def cast(w: GraphWriter):
    a, dtype = w.value(), w.pick(*NUMBERS, "bool")
    form = "torch.abs({}).to(torch.uint8)" if dtype == "uint8" and a.dtype not in ("uint8", "bool") else \
        f"{{}}.to(torch.{dtype})"
    return w.let(form.format(a.text), a.shape, dtype)


@rule
def division_of_integers(w: GraphWriter):
    a = w.value(dtypes=("int32", "int64", "float32"))
    return w.let(f"{a.text} {w.pick('//', '%')} {w.pick(2, 4, -2) if a.is_float else w.pick(2, 3, -3)}", a.shape,
                 a.dtype)


# -- what rounds -------------------------------------------------------------------------------------------------------
@rule
def transcendental(w: GraphWriter):
    a = w.value(dtypes=FLOATS)
    name = w.pick("exp", "tanh", "nn.functional.gelu", "nn.functional.silu", "sin", "sigmoid", "erf",
                  "nn.functional.softplus")
    w.rounded(f"torch.{name}({a.text} * {w.pick(0.25, 0.5)})", a.dtype)


@rule
def normalization(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32",))
    text = w.pick("torch.softmax({0} * 0.25, {1})", "torch.log_softmax({0} * 0.25, {1})",
                  "torch.nn.functional.layer_norm({0}, {2}, eps=1.0)", "torch.mean({0}, {1})",
                  "torch.var({0}, {1}, correction=0)", "torch.logsumexp({0} * 0.5, {1})",
                  "{0} / (2.0 + torch.sum(torch.abs({0}), {1}, keepdim=True))")
    axis = w.below(len(a.shape))
    w.rounded(text.format(a.text, axis, a.shape[axis:]), a.dtype)


# -- reductions --------------------------------------------------------------------------------------------------------
@rule
def reduction(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32", "int32", "int64", "bool"))
    axes, keep = tuple(k for k in range(len(a.shape)) if w.below(2)) or (0,), bool(w.below(2))
    name = "sum" if a.dtype == "bool" else w.pick("sum", "amax", "amin")
    shape = tuple(1 if k in axes else n for k, n in enumerate(a.shape) if keep or k not in axes)
    is_sum = name == "sum"
    return w.let(f"torch.{name}({a.text}, {axes}, keepdim={keep})", shape,
                 a.dtype if a.is_float or not is_sum else "int64",
                 SMALL * prod(a.shape[k] for k in axes) if is_sum else SMALL)


@rule
def reduction_of_16_bits(w: GraphWriter):
    a = w.value(ranked, dtypes=("bfloat16", "float16", "int8", "uint8"))
    axis = w.below(len(a.shape))
    name = w.pick("amax", "amin")
    return w.let(f"torch.{name}({a.text}, {axis})", a.shape[:axis] + a.shape[axis + 1:], a.dtype)


rule(common.any_or_all("torch.any({0}, {1})", "torch.all({0}, {1})"))


@rule
def extreme_of_an_axis(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32", "int32", "bfloat16"))
    axis = w.below(len(a.shape))
    shape = a.shape[:axis] + a.shape[axis + 1:]
    if w.below(2):
        return w.let(f"torch.{w.pick('max', 'min')}({a.text}, {axis}).values", shape, a.dtype)
    return w.let(f"torch.argmax({a.text} * {prod(a.shape)} - torch.arange({a.shape[axis]}, dtype=torch.float32)"
                 f".reshape({[-1 if k == axis else 1 for k in range(len(a.shape))]}), {axis})", shape, "int64",
                 max(a.shape))


@rule
def running_sum(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32", "int64", "int32"))
    axis = w.below(len(a.shape))
    return w.let(f"torch.cumsum({a.text}, {axis})", a.shape, "float32" if a.is_float else "int64",
                 SMALL * a.shape[axis])


# -- products ----------------------------------------------------------------------------------------------------------
@rule
def product(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) >= 2, dtypes=("float32",))
    out, k = w.pick(1, 5, 16, 130), a.shape[-1]
    out_shape, limit = (*a.shape[:-1], out), SMALL ** 2 * k + SMALL
    if w.below(2):
        return w.let(f"{a.text} @ {w.value(shape=(k, out), dtypes=(a.dtype,)).text}", out_shape, a.dtype, limit)
    b, c = w.value(shape=(out, k), dtypes=(a.dtype,)), w.value(shape=(out,), dtypes=(a.dtype,))
    return w.let(f"torch.nn.functional.linear({a.text}, {b.text}, {c.text})", out_shape, a.dtype, limit)


@rule
def batched_product(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) == 3, dtypes=("float32", "bfloat16"))
    n, i, k = a.shape
    if a.dtype == "bfloat16" and k > 16:
        raise Skip
    b = w.value(shape=w.pick((n, k, 6), (n, 6, k)), dtypes=(a.dtype,))
    form = "torch.bmm({0}, {1})" if b.shape == (n, k, 6) else w.pick(
        "torch.einsum('bik,bjk->bij', {0}, {1})", "torch.bmm({0}, {1}.transpose(1, 2))", "{0} @ {1}.mT")
    return w.let(form.format(a.text, b.text), (n, i, 6), a.dtype, SMALL ** 2 * k)


# -- shapes ------------------------------------------------------------------------------------------------------------
rule(common.transpose("{0}.permute({1})"))
rule(common.reshape("{0}.reshape({1})"))


@rule
def squeeze(w: GraphWriter):
    a = w.value(lambda v: 1 in v.shape[:-1])
    axis = a.shape.index(1)
    return w.let(f"{a.text}.squeeze({axis})", a.shape[:axis] + a.shape[axis + 1:], a.dtype)


@rule
def expand(w: GraphWriter):
    a, extra = w.value(lambda v: v.size <= 2048), w.pick(2, 3, 5)
    form = w.pick("{0}.expand({1})", "{0}.unsqueeze(0).expand({1})", "{0}.unsqueeze(0).repeat({2})")
    shape = (extra, *a.shape)
    return w.let(form.format(a.text, shape, (extra, *[1] * len(a.shape))), shape, a.dtype)


rule(common.slice_of("{start}:{stop}:{step}", "{back}:{stop}:{step}"))


@rule
def select_of(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) > 1)
    axis = w.below(len(a.shape))
    return w.let(f"{a.text}.select({axis}, {w.pick(0, -1, w.below(a.shape[axis]))})",
                 a.shape[:axis] + a.shape[axis + 1:], a.dtype)


@rule
def reversal(w: GraphWriter):
    a = w.value(ranked)
    axis = w.below(len(a.shape))
    form = w.pick(f"torch.flip({a.text}, ({axis},))", f"torch.roll({a.text}, {w.pick(1, -1)}, {axis})")
    return w.let(form, a.shape, a.dtype)


rule(common.concatenation("torch.cat([{0}, {1}], {2})"))


@rule
def stack(w: GraphWriter):
    a = w.value()
    b, axis = w.value(shape=a.shape, dtypes=(a.dtype,)), w.below(len(a.shape) + 1)
    return w.let(f"torch.stack([{a.text}, {b.text}], {axis})", (*a.shape[:axis], 2, *a.shape[axis:]), a.dtype)


@rule
def padding(w: GraphWriter):
    a = w.value(ranked, dtypes=NUMBERS)
    sides = [(w.below(3), w.below(3)) for _ in a.shape]
    shape = tuple(n + low + high for n, (low, high) in zip(a.shape, sides))
    flat = [n for pair in reversed(sides) for n in pair]
    return w.let(f"torch.nn.functional.pad({a.text}, {flat}, value={w.pick(0, 1, 3)})", shape, a.dtype)


@rule
def triangle(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) > 1, dtypes=("float32", "int32", "bfloat16"))
    return w.let(f"torch.{w.pick('tril', 'triu')}({a.text}, {w.pick(-1, 0, 1)})", a.shape, a.dtype)


@rule
def arange(w: GraphWriter):
    a = w.value(ranked, dtypes=("float32", "int32", "int64"))
    return w.let(f"{a.text} + torch.arange({a.shape[-1]}, dtype=torch.{a.dtype})", a.shape, a.dtype,
                 SMALL + a.shape[-1])


# -- places known when it runs -----------------------------------------------------------------------------------------
@rule
def rows_by_index(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) == 2)
    index = w.value(lambda v: len(v.shape) == 1 and v.size <= 64, dtypes=("int64",))
    form = w.pick("torch.index_select({0}, 0, {1})", "torch.nn.functional.embedding({1}, {0})", "{0}[{1}]")
    if "embedding" in form and not a.is_float:
        form = "{0}[{1}]"
    return w.let(form.format(a.text, f"(torch.abs({index.text}) % {a.shape[0]})"), (*index.shape, a.shape[1]), a.dtype)


@rule
def elements_by_index(w: GraphWriter):
    a = w.value(lambda v: len(v.shape) == 2, dtypes=("float32", "int32", "bfloat16"))
    index = w.value(shape=(a.shape[0], w.pick(1, 3)), dtypes=("int64",))
    return w.let(f"torch.gather({a.text}, 1, torch.abs({index.text}) % {a.shape[1]})", index.shape, a.dtype)


# -- updates -----------------------------------------------------------------------------------------------------------
@rule
def update(w: GraphWriter):
    """Of a part of a tensor, by PyTorch or by a kernel."""
    a = w.value(lambda v: len(v.shape) == 2, dtypes=("float32", "bfloat16", "int32"))
    start = w.below(a.shape[0])
    rows = 1 + w.below(min(128, a.shape[0] - start))
    b = w.value(shape=(rows, a.shape[1]), dtypes=(a.dtype,))
    table = w.let(f"{a.text}.clone()", a.shape, a.dtype)
    part = f"{table.text}[{start}:{start + rows}]"
    form = w.pick("{0}.add_({1})", "kernels.added_in_place({0}, {1})", "{0}.copy_({1})",
                  f"kernels.added_in_place({table.text}[{start}:], {{1}})")
    w.lines.append(f"_ = {form.format(part, b.text)}")
    w.values.remove(table)
    return w.let(f"{table.text}.view({a.shape})", a.shape, a.dtype, 2 * SMALL)
