# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of each older release of the current generation in the newest form."""

import pytest

from nki_mlir.migration.files import migrated
from nki_mlir.migration.older_texts import older
from nki_mlir.migration.releases import newest
from nki_mlir.migration.report import MigrationReport

HEAD = "import nki, nki.collectives as nccl\nimport nki.isa as nisa\nimport nki.language as nl\n"


@pytest.mark.parametrize(("old", "new"), [
    ("nisa.register_move(r, imm=4)", "nisa.register_move(r, src=4)"),
    ("nisa.sendrecv(src=a, dst=b, send_to_rank=1, recv_from_rank=1, pipe_id=0, use_gpsimd_dma=True)",
     "nisa.sendrecv(src=a, dst=b, send_to_rank=1, recv_from_rank=1, pipe_id=0, dma_engine=nisa.dma_engine.gpsimd_dma)"),
    ("nisa.nc_matmul(d, s, m, is_moving_zero=True, psumAccumulateFlag=3)",
     "nisa.nc_matmul(d, s, m, is_moving_onezero=True)"),
    ("nisa.nc_matmul(d, s, m, False, False, False, (0, 0), (64, 64))",
     "nisa.nc_matmul(dst=d, stationary=s, moving=m, is_stationary_onezero=False, is_moving_onezero=False, "
     "is_transpose=False, tile_position=(0, 0), tile_size=(64, 64))"),
    ("nisa.nc_matmul(d, s, m, False, False, False, (), (), nisa.matmul_perf_mode.none, 'product')",
     "nisa.nc_matmul(dst=d, stationary=s, moving=m, is_stationary_onezero=False, is_moving_onezero=False, "
     "is_transpose=False, tile_position=(), tile_size=(), perf_mode=nisa.matmul_perf_mode.none, name='product')"),
    ("nisa.dma_copy(a, b, None, m, g, True, 'n', 8)", "nisa.dma_copy(a, b, None, m, g, True, 'n', 8)"),
    ("nl.shared_constant(c, dtype=nl.bfloat16)", "nl.shared_constant(c.astype(nl.bfloat16))"),
    ("nisa.dma_copy(dst=a, src=b, dst_rmw_op=nl.add, unique_indices=True)",
     "nisa.dma_compute(dst=a, srcs=[b, a], reduce_op=nl.add)"),
    ("nisa.dma_copy(dst=a, src=b, dst_rmw_op=None)", "nisa.dma_copy(dst=a, src=b)"),
    ("nisa.dma_copy(a, b, nisa.oob_mode.skip)", "nisa.dma_copy(dst=a, src=b, oob_mode=nisa.oob_mode.skip)"),
    ("nisa.dma_compute(a, [b, c], None, nl.add)", "nisa.dma_compute(dst=a, srcs=[b, c], scales=None, reduce_op=nl.add)"),
    ("nisa.affine_select(d, [[1, 4]], 3, -1, t, 0.0)",
     "nisa.affine_select(dst=d, pattern=[[1, 4]], offset=3, channel_multiplier=-1, on_true_tile=t, on_false_value=0.0)"),
    ("nl.ndarray((4, 4), dtype='bfloat16', buffer='sbuf')", "nl.ndarray((4, 4), dtype=nl.bfloat16, buffer=nl.sbuf)"),
    ("nisa.tensor_copy_dynamic_src(d, v)", "nisa.tensor_copy(d, v)"),
    ("nl.affine_range(4)", "range(4)"), ("nl.par_dim(128)", "128"),
    ("nl.tile_size.total_available_sbuf_size", "nl.tile_size.sbuf_fmax_bytes"),
    ("nisa.nc_matmul(d, s, m, perf_mode='double_row')", "nisa.nc_matmul(d, s, m, perf_mode=nisa.matmul_perf_mode.double_row)"),
    ("nl.ndarray((4, 4), 'bfloat16', 'sbuf')", "nl.ndarray((4, 4), nl.bfloat16, nl.sbuf)"),
    ("nl.full((4, 4), 2.0, 'float32', buffer='psum')", "nl.full((4, 4), 2.0, nl.float32, buffer=nl.psum)"),
    ("nisa.dma_copy(dst=a, src=b, dge_mode=3)", "nisa.dma_copy(dst=a, src=b, dge_mode=nisa.dge_mode.none)"),
    ("nisa.activation(d, nl.exp, t, reduce_cmd=3)",
     "nisa.activation(d, nl.exp, t, reduce_cmd=nisa.reduce_cmd.reset_reduce)"),
    ("nisa.nc_matmul(d, s, m, psum_accumulate_flags=1)", "nisa.nc_matmul(d, s, m)"),
    ("nisa.tensor_copy(dst=d, src=t, dtype=nl.float32)", "nisa.tensor_copy(dst=d, src=t)"),
    ("nl.ndarray((4, 4), nl.float32, buffer=None)", "nl.ndarray((4, 4), nl.float32)"),
    ("nl.load(x, mask=None)", "nl.load(x)"),
    ("nccl.collective_permute_implicit_current_processing_rank_id(0, g, num_channels=1)",
     "nccl.collective_permute_implicit_current_processing_rank_id(0, g)"),
    ("sbuf.view('float32', (4, 4))", "nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.sbuf)"),
    ("hbm.view(shape=x.shape, dtype=x.dtype)", "nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)"),
    ("nl.zeros((4, 4), dtype=nl.float32, buffer=psum)", "nl.zeros((4, 4), dtype=nl.float32, buffer=nl.psum)"),
    ("nl.shared_identity_matrix(128, 'bfloat16')", "nl.shared_identity_matrix(128, nl.bfloat16)"),
    ("nl.tile_size.psum_fmax_bytes", "nl.tile_size.psum_bank_fmax_bytes"),
    ("t.reshape(new_shape=(4, 4))", "t.reshape((4, 4))"),
    ("p = nl.zeros((4, 4), nl.float32, nl.psum)\nr = nl.rsqrt(p[:, 0:2], dtype=nl.float32)",
     "p = nl.zeros((4, 4), nl.float32, nl.psum)\nr = nl.rsqrt(nl.copy(p[:, 0:2]), dtype=nl.float32)"),
    ("p = nl.zeros((4, 4), nl.float32, nl.psum)\nnisa.dma_copy(dst=a, src=p[:, 0:2])\nnisa.dma_copy(a, p)\nnl.store(a, p)\nnl.store(dst=a, value=p)",
     "p = nl.zeros((4, 4), nl.float32, nl.psum)\nnisa.dma_copy(dst=a, src=nl.copy(p[:, 0:2]))\nnisa.dma_copy(a, nl.copy(p))\nnl.store(a, nl.copy(p))\nnl.store(dst=a, value=nl.copy(p))"),
    ("p = nl.zeros((4, 4), nl.float32, nl.psum)\nnisa.dma_copy(p, b)", "p = nl.zeros((4, 4), nl.float32, nl.psum)\nnisa.dma_copy(p, b)"),
    ("p = nl.zeros((4, 4), nl.float32, nl.sbuf)\nr = nl.rsqrt(p)", "p = nl.zeros((4, 4), nl.float32, nl.sbuf)\nr = nl.rsqrt(p)"),
    ("nisa.dma_copy(dst=a, src=b)", "nisa.dma_copy(dst=a, src=b)")])
def test_call(old, new):
    report = MigrationReport("file.py")
    assert newest(HEAD + old + "\n", report) == HEAD + new + "\n"
    assert bool(report.entries) == (old != new and "dst_rmw_op=None" not in old)


@pytest.mark.parametrize(("text", "why"), [
    ("y = nisa.tensor_copy(t, dtype=nl.float32)",
     "a call of nisa.tensor_copy in the beta form: create its destination, and pass it as dst"),
    ("y = nisa.activation(nl.exp, t, b)",
     "a call of nisa.activation in the beta form: create its destination, and pass it as dst"),
    ("y = nisa.iota(i, nl.int32)", "a call of nisa.iota in the beta form: create its destination, and pass it as dst"),
    ("nisa.activation(dst=d, op=nl.exp)", "a call of nisa.activation without data, which release 2.32 requires"),
    ("t = nl.ndarray((4, 4))", "a call of nl.ndarray without dtype, which release 2.32 requires"),
    ("t = nl.load(x, mask=i < n)", "nl.load has no mask in the current generation: slice its operands"),
    ("nl.store(x, t, mode=m)", "nl.store has no parameter mode in the current generation"),
    ("i = nl.arange(128)[:, None]", "nki.language.arange, which release 2.32 does not have (2.20 to 2.26.1 have)"),
    ("x: nki.tensor = y", "nki.tensor, which release 2.32 does not have (2.20 to 2.26.1 have)"),
    ("kernel[2, 2](x)", "a launch grid of several axes: a launch of the current generation has 1 or 2 cores"),
    ("t = sbuf.view(nl.float32)", "sbuf.view without a dtype and a shape: create a tensor with nl.ndarray")])
def test_what_no_release_takes(text, why):
    report, kernel = MigrationReport("file.py"), f"{HEAD}@nki.jit\ndef kernel(x):\n    pass\n"
    assert newest(f"{kernel}{text}\n", report) == f"{kernel}{text}\n"
    assert [(e.line, e.text) for e in report.entries] == [(7, why)] and not report.is_complete


@pytest.mark.parametrize("text", [
    "nisa.activation(d, nl.exp, t)", "nisa.activation(*values)", "nisa.tensor_tensor(d, a, b, nl.add)",
    "nl.load(x, nl.float32)", "nisa.iota(d, [[1, 4]])", "nl.broadcast_to(x, (4, 4))", "kernel[2](x)", "y = other[2, 2]"])
def test_what_releases_take(text):
    report = MigrationReport("file.py")
    newest(f"{HEAD}@nki.jit\ndef kernel(x):\n    pass\n{text}\n", report)
    assert not report.entries


def test_dtypes_of_views__are_names_in_kernels():
    kernel = f"{HEAD}@nki.jit\ndef kernel(x):\n    return x.view('int32')\n"
    assert newest(kernel, MigrationReport("file.py")) == kernel.replace("'int32'", "nl.int32")
    host = f"{HEAD}def host(x):\n    return x.view('int32')\n"
    assert newest(host, MigrationReport("file.py")) == host


def test_kernel__has_no_keyword_only_parameters_and_returns_shared_memory():
    old = HEAD + """@nki.jit(platform_target="trn2")
def kernel(x, *, scale=2):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
    return out
"""
    assert newest(old, MigrationReport("file.py")) == HEAD + """@nki.jit
def kernel(x, scale=2):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    return out
"""


@pytest.mark.parametrize(("dtype", "value", "new"), [
    ("nl.int32", "2.0", "2"), ("'uint8'", "0.", "0"), ("nl.float32", "2.0", "2.0"), ("nl.int32", "0.5", "0.5"),
    ("x.dtype", "2.0", "2.0")])
def test_values_of_integers(dtype, value, new):
    text = f"{HEAD}t = nl.ndarray((4, 4), dtype={dtype})\nnisa.memset(t[0:2], value={value})\n"
    report = MigrationReport("file.py")
    assert f"nisa.memset(t[0:2], value={new})\n" in newest(text, report)


def test_kernels_compare_with_none_alone_by_identity():
    body = "    if kind is 'a' and x is not None and kind is not x:\n        return x\n"
    text = newest(f"{HEAD}@nki.jit\ndef kernel(x, kind):\n{body}\n\ndef host(x, kind):\n{body}",
                  MigrationReport("file.py"))
    assert "def host(x, kind):\n" + body in text
    assert "    if kind == 'a' and x is not None and kind != x:\n" in text


@pytest.mark.parametrize(("old", "new"), [
    ("x, *, scale, grid=(1,)", "x, scale, grid=(1,)"), ("x, y=1, *, scale", "x, y=1, scale=None"),
    ("x, *, scale=2, bias", "x, bias, scale=2")])
def test_keyword_only_parameters_without_a_default(old, new):
    report = MigrationReport("file.py")
    text = newest(f"{HEAD}@nki.jit\ndef kernel({old}):\n    return x\n", report)
    assert text == f"{HEAD}@nki.jit\ndef kernel({new}):\n    return x\n"


@pytest.mark.parametrize(("old", "release", "new"), [
    ("nisa.register_move(r, imm=4)", "2.28", "nisa.register_move(r, imm=4)"),
    ("nisa.nc_matmul(d, s, m, is_moving_zero=True, psumAccumulateFlag=3)", "2.28",
     "nisa.nc_matmul(d, s, m, is_moving_onezero=True)"),
    ("nisa.dma_copy(dst=a, src=b, dst_rmw_op=nl.add)", "2.28", "nisa.dma_copy(dst=a, src=b, dst_rmw_op=nl.add)"),
    ("nisa.tensor_copy_dynamic_src(d, v)", "2.27", "nisa.tensor_copy_dynamic_src(d, v)"),
    ("nisa.tensor_copy_dynamic_src(d, v)", "2.28", "nisa.tensor_copy(d, v)"),
    ("nisa.affine_select(d, [[1, 4]], -1, t, 0.0)", "2.28",
     "nisa.affine_select(d, [[1, 4]], channel_multiplier=-1, on_true_tile=t, on_false_value=0.0, offset=0)"),
    ("nisa.dma_copy(dst=a, src=b, priority=None)", "2.29", "nisa.dma_copy(dst=a, src=b)"),
    *[(f"nisa.range_select(d, t, nl.less, nl.less, b, b{options})", release,
       f"nisa.range_select(d, t, nl.less, nl.less, b, b{options})") for release in ("2.27", "2.28") for options in (
           "", ", on_false_value=-3.4028235e38", ", nisa.reduce_cmd.reset_reduce, on_false_value=-3.4028234663852886e+38")]])
def test_calls_for_an_older_release(old, release, new):
    report = MigrationReport("file.py")
    text = newest(f"{HEAD}{old}\n", report, release)
    assert older(text, HEAD + old, report, release) == f"{HEAD}{new}\n" and report.is_complete


@pytest.mark.parametrize(("call", "release", "reason"), [
    ("nl.exp(t)", "2.28", "a call of nki.language.exp, which release 2.28 does not have (2.20 to 2.26.1, 2.29 to 2.32 have)"),
    ("t.permute((1, 0))", "2.30", "nki.language.NkiTensor.permute, which release 2.30 does not have (2.31 to 2.32 have)"),
    ("nl.tile_size.sbuf_fmax_bytes", "2.29",
     "nki.language.tile_size.sbuf_fmax_bytes, which release 2.29 does not have (2.30 to 2.32 have)"),
    ("nl.less(t, t)", "2.27", "a call of nki.language.less without dtype in release 2.27 (2.29 to 2.32 have)"),
    ("nisa.range_select(d, t, nl.less, nl.less, b, b, on_false_value=0.0)", "2.28",
     "nki.isa.range_select.on_false_value, of which release 2.28 ignores the value (2.29 to 2.32 have)"),
    ("nisa.range_select(d, t, nl.less, nl.less, b, b, nisa.reduce_cmd.reduce)", "2.27",
     "nki.isa.range_select.reduce_cmd, of which release 2.27 ignores the value (2.29 to 2.32 have)"),
    ("nisa.topk(a, b, t, 8)", "2.31", "nki.isa.topk, which release 2.31 does not have (2.32 has)")])
def test_names_that_an_older_release_lacks_are_left(call, release, reason):
    report, text = MigrationReport("file.py"), f"{HEAD}def kernel(t):\n    return {call}\n"
    assert older(text, text, report, release) == text
    assert [(e.line, e.text) for e in report.entries if e.left] == [(5, reason)]


def test_broadcasts_for_a_release_without_views(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("""import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    tile = nl.load(x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile - nl.max(tile, axis=1, keepdims=True))
    return out
""")
    for release, text in (("2.29", "nl.broadcast_to(nl.max("), ("2.32", ".broadcast(1, tile.shape[1])")):
        result, = migrated(file, release)
        assert text in result.new and result.report.is_complete


@pytest.mark.parametrize(("body", "entry"), [
    ("for i in nl.dynamic_range(4):\n        nl.load(x)",
     "nl.dynamic_range stays, which release 2.32 deprecates: write a function and nl.fori_loop"),
    ("go = nisa.register_alloc(1)\n    while go:\n        nisa.register_move(go, src=0)",
     "the loop while go stays, which release 2.32 deprecates: write a function and nl.while_loop"),
    ("go = 1\n    while go:\n        go = 0", None)])
def test_the_report_names_run_time_loops_that_the_newest_release_deprecates(body, entry, tmp_path):
    file = tmp_path / "loop.py"
    file.write_text(f"{HEAD}@nki.jit\ndef kernel(x):\n    {body}\n")
    for release, texts in (("2.32", [entry] if entry else []), ("2.31", [])):
        one, = migrated(file, release)
        assert [e.text for e in one.report.entries] == texts and one.report.is_complete


TENSORS = """N = 32


@nki.jit
def kernel(x):
    t = nl.ndarray((128, 128), nl.float32, buffer=nl.sbuf)
    u = nl.ndarray((128, 4, 64), nl.float32, buffer=nl.sbuf)
    y = nl.ndarray((64, 128), nl.float32, buffer=nl.sbuf)
    """


@pytest.mark.parametrize(("old", "new"), [
    ("a = t.reshape((128, N))", "a = t[:, 0:N]"), ("a = t.reshape((128, 4, 8))", "a = t[:, 0:32].reshape((128, 4, 8))"),
    ("a = u.reshape((128, 4, 8))", "a = u.reshape((128, 256))[:, 0:32].reshape((128, 4, 8))"),
    ("a = u.reshape(new_shape=(128, 32))", "a = u.reshape((128, 256))[:, 0:32]"),
    ("a = t.reshape((128, 2, 64))", "a = t.reshape((128, 2, 64))"), ("a = t.reshape((128, m))", "a = t.reshape((128, m))"),
    ("nisa.dma_transpose(y, x, axes=(2, 1, 0))", "nisa.dma_transpose(y.expand_dim(1), x, axes=(2, 1, 0))"),
    ("nisa.dma_transpose(src=x, dst=y, axes=(3, 1, 2, 0))",
     "nisa.dma_transpose(src=x, dst=y.expand_dim(1).expand_dim(2), axes=(3, 1, 2, 0))"),
    ("nisa.dma_transpose(u, x, axes=(2, 1, 0))", "nisa.dma_transpose(u, x, axes=(2, 1, 0))"),
    ("nisa.dma_transpose(y, x)", "nisa.dma_transpose(y, x)")])
def test_sizes_that_a_newer_release_refuses(old, new):
    report = MigrationReport("kernel.py")
    assert newest(HEAD + TENSORS + old, report) == HEAD + TENSORS + new
    assert not any(e.left for e in report.entries)


@pytest.mark.parametrize(("text", "why"), [
    ("a = t.reshape((64, 128))", "a reshape to fewer elements: slice the tensor first"),
    ("nisa.dma_transpose(u, x, axes=(3, 1, 2, 0))",
     "nisa.dma_transpose into a tensor of fewer dimensions: insert those of one element (.expand_dim)")])
def test_sizes_without_a_newer_form_are_reported(text, why):
    report = MigrationReport("kernel.py")
    assert newest(HEAD + TENSORS + text, report) == HEAD + TENSORS + text
    assert [e.text for e in report.entries if e.left] == [why]


def test_an_older_release_keeps_its_reshape():
    text = HEAD + TENSORS + "a = t.reshape((128, N))"
    assert newest(text, MigrationReport("kernel.py"), "2.30") == text
