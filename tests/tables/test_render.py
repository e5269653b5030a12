"""Formats: golden files for each layout, numbers that agree, LaTeX that compiles."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

from tta_bench.plugins import registry
from tta_bench.tables.build import build
from tta_bench.tables.render import FORMATS, document, render
from tta_bench.tables.render.latex_text import escape
from tta_bench.tables.table import Table, TableError, printed

LAYOUTS = registry.names("layouts")
GOLDEN = Path(__file__).parents[1] / "golden"
SUFFIX = {"latex": "tex", "longtable": "longtable.tex", "markdown": "md", "text": "txt"}
NASTY = r"TENT* a_b 50% <b> #1 & ~^ \x {} $y$ | é ± “q” → 漢 ½"


def table_of(layout: str) -> Table:
    """The golden frame in a layout."""
    return build(pd.read_csv(GOLDEN / "frame.csv"), layout)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_golden(layout: str, format: str) -> None:
    """UPDATE_GOLDEN=1 rewrites the files; read the difference before you commit it."""
    path = GOLDEN / f"{layout}.{SUFFIX.get(format, format)}"
    text = render(table_of(layout), format)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_unknown_format_is_an_error() -> None:
    with pytest.raises(TableError, match=r'unknown format "latx"\. Did you mean "latex"'):
        render(table_of("cost"), "latx")


# Each reader gives, row by row, the means as printed; "" is a dash.


def from_latex(text: str, _: Table) -> list[list[str]]:
    body = text.split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    drop = r"\\textsuperscript\{[^}]*\}|\\,\{.*\}|\\textbf\{|\}"
    cells = [[re.sub(drop, "", c) for c in re.split(r"(?<!\\)&", r[:-3])[2:]] for r in rows]
    cells = [[cell.replace("$-$", "−") for cell in row] for row in cells]
    ticks = {"--": "", r"$\surd$": "✓", r"$\times$": "✗"}
    return [[ticks.get(c.strip(), c.strip()) for c in row] for row in cells]


def from_markdown(text: str, _: Table) -> list[list[str]]:
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    cells = [re.split(r"(?<!\\)\|", row)[3:-1] for row in rows]
    drop = r"\*\*|–.*| (±|\\\[|\[) ?.*|[⁰¹²³⁴⁵⁶⁷⁸⁹·]+\s*$"
    return [[re.sub(drop, "", c).strip() for c in row] for row in cells]


def from_html(text: str, _: Table) -> list[list[str]]:
    rows = [list(row.iter("td")) for row in ElementTree.fromstring(text).findall("tbody/tr")]
    return [[_mean(cell).replace("–", "").strip() for cell in row] for row in rows]


def _mean(cell: ElementTree.Element) -> str:
    strong = cell.find("strong")
    return (cell if strong is None else strong).text or ""


def from_csv(text: str, table: Table) -> list[list[str]]:
    rows = csv.DictReader(io.StringIO(text))
    keys = [f"{c.key}_{c.kind}" if c.key == "reset" else c.key for c in table.columns]
    return [[_printed(row[k], c.kind) for k, c in zip(keys, table.columns, strict=True)] for row in rows]


def from_json(text: str, table: Table) -> list[list[str]]:
    rows = [row["entries"] for group in json.loads(text)["groups"] for row in group["rows"]]
    names = {"rank": "rank"}  # of which the text is what readers see
    return [[_printed(row[c.key][names.get(c.kind, "value")], c.kind) for c in table.columns] for row in rows]


def _printed(value: object, kind: str) -> str:
    if kind == "rank":
        return str(value)
    if kind == "flag":
        return {"true": "✓", "false": "✗"}.get(str(value).lower(), "")
    return "" if value in (None, "") else printed(float(str(value)), kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_agree_in_all_formats(layout: str) -> None:
    table = table_of(layout)
    rows = [row.entries for group in table.groups for row in group.rows]
    pairs = [zip(row, table.columns, strict=True) for row in rows]
    expected = [
        [_printed(entry.rank if c.kind == "rank" else entry.value, c.kind) for entry, c in row]
        for row in pairs
    ]
    readers = {"latex": from_latex, "markdown": from_markdown, "html": from_html}
    for format, read in {**readers, "csv": from_csv, "json": from_json}.items():
        assert read(render(table, format), table) == expected, format


@pytest.mark.parametrize("layout", LAYOUTS)
def test_latex_is_well_formed(layout: str) -> None:
    text = render(table_of(layout), "latex")
    bare = re.sub(r"\\[{}%&_#$\\]", "", text)
    assert bare.count("{") == bare.count("}")
    environments = (re.findall(rf"\\{word}{{(.*?)}}", text) for word in ("begin", "end"))
    begun, ended = map(sorted, environments)
    assert begun == ended
    columns = len(re.findall(r"[lc]", re.findall(r"\\begin{tabular}{(.*?)}", text)[0]))
    for line in (line for line in text.splitlines() if line.endswith(r" \\")):
        fields = re.split(r"(?<!\\)&", line)
        spans = [int(n) - 1 for n in re.findall(r"\\multicolumn{(\d+)}", line)]
        assert len(fields) + sum(spans) == columns


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_long_table_breaks_over_pages(layout: str) -> None:
    text = render(table_of(layout), "longtable")
    assert [text.count(word) for word in (r"\endfirsthead", r"\endhead", r"\begin{longtable}")] == [1, 1, 1]
    assert "multirow" not in text, "a group may end on another page"
    plain = render(table_of(layout), "latex")
    strip = re.compile(r"\\multirow\{\d+\}\{\*\}\{(.*?)\}(?= &)")
    rows = [strip.sub(r"\1", line) for line in plain.splitlines() if line.endswith(r" \\")]
    assert set(rows) <= set(text.splitlines())
    assert "longtable" not in plain


def test_more_rows_than_a_page_has_are_told_of() -> None:
    table = table_of("cost")
    group = table.groups[0]
    long = replace(table, groups=(replace(group, rows=group.rows * 14),))
    assert "% 42 rows may not fit on a page: --format longtable" in render(long, "latex").splitlines()


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("½", "1/2"),
        ("α-ZOA", r"$\alpha$-ZOA"),
        ("λ Δ Α ς", r"$\lambda$ $\Delta$ A $\varsigma$"),
        ("R² H₂O", "R$^{2}$ H$_{2}$O"),
        ("µ ≈ 3", r"$\mu$ $\approx$ 3"),
    ],
)
def test_unicode_names_survive_latex(text: str, latex: str) -> None:
    assert escape(text) == latex


def test_csv_has_no_two_columns_of_one_name() -> None:
    for layout in LAYOUTS:
        header = render(table_of(layout), "csv").splitlines()[0].split(",")
        assert len(header) == len(set(header)), layout


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_csv_cells_are_no_formulas(name: str) -> None:
    frame = pd.read_csv(GOLDEN / "frame.csv")
    domains = frame.corruption.replace("a_b", name)
    given = frame.assign(model=name + frame.model, corruption=domains, quantizer=name)
    given["method"] = name + given.method
    rows = list(csv.reader(io.StringIO(render(build(given, "per-corruption"), "csv"))))
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "@"))]
    numbers = re.compile(r"-\d+\.\d{4}")  # which are numbers
    assert not [cell for row in rows for cell in row if cell.startswith("-") and not numbers.fullmatch(cell)]
    assert rows[1][0] == f"'{name}vit-micro"


def test_latex_escapes_whatever_comes() -> None:
    assert escape("a_b 50% <b> {x}") == r"a\_b 50\% \textless{}b\textgreater{} \{x\}"
    assert escape("one\n\ntwo") == "one two"
    assert [char for char in escape(NASTY) if not char.isascii()] == ["é"]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
def test_latex_compiles(tmp_path: Path) -> None:
    frame = pd.read_csv(GOLDEN / "frame.csv")
    frame["reason"] = frame.reason.where(frame.reason.isna(), NASTY)
    tables = [build(frame, layout, caption=NASTY, label=NASTY + layout) for layout in LAYOUTS]
    latex = document("".join(render(table, format) for table in tables for format in ("latex", "longtable")))
    (tmp_path / "tables.tex").write_text(latex, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert run.returncode == 0, run.stdout[-2000:]
    assert (tmp_path / "tables.pdf").stat().st_size > 0
    assert "Missing character" not in (tmp_path / "tables.log").read_text(errors="replace")
