// Accuracy, memory and forward passes: the best row within a budget, and the Pareto front.

const MEMORIES = {
  memory_mib: "Memory of a step",
  packed_mib: "Packed size",
  measured_mib: "Measured by CUDA",
};

/** Rows with all three numbers, ours and published. */
function points() {
  const of = table("cost");
  const [accuracy, memory, forwards] = ["accuracy", state.budget.column, "forwards"].map((key) =>
    column(of, key),
  );
  return shownLines(of)
    .map((line) => ({
      row: line.row,
      published: line.published,
      group: line.of.group,
      label: line.of.label,
      accuracy: line.entries[accuracy],
      memory: line.entries[memory],
      forwards: line.entries[forwards],
      backprop: line.of.backprop,
    }))
    .filter((point) =>
      [point.accuracy, point.memory, point.forwards].every((entry) => entry?.value !== undefined),
    );
}

function fits(point) {
  const { memory, forwards, forwardOnly } = state.budget;
  return (
    (memory === null || point.memory.value <= memory) &&
    (forwards === null || point.forwards.value <= forwards) &&
    !(forwardOnly && point.backprop)
  );
}

/** The most accurate row and the rows tied with it, up to the first that is not; over all models. */
function leading(fitting) {
  const ties = stream().ties[round()] ?? {};
  const [first, ...rest] = fitting;
  if (!first) return { best: [], known: true };
  const known = rest.length === 0 || Boolean(ties[first.row]);
  const end = rest.findIndex(
    (point) => point.accuracy.text !== first.accuracy.text && !ties[first.row]?.includes(point.row),
  );
  return { best: known ? [first, ...(end < 0 ? rest : rest.slice(0, end))] : [], known };
}

/** The Pareto front: points that no other point dominates. */
function front(found) {
  const measures = (point) => [point.accuracy.value, -point.memory.value, -point.forwards.value];
  const beats = (a, b) =>
    measures(a).every((value, i) => value >= measures(b)[i]) &&
    measures(a).some((value, i) => value > measures(b)[i]);
  return new Set(found.filter((point) => !found.some((other) => beats(other, point))));
}

function drawBudget() {
  const all = points();
  const own = all.filter((point) => !point.published);
  const fitting = own
    .filter(fits)
    .sort((a, b) => b.accuracy.value - a.accuracy.value || a.memory.value - b.memory.value);
  const { best, known } = leading(fitting);
  fill(byId("answer"), answer(best, own.length, known));
  drawCompared();
  fill(byId("fitting"), fitting.length ? fittingTable(fitting, best, front(own)) : null);
  drawLegend(
    byId("pareto-legend"),
    all.map((point) => point.label),
  );
  byId("pareto").hidden = !all.length;
  if (all.length) chart(byId("pareto"), paretoSpec(all, front(own), best));
}

/** Which rows were compared, if not all of them. */
function drawCompared() {
  const { nearest } = data.thresholds;
  byId("compared").hidden = stream().rows.length <= nearest + 1;
  byId("compared").textContent =
    `A row is compared with the ${nearest} rows above and below it in accuracy, of all rows and of its network. ` +
    "Rows further away are not called tied.";
}

const nameOf = (point) => `${point.group} · ${point.label}`;

function answer(best, all, known) {
  const { memory, forwards, forwardOnly } = state.budget;
  const limits = [
    memory === null ? null : `${memory} MiB`,
    forwards === null ? null : `${forwards} forward pass${forwards === 1 ? "" : "es"}`,
    forwardOnly ? "no backpropagation" : null,
  ].filter(Boolean);
  const within = limits.length ? `Within ${limits.join(", ")}: ` : "Without a limit: ";
  if (!all) return [within, "no row has accuracy and memory yet."];
  if (!known) return [within, "too little data to say which row is best; see the notes of the table."];
  if (!best.length) return [within, "no row fits."];
  const names = best.map((point) => make("strong", { "data-row": point.row }, nameOf(point)));
  const joined = names.flatMap((name, index) => [
    index ? (index === names.length - 1 ? " and " : ", ") : "",
    name,
  ]);
  return [
    within,
    ...joined,
    best.length > 1 ? " are tied, the first with " : " with ",
    make("strong", {}, `${best[0].accuracy.text} %`),
    ".",
  ];
}

function fittingTable(found, best, onFront) {
  const head = ["Row", "Accuracy (%)", `${MEMORIES[state.budget.column]} (MiB)`, "Forward passes", "Front"];
  return make(
    "table",
    { class: "board compact" },
    make("caption", {}, `${plural(found.length, "row")} within the budget, the most accurate first.`),
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        head.map((text, index) => make("th", { scope: "col", class: index ? null : "name" }, text)),
      ),
    ),
    make(
      "tbody",
      {},
      found.map((point) =>
        make(
          "tr",
          { "data-row": point.row, class: best.includes(point) ? "chosen" : null },
          make("th", { scope: "row", class: "name" }, nameOf(point)),
          make(
            "td",
            {},
            point.accuracy.text,
            point.accuracy.spread ? make("small", {}, ` ± ${point.accuracy.spread}`) : null,
          ),
          make("td", {}, point.memory.text),
          make("td", {}, point.forwards.text),
          make("td", {}, onFront.has(point) ? "✓" : ""),
        ),
      ),
    ),
  );
}
