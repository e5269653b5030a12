"""LaTeX: a complete table environment, which needs booktabs, multirow and graphicx, or longtable."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tta_bench.tables.render.latex_text import escape
from tta_bench.tables.render.numbers import Markup
from tta_bench.tables.table import Column, Row, RowGroup, Table, spans

PACKAGES = ("booktabs", "multirow", "graphicx")
PAGES = ("booktabs", "longtable")  # for a table that breaks over pages
PAGE = 40  # rows that fit on a page
LABELS = 2  # Model and Method, before the columns
WIDE = 9  # a table with this many columns spans both columns of a two-column page

NOT_IN_LABELS = r"[^A-Za-z0-9:._-]"
MARKUP = Markup(
    r"\textbf{{{}}}",
    r"\textit{{{}}}",
    r"\textsuperscript{{{}}}".format,
    spread=r"{}\,{{\scriptsize {}}}",
    dash="--",
    no_yes=(r"$\times$", r"$\surd$"),
    escape=lambda text: escape(text).replace(r"$\pm$ ", r"$\pm$\,"),
)


class LatexPieces(NamedTuple):
    """The lines of a table in pieces, so that the report page can join those of some rows only."""

    head: list[str]
    labels: list[str]  # for each row, the label of its group in braces
    rows: list[str]  # without labels
    end_tabular: list[str]
    begin_notes: list[str]
    footnotes: list[str]
    notes: list[str]
    end_notes: list[str]
    end_table: list[str]

    @property
    def foot(self) -> list[str]:
        """All footnotes and notes."""
        return [*self.begin_notes, *self.footnotes, *self.notes, *self.end_notes]


def to_latex(table: Table) -> str:
    """The table as LaTeX, shrunk to the line width if it is wider, with its notes below."""
    found = pieces(table)
    body = [line for group in table.groups for line in (r"\midrule", *_group(group, table.columns))]
    return "\n".join([*found.head, *body, *found.end_tabular, *found.foot, *found.end_table]) + "\n"


def pieces(table: Table) -> LatexPieces:
    """The LaTeX of a table in pieces."""
    environment = "table*" if LABELS + len(table.columns) >= WIDE else "table"
    noted = bool(table.footnotes or table.notes)
    return LatexPieces(
        head=_head(table, environment),
        labels=[f"{{{escape(group.label)}}}" for group, _ in table.rows],
        rows=[_row(row, table.columns) for _, row in table.rows],
        end_tabular=[r"\bottomrule", r"\end{tabular}%", "}"],
        begin_notes=[r"\par\smallskip", r"\begin{minipage}{\linewidth}\footnotesize\raggedright"] * noted,
        footnotes=[
            f"{MARKUP.mark([k])}~{escape(text)}\\par" for k, text in enumerate(table.footnotes, start=1)
        ],
        notes=[escape(" ".join(table.notes)) + r"\par"] if table.notes else [],
        end_notes=[r"\end{minipage}"] * noted,
        end_table=[f"\\end{{{environment}}}"],
    )


def to_longtable(table: Table) -> str:
    """The table as LaTeX that breaks over pages and repeats its header; in small print if it is wide."""
    width = LABELS + len(table.columns)
    header = [r"\toprule", *_header(table.columns), r"\midrule"]
    groups = [_group(group, table.columns, spanned=False) for group in table.groups]
    lines = [
        f"% Needs \\usepackage{{{','.join(PAGES)}}}",
        r"\begingroup\scriptsize\setlength{\tabcolsep}{2pt}" if width >= WIDE else r"\begingroup\small",
        f"\\begin{{longtable}}{{{'l' * LABELS}{'c' * len(table.columns)}}}",
        f"{_caption(table)}{_label(table)}\\\\",
        *header,
        r"\endfirsthead",
        f"\\multicolumn{{{width}}}{{l}}{{\\emph{{continued}}}} \\\\",
        *header,
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
        *(line for i, group in enumerate(groups) for line in ([r"\midrule"] * (i > 0) + group)),
        r"\end{longtable}",
        *pieces(table).foot,
        r"\endgroup",
    ]
    return "\n".join(lines) + "\n"


def document(latex: str) -> str:
    """A complete document that contains only the table."""
    packages = "\n".join(f"\\usepackage{{{name}}}" for name in dict.fromkeys((*PACKAGES, *PAGES)))
    return f"\\documentclass{{article}}\n{packages}\n\\begin{{document}}\n{latex}\\end{{document}}\n"


def _head(table: Table, environment: str) -> list[str]:
    """Everything above the first row."""
    count = len(table.rows)
    return [
        f"% Needs \\usepackage{{{','.join(PACKAGES)}}}",
        *([f"% {count} rows may not fit on a page: --format longtable"] if count > PAGE else []),
        f"\\begin{{{environment}}}[t]",
        r"\centering",
        _caption(table),
        _label(table),
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        f"\\begin{{tabular}}{{{'l' * LABELS}{'c' * len(table.columns)}}}",
        r"\toprule",
        *_header(table.columns),
    ]


def _caption(table: Table) -> str:
    return f"\\caption{{{escape(table.caption)}{MARKUP.mark(table.marks)}}}"


def _label(table: Table) -> str:
    return f"\\label{{{re.sub(NOT_IN_LABELS, '-', table.label)}}}"


def _header(columns: Sequence[Column]) -> Iterable[str]:
    """The names of the columns, below those of their groups if there are any."""
    found = spans(tuple(columns))
    if any(group for group, _ in found):
        yield _line("", "", *(f"\\multicolumn{{{n}}}{{c}}{{{escape(g)}}}" for g, n in found))
        first, rules = LABELS + 1, []
        for group, count in found:
            rules += [f"\\cmidrule(lr){{{first}-{first + count - 1}}}"] if group else []
            first += count
        yield " ".join(rules)
    yield _line("Model", "Method", *(escape(c.name) for c in columns))


def _group(group: RowGroup, columns: Sequence[Column], spanned: bool = True) -> list[str]:
    """The rows of a group; its label spans all rows or, as a page may end anywhere, is in the first only."""
    label = escape(group.label)
    label = f"\\multirow{{{len(group.rows)}}}{{*}}{{{label}}}" if spanned else label
    rows = [_row(row, columns) for row in group.rows]
    return [f"{label} {rows[0]}", *rows[1:]]


def _row(row: Row, columns: Sequence[Column]) -> str:
    """One row, without the label of its group."""
    name = (MARKUP.published if row.published else "{}").format(escape(row.label))
    return _line("", name + MARKUP.mark(row.marks), *MARKUP.entries(row, columns))


def _line(*fields: str) -> str:
    """The fields of one line of a tabular."""
    return " & ".join(fields).lstrip() + r" \\"
