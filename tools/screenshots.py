"""Take the screenshots of the report page that the docs show; needs Chromium, its driver and selenium.

python tools/screenshots.py                              # of results/quickstart, into docs/
python tools/screenshots.py --results DIR --name NAME --folder DIR
"""

from __future__ import annotations

import argparse
import base64
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tta_bench.report import gather, write
from tta_bench.storage.store import ResultStore


@dataclass(frozen=True)
class Screenshot:
    """One picture: which part of the page, in which state, and the size of the window."""

    file: str
    width: int
    height: int
    scale: float = 1.0  # device pixels per CSS pixel
    dark: bool = False
    section: str = ""  # the id of the section at the top edge; empty: the beginning of the page
    state: str = ""  # the page's state, as its address holds it behind the #


SCREENSHOTS = (
    Screenshot("report-leaderboard.png", 1280, 860),
    Screenshot(
        "report-budget-dark.png", 1280, 900, dark=True, section="budget", state="memory=20&forwards=2"
    ),
    Screenshot("report-phone.png", 390, 844, scale=1.5),
)


def main() -> None:
    """Make the page of a benchmark, and write all its screenshots."""
    parser = argparse.ArgumentParser(description="Take the screenshots of the report page for the docs.")
    parser.add_argument("--results", type=Path, default=Path("results"), help="results folder")
    parser.add_argument("--name", default="quickstart", help="benchmark to show")
    parser.add_argument("--folder", type=Path, default=Path("docs"), help="where the pictures go")
    given = parser.parse_args()
    browser = _chromium()
    try:
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            write(gather([ResultStore(given.results, given.name)]), page)
            for screenshot in SCREENSHOTS:
                (given.folder / screenshot.file).write_bytes(_take(browser, page, screenshot))
    finally:
        browser.quit()


def _chromium() -> Any:
    from selenium import webdriver

    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        raise SystemExit("Needs chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def _take(browser: Any, page: Path, screenshot: Screenshot) -> bytes:
    """The picture as a PNG file."""
    metrics = {
        "width": screenshot.width,
        "height": screenshot.height,
        "deviceScaleFactor": screenshot.scale,
        "mobile": screenshot.scale != 1,
    }
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if screenshot.dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get("about:blank")  # a change of the part behind the # alone would not load the page
    browser.get(page.resolve().as_uri() + (f"#{screenshot.state}" if screenshot.state else ""))
    if screenshot.section:
        scroll = "document.getElementById(arguments[0]).scrollIntoView({behavior: 'instant'})"
        browser.execute_script(scroll, screenshot.section)
        time.sleep(2)  # charts are drawn when they come into view
    return base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"])


if __name__ == "__main__":
    main()
