# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The documentation site: the code of its pages prints what they say, and its pages can be made of the code."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.docs_site import cells, links, plots, reference
from tools.docs_site.build import ROOT, assemble
from tools.docs_site.long_pages import MOST_HEIGHT, height, in_parts
from tools.docs_site.pictures import PICTURES

FRAMEWORKS = ("jax", "torch")


def page_cases() -> list:
    """Each page with code; those of a framework under its marker."""
    return [pytest.param(file, id=file.stem, marks=[getattr(pytest.mark, name) for name in FRAMEWORKS
                                                    if f"import {name}\n" in file.read_text()])
            for file in cells.pages()]


@pytest.mark.share(4)
@pytest.mark.parametrize("file", page_cases())
def test_code_of_a_page__prints_what_the_page_says(file: Path) -> None:
    text = file.read_text()
    for name in FRAMEWORKS:
        if f"import {name}\n" in text:
            pytest.importorskip(name)
    if "customop" in text and not any(map(shutil.which, ("g++", "c++", "clang++"))):
        pytest.skip("no C++ compiler")
    assert not list(map(str, cells.differences(file)))


def test_first_tutorial__says_what_it_prints() -> None:
    """What a reader types in gives arrays, errors and figures: they stand in the source, or the test above is empty."""
    cells_of_page = list(cells.cells((cells.SOURCES / "tutorials" / "first-kernel.md").read_text()))
    assert [bool(c.printed) for c in cells_of_page] == [False, True, True, True, True, True, True, False]
    assert cells_of_page[1].printed == "[[ 0.  2.  4.  6.]\n [ 8. 10. 12. 14.]\n [16. 18. 20. 22.]]"


def test_cells__differ_where_a_page_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("Sums.\n\n```{code-cell} python\nx = 2\nprint(x + 1)\n```\n% 4\n\n```{code-cell} python\nx\n```\n% 2\n")
    difference, = cells.differences(page)
    assert str(difference) == ("page.md:3: prints\n3\nnot\n4\n"
                               "If that is right: python -m tools.docs_site.cells --update page.md")
    page.write_text(page.read_text().replace("x + 1", "'error 1.2e-07'").replace("% 4", "% error 3.4e-06"))
    assert not cells.differences(page)
    page.write_text(page.read_text().replace("'error 1.2e-07'", "x + 1"))
    cells.update(page)
    assert "\n% 3\n" in page.read_text() and not cells.differences(page)
    page.write_text("```{code-cell} python\n1 / 0\n```\n")
    with pytest.raises(cells.CellFailed, match="ZeroDivisionError"):
        cells.run(page)


@pytest.mark.parametrize("one, other, is_same", [
    ("4 heads 22.1 us", "4 heads 20.4 us", True), ("4 heads 22.1 us", "4 heads 40.4 us", False),
    ("1.29x (23% of the time)", "1.40x (24% of the time)", True), ("3 us", "3 us more", False),
    ("error 1.2e-07", "error 3.4e-06", True), ("error 1.2e-01", "error 1.3e-01", False), ("[1. 2.]", "[1. 3.]", False)])
def test_outputs__are_the_same_but_for_rounding_and_the_model_of_time(one: str, other: str, is_same: bool) -> None:
    assert cells.same(one, other) is is_same


def test_notebook__has_the_page_as_cells() -> None:
    notebook = cells.notebook("# Title\n\n```{picture} levels\nshown\n```\n\nText.\n\n```{code-cell} python\nx = 1\n```\n% 1\nMore.\n")
    assert [(c["cell_type"], c["source"]) for c in notebook["cells"]] == [
        ("markdown", "# Title\n\n\nText."), ("code", "x = 1"), ("markdown", "More.")]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assemble(folder)
    return folder


def test_reference__has_every_function_with_what_its_example_gave(sources: Path) -> None:
    page = "".join(f.read_text() for f in (sources / "reference/current/nisa").glob("elementwise*.md"))
    entry = page.partition("## `nisa.tensor_tensor`")[2].partition("\n(")[0]
    assert all(f"**{part}.**" in entry for part in ("Engine", "Cost", "Errors", "Example"))
    assert re.search(r"after: float32\[\d+, \d+\], its first elements\n\[\[-?\d", entry)
    for name in ("matmul", "softmax", "load"):
        assert any(f"## `nl.{name}`" in f.read_text() for f in (sources / "reference/current/nl").glob("*.md"))


def test_reference__has_no_page_that_is_too_high(sources: Path) -> None:
    heights = {f.name: height(f.read_text()) for part in ("reference", "documents") for f in (sources / part).rglob("*.md")}
    assert max(heights.values()) < 15_000 < 1.31 * MOST_HEIGHT, heights
    head, first, second = "# Things\n\nAll of them.\n\n", "(a-1)=\n## `one`\n" + "x\n" * 400, "## `two`\n" + "y\n" * 400
    assert in_parts("folder/things", head + first) == {"folder/things": head + first}
    assert in_parts("folder/things", head + first + second) == {
        "folder/things": "# Things\n\nAll of them.\n\nMore of them:\n\n- [Things: `two`](things-2.md)\n\n"
                         "```{toctree}\n:hidden:\n\nthings-2\n```\n\n" + first,
        "folder/things-2": "# Things: `two`\n\n" + second}


def test_pages__are_in_a_table_of_contents(sources: Path) -> None:
    """Sphinx refuses what is in none; where it is not installed, this says so."""
    pages = {str(f.relative_to(sources).with_suffix("")) for f in sources.rglob("*.md") if "examples" not in f.parts}
    listed = {"index"}
    for file in sources.rglob("*.md"):
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", file.read_text(), re.DOTALL | re.MULTILINE):
            names = [line for line in block.splitlines() if line and not line.startswith(":")]
            listed |= {str(page.relative_to(sources).with_suffix("")) for name in names
                       for page in file.parent.glob(f"{name}.md") if page != file}
    assert listed == pages


def test_links_and_pictures__lead_to_what_is_there(sources: Path) -> None:
    wrong = []
    for file in sources.rglob("*.md"):
        text = re.sub(r"^(`{3,})(?!\{picture).*?^\1", "", file.read_text(), flags=re.DOTALL | re.MULTILINE)
        text = re.sub(r"`[^`\n]*`", "", text)
        wrong += [f"{file.name}: {target}" for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
                  if "://" not in target and (not (file.parent / target).exists() or (
                      target.endswith(".md") and (file.parent / target).resolve().is_relative_to(sources / "examples")))]
        wrong += [f"{file.name}: picture {name}" for name in re.findall(r"\{picture\} (\w+)", text)
                  if name not in PICTURES]
    assert not wrong


@pytest.mark.parametrize("name, numbers", [("levels", ()), ("memories", ()), ("product", ()),
                                           ("tiles", (300, 1100, 128, 512)), ("pattern", (2, 24, 0, 12, 2, 2, 3, 6, 2, 1, 2))])
def test_picture__is_xml_with_a_title(name: str, numbers: tuple[int, ...]) -> None:
    from xml.etree import ElementTree
    drawn = ElementTree.fromstring(PICTURES[name](*numbers))
    assert drawn.find("{http://www.w3.org/2000/svg}title").text


def test_pattern__numbers_elements_in_their_order() -> None:
    drawn = PICTURES["pattern"](1, 8, 1, 4, 2, 1, 2)
    assert re.findall(r'class="small on">(\d)<', drawn) == ["0", "1", "2", "3"]
    assert drawn.count('class="touched"') == 4 and drawn.count('class="lane"') == 4


TABLE = "```{code-cell} python\nx\n```\n% size  slow  fast\n%  512   20%     -\n% 1024   40%   50%\n% 4096     -   98%\n"


def test_plot__shows_what_a_cell_prints() -> None:
    from xml.etree import ElementTree
    table = plots.printed_table(f"```{{code-cell}} python\n1\n```\n% 1\n\n{TABLE}")
    assert table == ([512, 1024, 4096], {"slow": [20, 40, None], "fast": [None, 50, 98]})
    drawn = ElementTree.fromstring(plots.shares(table))
    space = "{http://www.w3.org/2000/svg}"
    assert drawn.find(f"{space}title").text == ("Share of the peak by size. slow: 20% at 512, 40% at 1024; "
                                                "fast: 50% at 1024, 98% at 4096")
    ticks = {t.text: float(t.get("x")) for t in drawn.iter(f"{space}text")}
    assert ticks["1,024"] - ticks["512"] == pytest.approx(ticks["4,096"] - ticks["2,048"])
    points = [(c.get("class"), float(c.get("cx")), float(c.get("cy"))) for c in drawn.iter(f"{space}circle")]
    zero, full = (float(t.get("y")) - 4 for t in drawn.iter(f"{space}text") if t.text in ("0%", "100%"))
    shown = [(name, round(x), round(100 * (zero - y) / (zero - full))) for name, x, y in points]
    for name, size, share in ("s0", "512", 20), ("s0", "1,024", 40), ("s1", "1,024", 50), ("s1", "4,096", 98):
        assert (name, round(ticks[size]), share) in shown


def test_plot__of_a_page_without_a_table__is_an_error() -> None:
    with pytest.raises(ValueError, match="no cell of the page prints a table that begins with 'size'"):
        plots.printed_table("```{code-cell} python\n1\n```\n% 1\n")


def test_links__that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#there">x</a><a href="b.html#not">y</a><a href="c.html">z</a>'
                                     '<script src="https://example.org/x.js"></script><a href="https://example.org">ok</a>')
    (tmp_path / "b.html").write_text('<p id="there">')
    assert links.broken(tmp_path) == [
        "a.html: b.html#not leads to no anchor", "a.html: c.html leads to no file",
        "a.html: loads https://example.org/x.js from another server"]


@pytest.mark.slow
@pytest.mark.skipif("NKI_MLIR_SITE_IS_BUILT" in os.environ, reason="what runs the tests has just built the site")
def test_site__is_built_without_warnings(tmp_path: Path) -> None:
    """Without what cells print; ``make docs-site`` has that, too."""
    for name in ("sphinx", "furo", "myst_nb", "sphinx_design"):
        pytest.importorskip(name, reason="the extra docs is not installed")
    done = subprocess.run([sys.executable, "-m", "tools.docs_site.build", "--no-execute", "--theme", "basic", "--output",
                           str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "double" in json.dumps((tmp_path / "html" / "searchindex.js").read_text())


def test_reference__knows_where_each_module_is() -> None:
    assert reference.WHERE["frameworks/customop"] == ["nki_mlir.customop"]
    assert {name for names in reference.WHERE.values() for name in names} | reference.PACKAGE == set(reference.MODULES)
