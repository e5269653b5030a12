// Method × corruption: the table of the chosen round, coloured by accuracy or by the gain from adaptation.

const HEAT_MODES = [
  ["accuracy", "Accuracy"],
  ["difference", "Points over no adaptation"],
];

/** A table with its accuracies only. */
function accuracies(whole) {
  const kept = whole.columns.flatMap((found, index) => (found.kind === "accuracy" ? [index] : []));
  const rows = whole.rows.map((row) => ({ ...row, entries: kept.map((index) => row.entries[index]) }));
  return { ...whole, columns: kept.map((index) => whole.columns[index]), rows };
}

function drawHeatmap() {
  const of = accuracies(table("per-corruption"));
  const lines = shownLines(of);
  const difference = state.heat === "difference";
  segments(byId("heat-modes"), HEAT_MODES, state.heat, (mode) => change(() => (state.heat = mode)));
  byId("heat-lede").textContent = difference
    ? `Points of accuracy above (or below) the same model without adaptation, round ${round()}.`
    : `Accuracy (%), round ${round()}; the deeper the colour, the higher.`;
  fill(byId("heat"), lines.length ? heatTable(of, lines) : null);
}

/** The value that colours a cell: the accuracy, or its difference from the row without adaptation. */
function heatValue(of, line, entry, index) {
  if (entry.value === undefined) return null;
  if (state.heat === "accuracy") return entry.value;
  const source = of.rows.find((other) => other.row === line.of.source && other.published === line.published);
  return source?.entries[index].value === undefined ? null : entry.value - source.entries[index].value;
}

/** How deep the colour of a value is, from -1 to 1, among all shown values. */
function depths(known) {
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const most = Math.max(1, ...known.map(Math.abs));
  return (value) => (state.heat === "difference" ? value / most : (value - low) / (high - low || 1));
}

function heatTable(of, lines) {
  const cells = new Map(
    lines.map((line) => [line.index, line.entries.map((entry, index) => heatValue(of, line, entry, index))]),
  );
  const depth = depths([...cells.values()].flat().filter((value) => value !== null));
  const names = make(
    "tr",
    {},
    make("th", { scope: "col", class: "name" }, "Method"),
    of.columns.map((found) =>
      make("th", { scope: "col", title: found.key }, found.key === "average" ? "Average" : found.name),
    ),
  );
  return make(
    "table",
    { class: "heat", "data-mode": state.heat },
    make("thead", {}, names),
    [...byGroup(lines)].map(([name, group]) =>
      make(
        "tbody",
        { "data-group": name },
        groupHeading(name, of.columns.length + 1),
        group.map((line) =>
          make(
            "tr",
            { "data-row": line.row, class: line.published ? "published" : null },
            make("th", { scope: "row", class: "name" }, line.label),
            line.entries.map((entry, index) =>
              heatCell(of, entry, cells.get(line.index)[index], of.columns[index], depth),
            ),
          ),
        ),
      ),
    ),
  );
}

function heatCell(of, entry, value, found, depth) {
  const properties = { "data-column": found.key };
  if (value === null) {
    const why = (entry.marks ?? []).map((mark) => of.footnotes[mark - 1]).join("; ");
    return make(
      "td",
      { ...properties, class: "none", title: why || null },
      entry.text && state.heat === "difference" ? "" : "–",
    );
  }
  const share = depth(value);
  const text = state.heat === "difference" ? signed(value) : entry.text;
  const title = entry.spread ? `${entry.text} ± ${entry.spread}` : entry.text;
  return make(
    "td",
    {
      ...properties,
      class: share < 0 ? "loss" : "gain",
      title,
      style: { "--depth": `${Math.round(Math.abs(share) * 100)}%` },
    },
    text,
  );
}
