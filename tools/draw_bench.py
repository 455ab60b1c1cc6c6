#!/usr/bin/env python3
"""Draws a report of `emberkv bench ... --json` as an SVG: one bar a measurement, as far as its limit allows.

  draw_bench.py REPORT.json OUT.svg        ratios to the limit, with their spread and the goal
  draw_bench.py REPORT.json OUT.svg decode a bar a context of `emberkv bench model`: where a token's time goes
"""
import json
import sys
from html import escape

ROW, LEFT, WIDTH, TOP = 24, 400, 420, 48
INK, SOFT, REACHED, MISSED, GOAL = "#1f2328", "#8b949e", "#2f6fd0", "#c7692b", "#1f2328"
STAGES = ["#2f6fd0", "#c7692b", "#2e8b72", "#7a55c7", "#b3a125", "#4aa3c7", "#c74a6e", "#6b7280", "#94a3b8"]
STYLE = ('<style>text{font:12px system-ui,sans-serif;fill:#1f2328}.soft{fill:#6b7280}'
         "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9aa4af}.ink{stroke:#e6edf3}}</style>")


def text(x, y, content, anchor="start", css=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{css}">{escape(content)}</text>'


def rect(x, y, width, height, color):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" rx="2" fill="{color}"/>'


def line(x1, y1, x2, y2, width=1.5):
    return (f'<line class="ink" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{INK}" '
            f'stroke-width="{width}"/>')


def page(height, title, parts):
    width = LEFT + WIDTH + 90
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{escape(title)}">{STYLE}' + "".join(parts) + "</svg>\n")


def ratio_chart(report):
    rows = [m for m in report["measurements"] if "ratio" in m]
    most = max([1.0] + [m["ratio_most"] for m in rows])
    scale = WIDTH / min(most, 1.3)
    machine = report["machine"]
    parts = [text(8, 18, f'{machine["cpu"]}, {machine["cores"]} cores, {machine["date"]}', css="soft"),
             text(LEFT + scale, TOP - 8, "the limit", "middle", "soft")]
    for i, m in enumerate(rows):
        y = TOP + i * ROW
        missed = "goal" in m and m["ratio"] < m["goal"]
        threads = "" if m["threads"] == 1 else f', {m["threads"]} threads'
        parts.append(text(LEFT - 10, y + 15, m["name"] + threads, "end"))
        parts.append(rect(LEFT, y + 4, min(m["ratio"], 1.3) * scale, ROW - 10, MISSED if missed else REACHED))
        parts.append(line(LEFT + min(m["ratio_least"], 1.3) * scale, y + 11, LEFT + min(m["ratio_most"], 1.3) * scale, y + 11))
        if "goal" in m:
            parts.append(line(LEFT + m["goal"] * scale, y + 2, LEFT + m["goal"] * scale, y + ROW - 4, 2.5))
        parts.append(text(LEFT + WIDTH + 12, y + 15, f'{m["ratio"]:.2f} {"of " + m["limit_name"] if i == 0 else ""}'.strip()))
    bottom = TOP + len(rows) * ROW
    parts.append(line(LEFT + scale, TOP - 2, LEFT + scale, bottom, 0.8))
    parts.append(text(LEFT, bottom + 20, "thin line: least to most; upright mark: the goal; orange: missed", css="soft"))
    return page(bottom + 32, "Ratios to the limits of the machine", parts)


def decode_chart(report):
    points = report["decode"]
    stages = list(points[0]["stage_seconds"])
    longest = max(sum(p["stage_seconds"].values()) for p in points)
    parts = []
    for i, name in enumerate(stages):
        x = 8 + (i % 5) * 150
        parts.append(rect(x, 8 + i // 5 * 20, 12, 12, STAGES[i % len(STAGES)]))
        parts.append(text(x + 18, 18 + i // 5 * 20, name))
    for i, p in enumerate(points):
        y, x = TOP + 12 + i * ROW, LEFT - 200
        parts.append(text(x - 10, y + 15, f'{p["context"]:,} tokens', "end"))
        for stage, name in enumerate(stages):
            width = p["stage_seconds"][name] / longest * (WIDTH + 180)
            parts.append(rect(x, y + 4, width, ROW - 8, STAGES[stage % len(STAGES)]))
            x += width
        parts.append(text(x + 8, y + 15, f'{1e3 * sum(p["stage_seconds"].values()):.1f} ms'))
    return page(TOP + 20 + len(points) * ROW, "Where the time of a decode step goes", parts)


def main():
    if len(sys.argv) not in (3, 4) or (len(sys.argv) == 4 and sys.argv[3] != "decode"):
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1]) as file:
        report = json.load(file)
    chart = decode_chart(report) if len(sys.argv) == 4 else ratio_chart(report)
    with open(sys.argv[2], "w") as file:
        file.write(chart)
    return 0


if __name__ == "__main__":
    sys.exit(main())
