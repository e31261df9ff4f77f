# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sources of the beta generation: nothing is left, values stay, and the newest release has every form of the text."""

import functools
import importlib.util
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from nki_mlir.compat import install
from nki_mlir.language.current.refused_python import RefusedPython, refused_python
from nki_mlir.migration.files import migrated
from nki_mlir.targets.cpu.pipeline import PIPELINE
from tests.forced_passes import FORCED
from tests.property_counts import FUZZ

ROOT = Path(__file__).parent.parent.parent
KERNELS = Path(__file__).parent / "kernels"
IDIOMS, UNITS, MASKS, DIAGONALS = (KERNELS / f"{name}.py" for name in ("idioms", "units", "masks", "diagonals"))
FURTHER_NAMES = ("addresses", "balance", "cells", "chunks", "closures", "contributed", "convolutions", "decoders",
                 "diffusion", "exercises", "experts", "factories", "flash_attention", "formulas", "gradients",
                 "grids", "heads", "helpers", "images", "inference", "jax_layers", "lookups", "masked_instructions",
                 "measurements", "memory", "meshes", "mixed_loops", "mixers", "models", "names", "norms", "operators",
                 "options", "paging", "pools", "positions", "printed_and_random", "programs", "quantization",
                 "recurrences", "rings", "scans", "sequences", "serving", "signals", "steps", "tile_configs", "tiles",
                 "torch_functions", "training", "tutorials", "windows", "wrappers")
FURTHER = [pytest.param(KERNELS / f"{name}.py", marks=pytest.mark.share(6), id=name) for name in FURTHER_NAMES]
# In a normal run each file of the share runs on one of them, in `make fuzz` all on all.
OTHER_EXECUTORS = ("interpreter", "jit", "isa")
FURTHER_ON_EXECUTORS = [pytest.param(KERNELS / f"{name}.py", on, marks=pytest.mark.share(6), id=f"{name}-{on}")
                        for k, name in enumerate(FURTHER_NAMES)
                        for on in (OTHER_EXECUTORS if FUZZ else OTHER_EXECUTORS[k % 3:][:1])]
LAUNCHES, LAYERS, CONTAINERS = (KERNELS / f"{name}.py" for name in ("launches", "layers", "containers"))    # with NumPy's values
EXAMPLES = [p for p in sorted((ROOT / "examples").glob("*.py")) if "neuronxcc" in (text := p.read_text())
            and "def cases" in text]
LISTINGS = ROOT.parent / "shared" / "seeds" / "listings"
# Executors may sum a product's elements in another order where tiles are other ones.
SUMS = {"large_transfers"}
# Where a test forces it, form-products makes one sum of the blocks of one of the two texts.
BLOCKED_SUMS = {"block_dimensions"}
# A product with a reciprocal is rounded twice, a quotient of the beta generation once.
QUOTIENTS = {"attend_with_cache", "attention_backward", "attention_forward", "box_iou_matrix", "causal_norm", "ceil_tiles", "embedding_bag", "expert_loads", "flash_fwd",
             "fused_qkv", "giou", "global_average_pool", "group_norm", "heads_of_a_batch", "kl_rows", "layer_norm_over_chunks", "moments", "online_softmax_attention", "paged_decode_attention", "quantize_rows_int8",
             "rmsnorm", "rmsnorm_quant", "rmsnorm_to_fp8", "row_norm_with_tail", "row_softmax", "shifted_columns",
             "softmax", "top2_gating", "top_p_filter", "topk_router", "variance_two_pass", "windowed_softmax",
             "wkv_recurrence"}


@pytest.fixture(scope="module", autouse=True)
def vendor_names():
    install()
    sys.path.insert(0, str(ROOT / "examples"))
    yield
    sys.path.remove(str(ROOT / "examples"))


def loaded(file, name):
    spec = importlib.util.spec_from_file_location(name, file)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def of(file):
    result, = migrated(file, "2.32")
    return result


def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def copied(values):
    return tuple(v.copy() if isinstance(v, np.ndarray) else v for v in values)


def as_kernel(kernel):
    return kernel.func if isinstance(kernel, functools.partial) else kernel


def bound_keywords(kernel):
    """What a ``functools.partial`` binds, such as the grid of a migrated kernel."""
    return kernel.keywords if isinstance(kernel, functools.partial) else {}


def bound(name, on, wanted):
    """The largest difference of a kernel's results."""
    if name in QUOTIENTS:
        return 2e-7 * np.nanmax(np.abs(np.asarray(wanted, np.float64)))
    joins = name in BLOCKED_SUMS and on == "jit" and PIPELINE.get("form-products") == FORCED["form-products"]
    return 1e-4 if joins or (name in SUMS and on != "eager") else 0


QUICK = ("average_pool2d", "convolution", "giou", "normalization", "tensor_add")
SOURCES = [IDIOMS, UNITS, MASKS, DIAGONALS, LAUNCHES, LAYERS, CONTAINERS, *FURTHER,
           *(p if p.stem in QUICK else pytest.param(p, marks=[pytest.mark.slow, pytest.mark.share(4)])
             for p in EXAMPLES)]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """`benchmark` writes its files to the current directory."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("file", SOURCES, ids=lambda p: p.stem)
def test_migrates_without_hand_work(file, tmp_path, monkeypatch):
    result = of(file)
    assert [e for e in result.report.entries if e.left] == []
    assert "neuronxcc.nki" not in result.new.replace('"""', "").split("import", 1)[1]
    new = tmp_path / f"{file.stem}_migrated.py"
    new.write_text(result.new)
    before, after = loaded(file, f"{file.stem}_before"), loaded(new, new.stem)
    for on in ("eager", "jit") if file in (IDIOMS, UNITS) else ("eager",):
        for (old, arguments, *_), (kernel, again, *_) in zip(before.cases(), after.cases(), strict=True):
            keywords, kernel = bound_keywords(kernel), as_kernel(kernel)
            expected = flat(as_kernel(old).run(copied(arguments), bound_keywords(old), on))
            with monkeypatch.context() as strict, warnings.catch_warnings():
                strict.setenv("NKI_MLIR_STRICT", "1")           # forms that the newest release does not have
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", RefusedPython)
                results = flat(kernel.run(copied(again), keywords, on))
            for rule, _ in refused_python(getattr(kernel, "func", kernel)):         # what stays is in the report
                assert any(e.text.startswith(f"{rule.construct} stays") for e in result.report.entries), kernel.__name__
            for one, wanted in zip(results, expected, strict=True):
                assert one.dtype == wanted.dtype and one.shape == wanted.shape, kernel.__name__
                error = np.nanmax(np.abs(np.asarray(one, np.float64) - np.asarray(wanted, np.float64)))
                assert error <= bound(kernel.__name__, on, wanted), kernel.__name__


@pytest.mark.parametrize("file", SOURCES, ids=lambda p: p.stem)
def test_text_is_formatted(file, tmp_path):
    new = tmp_path / file.name
    new.write_text(of(file).new)
    done = subprocess.run([sys.executable, "-m", "ruff", "format", "--check", "--line-length", "120", str(new)],
                          text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("file", "on"), FURTHER_ON_EXECUTORS)
def test_further_kernels_on_other_executors(file, on, tmp_path):
    new = tmp_path / f"{file.stem}_on_{on}.py"
    new.write_text(of(file).new)
    for (old, arguments, *_), (kernel, again, *_) in zip(loaded(file, f"{file.stem}_old").cases(),
                                                         loaded(new, new.stem).cases(), strict=True):
        expected = flat(as_kernel(old).run(copied(arguments), bound_keywords(old), on))
        results = flat(as_kernel(kernel).run(copied(again), bound_keywords(kernel), on))
        for one, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.share(3)
@pytest.mark.parametrize("file", [LAUNCHES, LAYERS, CONTAINERS], ids=lambda p: p.stem)
@pytest.mark.parametrize("on", ["interpreter", "jit", "isa"])
def test_values_are_what_numpy_computes(file, on, tmp_path):
    new = tmp_path / f"{file.stem}_on_{on}.py"
    new.write_text(of(file).new)
    module = loaded(new, new.stem)
    for (kernel, arguments), expected in zip(module.cases(), module.expected(), strict=True):
        keywords, kernel = bound_keywords(kernel), as_kernel(kernel)
        for one, wanted in zip(flat(kernel.run(copied(arguments), keywords, on)), flat(expected), strict=True):
            assert one.shape == wanted.shape, kernel.__name__
            np.testing.assert_allclose(np.float32(one), np.float32(wanted), rtol=1e-5, atol=1e-5,
                                       err_msg=kernel.__name__)


def test_text_keeps_comments_and_names():
    text = of(IDIOMS).new
    assert '''        num_rows = min(128, rows - i * 128)
        # Load what the mask leaves
        tile = nl.load(a[nl.ds(i * 128, num_rows), :])
        square = nl.square(tile)
        total = nl.sum(square, axis=1)
        mean = nl.multiply(total, 1 / cols, dtype=quotient_dtype(total, cols))
        # normalize
        root = nl.rsqrt(mean)
        result = nl.multiply(tile, root.broadcast(1, cols))
        nl.store(out[nl.ds(i * 128, num_rows), :], result)
''' in text.replace("        # Load what the mask leaves\n        num_rows = min(128, rows - i * 128)",
                    "        num_rows = min(128, rows - i * 128)\n        # Load what the mask leaves")


@pytest.mark.share(3)
@pytest.mark.parametrize("file", [*(pytest.param(p, id=p.stem) for p in (IDIOMS, LAUNCHES, LAYERS, CONTAINERS)),
                                  *FURTHER[::1 if FUZZ else 2]])
def test_second_round_changes_nothing(file, tmp_path):
    new = tmp_path / "again.py"
    new.write_text(of(file).new)
    again, = migrated(new, "2.32")
    assert again.new == again.old and again.report.entries == []


def test_document_shows_the_text_of_today():
    sources = [IDIOMS, DIAGONALS, LAUNCHES, UNITS]
    old, new = [s.read_text() for s in sources], [of(s).new for s in sources]
    blocks = re.findall(r"(Before|After):\n\n```python\n(.*?)```", (ROOT / "docs" / "migration.md").read_text(), re.DOTALL)
    assert len(blocks) == 10
    for title, text in blocks:
        assert any(text in source for source in (old if title == "Before" else new)), text


@pytest.mark.skipif(not LISTINGS.is_dir(), reason="the listings are not beside the checkout")
def test_listings_of_documents(tmp_path):
    for file in LISTINGS.glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text())
    results = migrated(tmp_path, "2.32")
    assert [e for m in results for e in m.report.entries if e.left] == []
    for one in results:
        one.path.write_text(one.new)
    code = """
import numpy as np, nki_mlir.compat
nki_mlir.compat.install()
from tensor_add_caller import nki_tensor_add
from average_pool2d_kernel import tensor_avgpool_kernel
a, b = np.random.default_rng(0).standard_normal((2, 256, 1024)).astype(np.float32)
assert np.array_equal(nki_tensor_add(a, b), a + b)
image = np.arange(72, dtype=np.float32).reshape(2, 6, 6)
assert np.array_equal(tensor_avgpool_kernel(image, 2), image.reshape(2, 3, 2, 3, 2).mean((2, 4)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT), "NKI_MLIR_STRICT": "1", "PATH": ""})
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
