// Accuracy so far in each domain of a round: how quickly methods adapt.

function drawOnline() {
  const { domains, grids, curves } = stream().online[round()] ?? { domains: [], grids: [], curves: [] };
  const shown = new Map(shownRows().map((row) => [row.place, row]));
  const found = curves
    .filter((curve) => shown.has(curve.row))
    .map((curve) => ({ curve, of: shown.get(curve.row) }));
  const groups = [...byGroup(found)];
  byId("online-lede").textContent = groups.length
    ? `Accuracy (%) over the images of a domain so far, round ${round()}, mean over seeds. ` +
      "A line ends at the accuracy of its domain."
    : "Nothing is recorded about this round yet.";
  drawLegend(
    byId("online-legend"),
    found.map(({ of }) => of.label),
  );
  const pointsOf = ({ curve, of }) => onlinePoints(of, grids[curve.grid], curve.accuracy);
  panels(
    byId("online-charts"),
    groups.map(([name, lines]) => [name, onlineSpec(name, domains, lines.flatMap(pointsOf))]),
  );
}

function onlinePoints({ label, place }, grid, accuracy) {
  return grid.map((at, index) => ({
    label,
    row: place,
    at,
    domain: Math.ceil(at) - 1,
    accuracy: accuracy[index],
  }));
}

function onlineSpec(name, domains, found) {
  const labels = [...new Set(found.map((point) => point.label))];
  const sparse = found.length < 4 * new Set(found.map(({ row }) => row)).size * domains.length; // single points make no line
  const named = found.map((point) => ({ ...point, corruption: domains[point.domain] }));
  return {
    description: `Accuracy inside the stream of ${name}: ${labels.join(", ")}.`,
    width: "container",
    height: 200,
    params: [{ name: "domains", value: domains }],
    data: { values: named },
    mark: { type: "line", strokeWidth: 1.4, point: sparse ? { size: 14 } : false },
    encoding: {
      x: {
        field: "at",
        type: "quantitative",
        title: null,
        scale: { domain: [0, domains.length], nice: false },
        axis: {
          values: domains.map((_, index) => index + 0.5),
          labelExpr: "domains[floor(datum.value)]",
          labelAngle: -45,
          labelAlign: "right",
          grid: false,
          ticks: false,
          labelOverlap: false,
        },
      },
      y: { field: "accuracy", type: "quantitative", title: "Accuracy so far (%)", scale: { zero: false } },
      color: { field: "label", type: "nominal", scale: lookScale(labels, "colour"), legend: null },
      strokeDash: { field: "label", type: "nominal", scale: lookScale(labels, "dash"), legend: null },
      detail: [{ field: "domain" }, { field: "row" }],
      tooltip: [
        { field: "label", title: "Method" },
        { field: "corruption", title: "Domain" },
        { field: "accuracy", title: "Accuracy so far (%)" },
      ],
    },
  };
}
