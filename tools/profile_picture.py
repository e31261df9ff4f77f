# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draw the pictures in README.md and docs/profile.md: take screenshots of a profile's page in a headless browser.

python tools/profile_picture.py [WIDTH [FILE.png [HEIGHT]]]
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from nki_mlir.cli.arguments import parse_arguments
from nki_mlir.cli.runnable import runnable
from nki_mlir.targets import neuron
from nki_mlir.targets.neuron.profile import page, profile_of

DOCS = Path(__file__).parent.parent / "docs"
BROWSERS = "chromium", "chromium-browser", "google-chrome"
PICTURES = {"profile.png": 2150, "timeline.png": 1110}          # heights: the page, and its first half


def main(width: str = "1200", file: str = "", height: str = "2150") -> None:
    """Write both pictures, or a single one to a file."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit(f"no browser: none of {', '.join(BROWSERS)} is on the path")
    arguments, keywords = parse_arguments(["512x512xf32", "512x512xf32"], values=False)
    kernel = runnable("examples/matmul_walk.py:loaded_once", arguments, keywords, None, ())
    text = page(profile_of(kernel.streams(neuron.emission())))
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "page.html"
        html.write_text(text)
        files = {Path(file).absolute(): int(height)} if file else {DOCS / name: n for name, n in PICTURES.items()}
        for target, pixels in files.items():
            subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                            f"--user-data-dir={folder}/user", f"--window-size={width},{pixels}",
                            "--virtual-time-budget=8000", f"--screenshot={target}", html.as_uri()],
                           check=True, capture_output=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
