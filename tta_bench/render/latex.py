"""LaTeX: a complete table environment that needs booktabs, multirow and graphicx, nothing else."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from tta_bench.layouts.types import spans
from tta_bench.render.numbers import beside, number
from tta_bench.table import Column, Entry, Row, RowGroup, Table

PACKAGES = ("booktabs", "multirow", "graphicx")
LABELS = 2  # Model and Method come before the columns
WIDE = 9  # from so many columns on, a table spans both columns of a two-column page

NOT_IN_LABELS = r"[^A-Za-z0-9:._-]"
SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "→": r"$\to$",
    "−": r"$-$",
    "–": "--",
    "—": "---",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "…": r"\dots{}",
}
# Of Latin-1, what pdflatex sets with its default fonts as well.
ACCENTED = frozenset(map(chr, range(0xC0, 0x100))) - frozenset("ÐðÞþ×")


def to_latex(table: Table) -> str:
    """The table as LaTeX, shrunk to the line if it is wider, its notes beneath."""
    environment = "table*" if LABELS + len(table.columns) >= WIDE else "table"
    lines = [
        f"% Needs \\usepackage{{{','.join(PACKAGES)}}}",
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


def document(latex: str) -> str:
    """A document that compiles and holds nothing but the table."""
    packages = "\n".join(f"\\usepackage{{{name}}}" for name in PACKAGES)
    return f"\\documentclass{{article}}\n{packages}\n\\begin{{document}}\n{latex}\\end{{document}}\n"


def escape(text: str) -> str:
    """Any text as LaTeX sets it; what the default fonts lack is spelled plainly."""
    return "".join(map(_escape, " ".join(text.split())))


def _escape(char: str) -> str:
    """One character."""
    if char in SPECIAL:
        return SPECIAL[char]
    if char in ACCENTED or (char.isascii() and char.isprintable()):
        return char
    plain = unicodedata.normalize("NFKD", char).encode("ascii", "ignore").decode()
    return "".join(SPECIAL.get(c, c) for c in plain) or f"[U+{ord(char):04X}]"


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


def _group(group: RowGroup, columns: Sequence[Column]) -> Iterable[str]:
    """The rows of a group, its label beside them all."""
    for index, row in enumerate(group.rows):
        label = f"\\multirow{{{len(group.rows)}}}{{*}}{{{escape(group.label)}}}"
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
