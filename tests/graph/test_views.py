# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of views of buffers, against the addresses of NumPy's views."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_mlir.analysis.view_starts import Start, start_in_buffer
from nki_mlir.bindings import Block, Module, Value, ir
from nki_mlir.diagnostics import Unsupported
from nki_mlir.dialects.mlir_ops import shared_context
from nki_mlir.graph.views import (
    complete_buffer,
    flatten_views,
    in_hbm,
    offset_of,
    put_in_hbm,
    viewed_as,
)

SHAPE = (12, 20)
SYMBOLS = (3, 2)                    # the values of %s0 and %s1


def memref(view: np.ndarray, dynamic: bool, offset: int) -> str:
    shape = "".join(f"{n}x" for n in view.shape)
    strides = ", ".join(str(s // 4) for s in view.strides)
    return f"memref<{shape}f32, strided<[{strides}], offset: {'?' if dynamic else offset}>, \"hbm\">"


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, np.ndarray, int, np.ndarray]:
    """Return a chain of views as operations, NumPy's view of an array, its start, and the array."""
    buffer = np.arange(SHAPE[0] * SHAPE[1], dtype=np.float32).reshape(SHAPE)
    view, lines, dynamic, kind = buffer, [], False, f'memref<{SHAPE[0]}x{SHAPE[1]}xf32, "hbm">'
    for level in range(draw(st.integers(0, 3))):
        name = "%x" if level == 0 else f"%v{level - 1}"
        step = draw(st.sampled_from(["subview", "subview", "collapse", "reinterpret"]))
        operands = ""
        if step == "collapse" and view.ndim == 2 and not dynamic and view.strides[0] == view.strides[1] * view.shape[1]:
            view = view.reshape(-1)
            text, operands = f"memref.collapse_shape {name} [[0, 1]]", "into"
        elif step == "reinterpret":
            start, rows, columns = draw(st.integers(0, 30)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
            view, dynamic = np.lib.stride_tricks.as_strided(buffer.reshape(-1)[start:], (rows, columns), (80, 8)), False
            text, operands = (f"memref.reinterpret_cast {name} to offset: [{start}], sizes: [{rows}, {columns}], "
                              f"strides: [20, 2]"), "to"
        else:
            step = "subview"
            starts, counts, steps, texts = [], [], [], []
            for n in view.shape:
                symbol = draw(st.sampled_from([None, 0, 1]))
                start = draw(st.integers(0, n - 1)) if symbol is None or SYMBOLS[symbol] >= n else SYMBOLS[symbol]
                by_symbol = symbol is not None and SYMBOLS[symbol] < n
                stride = draw(st.integers(1, 2))
                starts.append(start)
                steps.append(stride)
                counts.append(draw(st.integers(1, (n - start + stride - 1) // stride)))
                texts.append(f"%s{symbol}" if by_symbol else str(start))
                dynamic |= by_symbol
            view = view[tuple(slice(a, a + (c - 1) * s + 1, s) for a, c, s in zip(starts, counts, steps))]
            text, operands = f"memref.subview {name}[{', '.join(texts)}] {counts} {steps}", "to"
        offset = (view.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]) // 4
        before, kind = kind, memref(view, dynamic, offset) if "strided" in kind or step != "collapse" else f'memref<{view.size}xf32, "hbm">'
        lines.append(f"%v{level} = {text} : {before} {operands} {kind}")
    offset = (view.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]) // 4
    return "\n".join(lines), view, offset, buffer


def last_value(text: str) -> tuple[Module, Value]:
    module = ir.Module.parse(f"""func.func @f(%x: memref<{SHAPE[0]}x{SHAPE[1]}xf32, "hbm">, %s0: index, %s1: index) {{
{text}
return }}""")
    block = body_of(module)
    return module, block.operations[-2].results[0] if len(block.operations) > 1 else block.arguments[0]


def body_of(module: Module) -> Block:
    return module.body.operations[-1].operation.regions[0].blocks[0]


def total(start: Start, arguments: list[Value]) -> int:
    return start.offset + sum(factor * SYMBOLS[arguments.index(value) - 1] for value, factor in start.terms)


@given(chains())
def test_start_in_a_buffer__is_the_distance_of_addresses(chain):
    text, view, offset, buffer = chain
    with shared_context(), ir.Location.unknown():
        module, value = last_value(text)
        arguments = list(body_of(module).arguments)
        start = start_in_buffer(value)
        assert start.buffer == arguments[0] and total(start, arguments) == offset
        of_all = view.size == buffer.size and np.array_equal(view.reshape(-1), buffer.reshape(-1))
        assert complete_buffer(value) == (arguments[0] if of_all else None)
        with ir.InsertionPoint(body_of(module).operations[-1]):
            again = viewed_as(arguments[0], ir.MemRefType(value.type), start)
        assert module.operation.verify()
        assert again.type.shape == list(view.shape)
        assert again.type.get_strides_and_offset()[0] == [stride // 4 for stride in view.strides]


def test_offset__is_a_number_a_value_or_a_sum():
    with shared_context(), ir.Location.unknown():
        module, value = last_value("")
        _, s, t = arguments = list(body_of(module).arguments)
        with ir.InsertionPoint(body_of(module).operations[-1]):
            assert [offset_of(Start(value, 7)), offset_of(Start(value, 0))] == [7, 0]
            assert offset_of(Start(value, 0, ((s, 1),))) == s
            written = [str(offset_of(start).owner).partition("affine_map")[2] for start in (
                Start(value, 5, ((s, 1),)), Start(value, 0, ((s, 2),)), Start(value, -1), Start(value, 0, ((s, 1), (t, 3))))]
    assert written == ["<()[s0] -> (s0 + 5)>()[%arg1]", "<()[s0] -> (s0 * 2)>()[%arg1]", "<() -> (-1)>()",
                       "<()[s0, s1] -> (s0 + s1 * 3)>()[%arg1, %arg2]"]


def test_buffers_are_put_in_hbm__with_the_layout_of_views():
    with shared_context(), ir.Location.unknown():
        types = ["memref<4x6xf32>", "memref<4x6xf32, strided<[6, 1]>>", "memref<4x6xf32, strided<[12, 1]>>",
                 "memref<4x6xf32, strided<[6, 1], offset: 3>>", 'memref<4x6xf32, "sbuf">']
        assert [str(in_hbm(ir.MemRefType(ir.Type.parse(text)))) for text in types] == [
            'memref<4x6xf32, "hbm">', 'memref<4x6xf32, "hbm">', 'memref<4x6xf32, strided<[12, 1]>, "hbm">',
            'memref<4x6xf32, strided<[6, 1], offset: 3>, "hbm">', 'memref<4x6xf32, "sbuf">']
        module = ir.Module.parse("""memref.global "private" constant @two : memref<f32> = dense<2.0>
func.func private @f(%n: i32, %x: memref<4xf32>) {
  %c = memref.get_global @two : memref<f32>
  %s = memref.memory_space_cast %x : memref<4xf32> to memref<4xf32, 1>
  memref.copy %s, %s : memref<4xf32, 1> to memref<4xf32, 1>
  return }""")
        put_in_hbm(module)
        shared = module.body.operations[0]
        read, copy, _ = body_of(module).operations
        assert str(shared.operation.attributes["type"].value) == str(read.results[0].type) == 'memref<f32, "hbm">'
        number, buffer = body_of(module).arguments
        assert [str(number.type), str(buffer.type)] == ["i32", 'memref<4xf32, "hbm">']
        assert list(copy.operands) == [buffer, buffer]


def test_chains_of_views__become_one_view_of_the_buffer():
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse("""func.func @f(%x: memref<8x6xf32>, %i: index, %r: memref<2x2xf32>) -> index {
  %a = memref.subview %x[2, %i] [4, 4] [1, 1] : memref<8x6xf32> to memref<4x4xf32, strided<[6, 1], offset: ?>>
  %b = memref.subview %a[1, 1] [2, 2] [2, 1] : memref<4x4xf32, strided<[6, 1], offset: ?>>
    to memref<2x2xf32, strided<[12, 1], offset: ?>>
  memref.copy %b, %r : memref<2x2xf32, strided<[12, 1], offset: ?>> to memref<2x2xf32>
  %base, %offset, %sizes:2, %strides:2 = memref.extract_strided_metadata %x
    : memref<8x6xf32> -> memref<f32>, index, index, index, index, index
  %c = memref.load %base[] : memref<f32>
  memref.store %c, %r[%i, %i] : memref<2x2xf32>
  return %i : index }""")
        flatten_views(module)
        lines = [line.strip() for line in str(module).splitlines() if "memref." in line]
        assert module.operation.verify()
    assert lines == [
        "%reinterpret_cast = memref.reinterpret_cast %arg0 to offset: [%0], sizes: [2, 2], strides: [12, 1] : "
        "memref<8x6xf32> to memref<2x2xf32, strided<[12, 1], offset: ?>>",
        "memref.copy %reinterpret_cast, %arg2 : memref<2x2xf32, strided<[12, 1], offset: ?>> to memref<2x2xf32>",
        "%reinterpret_cast_0 = memref.reinterpret_cast %arg0 to offset: [0], sizes: [], strides: [] : "
        "memref<8x6xf32> to memref<f32, strided<[]>>",
        "%1 = memref.load %reinterpret_cast_0[] : memref<f32, strided<[]>>",
        "memref.store %1, %arg2[%arg1, %arg1] : memref<2x2xf32>"]


@pytest.mark.parametrize("size, stride, result", [
    ("2", "%s", "memref<2x2xf32, strided<[?, 1], offset: ?>>"), ("%s", "2", "memref<?x2xf32, strided<[12, 1], offset: ?>>")])
def test_views_of_dynamic_shape__are_refused(size, stride, result):
    with shared_context(), ir.Location.unknown():
        module = ir.Module.parse(f"""func.func @f(%x: memref<8x6xf32>, %s: index, %r: {result}) {{
  %a = memref.subview %x[2, 1] [{size}, 2] [{stride}, 1] : memref<8x6xf32> to {result.replace('offset: ?', 'offset: 13')}
  %b = memref.cast %a : {result.replace('offset: ?', 'offset: 13')} to {result}
  memref.copy %b, %r : {result} to {result}
  return }}""")
        with pytest.raises(Unsupported, match=r"(?s)the view memref<.*use static sizes and strides"):
            flatten_views(module)
