# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""verify-target: each rule of a machine broken once, with its place, and the nearest program that keeps it."""

import pytest

from nki_mlir.bindings import ir
from nki_mlir.diagnostics import KernelError
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.dialects.target_rules import (
    CrossesBank,
    MemoryOfEngine,
    NotOnTarget,
    SpreadPartition,
    StartPartition,
    TooManyDims,
    TooManyElements,
)
from nki_mlir.passes.pass_manager import pass_named, run_passes

NO_MASK = "affine_set<() : (0 == 0)>"


def access(start, dims, dtype="f32", symbols=""):
    pairs = ", ".join(f"[{step}, {count}]" for step, count in dims)
    return f"#nki.access<{dtype}, affine_map<(){symbols} -> ({start})>, [{pairs}]>"


def instruction(name, operands, accesses, attributes="", symbols=()):
    """One instruction on buffers given as (name, type), at kernel.py:3:7."""
    names = ", ".join(f"%{n}" for n, _ in operands) + "".join(f", %{s}" for s in symbols)
    kinds = ", ".join([t for _, t in operands] + ["index"] * len(symbols))
    return (f'"nisa.{name}"({names}) {{access = [{", ".join(accesses)}], mask = {NO_MASK}{attributes}}} : '
            f'({kinds}) -> () loc("kernel.py":3:7)')


def verify(target, operands, body, loop=None):
    buffers = "\n".join(f"  %{name} = memref.alloc() : {kind}" for name, kind in operands)
    if loop:
        body = f"""
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant {loop} : index
  scf.for %i = %c0 to %n step %c1 {{
    {body}
  }}"""
    text = f'module attributes {{nki.target = "{target}"}} {{\nfunc.func @k() {{\n{buffers}\n{body}\n  return\n}}\n}}'
    with shared_context():
        module = ir.Module.parse(text)
    run_passes(module, [pass_named("verify-target")])


def activation(start, count, engine="scalar", loop=None, symbols=""):
    operands = [("y", 'memref<128x64xf32, "sbuf">'), ("x", 'memref<128x64xf32, "sbuf">')]
    dims = [(1, count), (1, 64)]
    body = instruction("activation", operands, [access(start, dims, symbols=symbols)] * 2,
                       f', engine = "{engine}", fn = "exp", imm = 1.0 : f64, '
                       f'operandSegmentSizes = array<i32: 1, 1, 0, 0, {1 if loop else 0}>', ["i"] if loop else [])
    verify("trn2", operands, body, loop)


@pytest.mark.parametrize("start, count", [(0, 128), (0, 1), (32, 32), (96, 32), (64, 64), (64, 33), (96, 1)])
def test_legal_starts(start, count):
    activation(f"{start}, 0", count)


@pytest.mark.parametrize("start, count, legal", [(5, 1, "0, 32, 64 or 96"), (32, 33, "0 or 64"),
                                                 (16, 16, "0, 32, 64 or 96"), (32, 65, "0")])
def test_start_partition(start, count, legal):
    with pytest.raises(StartPartition) as error:
        activation(f"{start}, 0", count)
    rows = "1 partition" if count == 1 else f"{count} partitions"
    assert error.value.headline == f"operand 'dst' of 'activation' begins at partition {start} and has {rows}"
    assert f"the scalar engine begins {rows} only at {legal}" in str(error.value)
    assert str(error.value.at) == "kernel.py:3:7"


def test_start_partition__of_a_loop():
    activation("s0 * 32, 0", 32, loop=4, symbols="[s0]")
    activation("s0 * 64, 0", 64, loop=2, symbols="[s0]")
    with pytest.raises(StartPartition, match="begins at partition 0 to 112 and has 16"):
        activation("s0 * 16, 0", 16, loop=8, symbols="[s0]")
    with pytest.raises(StartPartition, match="begins at partition 0 to 64 and has 64"):
        activation("s0 * 32, 0", 64, loop=3, symbols="[s0]")


def test_start_partition__of_scales():
    def quantize(start, count):
        operands = [("d", 'memref<128x2xui32, "sbuf">'), ("s", 'memref<128x2xui8, "sbuf">'),
                    ("x", 'memref<128x8xbf16, "sbuf">')]
        patterns = [access("0, 0", [(1, 128), (1, 2)], "ui32"), access(f"{start}, 0", [(1, count), (1, 2)], "ui8"),
                    access("0, 0", [(1, 128), (1, 8)], "bf16")]
        verify("trn3", operands, instruction("quantize_mx", operands, patterns,
                                            ', engine = "vector", element = "float8_e5m2"'))
    for start in (0, 4, 8, 12):
        quantize(start, 116)
    with pytest.raises(StartPartition, match="'dst_scale' of 'quantize_mx' begins at partition 5") as error:
        quantize(5, 116)
    assert "begins 116 partitions only at 0, 4, 8 or 12" in str(error.value)


def test_spread_partition():
    operands = [("y", 'memref<128x64xf32, "sbuf">'), ("x", 'memref<1x64xf32, "sbuf">')]
    patterns = [access("0, 0", [(1, 128), (1, 64)]), access("0, 0", [(0, 128), (1, 64)])]
    body = instruction("tensor_copy", operands, patterns, ', engine = "vector"')
    with pytest.raises(SpreadPartition, match="'src' of 'tensor_copy' is one partition that 128 lanes read"):
        verify("trn2", operands, body)
    verify("trn2", operands, body.replace("tensor_copy", "dma_copy").replace("vector", "sync"))


def test_dims():
    def copy(*counts):
        total = 1
        for n in counts:
            total *= n
        operands = [(n, f'memref<8x{total}xf32, "sbuf">') for n in ("y", "x")]
        dims, step = [], 1
        for n in reversed(counts):
            dims.insert(0, (step, n))
            step *= n
        verify("trn2", operands, instruction("tensor_copy", operands, [access("0, 0", [(1, 8), *dims])] * 2,
                                             ', engine = "vector"'))
    copy(2, 3, 2, 3)
    copy(2, 1, 3, 1, 2, 3)          # a dim of one element is not a step
    with pytest.raises(TooManyDims, match="steps through 5 free dims"):
        copy(2, 3, 2, 3, 2)


def test_elements():
    def copy(count, space, target="trn2"):
        operands = [("y", f'memref<8x{count}xbf16, "{space}">'), ("x", f'memref<8x{count}xbf16, "{space}">')]
        patterns = [access("0, 0", [(1, 8), (1, count)], "bf16")] * 2
        verify(target, operands, instruction("tensor_copy", operands, patterns, ', engine = "vector"'))
    copy(65535, "sbuf")
    copy(4096, "psum")
    copy(8192, "psum", "trn3")      # all banks of 16-bit sums, which one product may write there
    with pytest.raises(TooManyElements, match="has 65536 elements in each partition"):
        copy(65536, "sbuf")
    with pytest.raises(TooManyElements, match="has 4097 elements"):
        copy(4097, "psum")


def matmul(start, columns, target="trn2", result="f32", loop=None):
    operands = [("y", f'memref<128x2048x{result}, "psum">'), ("a", 'memref<128x128xbf16, "sbuf">'),
                ("b", f'memref<128x{columns}xbf16, "sbuf">')]
    symbols = "[s0]" if loop else ""
    body = instruction("nc_matmul", operands, [access(f"0, {start}", [(1, 128), (1, columns)], result, symbols),
                                               access("0, 0", [(1, 128), (1, 128)], "bf16", symbols),
                                               access("0, 0", [(1, 128), (1, columns)], "bf16", symbols)],
                       ', engine = "tensor", accumulate = false', ["i"] if loop else [])
    verify(target, operands, body, loop)


def test_banks():
    matmul("512", 512)
    matmul("s0 * 512", 512, loop=4)
    matmul("s0 * 512 + 100", 412, loop=4)
    with pytest.raises(CrossesBank, match="takes bytes 400 to 2447 of its buffer's rows"):
        matmul("100", 512)
    with pytest.raises(CrossesBank, match="takes bytes 1600 to 2399"):
        matmul("s0 * 200", 200, loop=4)


def test_generations():
    matmul("0", 512, "trn2", "bf16")
    with pytest.raises(NotOnTarget, match="a result of nc_matmul in bfloat16 needs generation 3 of the core"):
        matmul("0", 512, "trn1", "bf16")


def tensor_scalar(target, op0, op1, engine):
    operands = [("y", 'memref<128x64xf32, "sbuf">'), ("x", 'memref<128x64xf32, "sbuf">')]
    verify(target, operands, instruction(
        "tensor_scalar", operands, [access("0, 0", [(1, 128), (1, 64)])] * 2,
        f', engine = "{engine}", op0 = "{op0}", op1 = "{op1}", imm0 = 1.0 : f64, imm1 = 1.0 : f64, reverse0 = false, '
        f'reverse1 = false, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>'))


def test_tensor_scalar_on_the_scalar_engine():
    tensor_scalar("trn2", "multiply", "add", "scalar")
    tensor_scalar("trn3", "maximum", "bypass", "scalar")
    tensor_scalar("trn1", "maximum", "bypass", "vector")
    with pytest.raises(NotOnTarget, match="tensor_scalar on the scalar engine needs generation 3"):
        tensor_scalar("trn1", "multiply", "add", "scalar")
    with pytest.raises(NotOnTarget, match="tensor_scalar of maximum and bypass on the scalar engine needs"):
        tensor_scalar("trn2", "maximum", "bypass", "scalar")


def test_psum_of_gpsimd():
    operands = [("y", 'memref<128x64xf32, "psum">')]
    body = instruction("iota", operands, [access("0, 0", [(1, 128), (1, 64)])],
                       ', engine = "gpsimd", expression = affine_map<(d0, d1) -> (d1)>')
    with pytest.raises(MemoryOfEngine, match="is in PSUM, which the gpsimd engine of trn2 cannot access"):
        verify("trn2", operands, body)
    verify("trn3", operands, body)


def test_every_error_says_what_to_do():
    for error in (StartPartition, SpreadPartition, TooManyDims, TooManyElements, CrossesBank, MemoryOfEngine,
                  NotOnTarget):
        assert issubclass(error, KernelError) and error.code.startswith("NKI-") and error.fix
