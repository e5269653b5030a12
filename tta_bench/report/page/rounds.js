// Accuracy by round: a panel for each quantised model, with bands for intervals over seeds.

function drawRounds() {
  const of = table("long-term");
  const groups = [...byGroup(shownLines(of))]
    .map(([name, lines]) => [name, roundPoints(of, lines)])
    .filter(([, found]) => found.length);
  const bands = groups.some(([, found]) => found.some((point) => point.low < point.high));
  const ghosts = groups.some(([, found]) => found.some((point) => point.published));
  const lede = [
    "Mean accuracy (%) at each round; a falling line forgets.",
    "Broad and named: the best forward-only method.",
    bands ? "Bands: 95 % intervals over seeds." : "",
    ghosts ? "Hollow diamonds: published." : "",
  ];
  byId("rounds-lede").textContent = groups.length
    ? lede.join(" ")
    : "No round of these rows is complete yet.";
  drawLegend(
    byId("rounds-legend"),
    groups.flatMap(([, found]) => found.map(({ label }) => label)),
  );
  panels(
    byId("rounds-charts"),
    groups.map(([name, found]) => [name, roundSpec(name, found)]),
  );
}

function roundPoints(of, lines) {
  return lines.flatMap((line) =>
    of.columns.flatMap((found, index) => {
      const entry = line.entries[index];
      if (!found.key.startsWith("round_") || entry.value === undefined) return [];
      const half = entry.interval ?? 0;
      return [
        {
          row: line.row,
          label: line.of.label,
          published: line.published,
          round: Number(found.name),
          mean: entry.value,
          low: entry.value - half,
          high: entry.value + half,
          text: entry.text + (entry.spread ? ` ± ${entry.spread}` : ""),
        },
      ];
    }),
  );
}

function roundSpec(name, found) {
  const labels = [...new Set(found.map((point) => point.label))];
  const rounds = [...new Set(found.map((point) => point.round))];
  const field = { field: "label", type: "nominal", legend: null };
  const color = { ...field, scale: lookScale(labels, "colour") };
  const strokeDash = { ...field, scale: lookScale(labels, "dash") };
  const shape = { ...field, scale: lookScale(labels, "shape") };
  const tooltip = [
    { field: "label", title: "Method" },
    { field: "round", title: "Round" },
    { field: "text", title: "Accuracy (%)" },
  ];
  const x = {
    field: "round",
    type: "quantitative",
    title: "Round",
    scale: { nice: false, padding: 10 },
    axis: { values: rounds, format: "d", grid: false },
  };
  const y = { field: "mean", type: "quantitative", title: "Accuracy (%)", scale: { zero: false } };
  const low = { ...y, field: "low" };
  const own = found.filter((point) => !point.published);
  const leading = own.filter((point) => leaders().has(point.row));
  const last = leading.filter((point) => point.round === Math.max(...rounds));
  const layers = [
    [
      own.filter((point) => point.low < point.high),
      { type: "area", opacity: 0.16 },
      { y: low, y2: { field: "high" } },
    ],
    [leading, { type: "line", strokeWidth: 9, opacity: 0.22 }, { y }],
    [own, { type: "line", strokeWidth: 1.6 }, { y, strokeDash }],
    [own, { type: "point", filled: true, size: 34, opacity: 1 }, { y, shape, tooltip }],
    [
      found.filter((point) => point.published),
      { type: "point", filled: false, shape: "diamond", size: 70, opacity: 0.75 },
      { y, tooltip },
    ],
    [
      last,
      { type: "text", align: "right", dy: -11, fontSize: 12, fontWeight: 600, limit: 200 },
      { y, text: { field: "label" } },
    ],
  ];
  return {
    description: `Accuracy by round of ${name}: ${labels.join(", ")}. The table “By round” has the numbers.`,
    width: "container",
    height: 220,
    layer: layers
      .filter(([values]) => values.length)
      .map(([values, mark, encoding]) => ({
        data: { values },
        mark,
        encoding: { x, color, detail: { field: "row" }, ...encoding },
      })),
  };
}
