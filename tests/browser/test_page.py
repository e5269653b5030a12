"""The report page as a reader uses it: filters, tables, budget, charts, keyboard, phone, light and dark."""

from __future__ import annotations

import colorsys
import csv
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import PHONE, WIDE, Open
from tests.helpers.command import tta_bench
from tests.helpers.report_results import DEMO, ENGINES, HOSTILE, SEVERAL_STREAMS, WEIGHTS, write
from tta_bench.storage.store import ResultStore
from tta_bench.tables import frame as frames
from tta_bench.tables.best import best_methods
from tta_bench.tables.build import build, tied
from tta_bench.tables.limits import Limits, answer
from tta_bench.tables.render import render
from tta_bench.tables.render.numbers import number as number_of
from tta_bench.tables.table import Row, Table, printed

pytestmark = pytest.mark.slow
AS_IN_THE_FILE = "sort="  # no ranking
LAYOUTS = [("cost", "1"), ("cost", "3"), ("per-corruption", "2"), ("per-corruption", "3"), ("long-term", "3")]
# Group, label, then each cell as (column, text, spread); read from the page in one go.
READ = """
return [...document.querySelectorAll("#board tbody")].flatMap((body) =>
  [...body.querySelectorAll("tr[data-row]")].map((row) => [
    body.dataset.group,
    row.querySelector("th .row-name, th em").textContent,
    Object.fromEntries([...row.querySelectorAll("td[data-column]")].map((cell) => [
      cell.dataset.column,
      [cell.querySelector(".number")?.textContent ?? "", cell.querySelector("small")?.textContent ?? ""],
    ])),
  ]));
"""
# Model, method, quantizer and engine, then the numbers.
READ_ENGINES = """
let method;
return [...document.querySelectorAll("#engine-table tbody")].flatMap((body) =>
  [...body.querySelectorAll("tr[data-row]")].map((row) => [
    body.dataset.group,
    (method = row.querySelector("th")?.textContent ?? method),
    row.querySelector("td.engine").firstChild.textContent,
    ...[...row.querySelectorAll("td[data-column]")].map(
      (cell) => cell.querySelector(".number, .muted").textContent),
  ]));
"""
SHOWN = "return [...document.querySelectorAll('#board tr[data-row]')].map((row) => Number(row.dataset.row))"


@pytest.fixture(scope="module")
def table(results: Path) -> Callable[..., Table]:
    """Tables as `tta-bench table` builds them."""
    tidy = frames.load(ResultStore(results, DEMO.name))
    return lambda layout, number: build(tidy, layout, round=None if layout == "long-term" else int(number))


Answers = tuple[Table, list[list[int] | None]]


@pytest.fixture(scope="module")
def answers(results: Path) -> Answers:
    """The cost table of the last round, and which of its rows are tied, across models."""
    tidy = frames.load(ResultStore(results, DEMO.name))
    return build(tidy, "cost", round=3), tied(tidy, "cost", "accuracy", round=3)


def _read(browser: Any) -> list[Any]:
    return browser.execute_script(READ)


def _click(browser: Any, selector: str) -> None:
    browser.find_element("css selector", selector).click()


def _toggle(browser: Any, facet: str, value: str) -> None:
    boxes = browser.find_elements("css selector", f'[data-facet="{facet}"] input')
    next(box for box in boxes if box.get_attribute("data-value") == value).click()


def _text(browser: Any, selector: str) -> str:
    return browser.execute_script("return document.querySelector(arguments[0]).textContent", selector)


def _set(browser: Any, selector: str, value: str) -> None:
    """Move a control to a value, as a hand on it would."""
    browser.execute_script(
        "const control = document.querySelector(arguments[0]); control.value = arguments[1];"
        "control.dispatchEvent(new Event('input', {bubbles: true}));"
        "control.dispatchEvent(new Event('change', {bubbles: true}));",
        selector,
        value,
    )


def _drawn(browser: Any, selector: str) -> int:
    """Scroll to a section and wait for its charts; how many there are."""
    browser.execute_script("document.querySelector(arguments[0]).scrollIntoView()", selector)
    charts = f"return [...document.querySelectorAll('{selector} .chart')]"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if browser.execute_script(f"{charts}.every((chart) => chart.querySelector('svg.marks'))"):
            return browser.execute_script(f"{charts}.length")
        browser.execute_script("scrollBy(0, 300)")
        time.sleep(0.1)
    raise AssertionError(f"the charts of {selector} were not drawn")


# Numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "number"), LAYOUTS)
def test_numbers_are_those_of_the_csv(open_page: Open, results: Path, layout: str, number: str) -> None:
    browser = open_page(f"layout={layout}&round={number}&{AS_IN_THE_FILE}")
    arguments = ["--results", results, "--name", DEMO.name, "--layout", layout, "--format", "csv"]
    outcome = tta_bench("table", *arguments, *([] if layout == "long-term" else ["--round", number]))
    assert outcome.returncode == 0, outcome.stderr
    records = list(csv.DictReader(io.StringIO(outcome.stdout)))
    rows = _read(browser)
    assert len(rows) == len(records) == 24
    for (group, label, cells), record in zip(rows, records, strict=True):
        assert group.startswith(record["model"])
        assert label.startswith(record["method"])
        for column, (text, spread) in cells.items():
            kind = _kind(column)
            assert text == _printed(record[column], kind)
            half = record.get(f"{column}_ci95") or ""
            assert spread == (f" ± {_printed(half, kind)}" if half else "")


def _index(table: Table, column: str) -> int:
    return [each.key for each in table.columns].index(column)


def _kind(column: str) -> Any:
    known = {"forwards": "count", "backwards": "count", "backprop": "flag", "rank": "rank"}
    return known.get(column, "memory" if column.endswith("_mib") else "accuracy")


def _printed(field: str, kind: Any) -> str:
    if kind == "rank":
        return field
    if kind == "flag":
        return {"true": "✓", "false": "✗", "": ""}[field]
    return printed(float(field), kind) if field else ""


def test_latex_is_copied_as_the_command_prints_it(open_page: Open, table: Callable[..., Table]) -> None:
    browser = open_page(f"layout=per-corruption&round=2&{AS_IN_THE_FILE}")
    assert _copied(browser) == render(table("per-corruption", "2"), "latex")


def test_latex_of_some_rows_has_their_notes_only(open_page: Open, table: Callable[..., Table]) -> None:
    browser = open_page(f"layout=cost&{AS_IN_THE_FILE}&no-label=TENT*&no-label=CoTTA&no-quantization=FP32")
    lines = _copied(browser).splitlines()
    whole = render(table("cost", "3"), "latex").splitlines()
    failed = next(line for line in whole if line.startswith("& ") and "& 0.25 &" in line and "{5}" in line)
    assert failed.replace("{5}", "{2}") in lines  # of the footnotes only the first and its own are left
    footnotes = [line for line in lines if line.startswith(r"\textsuperscript")]
    assert footnotes == [
        footnote.replace("{5}", "{2}")
        for footnote in whole
        if footnote.startswith((r"\textsuperscript{1}", r"\textsuperscript{5}"))
    ]
    assert sum(line.startswith(r"\multirow{4}") for line in lines) == 2
    assert lines[0] == whole[0]
    assert lines[-1] == whole[-1]


def _copied(browser: Any) -> str:
    """What is in the clipboard after the button."""
    grant = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.execute_cdp_cmd("Browser.grantPermissions", grant)
    _click(browser, "#copy-latex")
    deadline = time.monotonic() + 10
    while not _text(browser, "#exported").startswith("Copied") and time.monotonic() < deadline:
        time.sleep(0.05)
    return browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])")


def test_csv_is_saved_as_the_command_prints_it(
    open_page: Open, table: Callable[..., Table], tmp_path: Path
) -> None:
    browser = open_page(f"layout=long-term&{AS_IN_THE_FILE}")
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    _click(browser, "#download-csv")
    deadline = time.monotonic() + 10
    while not list(tmp_path.glob("*.csv")) and time.monotonic() < deadline:
        time.sleep(0.05)
    (saved,) = tmp_path.glob("*.csv")
    assert saved.name.endswith("-long-term.csv")
    assert saved.read_bytes().decode() == render(table("long-term", ""), "csv")


# Filters and order ------------------------------------------------------------------------------


def test_filters_take_rows_away_and_bring_them_back(open_page: Open) -> None:
    browser = open_page()
    assert len(browser.execute_script(SHOWN)) == 24
    _toggle(browser, "model", "vit-micro")
    assert len(browser.execute_script(SHOWN)) == 12
    _toggle(browser, "quantization", "FP32")
    _toggle(browser, "label", HOSTILE)
    rows = _read(browser)
    assert {group for group, _, _ in rows} == {f"{DEMO.models[1][0]} W8A8"}
    assert [label for _, label, _ in rows].count(HOSTILE) == 0
    assert len(rows) == 5
    assert _text(browser, "#shown") == "5 of 24 rows"
    assert len(browser.find_elements("css selector", "#heat tr[data-row]")) == 5
    _click(browser, "#show-all")
    assert len(browser.execute_script(SHOWN)) == 24


def test_no_row_left_is_said(open_page: Open) -> None:
    browser = open_page("no-quantization=FP32&no-quantization=q1 W8A8")
    assert "No row is left" in _text(browser, "#board")
    assert "no row" in _text(browser, "#answer")


def test_round_and_layout_are_chosen_on_the_page(open_page: Open, table: Callable[..., Table]) -> None:
    browser = open_page(AS_IN_THE_FILE)
    _set(browser, "#choose-round", "1")
    _click(browser, '#layouts [data-value="per-corruption"]')
    shown = table("per-corruption", "1")
    expected = shown.groups[0].rows[0].entries[_index(shown, "gaussian_noise")].value
    assert _read(browser)[0][2]["gaussian_noise"][0] == printed(float(expected or 0), "accuracy")


def test_headings_rank_within_a_model(open_page: Open) -> None:
    browser = open_page()

    def first_group() -> list[float]:
        rows = [cells for group, _, cells in _read(browser) if group == "vit-micro FP32"]
        return [float(cells["accuracy"][0]) for cells in rows if cells["accuracy"][0]]

    assert first_group() == sorted(first_group(), reverse=True)
    _click(browser, '[data-key="accuracy"]')
    assert first_group() == sorted(first_group())
    _click(browser, '[data-key="accuracy"]')
    assert browser.execute_script(SHOWN) == list(range(24))


def test_a_link_shows_the_same(open_page: Open) -> None:
    browser = open_page()
    _toggle(browser, "label", "FOA")
    _click(browser, '#layouts [data-value="long-term"]')
    _set(browser, "#limit-memory", "50")
    shown, kept = browser.execute_script(SHOWN), browser.execute_script("return location.hash.slice(1)")
    browser = open_page(kept)
    assert browser.execute_script(SHOWN) == shown
    assert _text(browser, "#answer").startswith("Within 50 MiB")


# The budget -------------------------------------------------------------------------------------


def test_budget_answers_which_method(open_page: Open, answers: Answers) -> None:
    browser = open_page()
    assert _answer(browser) == _best(answers, None, None)
    for memory, forwards in [("200", "2"), ("26", "28"), ("26", "1"), ("800", "3")]:
        _set(browser, "#limit-memory", memory)
        _set(browser, "#limit-forwards", forwards)
        assert _answer(browser) == _best(answers, float(memory), float(forwards)), (memory, forwards)
    _set(browser, "#limit-memory", "1")
    assert "no row fits" in _text(browser, "#answer")


def test_the_command_gives_the_same_answer(open_page: Open, results: Path) -> None:
    tidy = frames.load(ResultStore(results, DEMO.name))
    browser = open_page()
    for memory, forwards in (("", ""), ("50", ""), ("26", "2"), ("", "1"), ("0.001", "")):
        for name, value in (("memory", memory), ("forwards", forwards)):
            _set(browser, f"#limit-{name}", value)
        limits = Limits(float(memory) if memory else None, float(forwards) if forwards else None)
        assert _text(browser, "#answer") == answer(tidy, limits)
    _click(browser, "#forward-only")
    assert _text(browser, "#answer") == answer(tidy, Limits(0.001, forward_only=True))
    _set(browser, "#limit-memory", "")
    assert _text(browser, "#answer") == answer(tidy, Limits(forward_only=True))


def test_sliders_move_the_budget(open_page: Open, answers: Answers) -> None:
    browser = open_page()
    _set(browser, "#limit-forwards-slider", "1")  # the second of 1, 2, 3, 28
    assert browser.find_element("id", "limit-forwards").get_attribute("value") == "2"
    assert _answer(browser) == _best(answers, None, 2)
    _set(browser, "#limit-memory-slider", "0")  # the leanest row still fits
    assert _answer(browser) == _best(answers, 25, 2)
    _set(browser, "#limit-memory-slider", "1000")
    _set(browser, "#limit-forwards-slider", "4")
    assert _answer(browser) == _best(answers, None, None)


def _answer(browser: Any) -> tuple[set[str], str]:
    strong = [found.text for found in browser.find_elements("css selector", "#answer strong")]
    return set(strong[:-1]), strong[-1].removesuffix(" %")


def _best(answers: Answers, memory: float | None, forwards: float | None) -> tuple[set[str], str]:
    """The rows of the cost table that the page must name, of all models, and the accuracy of the first."""
    built, ties = answers
    keys = [column.key for column in built.columns]
    found: list[tuple[float, int, str]] = []
    for place, (group, row) in enumerate((g, r) for g in built.groups for r in g.rows if not r.published):
        entries = dict(zip(keys, row.entries, strict=True))
        numbers = [entries[key].value for key in ("accuracy", "memory_mib", "forwards")]
        if any(number is None for number in numbers):
            continue
        accuracy, mib, passes = (float(number or 0) for number in numbers)
        if (memory is None or mib <= memory) and (forwards is None or passes <= forwards):
            found.append((accuracy, place, f"{group.label} · {row.label}"))
    found.sort(key=lambda each: -each[0])
    first, leader, name = found[0]
    text, best = printed(first, "accuracy"), {name}
    for accuracy, place, other in found[1:]:
        if printed(accuracy, "accuracy") != text and place not in (ties[leader] or []):
            break
        best.add(other)
    return best, text


def test_the_page_opens_with_the_best_forward_only_method(open_page: Open, results: Path) -> None:
    tidy = frames.load(ResultStore(results, DEMO.name))
    for number in (1, 3):
        browser = open_page(f"round={number}")
        best = best_methods(tidy, number)
        headline = next(each.sentence for each in best if each.bits != "FP32")
        assert _text(browser, "#finding") == headline
        items = browser.find_elements("css selector", "#findings li")
        assert [item.text for item in items] == [each.sentence for each in best if each.sentence != headline]


def test_methods_of_a_family_share_a_hue(open_page: Open) -> None:
    """Blue: one pass. Orange: several forward passes. Violet: backward passes."""
    browser = open_page()
    swatches = browser.execute_script(
        "return [...document.querySelectorAll('[data-facet=\"label\"] label')].map((label) =>"
        " [label.querySelector('input').dataset.value,"
        "  getComputedStyle(label.querySelector('.swatch')).color.match(/\\d+/g).map(Number)])"
    )
    hues = {name: 360 * colorsys.rgb_to_hsv(*colour)[0] for name, colour in swatches}
    assert all(180 <= hues[name] <= 220 for name in (HOSTILE,))
    assert all(10 <= hues[name] <= 45 for name in ("ZOA [paper]", "FOA"))
    assert all(260 <= hues[name] <= 330 for name in hues if name.startswith(("TENT", "CoTTA")))
    colours = [tuple(colour) for _, colour in swatches]
    assert len(set(colours)) == len(colours)


def test_the_best_forward_only_method_is_named_in_the_charts(open_page: Open, results: Path) -> None:
    first = best_methods(frames.load(ResultStore(results, DEMO.name)), 3)[0].methods[0]
    browser = open_page()
    for section, chart in (("#rounds", "#rounds figure:first-of-type"), ("#budget", "#pareto")):
        _drawn(browser, section)
        marks = browser.find_elements("css selector", f"{chart} .mark-text text")
        assert any(first in mark.text for mark in marks), section


# Charts, heat map, ghosts, provenance -----------------------------------------------------------


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everything_is_drawn_at_every_size_and_theme(
    open_page: Open, size: tuple[int, int], dark: bool
) -> None:
    browser = open_page("memory=200&forwards=2", size=size, dark=dark)
    assert _drawn(browser, "#budget") == 1
    assert _drawn(browser, "#rounds") == 4
    assert _drawn(browser, "#online") == 4
    width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= size[0], "the page must not scroll sideways"
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper[4:-1].split(","))) < 200) == dark
    assert browser.execute_script("return document.getElementById('filters').open") == (size == WIDE)


def test_bands_points_and_ghosts_are_in_the_charts(open_page: Open) -> None:
    browser = open_page()
    _drawn(browser, "#rounds")
    first = "#rounds .chart:first-of-type"
    assert (
        len(browser.find_elements("css selector", f"{first} .mark-area path")) >= 5
    )  # a band for each method
    browser = open_page("stream=1")
    _drawn(browser, "#rounds")
    labels = browser.execute_script(
        "return [...document.querySelectorAll('#rounds .mark-symbol path')].map((mark) => mark.ariaLabel)"
    )
    assert any("59.7" in label for label in labels), labels  # ZOA at round 1, as published
    assert len(browser.find_elements("css selector", "#board tr.published")) == 2
    _click(browser, "#show-published")
    assert len(browser.find_elements("css selector", "#board tr.published")) == 0


def test_heat_map_shows_accuracy_or_gain(open_page: Open, table: Callable[..., Table]) -> None:
    browser = open_page()
    shown = table("per-corruption", "3")
    entries = {row.label: row.entries[_index(shown, "fog")] for row in shown.groups[0].rows}
    values = {label: float(each.value) for label, each in entries.items() if each.value is not None}
    cell = "#heat tbody:first-of-type tr[data-row='2'] td[data-column='fog']"
    assert _text(browser, cell) == printed(values["ZOA [paper]"], "accuracy")
    _click(browser, '#heat-modes [data-value="difference"]')
    gain = values["ZOA [paper]"] - values["source"]
    assert _text(browser, cell) == f"{gain:+.1f}".replace("-", "−")
    lost = browser.find_element("css selector", "#heat tbody:first-of-type tr[data-row='4'] td")
    assert lost.get_attribute("class") == "loss"


def test_scenarios_are_shown_if_there_are_several(
    open_page: Open, address_of_scenarios: str, tmp_path: Path
) -> None:
    assert not open_page().find_element("css selector", "#scenarios").is_displayed()
    browser = open_page(page=address_of_scenarios)
    table = build(frames.load(write(SEVERAL_STREAMS, tmp_path)), "scenarios")
    source, zoa, _ = table.groups[0].rows
    values = [row.entries[_index(table, "mixed")].value for row in (source, zoa)]
    cell = "#scenario-tables tbody:first-of-type tr[data-row='1'] td[data-column='mixed']"
    assert _text(browser, cell) == printed(values[1], "accuracy")
    _click(browser, '#scenario-modes [data-value="difference"]')
    assert (
        browser.switch_to.active_element.find_element("xpath", "..").get_attribute("id") == "scenario-modes"
    )
    assert _text(browser, cell) == f"{values[1] - values[0]:+.1f}".replace("-", "−")
    _toggle(browser, "model", "vit-micro")
    groups = browser.find_elements("css selector", "#scenario-tables tbody")
    assert [group.get_attribute("data-group") for group in groups] == [
        "resnet-micro FP32",
        "resnet-micro W8A8",
    ]


def test_engines_stand_below_each_other(open_page: Open, address_of_engines: str, tmp_path: Path) -> None:
    assert not open_page().find_element("css selector", "#engines").is_displayed()
    browser = open_page("round=1", page=address_of_engines)
    table = build(frames.load(write(ENGINES, tmp_path)), "engines", round=1)
    shown = browser.execute_script(READ_ENGINES)
    expected = [
        [group.model, row.label, f"{group.quantizer} W8A8", *_texts(table, row)]
        for model in ("vit-micro", "resnet-micro")
        for label in ("source", "ZOA", HOSTILE)
        for group, row in table.rows
        if (group.model, row.label) == (model, label)
    ]
    assert len(expected) == 18
    assert shown == expected
    assert "31 of 32 calibration images" in _text(browser, "#engine-notes")
    _toggle(browser, "quantization", "q1 torch-int8 W8A8")
    _toggle(browser, "model", "vit-micro")
    assert [row[:3] for row in browser.execute_script(READ_ENGINES)] == [
        row[:3] for row in expected if row[0] == "resnet-micro" and "torch-int8" not in row[2]
    ]


def test_engines_fit_a_phone(open_page: Open, address_of_engines: str) -> None:
    browser = open_page(size=PHONE, page=address_of_engines)
    assert browser.find_element("css selector", "#engine-table").is_displayed()
    assert browser.execute_script("return document.documentElement.scrollWidth") <= PHONE[0]


def _texts(table: Table, row: Row) -> list[str]:
    """The numbers of a row as the page prints them."""
    pairs = zip(row.entries, table.columns, strict=True)
    return ["–" if each.value is None else number_of(each, found)[0] for each, found in pairs]


def test_flags_say_what_is_wrong(open_page: Open) -> None:
    browser = open_page()
    tags = browser.execute_script(
        "return [...document.querySelectorAll('#board .tag')].map((tag) => [tag.textContent, tag.title])"
    )
    assert {kind for kind, _ in tags} == {
        "forgets",
        "collapses",
        "not finite",
        "unsupported",
        "failed",
        "pending",
    }
    assert all(text for _, text in tags)
    assert "needs gradients" in _text(browser, "#board-notes")


def test_a_name_opens_its_provenance(open_page: Open) -> None:
    browser = open_page()
    name = browser.find_element("css selector", "#board tr[data-row='2'] .row-name")
    name.send_keys("\n")
    dialog = browser.find_element("id", "provenance")
    assert dialog.is_displayed()
    text = _text(browser, "#provenance")
    for expected in (WEIGHTS, "paper", "torch 2.5", "demo12fog", f"host {HOSTILE}", "demo-0-0-2-s1"):
        assert expected in text
    assert len(browser.find_elements("css selector", "#provenance details[data-cell]")) == 3
    dialog.send_keys("\ue00c")  # Escape
    assert not dialog.is_displayed()


# Hostile names, keyboard, theme -----------------------------------------------------------------


def test_hostile_names_do_nothing(open_page: Open) -> None:
    browser = open_page()
    for section in ("#budget", "#rounds", "#online"):
        _drawn(browser, section)
    assert browser.execute_script("return window.hacked") is None
    assert browser.find_elements("css selector", "img, b") == []
    assert HOSTILE in browser.find_element("tag name", "h1").text
    assert HOSTILE in _text(browser, "#board")


def test_policy_stops_a_script_that_slips_in(chromium: Any, address: str) -> None:
    """Belt and braces: even markup put into the page by force does not run."""
    chromium.get("about:blank")
    chromium.get(address)
    chromium.execute_script("document.body.insertAdjacentHTML('beforeend', arguments[0])", HOSTILE)
    time.sleep(0.3)
    assert chromium.execute_script("return window.hacked") is None
    chromium.get_log("browser")  # its complaints are what this test is about
    chromium.get_log("performance")


def test_keyboard_alone_is_enough(open_page: Open) -> None:
    browser = open_page()
    chip = "document.querySelector('[data-facet=\"label\"] input')"
    browser.execute_script(f"{chip}.focus()")
    browser.switch_to.active_element.send_keys(" ")
    assert len(browser.execute_script(SHOWN)) == 20
    assert browser.execute_script(f"return document.activeElement === {chip}")
    browser.switch_to.active_element.send_keys(" ")
    assert len(browser.execute_script(SHOWN)) == 24


def test_theme_button_overrides_the_system(open_page: Open) -> None:
    browser = open_page(dark=True)
    paper = "return getComputedStyle(document.body).backgroundColor"
    dark = browser.execute_script(paper)
    _click(browser, "#theme")
    assert _text(browser, "#theme") == "Theme: light"
    assert browser.execute_script(paper) != dark
    _click(browser, "#theme")
    assert browser.execute_script(paper) == dark
    _click(browser, "#theme")
    assert _text(browser, "#theme") == "Theme: auto"
