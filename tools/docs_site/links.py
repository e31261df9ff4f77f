# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Check the links of a built site: files and anchors must exist, and pages must not load files from other servers."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class _Page(HTMLParser):
    """The links and anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, str, str]] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif name in ("href", "src") and value:
                self.links.append((tag, name, value))


def read(file: Path) -> _Page:
    page = _Page()
    page.feed(file.read_text())
    return page


def broken(folder: Path) -> list[str]:
    """Return a line for each broken link, and for each file that pages load from another server."""
    read_pages = {file.resolve(): read(file) for file in sorted(folder.rglob("*.html"))}
    problems = []
    for file, page in read_pages.items():
        for tag, name, link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                if (tag, name) in LOADS and url.scheme != "data" and not link.startswith("https://schema"):
                    problems.append(f"{file.relative_to(folder.resolve())}: loads {link} from another server")
                continue
            target = (file.parent / unquote(url.path)).resolve() if url.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                problems.append(f"{file.relative_to(folder.resolve())}: {link} leads to no file")
            elif url.fragment and target in read_pages and unquote(url.fragment) not in read_pages[target].anchors:
                problems.append(f"{file.relative_to(folder.resolve())}: {link} leads to no anchor")
    return problems
