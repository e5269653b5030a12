"""Plain text for a terminal of a given width: a table that is too wide gets smaller in steps.

Headers break at spaces; then rounds in the middle are left out; then the ± beside means; at last, columns
continue in another block below. A line under the table says what was left out. No number changes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tta_bench.tables.render import text
from tta_bench.tables.table import Row, Table

FEWEST_ROUNDS = 3  # that stay: the first, one in the middle, and the last
ROUND = "round_"  # how keys of the columns of rounds begin


def to_text_within(table: Table, width: int) -> str:
    """The table as `to_text` prints it, in lines of at most `width` characters where that is possible."""
    for made, left_out in _smaller(table):
        body = text.body(made, narrow=made is not table or _width(text.body(made)) > width)
        if _width(body) <= width:
            return _joined(table, [body], left_out, width)
    made, left_out = _without_spreads(table), _note(table, [], spreads=True)
    return _joined(table, _blocks(made, width), left_out, width)


def _smaller(table: Table) -> Iterator[tuple[Table, str]]:
    """The table and smaller ones, the largest first, each with a note on what it leaves out."""
    yield table, ""
    rounds = [column.key for column in table.columns if column.key.startswith(ROUND)]
    for start in (table, _without_spreads(table)):
        spreads = start is not table
        if spreads:
            yield start, _note(table, [], spreads)
        for count in range(len(rounds) - 1, FEWEST_ROUNDS - 1, -1):
            gone = [key for key in rounds if key not in _spread_out(rounds, count)]
            yield _without(start, gone), _note(table, gone, spreads)


def _spread_out(keys: Sequence[str], count: int) -> list[str]:
    """So many of the keys at even distances, with the first and the last."""
    last = len(keys) - 1
    return [keys[round(place * last / (count - 1))] for place in range(count)]


def _without(table: Table, gone: Sequence[str]) -> Table:
    return _of_columns(table, [i for i, column in enumerate(table.columns) if column.key not in gone])


def _of_columns(table: Table, places: Sequence[int]) -> Table:
    """The table with only the columns at these places."""

    def chosen(row: Row) -> Row:
        return replace(row, entries=tuple(row.entries[place] for place in places))

    groups = tuple(replace(group, rows=tuple(map(chosen, group.rows))) for group in table.groups)
    return replace(table, columns=tuple(table.columns[place] for place in places), groups=groups)


def _without_spreads(table: Table) -> Table:
    """The table without the ± beside means; a difference keeps its interval, which is its point."""

    def plain(row: Row) -> Row:
        return replace(row, entries=tuple(replace(entry, interval=None) for entry in row.entries))

    return replace(
        table, groups=tuple(replace(group, rows=tuple(map(plain, group.rows))) for group in table.groups)
    )


def _note(table: Table, gone: Sequence[str], spreads: bool) -> str:
    """What is left out, in words; empty if nothing is."""
    names = [column.name for column in table.columns if column.key in gone]
    had = any(entry.interval is not None for _, row in table.rows for entry in row.entries)
    parts = [f"rounds {', '.join(names)}"] if names else []
    parts += ["the ± of means"] if spreads and had else []
    if not parts:
        return ""
    left_out = " and ".join(parts)
    return f"Left out, as the lines would be too long: {left_out}. `table --format markdown` has all."


def _blocks(table: Table, width: int) -> list[str]:
    """The columns in as few blocks as possible, each with the names of the rows and at least one column."""
    made: list[str] = []
    places: list[int] = []
    for place in range(len(table.columns)):
        longer = text.body(_of_columns(table, [*places, place]), narrow=True)
        if places and _width(longer) > width:
            places = [place]
            made.append(text.body(_of_columns(table, places), narrow=True))
        else:
            places.append(place)
            made[-1:] = [longer]
    return made


def _joined(table: Table, bodies: Sequence[str], left_out: str, width: int) -> str:
    """Caption, blocks and notes, with long lines of text wrapped."""
    parts = [_wrapped(text.caption(table), width)]
    parts += [part for body in bodies for part in ("", body)]
    notes = [*text.foot(table), *([left_out] if left_out else [])]
    return "\n".join([*parts, "", *(_wrapped(note, width) for note in notes)]).rstrip() + "\n"


def _wrapped(line: str, width: int) -> str:
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)


def _width(body: str) -> int:
    return max(map(len, body.splitlines()), default=0)
