// The data, the reader's choices, and how the address stores these choices.

const data = JSON.parse(byId("data").textContent);

const FACETS = ["model", "quantization", "label"];
const LAYOUTS = [
  ["cost", "Accuracy and cost"],
  ["long-term", "By round"],
  ["per-corruption", "By corruption"],
];

const state = {
  stream: 0,
  round: null, // null: the last
  layout: "cost",
  sort: { key: "accuracy", up: false }, // null: the order of the benchmark
  hidden: { model: new Set(), quantization: new Set(), label: new Set() },
  published: true,
  heat: "accuracy",
  budget: { column: "memory_mib", memory: null, forwards: null, forwardOnly: false },
};

const stream = () => data.streams[state.stream];

/** The shown round, as a key of the tables. */
function round() {
  const rounds = stream().rounds;
  return String(rounds.includes(Number(state.round)) ? state.round : rounds.at(-1));
}

/** The table of a layout, at the chosen round if there is one table per round. */
function table(layout) {
  const found = stream().tables[layout];
  return found.all ?? found[round()];
}

const isShown = (row) => FACETS.every((facet) => !state.hidden[facet].has(row[facet]));

/** Rows of the stream that pass the filters, each with its number. */
const shownRows = () =>
  stream()
    .rows.map((row, place) => ({ ...row, place }))
    .filter(isShown);

/** Lines of a table that belong to shown rows, each with its number in the table. */
const shownLines = (of) => linesOf(of, stream().rows);

function linesOf(of, rows) {
  return of.rows
    .map((line, index) => ({ ...line, index, of: rows[line.row] }))
    .filter((line) => isShown(line.of) && (state.published || !line.published));
}

/** Lines by quantised model, in the order of the benchmark. */
function byGroup(lines) {
  const groups = new Map();
  for (const line of lines) {
    if (!groups.has(line.of.group)) groups.set(line.of.group, []);
    groups.get(line.of.group).push(line);
  }
  return groups;
}

const column = (of, key) => of.columns.findIndex((found) => found.key === key);

/** Distinct values of a facet over all streams, in the order of the benchmarks. */
const values = (facet) => [...new Set(data.streams.flatMap((part) => part.rows.map((row) => row[facet])))];

// The address ------------------------------------------------------------------------------------

/** Write all choices that differ from the defaults into the address, so that a link shows the same page. */
function remember() {
  const kept = new URLSearchParams();
  const { budget, sort } = state;
  if (state.stream) kept.set("stream", state.stream);
  if (state.round !== null) kept.set("round", state.round);
  if (state.layout !== "cost") kept.set("layout", state.layout);
  if (sort === null || sort.key !== "accuracy" || sort.up)
    kept.set("sort", sort === null ? "" : `${sort.key}${sort.up ? " up" : ""}`);
  for (const facet of FACETS) for (const name of state.hidden[facet]) kept.append(`no-${facet}`, name);
  if (!state.published) kept.set("published", "no");
  if (state.heat !== "accuracy") kept.set("heat", state.heat);
  if (budget.column !== "memory_mib") kept.set("column", budget.column);
  if (budget.memory !== null) kept.set("memory", budget.memory);
  if (budget.forwards !== null) kept.set("forwards", budget.forwards);
  if (budget.forwardOnly) kept.set("forward-only", "yes");
  history.replaceState(null, "", `#${kept}`);
}

/** Read the choices from the address. */
function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  const number = (name) =>
    kept.has(name) && kept.get(name) !== "" && Number.isFinite(Number(kept.get(name)))
      ? Number(kept.get(name))
      : null;
  if (data.streams[number("stream")]) state.stream = number("stream");
  state.round = number("round");
  if (LAYOUTS.some(([layout]) => layout === kept.get("layout"))) state.layout = kept.get("layout");
  if (kept.has("sort")) {
    const [key, up] = kept.get("sort").split(" ");
    state.sort = key ? { key, up: up === "up" } : null;
  }
  for (const facet of FACETS) state.hidden[facet] = new Set(kept.getAll(`no-${facet}`));
  state.published = kept.get("published") !== "no";
  if (kept.get("heat") === "difference") state.heat = "difference";
  if (["packed_mib", "measured_mib"].includes(kept.get("column"))) state.budget.column = kept.get("column");
  state.budget.memory = number("memory");
  state.budget.forwards = number("forwards");
  state.budget.forwardOnly = kept.get("forward-only") === "yes";
}
