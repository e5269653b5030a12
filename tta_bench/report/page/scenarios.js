// Method × scenario: the table of each benchmark with several streams, coloured like that by corruption.

function drawScenarios() {
  const shown = data.scenarios.map((part) => [part, linesOf(part.table, part.rows)]);
  for (const element of [byId("scenarios"), byId("scenarios-link")])
    element.hidden = data.scenarios.length === 0;
  segments(byId("scenario-modes"), HEAT_MODES, state.heat, (mode) => change(() => (state.heat = mode)));
  fill(
    byId("scenario-tables"),
    shown.filter(([, lines]) => lines.length).map(([part, lines]) => scenarioTable(part, lines)),
  );
}

/** A table and its notes, under the name of the benchmark if there are several. */
function scenarioTable({ benchmark, table: whole }, lines) {
  return [
    data.scenarios.length > 1 ? make("h3", {}, benchmark) : null,
    make("p", {}, whole.caption),
    make(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": `Scenarios of ${benchmark}` },
      heatTable(accuracies(whole), lines),
    ),
    make("p", { class: "notes" }, whole.notes.join(" ")),
  ];
}
