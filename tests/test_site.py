"""The site is built without a warning, leads nowhere that is not there, and needs nobody else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.test_no_dead_words import config_fields
from tools import pages

ROOT = Path(__file__).parents[1]


class Page(HTMLParser):
    """Ids of a page, where its links go, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        self.loads |= {given[name] for name in ("src", "poster") if name in given}
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.add(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning ends the build."""
    home = tmp_path_factory.mktemp("site")
    where = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(home)]
    done = subprocess.run(command, cwd=ROOT, env=where, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return home


@pytest.fixture(scope="module")
def parsed(site: Path) -> dict[Path, Page]:
    return {file: Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}


def test_no_link_is_dead(site: Path, parsed: dict[Path, Page]) -> None:
    dead = []
    for file, page in parsed.items():
        if file.name == "404.html":  # its links begin at the root of a server
            continue
        for link in page.links | page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                dead.append(f"{file.relative_to(site)}: {link}")
            elif parts.fragment and target in parsed and unquote(parts.fragment) not in parsed[target].ids:
                dead.append(f"{file.relative_to(site)}: {link}, no such anchor")
    assert not dead


def test_nothing_is_loaded_from_elsewhere(parsed: dict[Path, Page]) -> None:
    assert not [load for page in parsed.values() for load in page.loads if re.match(r"(https?:)?//", load)]


def test_the_search_finds_a_page_when_the_site_is_opened_from_the_disk(site: Path, browser: Any) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    browser.get((site / "index.html").as_uri())
    browser.find_element("css selector", ".md-search__input").send_keys("quaternion")
    found = WebDriverWait(browser, 60).until(lambda it: it.find_elements("css selector", ".md-search-result__link"))
    assert any("migration.html" in link.get_attribute("href") for link in found)


def test_the_front_page_shows_a_policy_in_the_browser_and_by_make_docs_live_the_policy_itself(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert pages.with_live_page(text, "") == text
    assert re.search(r'<div class="live">.*?<img [^>]*src="images/browser.png".*?</div>', text, re.DOTALL)
    live = pages.with_live_page(text, "live/index.html")
    assert 'src="images/browser.png"' not in live
    assert live.count('<iframe class="live" src="live/index.html"') == 1
    assert "live/index.html" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_every_verb_and_option_has_its_place(site: Path) -> None:
    for name, command, _ in pages.commands():
        text = (site / f"commands/{name.split()[0]}.html").read_text(encoding="utf-8")
        assert f"genelab {name}" in text
        for option in (word for param in command.params for word in param.opts if word.startswith("--")):
            assert f"<code>{option}</code>" in text, f"genelab {name} {option}"


def test_every_field_of_a_config_has_its_place(parsed: dict[Path, Page]) -> None:
    ids = {name for file, page in parsed.items() if file.parent.name == "reference" for name in page.ids}
    shown = {tuple(name.split(".")[-2:]) for name in ids}
    missing = sorted(f"{cls}.{field}" for cls, field in set(config_fields()) - shown)
    assert not missing


def test_every_page_is_there_as_markdown_and_listed(site: Path) -> None:
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): ", (site / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(listed) == len(set(listed))
    for uri in listed:
        assert (site / uri).read_text(encoding="utf-8").strip()
        assert (site / uri).with_suffix(".html").exists()
    ours = {file.relative_to(ROOT / "docs").as_posix() for file in (ROOT / "docs").rglob("*.md")}
    assert ours <= set(listed)
    assert "- `scale: PerJoint = 1.0`: Factor of the action." in (site / "reference/terms.md").read_text(
        encoding="utf-8"
    )


def test_links_of_the_repository_lead_somewhere() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        for target in pages.targets((ROOT / name).read_text(encoding="utf-8"), name):
            assert (ROOT / target).exists(), f"{name}: {target}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150
