"""What `genelab eval --robustness` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from genelab.cli.command import echo, show


def print_robustness(report: Mapping[str, Any]) -> None:
    """A row for every setting, and where the policy breaks."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    found = report["robustness"]
    by_probe = found["measure"] == "share"
    worst = ["worst direction"] if "worst" in found["nominal"] else []
    columns = ["share", *worst] if by_probe else ["success", "return"]
    title = f"one thing changed at a time, {found['nominal']['robots']} {'robots' if by_probe else 'episodes'} each"
    if by_probe:
        title += ": share of the command, and of the direction that is followed worst"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("changed", "to", *columns, "failed", ""):
        table.add_column(column, no_wrap=True)
    table.add_row("nothing", "", *_cells(found["nominal"], by_probe), "", end_section=True)
    for name, sweep in found["sweeps"].items():
        for i, one in enumerate(sweep["settings"]):
            breaks = "" if one["holds"] else Text("breaks", style="red")
            last = i == len(sweep["settings"]) - 1
            table.add_row("" if i else name, one["text"], *_cells(one, by_probe), breaks, end_section=last)
    show(table)
    kept, more = found["holds_while"]["kept"], found["holds_while"]["more_falls"]
    what = {"share": "share of the command", "success_rate": "success", "return_mean": "return"}[found["measure"]]
    echo(f"it holds while it keeps {kept:.0%} of its {what} and at most {more:.0%} more fail:")
    width = max(map(len, found["sweeps"]), default=0)
    for name, sweep in found["sweeps"].items():
        echo(f"  {name:<{width}}  {where_it_breaks(sweep)}")
    for name, reason in found["left_out"].items():
        echo(f"  {name} left out: {reason}")
    if found["diverged"]:
        echo(f"  the physics of {found['diverged']} robots diverged; their episodes were cut off")


def where_it_breaks(sweep: Mapping[str, Any]) -> str:
    """In words."""
    texts = {one["value"]: one["text"] for one in sweep["settings"]}
    ends = [texts[sweep[key]] for key in ("breaks_below", "breaks_above") if sweep[key] is not None]
    if ends:
        return f"breaks at {' and at '.join(ends)}"
    first, last = sweep["settings"][0], sweep["settings"][-1]
    span = f"{first['text']} to {last['text']}" if first["value"] < sweep["nominal"] else f"up to {last['text']}"
    return f"holds, {span}"


def _cells(result: Mapping[str, Any], by_probe: bool) -> list[str]:
    falls = f"{result['falls']} of {result['robots']}" if result["falls"] else "none"
    if by_probe:
        worst = [f"{result['worst_share']:.0%} {result['worst']}"] if "worst" in result else []
        return [f"{result['share']:.0%}", *worst, falls]
    rate = result["success_rate"]
    return ["not published" if rate is None else f"{rate:.3f}", f"{result['return_mean']:.2f}", falls]
