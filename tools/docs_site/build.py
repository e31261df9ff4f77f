# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Build the documentation site (``make docs-site``): assemble its sources, run Sphinx, check links.

    python -m tools.docs_site.build [--output build/site] [--no-execute] [--theme basic]

Sources are docs/site, the documents of docs, and the reference, which is generated from the code. Warnings are errors.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.docs_site import cells, links, reference
from tools.docs_site.long_pages import in_parts, with_links_to_parts
from tools.docs_site.markdown import code

ROOT = Path(__file__).resolve().parents[2]

# Documents that the reference has in parts, and the first page of each.
REPLACED = {"errors.md": "../reference/errors/index.md", "coverage.md": "../reference/coverage.md",
            "../dialects/reference.md": "../reference/dialects/index.md"}
# Cells are named as the tests name them: notebooks would show other names in errors and assembly.
NAMES = "get_ipython().compile.get_code_name = lambda raw, code, number: f'cell{number}.py'\n"
FOLDERS = {"../examples/classroom": "../examples/classroom/assignment.toml",
           "../examples/custom_operators": "../examples/custom_operators/relu_operator.py",
           "../examples/plugin": "../examples/plugin/nki_mlir_example/ops.py"}


def document(text: str) -> str:
    """Return a document of docs with its links adapted to the site."""
    def target(match: re.Match[str]) -> str:
        path, hash_sign, part = match[1].partition("#")
        path = FOLDERS.get(path, REPLACED.get(path, path))
        return f"]({path}{hash_sign if path.endswith('.md') else ''}{part})"
    return re.sub(r"\]\(([^)\s:]+)\)", target, text)


def with_download(file: Path, text: str) -> str:
    """Return a tutorial with a link to its notebook."""
    if file.parent.name != "tutorials":
        return text
    title, _, body = text.partition("\n")
    return f"{title}\n\n{{download}}`As a notebook <../notebooks/{file.stem}.ipynb>`\n{body}"


def executed(text: str) -> str:
    """Return a page whose cells the build executes."""
    text = re.sub(r"^:output: (\w+)\n(?::(tags: .*\n))?", r"---\nmystnb:\n  text_lexer: \1\n\2---\n", text,
                  flags=re.MULTILINE)
    return f"---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n{text}"


def quoted(text: str) -> str:
    """Return a page whose cells are not executed, with the outputs in its source."""
    parts, position = [], 0
    for cell in cells.cells(text):
        parts += [text[position:cell.begin], *code(cell.code), *(code(cell.printed, cell.language) if cell.printed
                                                                 else [])]
        position = cell.end
    return "\n".join([*parts, text[position:]])


def assemble(folder: Path, execute: bool = True) -> None:
    """Assemble the sources of the site in a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "site", folder)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    (folder / "documents").mkdir(exist_ok=True)
    documents: dict[str, str] = {}
    for file in sorted((ROOT / "docs").iterdir()):
        if file.suffix == ".md" and file.name not in REPLACED:
            documents |= in_parts(file.stem, document(file.read_text()))
        elif file.suffix == ".png":
            shutil.copy(file, folder / "documents")
    for name, text in with_links_to_parts(documents).items():
        (folder / "documents" / f"{name}.md").write_text(text)
    shutil.copy(ROOT / "README.md", folder / "readme.txt")     # the start page includes its table
    (folder / "documents" / "changes.md").write_text((ROOT / "CHANGELOG.md").read_text())
    coverage = in_parts("coverage", document((ROOT / "docs" / "coverage.md").read_text()))
    for name, text in {**reference.pages(), **coverage}.items():
        file = folder / "reference" / f"{name}.md"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for file in cells.pages():
        text = with_download(file, file.read_text())
        (folder / file.relative_to(cells.SOURCES)).write_text(executed(text) if execute else quoted(text))
    cells.write_notebooks(folder / "notebooks", [f for f in cells.pages() if f.parent.name == "tutorials"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site", metavar="FOLDER",
                        help="the folder (build/site)")
    parser.add_argument("--no-execute", action="store_true", help="show the outputs of cells that are in the sources")
    parser.add_argument("--theme", default="furo", metavar="NAME", help="the theme of Sphinx (furo); basic, which has "
                        "no navigation to resolve on each page, takes half the time")
    options = parser.parse_args()
    sources, html = options.output / "source", options.output / "html"
    assemble(sources, not options.no_execute)
    startup = options.output / "ipython" / "profile_default" / "startup" / "names.py"
    startup.parent.mkdir(parents=True, exist_ok=True)
    startup.write_text(NAMES)
    (startup.parents[1] / "ipython_kernel_config.py").write_text("get_config().Application.log_level = 'ERROR'\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                                "IPYTHONDIR": str(options.output / "ipython"),
                                "SITE_EXECUTE": "off" if options.no_execute else "force",
                                "SITE_THEME": options.theme}
    shutil.rmtree(html, ignore_errors=True)
    process = subprocess.run([sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-j", "auto",
                              "-d", str(options.output / "doctrees"), str(sources), str(html)], env=environment)
    if process.returncode:
        return process.returncode
    broken = links.broken(html)
    sys.stderr.writelines(f"{link}\n" for link in broken)
    print(f"{html / 'index.html'}: {sum(1 for _ in html.rglob('*.html'))} pages")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
