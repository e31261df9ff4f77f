# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every op class: it can be made, costs something, and survives a round trip through text with all it says."""

import numpy as np
import pytest

from nki_mlir.bindings import ir
from nki_mlir.dialects.access import Access, Constraint, Linear, Tile
from nki_mlir.dialects.mlir_ops import read_op
from nki_mlir.dialects.op import REGISTRY, Op, changed, fills
from nki_mlir.dialects.verification import verify
from nki_mlir.machine import machine_named
from nki_mlir.machine.costs import NOTHING

from .samples import SAMPLES, arrays_of, context, module_text, run, tile, tile_operations

NAMES = sorted(SAMPLES)


def test_samples__cover_every_op() -> None:
    assert NAMES == sorted(REGISTRY), "give each op class an entry in samples.py"


def read_back(text: str) -> Op:
    with context():
        module = ir.Module.parse(text)
        (operation,) = tile_operations(module)
        return read_op(operation)


def said(op: Op) -> dict:
    """All an operation says, without handles."""
    tiles = {f.name: (t.space, t.base_shape, t.base_dtype, t.access) for f, t in op.operands()}
    return {"tiles": tiles, "attributes": op.attribute_values(), "mask": op.mask, "limits": op.limits}


@pytest.mark.parametrize("name", NAMES)
def test_operation__survives_text(name: str) -> None:
    op = SAMPLES[name].make()
    verify(op)
    text = module_text(op)
    got = read_back(text)
    assert type(got) is type(op)
    assert said(got) == said(op)
    assert module_text(got) == text


@pytest.mark.parametrize("name", NAMES)
def test_operation__names_its_parts(name: str) -> None:
    cls = REGISTRY[name]
    assert cls.__doc__ and cls.full_name() == name
    assert any(f.writes for f in cls.tiles) or name in ("nki.device_print", "nisa.core_barrier", "nisa.require_written")
    op = SAMPLES[name].make()
    iteration = op.iteration()
    assert set(iteration.axes) == {f.name for f, _ in op.operands()}
    for field, t in op.operands():
        assert len(iteration.axes[field.name]) == len(t.shape)
    with pytest.raises(TypeError, match=f"{name} has no field color"):
        cls(**{f.name: t for f, t in op.operands()}, **op.attribute_values(), color=1)


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("nisa.")])
def test_instruction__has_engine_encoding_and_cost(name: str) -> None:
    cls = REGISTRY[name]
    assert cls.engines and cls.mnemonic and 0 < cls.opcode < 256
    for target in ("trn1", "trn2", "trn3"):
        for sizes in SAMPLES[name].sizes:
            op = SAMPLES[name].make(sizes=sizes)
            assert op.runs_on in cls.engines
            if op.work() is not NOTHING:
                assert machine_named(target).cost(op.runs_on, op.work()).busy > 0


def test_encodings__are_distinct() -> None:
    classes = [c for c in REGISTRY.values() if c.dialect == "nisa"]
    assert len({c.opcode for c in classes}) == len({c.mnemonic for c in classes}) == len(classes)


@pytest.mark.parametrize("name", NAMES)
def test_operation__is_deterministic_and_reads_before_it_writes(name: str) -> None:
    op = SAMPLES[name].make()
    arrays = arrays_of(op)
    first, second = run(op, arrays), run(op, arrays)
    for label, array in first.items():
        assert np.array_equal(array.view(np.uint8), second[label].view(np.uint8))
    for field, _ in op.operands():
        if not field.writes:
            assert np.array_equal(first[field.name], arrays[field.name])


# -- what the text of one operation can say beside its tiles -----------------------------------------------------------
def looped(body: str) -> str:
    return f"""
    func.func @kernel(%src: memref<4x64xf32, "hbm">, %dst: memref<4x8xf32, "sbuf">, %id: index {{nki.program_id = 1}})
        attributes {{nki.grid = [2, 4]}} {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c3 = arith.constant 3 : index
      scf.for %i = %c0 to %c3 step %c1 {{
        {body}
      }}
      return
    }}"""


LOAD = """"nki.load"(%dst, %src, %i, %id) {{access = [
    #nki.access<f32, affine_map<()[s0, s1] -> (0, 0)>, [[1, 4], [1, 8]]>,
    #nki.access<f32, affine_map<()[s0, s1] -> (s0 * 8 + s1 * 8)>, [[64, 4], [1, 8]]>], mask = {mask}{more}}}
    : (memref<4x8xf32, "sbuf">, memref<4x64xf32, "hbm">, index, index) -> ()"""


def in_loop(text: str) -> Op:
    with context():
        module = ir.Module.parse(looped(text))
        body = module.body.operations[0].regions[0].blocks[0]
        loop = next(o.operation for o in body.operations if o.operation.name == "scf.for")
        op = read_op(loop.regions[0].blocks[0].operations[0])
        op.module = module          # type: ignore[attr-defined]     # keeps the IR alive
        return op


def test_symbols__have_the_ranges_of_loops_and_grids() -> None:
    op = in_loop(LOAD.format(mask="affine_set<() : (0 == 0)>", more=""))
    assert op.ranges == ((0, 2), (0, 3))
    assert op.src.access.free == Linear(0, ((0, 8), (1, 8)))
    assert op.mask == () and op.limits == () and op.extra == {}


def test_mask_limits_and_discardable_attributes__are_read() -> None:
    more = ', nki.limits = affine_set<(d0, d1)[s0, s1] : (-d1 + 5 >= 0)>, nki.note = "kept"'
    op = in_loop(LOAD.format(mask="affine_set<(d0, d1)[s0, s1] : (-d0 - s1 + 3 >= 0, d1 - s0 == 0)>", more=more))
    assert op.mask == (Constraint(Linear(3, ((1, -1),), ((0, -1),))),
                       Constraint(Linear(0, ((0, -1),), ((1, 1),)), equal=True))
    assert op.limits == (Constraint(Linear(5, (), ((1, -1),))),)
    assert str(op.extra) == "{'nki.note': StringAttr(\"kept\")}"


def test_pattern__in_another_dtype_counts_in_its_elements() -> None:
    base = tile("sbuf 4x6xf32", "src")
    view = Tile(base.handle, "sbuf", (4, 6), base.dtype, Access(
        tile("sbuf 1x1xi16").dtype, Linear(), Linear(1), ((1, 4), (2, 6))), "src")
    assert view.row == 12
    op = SAMPLES["nki.copy"].make(dst="sbuf 4x6xi16", src=view)
    got = read_back(module_text(op))
    assert said(got) == said(op)
    arrays = arrays_of(op)
    after = run(op, arrays)
    assert np.array_equal(after["dst"], arrays["src"].view(np.int16)[:, 1::2])


@pytest.mark.parametrize("name", NAMES)
def test_kind__is_one_object_for_equal_attributes_alone(name: str) -> None:
    op, other = SAMPLES[name].make(), SAMPLES[name].make()
    assert op.kind() is other.kind() is changed(op, lambda tile: tile).kind()
    for attribute, value in op.attribute_values().items():
        if isinstance(value, float):
            zeros = [changed(op, lambda tile: tile, **{attribute: zero}).kind() for zero in (0.0, -0.0, 0)]
            assert len({op.kind(), *zeros}) >= 3
        elif isinstance(value, bool):
            assert changed(op, lambda tile: tile, **{attribute: not value}).kind() is not op.kind()
    assert changed(op, lambda tile: tile, mask=()).kind() is op.kind()


def test_operation__fills_a_complete_buffer_that_it_does_not_read() -> None:
    op = SAMPLES["nisa.tensor_copy"].make()
    part = tile("sbuf 4x8xf32").patterned(dims=((1, 4), (1, 6)))
    masked = changed(op, None, mask=(Constraint(Linear(0, (), ((0, 1),))),))
    assert fills(op, op.operands()) and not fills(op, []) and not fills(masked, masked.operands())
    for name, dst in (("nisa.tensor_copy", part), ("nisa.tensor_copy_dynamic_dst", "sbuf PxKxf32")):
        other = SAMPLES[name].make(dst=dst)
        assert not fills(other, other.operands())
