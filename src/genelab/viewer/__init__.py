"""Looking at a task. Everything draws the one compiled MJCF, whichever engine steps it."""

from __future__ import annotations

from collections.abc import Callable

from genelab.viewer.base import Onlooker, Player, ViewerCfg, ViewerKind, has_display
from genelab.viewer.film import Film, FilmCfg, check_film, parse_size

__all__ = [
    "Film",
    "FilmCfg",
    "Onlooker",
    "Player",
    "ViewerCfg",
    "ViewerKind",
    "check_film",
    "has_display",
    "open_viewer",
    "parse_size",
]


def open_viewer(player: Player, cfg: ViewerCfg, notify: Callable[[str], None]) -> Onlooker:
    """A window or a web page, which says where it is."""
    if cfg.resolved() == "window":
        from genelab.viewer.window import WindowViewer

        window = WindowViewer(player)
        notify(f"keys in the window: {window.keys}")
        return window
    if cfg.kind is None:
        notify("No display detected: serving a web page")
    from genelab.viewer.web import WebViewer

    page = WebViewer(player, cfg)
    if page.guard.is_open:
        notify(
            f"`viewer.host={cfg.host!r}` opens the page to other machines: whoever knows the address below, token "
            f"included, {'sees and steers' if player.steerable else 'sees'} this run, and it travels unencrypted"
        )
    notify(f"look at {page.address}; Ctrl-C ends the run")
    return page
