# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Errors of a plugin name it, and extensions are looked up by name alone."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nki_mlir import extensions, plugin
from nki_mlir.cli.command import load_plugins
from nki_mlir.cli.opt import parse_options, pass_summaries
from nki_mlir.dialects import catalog, mlir_ops
from nki_mlir.dialects.op import REGISTRY
from nki_mlir.extensions import BrokenPlugin, Extension, PluginVersion, SameName
from nki_mlir.language.beta import language as nl
from nki_mlir.language.beta import nki
from nki_mlir.language.plugin_instructions import NotRegular, instruction
from nki_mlir.language.signatures import table
from nki_mlir.language.specialization import UnknownExecutor, executor
from nki_mlir.machine import machine_named
from nki_mlir.machine.description import UnknownTarget
from nki_mlir.passes.pass_manager import PASSES, BadOption, file_names, pass_named, passes_named

OP = """
from nki_mlir.plugin import Engine, In, InOut, NisaOp, Out

class {cls}(NisaOp, name="{name}", engines=(Engine.VECTOR,), mnemonic="{cls}", opcode=0xC7):
    dst: {role}
    src: In
    {more}
"""


LIMITED = """most: float

    def verify(self, check):
        check.same_shape("dst", "src")

    def reference(self, src):
        return src.clip(None, self.most)
"""


def forget_classes(before: dict[str, type]) -> None:
    """Leave the tables of classes as they were; modules of the toolchain may have been imported in between."""
    REGISTRY.update(before)
    for registry in (REGISTRY, PASSES):
        for name in [n for n, cls in registry.items() if cls.__module__.startswith("p_")]:
            del registry[name]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes a package ``p_...`` with files, and has it as the only plugin with these entries."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(extensions, "_loaded", [])
    catalog.load()
    before = dict(REGISTRY)

    def make(name: str, files: dict[str, str], *entries: tuple[str, str, str], api: str = "1") -> str:
        folder = tmp_path / name
        for file, text in {"__init__.py": f"NKI_MLIR_API = {api}\n", **files}.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
        registered = tuple(Extension(group, entry, f"{name}.{value}", name) for group, entry, value in entries)
        monkeypatch.setattr(extensions, "installed", lambda: registered)
        return name
    yield make
    forget_classes(before)


def test_entry_points__are_read_once_for_each_name_on_the_path(tmp_path, monkeypatch):
    for folder, value in (("first", "m:x"), ("second", "n:y")):
        info = tmp_path / folder / "Some_plugin-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "entry_points.txt").write_text(
            f"[console_scripts]\nrun = m:main\n\n[nki_mlir.targets]\na = {value}\nb=m:z\n[nki_mlir.unknown]\nc = d\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "none"), str(tmp_path / "second")])
    read = extensions.installed.__wrapped__
    assert read() == (Extension("targets", "a", "m:x", "some_plugin"), Extension("targets", "b", "m:z", "some_plugin"))
    monkeypatch.setenv("NKI_MLIR_PLUGINS", "off")
    assert read() == ()
    (tmp_path / "first" / "Some_plugin-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe\x00[nki_mlir.ops]")
    monkeypatch.delenv("NKI_MLIR_PLUGINS")
    assert read() == ()


def test_finding_nothing__imports_nothing():
    code = ("import sys; import nki_mlir.plugin; from nki_mlir import extensions; extensions.of('ops'); "
            "print(*(m for m in ('numpy', 'importlib.metadata', 'nki_mlir.language', 'nki_mlir.bindings') if m in sys.modules))")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_the_interface__has_every_name_that_it_lists():
    assert dir(plugin) == sorted(plugin.__all__)
    assert [name for name in plugin.__all__ if getattr(plugin, name, None) is None] == []
    document = (Path(__file__).parent.parent.parent / "docs" / "plugins.md").read_text()
    assert [name for name in plugin.__all__ if f"`{name}`" not in document] == []
    assert f"version {plugin.API_VERSION} of the interface" in document
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        plugin.nothing  # noqa: B018


def test_opcodes_of_plugins__are_none_of_ours():
    catalog.load()
    assert not [name for name, cls in REGISTRY.items() if 0xC0 <= cls.opcode < 0xF0]


@pytest.mark.parametrize("api, version", [("2", "2"), ("None", "none")])
def test_another_version__is_refused(package, api, version):
    package(f"p_version_{version}", {"m.py": "x = 1\n"}, ("targets", "other", "m:x"), api=api)
    with pytest.raises(PluginVersion, match=f"is for version {version} of the plugin interface; this is version 1"):
        machine_named("other")


def test_what_cannot_be_loaded__is_said_with_the_plugin(package):
    package("p_broken", {"m.py": "1 / 0\n", "n.py": ""}, ("targets", "a", "m:x"), ("executors", "b", "n:load"))
    with pytest.raises(BrokenPlugin, match=r"nki_mlir\.targets 'a' of plugin p_broken cannot be loaded: "
                                           "ZeroDivisionError: division by zero"):
        machine_named("a")
    with pytest.raises(BrokenPlugin, match=r"'b' of plugin p_broken cannot be loaded: module p_broken.n has no 'load'"):
        executor("b")


def test_a_plugin_that_ends_the_process__is_said_with_the_plugin(package):
    package("p_ended", {"m.py": "raise SystemExit(7)\n"}, ("targets", "a", "m:x"))
    with pytest.raises(BrokenPlugin, match=r"'a' of plugin p_ended cannot be loaded: SystemExit: 7"):
        machine_named("a")


@pytest.mark.parametrize("text", ["load = 3", "def load(captured, grid): return 3"])
def test_an_executor__is_a_function_that_returns_one(package, text):
    package("p_executor", {"m.py": text}, ("executors", "mine", "m:load"))
    with pytest.raises(BrokenPlugin, match=r"executor 'mine' of plugin p_executor .*returns a function run.*, got 3"):
        executor("mine")(None, ())


def test_targets_and_executors__are_listed_where_a_name_is_none(package):
    package("p_lists", {}, ("targets", "mine", "m:x"), ("executors", "own", "m:y"))
    with pytest.raises(UnknownTarget) as target:
        machine_named("trn9")
    assert "gen4), or mine of a plugin" in str(target.value)
    with pytest.raises(UnknownExecutor) as missing:
        executor("gpu")
    assert "jit, isa, own" in str(missing.value)


def test_a_target__is_a_machine_of_its_name(package):
    package("p_target", {"m.py": "from nki_mlir.plugin import machine_named\nx = machine_named('trn2')\n"},
            ("targets", "mine", "m:x"))
    with pytest.raises(BrokenPlugin, match=r"target 'mine' of plugin .*: it must be a Machine of that name, got 'trn2'"):
        machine_named("mine")


def test_two_of_one_name__are_refused(package, monkeypatch):
    package("p_two", {})
    monkeypatch.setattr(extensions, "installed", lambda: (Extension("targets", "a", "m:x", "one"),
                                                          Extension("targets", "a", "n:x", "other")))
    with pytest.raises(SameName, match=r"nki_mlir\.targets 'a' comes from one and from other"):
        machine_named("a")


def test_a_pass_of_a_name_of_ours__is_refused(package):
    package("p_pass", {"passes/__init__.py": "", "passes/verify_target.py": '"""x"""\n# name="verify-target"\n'},
            ("passes", "p", "passes"))
    with pytest.raises(SameName, match=r"pass 'verify-target' comes from nki_mlir.transforms.verify_target and from p_pass"):
        file_names()


def test_a_pass__is_found_by_its_file(package):
    package("p_noop", {"passes/__init__.py": "", "passes/p_noop.py":
            'from nki_mlir.plugin import Pass\n\nclass Noop(Pass, name="p-noop"):\n    count: int = 3\n'},
            ("passes", "p", "passes"))
    assert pass_named("p-noop", "count=5").count == 5
    package("p_old", {"passes/__init__.py": "", "passes/p_old.py": 'name="p-old"\n'}, ("passes", "p", "passes"), api="7")
    with pytest.raises(PluginVersion, match="plugin p_old is for version 7"):
        pass_named("p-old")


def test_the_pass_of_the_document__runs(package):
    document = (Path(__file__).parent.parent.parent / "docs" / "plugins.md").read_text()
    text = next(part.split("```")[0] for part in document.split("```python\n") if part.startswith('"""example-count-clamps'))
    package("p_document", {"passes/__init__.py": "", "passes/example_count_clamps.py": text}, ("passes", "p", "passes"))
    with mlir_ops.new_context():
        module = plugin.ir.Module.parse("func.func @kernel() { return }")
        plugin.run_passes(module, [pass_named("example-count-clamps", "widest=2")])
        assert str(module.body.operations[0].attributes["example.clamps"]) == '"0, 0 wide"'
    listed, = (p for p in pass_summaries() if p.name == "example-count-clamps")
    assert listed.text.endswith("wider than a limit.") and listed.options == [
        ("widest", "1.0", "between the limits of a clamp")]
    widest = pass_named("example-count-clamps", "widest=2").widest
    assert widest == 2.0 and type(widest) is float
    with pytest.raises(BadOption, match="option 'widest' of pass 'example-count-clamps' cannot be 'wide'"):
        pass_named("example-count-clamps", "widest=wide")


def test_a_pass_in_a_file_of_another_name__is_refused(package, capsys):
    package("p_misplaced", {"passes/__init__.py": "", "passes/merging.py":
            'from nki_mlir.plugin import Pass\n\nclass Merge(Pass, name="p-merge"):\n    pass\n'},
            ("passes", "p", "passes"))
    for listed in (lambda: pass_named("p-merge"), file_names):
        with pytest.raises(BrokenPlugin, match=r"pass 'p-merge' of plugin p_misplaced cannot be loaded: it is in "
                                               r"merging\.py, and its file must be p_merge\.py"):
            listed()
    with pytest.raises(SystemExit, match=r"^1$"):
        parse_options(["--p-merge", "-"])
    assert "pass 'p-merge' of plugin p_misplaced cannot be loaded: it is in merging.py" in capsys.readouterr().err
    assert pass_named("verify-target").name == "verify-target"


@pytest.mark.parametrize("option", [["--load-plugin", "p_loaded"], ["--load-plugin=p_loaded"]])
def test_a_loaded_plugin_with_a_pass_in_a_file_of_another_name__is_refused(package, capsys, option):
    """Also if no option names the pass."""
    name = package("p_loaded", {"passes/__init__.py": "", "passes/merging.py":
                   'from nki_mlir.plugin import Pass\n\nclass Merge(Pass, name="p-merge"):\n    pass\n',
                   "__init__.py": 'NKI_MLIR_API = 1\nNKI_MLIR_PLUGIN = {"passes": {"p": "p_loaded.passes"}}\n'})
    with pytest.raises(BrokenPlugin, match=r"pass 'p-merge' of plugin p_loaded cannot be loaded: it is in merging\.py"):
        plugin.load(name)
    with pytest.raises(SystemExit, match=r"^1$"):
        load_plugins([*option, "module.mlir"])
    assert "pass 'p-merge' of plugin p_loaded cannot be loaded: it is in merging.py" in capsys.readouterr().err


@pytest.mark.parametrize("opcode, fault", [
    ("0x10", "opcode 0x10 is not from 0xc0 to 0xef"), ("0xF0", "opcode 0xf0 is not from 0xc0 to 0xef"),
    ("0", "opcode 0x0 is not from 0xc0 to 0xef"), ("0xC7", "opcode 0xc7 is that of nisa.p_first in p_opcode_0xC7.m")])
def test_opcodes__are_in_the_range_of_plugins_and_free(package, opcode, fault):
    first = OP.format(cls="First", name="p_first", role="Out", more="")
    second = OP.format(cls="Second", name="p_second", role="Out", more="").replace("0xC7", opcode)
    package(f"p_opcode_{opcode}", {"m.py": first, "n.py": second})
    before = dict(REGISTRY)
    with pytest.raises(catalog.LateOperation, match=r"a plugin defines operation nisa\.p_first after"):     # is known now
        catalog.add(Extension("ops", "a", f"p_opcode_{opcode}.m", "p"))
    with pytest.raises(BrokenPlugin, match=f"operation 'nisa.p_second' of plugin p cannot be loaded: {fault}"):
        catalog.add(Extension("ops", "b", f"p_opcode_{opcode}.n", "p"))
    forget_classes(before)


@pytest.mark.parametrize("call, fault", [
    ('s.alu("minimun", src, src)', "s.alu has no 'minimun'; did you mean 'minimum'?"),
    ('s.activation("sigmoyd", src)', "s.activation has no 'sigmoyd'; did you mean 'sigmoid'?")])
def test_functions_of_a_body__are_those_of_the_scalar_library(package, call, fault):
    body = f"def body(self, s, src):\n        return {call}"
    name = f"p_body_{len(call)}"
    package(name, {"m.py": OP.format(cls="Misspelled", name="p_misspelled", role="Out", more=body)})
    before = dict(REGISTRY)
    with pytest.raises(BrokenPlugin) as error:
        catalog.add(Extension("ops", "a", f"{name}.m", "p"))
    assert error.value.headline == f"operation 'nisa.p_misspelled' of plugin p cannot be loaded: {fault}"
    forget_classes(before)


def test_a_module_with_an_operation_and_its_function__is_loaded_first(tmp_path):
    """In a process that has loaded no operation: those that the module imports are not the plugin's."""
    document = (Path(__file__).parent.parent.parent / "docs" / "plugins.md").read_text()
    text = next(part.split("```")[0] for part in document.split("```python\n") if "class ExampleClampOp" in part)
    (tmp_path / "p_alone").mkdir()
    (tmp_path / "p_alone" / "__init__.py").write_text('NKI_MLIR_API = 1\nNKI_MLIR_PLUGIN = {"ops": {"p": "p_alone.ops"}}\n')
    (tmp_path / "p_alone" / "ops.py").write_text(text)
    code = "from nki_mlir import plugin; print(plugin.load('p_alone')[0].name); from p_alone.ops import clamp"
    # The second text has the first one's length, so that compiled code of the first would count as up to date for a second.
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.stdout == "p\n", done.stderr
    (tmp_path / "p_alone" / "ops.py").write_text(text.replace("0xC0", "0x10"))
    done = subprocess.run([sys.executable, "-m", "nki_mlir.cli.opt", "--load-plugin=p_alone", "-"], capture_output=True,
                          text=True, cwd=tmp_path, env=environment, input="")
    assert done.returncode == 1 and done.stderr.startswith("error: operation 'nisa.example_clamp' of plugin p_alone "
                                                           "cannot be loaded: opcode 0x10 is not from 0xc0 to 0xef")


def test_pipelines__are_texts_of_passes(package):
    package("p_lines", {"m.py": "good = 'cse,verify-target'\nbad = ('cse',)\nwrong = 'a b'\n"},
            *[("pipelines", name, f"m:{name}") for name in ("good", "bad", "wrong")])
    assert [one.name for one in passes_named("good")] == ["cse", "verify-target"]
    with pytest.raises(BadOption, match="pipeline 'good' has no option 'x=1'"):
        passes_named("good", "x=1")
    for name in ("bad", "wrong"):
        with pytest.raises(BrokenPlugin, match=f"pipeline '{name}' of plugin p_lines cannot be loaded: it must be a text such"):
            passes_named(name)


def test_operations__have_names_of_their_own(package):
    package("p_ops", {"m.py": OP.format(cls="Own", name="tensor_copy", role="Out", more="")})
    with pytest.raises(SameName, match=r"operation 'nisa.tensor_copy' comes from nki_mlir.dialects.nisa.movement and "):
        catalog.add(Extension("ops", "a", "p_ops.m", "p_ops"))


@pytest.mark.parametrize("name, more, wrong", [("my-odd", "", "my-odd"), ("p_Odd", "", "p_Odd"),
                                               ("p_field", "Scale: float", "Scale"), ("p_tile", "Other: In", "Other")])
def test_operations__have_names_that_mlir_has(package, name, more, wrong):
    before = dict(REGISTRY)
    package(f"p_{wrong.lower().replace('-', '_')}", {"m.py": OP.format(cls="Odd", name=name, role="Out", more=more)})
    with pytest.raises(BrokenPlugin, match=f"operation 'nisa.{name}' of plugin p cannot be loaded: '{wrong}' is not a name"):
        catalog.add(Extension("ops", "a", f"p_{wrong.lower().replace('-', '_')}.m", "p"))
    forget_classes(before)


def test_operations__come_before_the_dialects(package):
    assert mlir_ops.OPERATIONS
    package("p_late", {"m.py": OP.format(cls="Late", name="p_late", role="Out", more="")})
    with pytest.raises(catalog.LateOperation, match=r"a plugin defines operation nisa.p_late after the first kernel"):
        catalog.add(Extension("ops", "a", "p_late.m", "p_late"))


@pytest.mark.parametrize("role, more, what", [
    ("InOut", "", "it has no tile dst that is only written"),
    ("Out", "other: Out", "tile other is optional, or written"),
    ("Out", "other: In | None", "tile other is optional, or written"),
    ("Out", "flavor: str", "attribute flavor is neither a number nor the name of an operator or engine"),
])
def test_functions__are_made_of_regular_classes(role, more, what):
    names: dict[str, Any] = {"__name__": "p_odd"}
    catalog.load()
    before = dict(REGISTRY)
    try:
        exec(OP.format(cls="Odd", name="p_odd", role=role, more=more), names)
        with pytest.raises(NotRegular, match=f"cannot create a function for nisa.p_odd: {what}"):
            instruction(names["Odd"], "odd.")
    finally:
        forget_classes(before)
    with pytest.raises(NotRegular, match="int: it is not a subclass of NisaOp with a name"):
        instruction(int, "odd.")


@pytest.mark.parametrize("call", [lambda f, x: f(x, 2.0), lambda f, x: f(data=x, upper_limit=2.0)])
def test_functions__pass_parameters_with_other_names_to_their_fields(call, monkeypatch):
    monkeypatch.setattr(catalog, "is_late", lambda name: False)       # the eager executor needs no dialect
    names: dict[str, Any] = {"__name__": "p_limited"}
    catalog.load()
    before, documented = dict(REGISTRY), table.histories()
    monkeypatch.setattr(table, "of_plugins", {})
    try:
        exec(OP.format(cls="Limited", name="p_limited", role="Out", more=LIMITED), names)
        limited = instruction(names["Limited"], "the smaller of data and a limit.", data="src", upper_limit="most")

        @nki.jit
        def kernel(x):
            out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            nl.store(out, call(limited, nl.load(x)))
            return out
        x = np.arange(8, dtype=np.float32).reshape(2, 4)
        assert np.array_equal(kernel.on("eager")(x), np.minimum(x, 2))
    finally:
        forget_classes(before)
        assert table.histories() == documented and table.has_entry("nki.isa.p_limited.p_limited")
        table.history.cache_clear()


@pytest.mark.parametrize("table", ["3", "{'ops': 3}", "{'ops': {3: 'm'}}", "{'ops': {'a': 4}}"])
def test_a_table__has_names_and_modules(package, table):
    name = package("p_text", {"__init__.py": f"NKI_MLIR_API = 1\nNKI_MLIR_PLUGIN = {table}\n"})
    with pytest.raises(BrokenPlugin, match=r"NKI_MLIR_PLUGIN of plugin p_text .* it must map each group to a dict of names"):
        plugin.load(name)


def test_a_table__has_known_groups(package):
    name = package("p_table", {"__init__.py": "NKI_MLIR_API = 1\nNKI_MLIR_PLUGIN = {'passses': {}}\n"})
    with pytest.raises(BrokenPlugin, match="group 'passses' in NKI_MLIR_PLUGIN of plugin p_table cannot be loaded: groups"):
        plugin.load(name)


def test_a_module_without_a_table__is_no_plugin(package, capsys):
    name = package("p_empty", {"__init__.py": "NKI_MLIR_API = 1\n"})
    with pytest.raises(BrokenPlugin) as caught:
        plugin.load(name)
    assert str(caught.value) == (
        "error: NKI_MLIR_PLUGIN of plugin p_empty cannot be loaded: the module has no such table [NKI-PLUGIN]\n"
        "  fix: write NKI_MLIR_PLUGIN into p_empty, for example NKI_MLIR_PLUGIN = {'passes': {'mine': 'p_empty.passes'}}; "
        "docs/plugins.md")
    with pytest.raises(SystemExit, match=r"^1$"):
        load_plugins(["--load-plugin", name, "-"])
    assert "the module has no such table" in capsys.readouterr().err
