# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles that a kernel allocates and updates itself: blocks, addresses, updated inputs, sums that round as they grow."""

from nki_mlir.scalar.dtypes import FLOAT32, INT32, UINT8

from ..beta import BetaWriter, kind, rule
from ..writer import WIDE, Facts, Tile


@rule(2)
def blocks(w: BetaWriter):
    """Allocate blocks of tiles, perhaps at addresses of the kernel; write them in a loop and read them later."""
    n, name, dtype = w.between(1, 3), w.name("blocks"), w.pick(*(d for d in w.dtypes if d.name != "tfloat32"))
    base = 98_304 + 1024 * w.count
    where = w.pick("", "", ", buffer=nl.sbuf", f", buffer=ncc.sbuf.mod_alloc(base_addr={base}, num_free_tiles=({n},))",
                   f", buffer=ncc.sbuf.alloc(lambda idx, pdim_size, fdim_size: (0, {base} + 256 * idx[0]))")
    source, facts = w.array(dtype, w.pick("small", "fraction"))
    w.note("blocks", "direct allocation" if "alloc" in where else "blocks")
    w.emit(f"{name} = nl.ndarray(({n}, nl.par_dim({w.P}), {w.F}), {kind(dtype)}{where})")
    w.emit(f"for k in nl.{w.pick('affine_range', 'sequential_range', 'static_range')}({n}):")
    w.emit(f"    {name}[k] = nl.load({source}[nl.ds({w.between(0, 20)} + k * {w.between(0, 9)}, {w.P}), 0:{w.F}])")
    if w.maybe():
        w.emit(f"{name}[{n - 1}, :, 0:{(w.F + 1) // 2}] = {w.pick(0, 1, 2)}")
        facts = facts.join(Facts(2, 1)).cast(dtype)
    for k in range(n):
        if "alloc" in where:                    # functions of a tile that has an address need one for their bias
            w.let(f"nl.copy({name}[{k}])", (w.P, w.F), dtype, facts)
        else:
            w.keep(Tile(f"{name}[{k}]", (w.P, w.F), dtype, facts))


@rule(2)
def input_in_place(w: BetaWriter):
    """Write parts of an input, and read them again where they overlap."""
    if w.grid or any(loop.parallel for loop in w.loops):
        return False
    dtype = w.pick(FLOAT32, INT32)
    source, facts = w.array(dtype, "one")
    m = f"m_{dtype.name}"
    if m not in w.updated:
        w.inputs[m] = w.inputs[source][::-1].copy()
        w.updated.append(m)
    a = w.operand((w.P, w.F), (dtype,))
    w.note("mutable_tensor")
    names = [loop.name for loop in w.loops if loop.symbolic]
    row = f"{w.between(0, 40)}" + (f" + {w.pick(*names)} * {w.between(1, 3)}" if names and w.maybe() else "")
    w.emit(f"nl.store({m}[nl.ds({row}, {w.P}), 3:{w.F + 3}], {a.text}{w.mask(a.shape, boxes=True)})")
    w.let(f"nl.load({m}[nl.ds({w.between(0, 40)}, {w.P}), 1:{w.F + 1}])", (w.P, w.F), dtype, Facts())
    return None


@rule(2)
def rounded_as_it_grows(w: BetaWriter):
    """Add to a total of a narrow dtype, which is rounded after every step."""
    if w.loops:
        return False
    dtype = w.pick(*(d for d in WIDE if d.bits == 16), *(d for d in w.dtypes if d.bits == 8 and d.is_float), UINT8)
    source, _ = w.array(w.pick(FLOAT32, dtype), w.pick("fraction", "small", "wild"))
    total, turns, op = w.name("total"), w.between(1, 5), w.pick("add", "subtract", "multiply", "maximum")
    w.note("rounded total")
    w.emit(f"{total} = nl.ones(({w.P}, {w.F}), {kind(dtype)})")
    w.emit(f"for k in nl.{w.pick('sequential_range', 'static_range')}({turns}):")
    value = f"nl.load({source}[nl.ds(k * {w.between(0, 9)}, {w.P}), 0:{w.F}])"
    w.emit("    " + w.pick(f"{total}[...] = nl.{op}({total}, {value}, dtype={kind(dtype)})",
                           f"{total}[...] = nl.{op}({total}, {value})",
                           f"{total}[...] = nl.{op}({total}, {value}, dtype=nl.float32)"))
    w.keep(Tile(total, (w.P, w.F), dtype, Facts().cast(dtype)))
    return None
