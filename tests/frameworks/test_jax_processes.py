# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""JAX programs across processes: exports, the compilation cache, several devices, and the end of a process."""

from pathlib import Path

import pytest

pytest.importorskip("jax")

pytestmark = pytest.mark.jax

HERE = Path(__file__).parent
KERNELS = f"""
import sys
sys.path.insert(0, {str(HERE.parent)!r})
import numpy as np, jax, jax.numpy as jnp
from frameworks import kernels
a = np.arange(512, dtype=np.float32).reshape(32, 16)
program = lambda a, b: a * b * kernels.add[2](a, b)
"""


def test_export__runs_in_a_process_without_the_kernel(child):
    child(KERNELS + """
import jax.export
from nki_mlir.frameworks.jax import export_checks
exported = jax.export.export(jax.jit(program), disabled_checks=export_checks())(a, a)
open("program.bin", "wb").write(exported.serialize())
""")
    assert child("""
import numpy as np, jax, jax.export
import nki_mlir.frameworks.jax
a = np.arange(512, dtype=np.float32).reshape(32, 16)
program = jax.export.deserialize(open("program.bin", "rb").read())
print(np.array_equal(program.call(a, a), a * a * (a + a)))
""") == "True\n"


def test_compilation_cache__is_shared_and_right(child, tmp_path):
    text = KERNELS + """
jax.config.update("jax_compilation_cache_dir", "cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
counts = []
jax.monitoring.register_event_listener(lambda event, **kw: counts.append(event) if "cache_hits" in event else None)
first = FACTOR
if first:
    kernels.scaled(jnp.asarray(a), 9.0)             # another kernel before: numbers of a process would differ
print(np.array_equal(jax.jit(program)(a, a), a * a * (a + a)), len(counts) > 0)
"""
    assert child(text.replace("FACTOR", "0")) == "True False\n"
    assert child(text.replace("FACTOR", "1")) == "True True\n"


def test_shard_map__runs_on_each_device(child):
    assert child(KERNELS + """
from jax.sharding import Mesh, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("x",))
a = np.arange(1024, dtype=np.float32).reshape(64, 16)
rows = P("x")
f = jax.jit(jax.shard_map(lambda a, b: kernels.add[2](a, b) * a, mesh=mesh, in_specs=(rows, rows), out_specs=rows))
print(len(jax.devices()), np.array_equal(f(a, a), (a + a) * a))
""", XLA_FLAGS="--xla_force_host_platform_device_count=2") == "2 True\n"


@pytest.mark.parametrize("executor", ["jit", "interpreter"])
def test_exit__waits_for_what_runs(child, executor):
    """Neither results that are held nor ones that were dropped keep a process from ending."""
    assert child(KERNELS + """
f = jax.jit(lambda a, b: (program(a, b), program(b, a + 1), kernels.scaled(a, 3.0)))
for k in range(20):
    f(a, a)
held = f(a, a)
print("end")
""", NKI_MLIR_EXECUTOR=executor) == "end\n"


def test_reload__of_the_package_keeps_executables_running(child):
    assert child("""
import sys, numpy as np, jax
a = np.arange(512, dtype=np.float32).reshape(32, 16)
sys.path.insert(0, HERE)
def load():
    for name in [n for n in sys.modules if n.startswith(("nki_mlir", "frameworks"))]:
        del sys.modules[name]
    from frameworks import kernels
    return jax.jit(lambda a, b: kernels.add[2](a, b))
first = load()
print(np.array_equal(first(a, a), a + a))
second = load()
print(np.array_equal(second(a, a), a + a), np.array_equal(first(a, a), a + a))
""".replace("HERE", repr(str(HERE.parent)))) == "True\nTrue True\n"


def test_pure_callback__where_the_interface_is_unknown(child):
    out = child(KERNELS + """
import warnings
import nki_mlir.frameworks.xla_handler as xla
xla.minor_version = lambda: (_ for _ in ()).throw(xla.UnsupportedFfi(major=1))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(np.array_equal(jax.jit(program)(a, a), a * a * (a + a)))
    t = kernels.add_rows(jnp.asarray(a), jnp.asarray(a[:8]))
print(np.array_equal(t, np.concatenate([a[:8] * 2, a[8:]])), any("version 1" in str(w.message) for w in caught))
""")
    assert out == "True\nTrue True\n"


def test_import__of_the_frameworks_package_loads_none(child):
    assert child("""
import sys
import nki_mlir.frameworks, nki_mlir.language.beta.nki
print([n for n in ("jax", "torch", "torch_mlir") if n in sys.modules])
""") == "[]\n"


def test_jax__needs_no_torch(child):
    assert child("import sys\nsys.modules['torch'] = None\n" + KERNELS + """
print(np.array_equal(kernels.add[2](jnp.asarray(a), jnp.asarray(a)), a + a))
""") == "True\n"
