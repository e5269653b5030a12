"""A real Chromium, headless, that can reach nothing but files; without one, these tests are skipped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.report_results import DEMO, ENGINES, HOSTILE, PAPER, SEVERAL_STREAMS, Grid, write
from tta_bench.report import gather
from tta_bench.report import write as write_page
from tta_bench.storage.store import ResultStore

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # of the browser's own processes, which a container often forbids
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
WIDE, PHONE = (1400, 900), (390, 844)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser of the session."""
    webdriver = pytest.importorskip("selenium.webdriver")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    browser.set_script_timeout(60)
    yield browser
    browser.quit()


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two benchmarks with several seeds, hostile names and cells that ended badly."""
    folder = tmp_path_factory.mktemp("results")
    for grid in (PAPER, DEMO):
        write(grid, folder)
    return folder


@pytest.fixture(scope="session")
def address(results: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page about both."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    stores = [ResultStore(results, grid.name) for grid in (DEMO, PAPER)]
    write_page(gather(stores, "zoa-mm25") | {"title": f"demo {HOSTILE}"}, path)
    return path.as_uri()


@pytest.fixture(scope="session")
def address_of_scenarios(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page about a benchmark on several streams."""
    return _address(SEVERAL_STREAMS, tmp_path_factory.mktemp("scenarios"))


@pytest.fixture(scope="session")
def address_of_engines(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page about a benchmark on integer engines."""
    return _address(ENGINES, tmp_path_factory.mktemp("engines"))


def _address(grid: Grid, folder: Path) -> str:
    write_page(gather([write(grid, folder)]), folder / "report.html")
    return (folder / "report.html").as_uri()


Open = Callable[..., Any]


@pytest.fixture
def open_page(chromium: Any, address: str) -> Iterator[Open]:
    """Opens the page at a size and in a theme; afterwards there must be no complaint and no request."""

    opened = set()

    def open_(hash: str = "", size: tuple[int, int] = WIDE, dark: bool = False, page: str = address) -> Any:
        opened.add(page)
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        wishes = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        chromium.get("about:blank")  # a change of the hash alone would not load the page anew
        chromium.get(page + (f"#{hash}" if hash else ""))
        return chromium

    chromium.get_log("browser")
    chromium.get_log("performance")
    yield open_
    assert [entry["message"] for entry in chromium.get_log("browser")] == []
    assert set(requests(chromium)) == opened


def requests(browser: Any) -> list[str]:
    """Addresses that were asked for, whether or not anything answered; without what a page makes itself."""
    messages = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    sent = (m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent")
    return [url for url in sent if not url.startswith(("about:", "data:", "blob:"))]
