# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Write an HTML page about a store: time against SBUF with the Pareto front, the search's history, and all verdicts.

The page is a single file and needs no network. It contains the profiles compressed; the page of ``nki-run
--profile`` displays them.
"""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from nki_mlir.files import write_file
from nki_mlir.scoring.store import Store

WIDTH, HEIGHT, MARGIN = 620, 320, 48
HOLE = "@PROFILE-OF-CANDIDATE@"

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>nki-score</title><style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; }}
svg {{ max-width: 100%; background: color-mix(in srgb, currentColor 4%, transparent); }}
svg text {{ font-size: 12px; fill: currentColor; }}
.pair {{ display: flex; flex-wrap: wrap; gap: 1rem; }}
.wide {{ overflow-x: auto; }} table {{ border-collapse: collapse; }}
td, th {{ padding: .2rem .6rem; text-align: left; border-bottom: 1px solid #8884; vertical-align: top; }}
iframe {{ width: 100%; height: 80vh; border: 1px solid #8884; }}
</style></head><body>
<h1>{count} candidates, {right} right</h1>
<p>Times are those of a model of the machine, in microseconds; none was measured on a device.</p>
<div class="pair"><figure><figcaption>Time against SBUF; the line joins those that no other beats in both</figcaption>
{pareto}</figure><figure><figcaption>The fastest so far, as the search went on</figcaption>{history}</figure></div>
<h2>Profile</h2><p id="which">Choose a candidate with a profile in the table.</p><iframe id="profile" hidden></iframe>
<h2>Verdicts</h2><div class="wide"><table><thead><tr><th>#</th><th>candidate</th><th>verdict</th><th>us</th>
<th>interval</th><th>SBUF KiB</th><th>HBM / least</th><th>parameters</th><th>advice or reason</th><th></th></tr></thead>
<tbody>{rows}</tbody></table></div>
<script>
const template = {template}, profiles = {profiles};
async function show(number) {{
  const bytes = Uint8Array.from(atob(profiles[number]), c => c.charCodeAt(0));
  const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  const frame = document.getElementById("profile");
  frame.srcdoc = template.split("{hole}").join(text.replaceAll("<", "\\\\u003c"));
  frame.hidden = false;
  document.getElementById("which").textContent = "Candidate " + number;
  frame.scrollIntoView();
}}
for (const button of document.querySelectorAll("button[data-number]"))
  button.addEventListener("click", () => show(button.dataset.number));
</script></body></html>
"""


def write_page(store: Store, file: str | Path) -> None:
    """Write the page of a store. Raise ``OSError`` if the file cannot be written, ``StoreFailed`` if the store is
    malformed."""
    with store.accessed():
        text = page_of(store.rows())
    write_file(file, text)


def page_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return the page's text for the rows of a store."""
    right = [row for row in rows if row["verdict"] == "right"]
    profiles = {row["number"]: row["profile"] for row in right if row["profile"]}
    points = [(1e6 * row["total_time"], (row["sbuf_peak_bytes"] or 0) / 1024, f"{row['number']}: {row['candidate']}")
              for row in right]
    return PAGE.format(count=len(rows), right=len(right), pareto=chart(points, front(points), "us", "KiB of SBUF"),
                       history=chart(*history(rows), "candidate", "us"), rows="".join(map(row_of, rows)),
                       template=script_text(profile_template() if profiles else ""), profiles=script_text(profiles),
                       hole=HOLE)


def script_text(value: object) -> str:
    """Return JSON that cannot end the script in which it is embedded."""
    return json.dumps(value).replace("<", "\\u003c")


def profile_template() -> str:
    """Return the page of a profile with ``HOLE`` in place of its data."""
    from nki_mlir.targets.neuron.profile import page  # start-up: loads MLIR
    document = {"timing": {"kernel": "profile"}}
    return page(document).replace(json.dumps(document, separators=(",", ":")), HOLE)


def front(points: Sequence[tuple[float, float, str]]) -> list[tuple[float, float]]:
    """Return the Pareto front: points that no other point beats in both coordinates, sorted by the first."""
    points_of_front: list[tuple[float, float]] = []
    for x, y, _ in sorted(points):
        if not points_of_front or y < points_of_front[-1][1]:
            points_of_front.append((x, y))
    return points_of_front


def history(rows: Sequence[dict[str, Any]]) -> tuple[list[tuple[float, float, str]], list[tuple[float, float]]]:
    """Return the points (number, time, name) of the right candidates, and the line of the fastest time so far."""
    points, steps = list[tuple[float, float, str]](), list[tuple[float, float]]()
    for number, row in enumerate(rows, 1):
        if row["verdict"] != "right":
            continue
        us = 1e6 * row["total_time"]
        points.append((number, us, f"{row['number']}: {row['candidate']}"))
        best = min(us, steps[-1][1]) if steps else us
        if steps:
            steps.append((number, steps[-1][1]))
        steps.append((number, best))
    return points, steps


def chart(points: Sequence[tuple[float, float, str]], line: Sequence[tuple[float, float]], across: str, up: str) -> str:
    """Draw the points, and a line through some, as SVG."""
    if not points:
        return "<p>None is right yet.</p>"
    (x0, x1), (y0, y1) = ((min(c), max(c)) for c in (tuple(p[0] for p in points), tuple(p[1] for p in points)))

    def at(x: float, y: float) -> tuple[float, float]:
        return (MARGIN + (x - x0) / ((x1 - x0) or 1) * (WIDTH - 2 * MARGIN),
                HEIGHT - MARGIN - (y - y0) / ((y1 - y0) or 1) * (HEIGHT - 2 * MARGIN))
    dots = "".join(f'<circle cx="{at(x, y)[0]:.1f}" cy="{at(x, y)[1]:.1f}" r="4" fill="#3b82c4" opacity=".7">'
                   f"<title>{escape(text)}: {x:.4g} {across}, {y:.4g} {up}</title></circle>" for x, y, text in points)
    joined = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in line)
    labels = "".join(f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>' for x, y, anchor, text in (
        (MARGIN, HEIGHT - 24, "start", f"{x0:.4g}"), (WIDTH - MARGIN, HEIGHT - 24, "end", f"{x1:.4g} {across}"),
        (MARGIN - 6, HEIGHT - MARGIN, "end", f"{y0:.3g}"), (MARGIN - 6, MARGIN, "end", f"{y1:.3g}"),
        (MARGIN, 24, "start", up)))
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">{labels}'
            f'<polyline points="{joined}" fill="none" stroke="#d9822b" stroke-width="2"/>{dots}</svg>')


def row_of(row: dict[str, Any]) -> str:
    """Return a row of the table as HTML."""
    document = json.loads(row["document"])
    low, high = (1e6 * t for t in document.get("interval", (0.0, 0.0)))
    is_right = row["verdict"] == "right"
    reason = document.get("reason") or {}
    cells = [str(row["number"]), row["candidate"], row["verdict"], f"{1e6 * row['total_time']:.1f}" if is_right else "",
             f"{low:.1f}-{high:.1f}" if is_right else "",
             f"{row['sbuf_peak_bytes'] / 1024:.0f}" if is_right else "",
             f"{document['hbm_bytes_ratio'] or 0:.2f}" if is_right else "",
             ", ".join(f"{k}={v}" for k, v in json.loads(row["parameters"]).items()),
             document["advice"] if is_right else f"{reason.get('message', '')} [{reason.get('code', '')}]"]
    button = f'<button data-number="{row["number"]}">profile</button>' if row["profile"] and is_right else ""
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}<td>{button}</td></tr>\n"
