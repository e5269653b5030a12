"""LaTeX: a complete table environment that needs booktabs, multirow and graphicx, or longtable."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tta_bench.layouts.types import spans
from tta_bench.render.latex_text import escape
from tta_bench.render.numbers import beside, number
from tta_bench.table import Column, Entry, Row, RowGroup, Table

PACKAGES = ("booktabs", "multirow", "graphicx")
PAGES = ("booktabs", "longtable")  # of a table that breaks over pages
PAGE = 40  # rows that fit on one
LABELS = 2  # Model and Method come before the columns
WIDE = 9  # from so many columns on, a table spans both columns of a two-column page

NOT_IN_LABELS = r"[^A-Za-z0-9:._-]"


def to_latex(table: Table) -> str:
    """The table as LaTeX, shrunk to the line if it is wider, its notes beneath."""
    environment = "table*" if LABELS + len(table.columns) >= WIDE else "table"
    count = sum(len(group.rows) for group in table.groups)
    lines = [
        f"% Needs \\usepackage{{{','.join(PACKAGES)}}}",
        *([f"% {count} rows may not fit on a page: --format longtable"] if count > PAGE else []),
        f"\\begin{{{environment}}}[t]",
        r"\centering",
        f"\\caption{{{escape(table.caption)}{_marks(table.marks)}}}",
        f"\\label{{{re.sub(NOT_IN_LABELS, '-', table.label)}}}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        f"\\begin{{tabular}}{{{'l' * LABELS}{'c' * len(table.columns)}}}",
        r"\toprule",
        *_header(table.columns),
        *(line for group in table.groups for line in (r"\midrule", *_group(group, table.columns))),
        r"\bottomrule",
        r"\end{tabular}%",
        "}",
        *_notes(table),
        f"\\end{{{environment}}}",
    ]
    return "\n".join(lines) + "\n"


def to_longtable(table: Table) -> str:
    """The table as LaTeX that breaks over pages, with its header on each; small print where it is wide."""
    width = LABELS + len(table.columns)
    head = [r"\toprule", *_header(table.columns), r"\midrule"]
    caption = f"\\caption{{{escape(table.caption)}{_marks(table.marks)}}}"
    rows = [list(_group(group, table.columns, spanned=False)) for group in table.groups]
    lines = [
        f"% Needs \\usepackage{{{','.join(PAGES)}}}",
        r"\begingroup\scriptsize\setlength{\tabcolsep}{2pt}" if width >= WIDE else r"\begingroup\small",
        f"\\begin{{longtable}}{{{'l' * LABELS}{'c' * len(table.columns)}}}",
        f"{caption}\\label{{{re.sub(NOT_IN_LABELS, '-', table.label)}}}\\\\",
        *head,
        r"\endfirsthead",
        f"\\multicolumn{{{width}}}{{l}}{{\\emph{{continued}}}} \\\\",
        *head,
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
        *(line for i, group in enumerate(rows) for line in ([r"\midrule"] * (i > 0) + group)),
        r"\end{longtable}",
        *_notes(table),
        r"\endgroup",
    ]
    return "\n".join(lines) + "\n"


def document(latex: str) -> str:
    """A document that compiles and holds nothing but the table."""
    packages = "\n".join(f"\\usepackage{{{name}}}" for name in dict.fromkeys((*PACKAGES, *PAGES)))
    return f"\\documentclass{{article}}\n{packages}\n\\begin{{document}}\n{latex}\\end{{document}}\n"


def _header(columns: Sequence[Column]) -> Iterable[str]:
    """The header: groups above a rule each, if there are any, and the names."""
    found = spans(tuple(columns))
    if any(group for group, _ in found):
        yield _line("", "", *(f"\\multicolumn{{{n}}}{{c}}{{{escape(g)}}}" for g, n in found))
        first, rules = LABELS + 1, []
        for group, count in found:
            rules += [f"\\cmidrule(lr){{{first}-{first + count - 1}}}"] if group else []
            first += count
        yield " ".join(rules)
    yield _line("Model", "Method", *(escape(c.name) for c in columns))


def _group(group: RowGroup, columns: Sequence[Column], spanned: bool = True) -> Iterable[str]:
    """The rows of a group, its label beside them all or, as a page may end anywhere, beside the first."""
    label = escape(group.label)
    label = f"\\multirow{{{len(group.rows)}}}{{*}}{{{label}}}" if spanned else label
    for index, row in enumerate(group.rows):
        yield _row(row, "" if index else label, columns)


def _row(row: Row, label: str, columns: Sequence[Column]) -> str:
    """One row."""
    pairs = zip(row.entries, columns, strict=True)
    name = f"\\textit{{{escape(row.label)}}}" if row.published else escape(row.label)
    return _line(label, name + _marks(row.marks), *(_entry(e, c, row) for e, c in pairs))


def _entry(entry: Entry, column: Column, row: Row) -> str:
    """One entry; the best and its ties in bold, what is published in italics."""
    if entry.value is None:
        return "" if row.published else "--" + _marks(entry.marks)
    if isinstance(entry.value, bool):
        return r"$\surd$" if entry.value else r"$\times$"
    mean, spread = (
        escape(number(entry, column)[0]),
        escape(beside(entry, column)).replace(r"$\pm$ ", r"$\pm$\,"),
    )
    mean = f"\\textbf{{{mean}}}" if entry.best else f"\\textit{{{mean}}}" if row.published else mean
    return (f"{mean}\\,{{\\scriptsize {spread}}}" if spread else mean) + _marks(entry.marks)


def _marks(marks: Iterable[int]) -> str:
    """Footnote marks."""
    text = ",".join(map(str, marks))
    return f"\\textsuperscript{{{text}}}" if text else ""


def _notes(table: Table) -> Iterable[str]:
    """Footnotes and notes under the table."""
    if not table.footnotes and not table.notes:
        return
    yield r"\par\smallskip"
    yield r"\begin{minipage}{\linewidth}\footnotesize\raggedright"
    for index, text in enumerate(table.footnotes, start=1):
        yield f"\\textsuperscript{{{index}}}~{escape(text)}\\par"
    if table.notes:
        yield escape(" ".join(table.notes)) + r"\par"
    yield r"\end{minipage}"


def _line(*fields: str) -> str:
    """Fields as one line of a tabular."""
    return " & ".join(fields).lstrip() + r" \\"
