// Method × engine: accuracy, agreement with the simulation, time and memory, with the engines of a method in a row.

function drawEngines() {
  const given = stream().tables.engines;
  for (const element of [byId("engines"), byId("engines-link")]) element.hidden = given === undefined;
  if (given === undefined) return fill(byId("engine-table"));
  const of = table("engines");
  const lines = shownLines(of).filter((line) => !line.published);
  const marks = renumbered(of, lines);
  fill(byId("engine-table"), lines.length ? engineTable(of, lines, marks) : null);
  fill(byId("engine-notes"), footnoteLines(of, marks), make("p", {}, of.notes.join(" ")));
}

function engineTable(of, lines, marks) {
  const heading = (name) => make("th", { scope: "col", class: "name" }, name);
  const names = of.columns.map((found) => make("th", { scope: "col" }, found.name));
  return make(
    "table",
    { class: "board engines" },
    make("caption", {}, of.caption),
    make("thead", {}, make("tr", {}, heading("Method"), heading("Quantizer and engine"), names)),
    [...byModel(lines)].map(([model, methods]) =>
      make(
        "tbody",
        { "data-group": model },
        groupHeading(model, of.columns.length + 2),
        [...methods.values()].flatMap((group) =>
          group.map((line, place) => engineRow(of, line, marks, place ? null : group.length)),
        ),
      ),
    ),
  );
}

/** Lines by model, and there by method; both in the order of the benchmark. */
function byModel(lines) {
  const models = new Map();
  for (const line of lines) {
    const methods = models.get(line.of.model) ?? new Map();
    methods.set(line.label, [...(methods.get(line.label) ?? []), line]);
    models.set(line.of.model, methods);
  }
  return models;
}

/** A line; the first of a method has its name, across all of them. */
function engineRow(of, line, marks, span) {
  const name = make("th", { scope: "rowgroup", class: "name", rowspan: span }, line.label);
  return make(
    "tr",
    { "data-row": line.row, class: span ? "first" : null },
    span ? name : null,
    make("td", { class: "engine" }, line.of.quantization, superscript(line.marks, marks)),
    line.entries.map((entry, index) => boardEntry(of, entry, of.columns[index], line, marks)),
  );
}
