# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every signature of every release: calls with all parameters by place, and by name, mean what they meant."""

import importlib

import numpy as np
import pytest

from nki_mlir.capture.builder import current
from nki_mlir.capture.eager import EagerBuilder
from nki_mlir.capture.index import Index
from nki_mlir.language.beta import isa as beta_isa
from nki_mlir.language.beta import language as beta_nl
from nki_mlir.language.current import isa as nisa
from nki_mlir.language.current import language as nl
from nki_mlir.language.current.collectives import ReplicaGroup
from nki_mlir.language.signatures.binding import Function
from nki_mlir.language.signatures.table import (
    BETA,
    CURRENT,
    GONE,
    generation_of,
    histories,
    is_ignored,
    parsed,
    releases_with,
)

PACKAGES = {BETA: "nki_mlir.language.beta", CURRENT: "nki_mlir.language.current"}
ABSENT = {"nki.isa.attention_kernel", "nki.isa.attention_kernel_cache", "nki.isa.builtin_custom_op",
          "nki.language.gemm_grid", "nki.language.gemm_stationary_grid", "nki.language.NkiTensor.is_identity"}       # in stubs, on no page
CLASSES = ("nki.FrameworkKernel", "nki.tensor", "nki.kernels", "nki.isa.NkiInstruction", "nki.language.finfo",
           "nki.language.multi_buffer", "nki.compiler", "nki.simulate", "nki.jit", "nki.baremetal", "nki.benchmark",
           "nki.profile", "nki.language.NkiTensor.reshape")                                       # no functions with parameters of the table's kinds


def function(name, generation):
    """What binds the calls of a name in a package; None where the package has none."""
    module, _, last = name.rpartition(".")
    if module == "nki.language.NkiTensor":
        member = nl.NkiTensor.__dict__.get(last) if generation == CURRENT else None
        return getattr(member, "record", None)
    try:
        home = importlib.import_module(f"{PACKAGES[generation]}.{module.removeprefix('nki').strip('.') or 'nki'}")
    except ModuleNotFoundError:
        return None
    member = getattr(home, last, None)
    return getattr(member, "record", None) or getattr(getattr(member, "function", None), "record", None)


CASES = [(name, release, text) for name, entries in histories().items() for release, text in entries
         if text.startswith("(") and name not in ABSENT and not name.startswith(CLASSES) and not name.endswith("item__")]


def samples(generation):
    """A separate kind of value for each parameter, where a tile is the generation's."""
    beta = generation == BETA
    tile = beta_nl.zeros((4, 8), np.float32) if beta else nl.zeros((4, 8), nl.float32)
    isa = beta_isa if beta else nisa
    values = {p: tile for p in """data data0 data1 data2 src dst src_buffer index indices predicate on_true on_true_tile
              reduce_res bound0 bound1 vals dst_idx stationary moving segment_ids tensor stationary_scale moving_scale
              dst_scale x y a w condition value on_false val_dst idx_dst src_seeds metadata_tensor vector_offset""".split()}
    values |= {p: [tile] for p in """srcs dsts srcs_by_channel dsts_by_channel srcs0_by_channel srcs1_by_channel""".split()}
    values |= dict.fromkeys("op op0 op1 reduce_op comp_op0 comp_op1 cmp_op dst_rmw_op".split(), nl.add)
    values |= dict.fromkeys("""keepdims negate reverse0 reverse1 reverse_pred transpose_x is_stationary_onezero accumulate
              is_moving_onezero is_transpose parallel_reduce asynchronous unique_indices reduce_res_negate
              recv_counts_known has_rdispls""".split(), True)
    values |= dict.fromkeys("""operand0 operand1 initial scale bias rate prob imm imm0 imm1 reduce_init relu_param max_value
              fill_value on_false_value epsilon min max""".split(), 0.5)
    values |= dict.fromkeys("""axis n num_elem_per_idx num_valid_indices channel_multiplier offset range_start send_to_rank
              recv_from_rank pipe_id collective_dim iteration_id channel_id num_channels index_offset padding_val priority
              seed start stop step size dim end lower upper num_elem indirect_dim start_dim end_dim
              scalar_offset""".split(), 1)
    return values | {
        "dtype": nl.float32, "compute_dtype": nl.float32, "shape": (4, 8), "new_shape": (4, 8), "name": "label",
        "prefix": "label", "print_prefix": "label", "buffer": "sbuf", "address": (0, 0), "mask": True,
        "engine": isa.engine.vector, "reduce_cmd": isa.reduce_cmd.reset_reduce, "oob_mode": isa.oob_mode.skip,
        "mode": isa.oob_mode.skip, "dge_mode": isa.dge_mode.swdge, "dma_engine": getattr(isa.dma_engine, "dma", None),
        "perf_mode": "none", "tile_position": (0, 0), "tile_size": (32, 32), "shuffle_mask": [0] * 32,
        "pattern": [[1, 8]], "scales": [1.0], "axes": (1, 0), "program_axes": (0,), "expr": Index(0, {}, (1, 0), (4, 8)),
        "pred": Index(0, {}, (1, 0), (4, 8)) > 2, "loop_indices": 1, "constant": np.ones(3), "cores": (0, 1),
        "replica_group": ReplicaGroup([[0]]), "source_target_pairs": [(0, 1)], "channel_ids": [0], "func": len,
        "body_fun": len, "init": None, "psum_accumulate_flag": 1, "arr": np.ones(3), "input_data": np.ones(3), "dims": (0, 1), "size": 1,
        "src_pattern": ("p", "f"), "dst_pattern": ("p", "f"), "fixed_sizes": {}}


def of_name(name, generation):
    values = samples(generation) | VALUES.get(name, {})
    return values | {"operand1": values["data"]} if name.endswith("scalar_tensor_tensor") else values


def chosen(record, arguments, keywords):
    """Parameter -> value of the call that the function gets, and the form that was recognized."""
    plan = record.plan(len(arguments), tuple(keywords))
    positional, named, form = record.resolve(plan, arguments, keywords)
    return dict(zip(record.python_signature.positional, positional)) | named, form


@pytest.fixture
def kernel():
    """A kernel runs: tiles can be made."""
    token = current.set(EagerBuilder())
    yield
    current.reset(token)


def calls(signature, values):
    """The call with all parameters by place, as far as they have one, and the one with all by name."""
    positional = tuple(values[n] for n in signature.positional)
    return [(positional, {p.name: values[p.name] for p in signature.parameters if p.keyword_only}),
            ((), {n: values[n] for n in signature.names})]


@pytest.mark.parametrize("name, release, text", CASES, ids=[f"{n} {r}" for n, r, _ in CASES])
def test_calls_in_the_form_of_a_release(kernel, name, release, text):
    signature, generation = parsed(release, text), generation_of(release)
    record = function(name, generation)
    if not signature.names and name.startswith("nki.language.NkiTensor"):
        assert hasattr(nl.NkiTensor, name.rpartition(".")[2])
        return
    assert record is not None, f"there is no {name}"
    if signature.takes_all:
        return
    values = of_name(name, generation)
    for arguments, keywords in calls(signature, values):
        got, form = chosen(record, arguments, keywords)
        assert not form.crosses
        passed = {*signature.positional[:len(arguments)], *keywords}
        for parameter in signature.names:
            if parameter not in passed:
                continue
            target = record.target(parameter)
            assert target is not None, f"{parameter} means nothing"
            if target and not (is_ignored(name, parameter) and target not in record.parameters):
                kind = record.kind(parameter)
                value = values[parameter]
                wanted = value if kind is None else kind.make(record.generation.values)(value)
                assert got[target] is wanted or got[target] == wanted, parameter


@pytest.mark.parametrize("name, release, text", CASES, ids=[f"{n} {r}" for n, r, _ in CASES])
def test_calls_in_the_form_of_a_release_of_the_other_package(kernel, name, release, text):
    """They bind: as an own form where that takes them, else as the other generation's."""
    signature, other = parsed(release, text), CURRENT if generation_of(release) == BETA else BETA
    record = function(name, other)
    if record is None or signature.takes_all:
        return
    values = of_name(name, other)
    for arguments, keywords in calls(signature, values):
        plan = record.plan(len(arguments), tuple(keywords))
        assert plan.forms, f"{arguments} {list(keywords)}"
        record.resolve(plan, arguments, keywords)


VALUES = {"nki.isa.memset": {"value": 0.5},
          "nki.language.num_programs": {"axes": 0}, "nki.isa.register_move": {"imm": 1},
          "nki.language.all_reduce": {"x": None}}


def test_every_function_of_the_table_is_tried():
    assert len(CASES) > 380
    missing = [n for n, r, text in CASES if text != "()" and function(n, generation_of(r)) is None]
    assert not missing, missing


def test_no_release_is_forgotten():
    assert releases_with("nki.language.shared_constant")[-1] == "2.32" and GONE not in releases_with("nki.jit")
    assert isinstance(function("nki.isa.dma_copy", CURRENT), Function)
