// The leaderboard: a table as of `tta-bench table`, with filters, sorting within each quantised model, and flags.

function drawLeaderboard() {
  const of = table(state.layout);
  const lines = rankedLines();
  segments(byId("layouts"), LAYOUTS, state.layout, (layout) => change(() => (state.layout = layout)));
  fill(
    byId("board"),
    lines.length
      ? boardTable(of, lines)
      : make("p", { class: "empty" }, "No row is left. Show more in the filters."),
  );
  fill(byId("board-notes"), boardNotes(of, lines));
}

/** The shown lines, sorted in each group by the chosen column; a published line follows its own. */
function rankedLines() {
  const of = table(state.layout);
  const index = state.sort === null ? -1 : sortColumn(of);
  return [...byGroup(shownLines(of)).values()].flatMap((group) => (index < 0 ? group : ranked(group, index)));
}

/** The column to sort by; the accuracy of the round has another key in each table. */
function sortColumn(of) {
  const found = column(of, state.sort.key);
  return found < 0 && state.sort.key === "accuracy"
    ? column(of, of.layout === "long-term" ? `round_${round()}` : "average")
    : found;
}

function ranked(group, index) {
  const own = new Map(
    group.filter((line) => !line.published).map((line) => [line.row, line.entries[index].value]),
  );
  const worth = (line) =>
    own.get(line.row) === undefined ? -Infinity : Number(own.get(line.row)) * (state.sort.up ? -1 : 1);
  const difference = (a, b) => (worth(a) === worth(b) ? a.index - b.index : worth(b) - worth(a));
  return [...group].sort(difference);
}

function boardTable(of, lines) {
  const marks = renumbered(of, lines);
  return make(
    "table",
    { class: "board", "data-layout": of.layout },
    make("caption", {}, of.caption, superscript(of.marks, marks)),
    boardHead(of),
    [...byGroup(lines)].map(([name, group]) =>
      make(
        "tbody",
        { "data-group": name },
        groupHeading(name, of.columns.length + 2),
        group.map((line) => boardRow(of, line, marks)),
      ),
    ),
  );
}

function boardHead(of) {
  const flags = make("th", { scope: "col", class: "flags" }, "Flags");
  const names = make(
    "tr",
    {},
    make("th", { scope: "col", class: "name" }, "Method"),
    of.columns.map((found, index) => sortableHead(of, found, index)),
    flags,
  );
  if (!of.columns.some((found) => found.group)) return make("thead", {}, names);
  const spans = [];
  for (const { group } of of.columns) {
    if (spans.at(-1)?.group === group) spans.at(-1).width += 1;
    else spans.push({ group, width: 1 });
  }
  const groups = spans.map(({ group, width }) => make("th", { scope: "colgroup", colspan: width }, group));
  return make(
    "thead",
    {},
    make("tr", { class: "spans" }, make("td", { class: "name" }), groups, make("td")),
    names,
  );
}

/** A heading that sorts: descending, then ascending, then in the order of the benchmark. */
function sortableHead(of, found, index) {
  const active = state.sort !== null && sortColumn(of) === index;
  const order = active ? (state.sort.up ? "ascending" : "descending") : "none";
  const next = !active ? { key: found.key, up: false } : state.sort.up ? null : { key: found.key, up: true };
  const arrow = active ? (state.sort.up ? " ↑" : " ↓") : "";
  return make(
    "th",
    { scope: "col", "aria-sort": order },
    make(
      "button",
      {
        type: "button",
        class: "sort",
        "data-key": found.key,
        onclick: () => change(() => (state.sort = next)),
      },
      found.name + arrow,
    ),
  );
}

function boardRow(of, line, marks) {
  const name = line.published
    ? make("em", {}, line.label)
    : make(
        "button",
        {
          type: "button",
          class: "row-name",
          title: "Where these numbers come from",
          onclick: () => showProvenance(line.row),
        },
        line.label,
      );
  return make(
    "tr",
    { class: line.published ? "published" : null, "data-row": line.row },
    make("th", { scope: "row", class: "name" }, name, superscript(line.marks, marks)),
    line.entries.map((entry, index) => boardEntry(of, entry, of.columns[index], line, marks)),
    make("td", { class: "flags" }, line.published ? null : line.of.flags.map(flagTag)),
  );
}

function boardEntry(of, entry, found, line, marks) {
  const properties = { "data-column": found.key, class: found.kind };
  if (entry.value === undefined) {
    const why = (entry.marks ?? []).map((mark) => of.footnotes[mark - 1]).join("; ");
    return make(
      "td",
      { ...properties, title: why || null },
      line.published ? "" : make("span", { class: "muted" }, "–"),
      superscript(entry.marks, marks),
    );
  }
  const number = make(
    entry.best ? "strong" : line.published ? "em" : "span",
    { class: "number" },
    entry.text,
  );
  return make(
    "td",
    { ...properties, "data-rank": entry.rank, title: entry.rank ? `rank ${entry.rank}` : null },
    number,
    entry.spread ? make("small", {}, ` ± ${entry.spread}`) : null,
    superscript(entry.marks, marks),
  );
}

function superscript(marks, renumbering) {
  return marks?.length ? make("sup", {}, marks.map((mark) => renumbering.get(mark)).join(",")) : null;
}

function flagTag(flag) {
  return make("span", { class: `tag ${flag.kind.replaceAll(" ", "-")}`, title: flag.text }, flag.kind);
}

const footnoteLines = (of, marks) =>
  [...marks].map(([old, mark]) => make("p", {}, make("sup", {}, String(mark)), ` ${of.footnotes[old - 1]}`));

function boardNotes(of, lines) {
  const marks = renumbered(of, lines);
  const flagged = shownRows().filter((row) =>
    row.flags.some((flag) => ["forgets", "collapses", "not finite"].includes(flag.kind)),
  );
  const warnings = flagged.map((row) =>
    make(
      "li",
      {},
      `${row.group}, ${row.label}: ${row.flags.map((flag) => `${flag.kind} (${flag.text})`).join("; ")}`,
    ),
  );
  return [
    footnoteLines(of, marks),
    make(
      "p",
      {},
      [...of.notes, "Bold does not depend on the filters."].join(" "),
    ),
    warnings.length
      ? make(
          "details",
          { id: "warnings" },
          make("summary", {}, plural(warnings.length, "flagged row")),
          make("ul", {}, warnings),
        )
      : null,
  ];
}

function fileName() {
  const words = `${data.title}-${state.layout}${state.layout === "long-term" ? "" : `-round-${round()}`}`;
  return `${words.replace(/[^\p{L}\p{N}._-]+/gu, "-")}.csv`;
}

function wireExports() {
  byId("copy-latex").addEventListener("click", async () => {
    const lines = rankedLines();
    await copy(latexOf(table(state.layout), lines));
    byId("exported").textContent = `Copied the LaTeX of ${plural(lines.length, "row")}.`;
  });
  byId("download-csv").addEventListener("click", () => {
    const lines = rankedLines();
    download(fileName(), csvOf(table(state.layout), lines));
    byId("exported").textContent = `Saved ${plural(lines.length, "row")} as ${fileName()}.`;
  });
}
