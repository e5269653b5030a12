"""The documentation site: strict links, every public name, and nothing that a page fetches from a network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tta_bench import api

ROOT = Path(__file__).parents[2]
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
NOT_OURS = {"Ge", "Gt", "Interval", "Le", "Lt", "dataclass", "field"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class LoadedFiles(HTMLParser):
    """Collects what a browser loads for a page without being asked."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADED.get(tag, ""))
        if address and not (tag == "link" and dict(attrs).get("rel") == "canonical"):
            self.addresses.append(address)


def test_pages_load_only_files_of_the_site(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]  # which has absolute paths
    assert len(pages) > 15
    for page in pages:
        for address in LoadedFiles(page).addresses:
            if not address.startswith("data:"):
                assert (page.parent / address.split("?")[0]).is_file(), f"{page.name} loads {address}"
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text(encoding="utf-8"))


def test_the_first_page_begins_as_the_readme(site: Path) -> None:
    page = re.sub(r"<[^>]+>", "", (site / "index.html").read_text(encoding="utf-8"))
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:5]:
        assert line.lstrip("# ").split("`")[0] in page


def test_the_reference_has_every_public_name_of_the_plugin_api(site: Path) -> None:
    page = (site / "plugin-api.html").read_text(encoding="utf-8")
    missing = [name for name in set(api.__all__) - NOT_OURS if f'id="tta_bench.api.{name}"' not in page]
    assert not missing


def test_every_dependency_has_a_line() -> None:
    tomllib = pytest.importorskip("tomllib")  # of Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "dependencies.md").read_text(), re.MULTILINE)
    named = {name.strip() for row in rows for name in row.split(",")} - {"package", "---"}
    assert named == {re.split(r"[<>=]", text)[0] for text in wanted}
