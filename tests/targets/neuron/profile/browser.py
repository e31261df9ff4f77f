# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Load a page in a browser without a screen, and return its content after its scripts have run."""

import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=8000"


def rendered(page: str, folder: Path, script: str = "", width: int = 1600, dark: bool = False) -> "Rendered":
    """The page's elements; ``script`` runs after its own scripts. An error of a script fails the test."""
    catch = ("<script>onerror = (text, file, line) => { const p = document.createElement('p'); p.id = 'failure'; "
             "p.textContent = `${text} in line ${line}`; document.documentElement.append(p); }</script>")
    file = folder / "page.html"
    file.write_text(page.replace("<head>", f"<head>{catch}").replace("</body>", f"<script>{{{script}}}</script></body>"))
    assert BROWSER is not None
    finished = subprocess.run([BROWSER, *OPTIONS, f"--window-size={width},900", f"--blink-settings=preferredColorScheme={int(not dark)}", f"--user-data-dir={folder / 'user'}",
                               "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=300, check=True)
    rendered_page = Rendered()
    rendered_page.feed(finished.stdout)
    assert "failure" not in rendered_page.texts, rendered_page.texts["failure"]
    return rendered_page


class Rendered(HTMLParser):
    """``values``: ``data-value`` of cells and items by the element with an id that they are in; ``texts`` by id."""

    VOID = {"meta", "link", "br", "input", "line", "circle", "img"}

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, list[float]] = {}
        self.texts: dict[str, str] = {}
        self.ids: list[str] = [""]

    def handle_starttag(self, tag: str, attrs: list) -> None:
        values = dict(attrs)
        label = values.get("id") or self.ids[-1]
        if "data-value" in values:
            self.values.setdefault(label, []).append(float(values["data-value"]))
        if tag not in self.VOID:
            self.ids.append(label)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            self.ids.pop()

    def handle_data(self, data: str) -> None:
        self.texts[self.ids[-1]] = self.texts.get(self.ids[-1], "") + data
