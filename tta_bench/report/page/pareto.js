// Accuracy against memory: larger marks need more passes, rings mark the front, faint marks exceed the budget.

function paretoSpec(all, onFront, best) {
  const marks = all.map((point) => ({
    row: point.row,
    name: nameOf(point) + (point.published ? ", published" : ""),
    label: point.label,
    published: point.published,
    x: point.memory.value,
    y: point.accuracy.value,
    size: point.forwards.value,
    accuracy: point.accuracy.text,
    memory: `${point.memory.text} MiB`,
    forwards: point.forwards.text,
    front: onFront.has(point),
    inside: fits(point),
  }));
  const limit = state.budget.memory;
  const layers = [
    ruleLayer(limit === null || limit <= 0 ? [] : [{ limit }]),
    pointLayer(
      marks.filter((mark) => mark.front),
      { filled: false, strokeWidth: 1.5, color: styleOf("--ink"), shape: "circle" },
      { size: sizeOf([230, 950]) },
    ),
    pointLayer(
      marks.filter((mark) => !mark.published),
      { filled: true },
      lookOfMarks(marks),
    ),
    pointLayer(
      marks.filter((mark) => mark.published),
      { filled: false, strokeWidth: 1.5, strokeDash: [2, 2] },
      { ...lookOfMarks(marks), shape: { value: "diamond" } },
    ),
    nameLayer(marks, best),
    leaderLayer(marks, best),
  ];
  return {
    description: `Accuracy against memory of ${plural(all.length, "row")}; the table below has the numbers.`,
    width: "container",
    height: 340,
    layer: layers.filter((layer) => layer.data.values.length),
    resolve: { scale: { size: "independent" } },
  };
}

/** The position of a point; all layers share one scale. */
function placeOfMarks() {
  const title = `${MEMORIES[state.budget.column]} (MiB)`;
  const axis = { tickCount: 5, format: "~g", grid: false };
  return {
    x: { field: "x", type: "quantitative", scale: { type: "log", nice: false, padding: 18 }, title, axis },
    y: { field: "y", type: "quantitative", scale: { zero: false, padding: 26 }, title: "Accuracy (%)" },
  };
}

/** The area of a mark grows with its forward passes, with the same scale in every chart. */
const sizeOf = (range) => ({
  field: "size",
  type: "quantitative",
  scale: { type: "sqrt", domain: [1, 30], range, clamp: true },
  legend: null,
});

function lookOfMarks(marks) {
  const labels = [...new Set(marks.map((mark) => mark.label))];
  const field = { field: "label", type: "nominal", legend: null };
  return {
    color: { ...field, scale: lookScale(labels, "colour") },
    shape: { ...field, scale: lookScale(labels, "shape") },
  };
}

function pointLayer(values, mark, encoding) {
  const titles = { name: "Row", accuracy: "Accuracy (%)", memory: "Memory", forwards: "Forward passes" };
  const tooltip = Object.entries(titles).map(([field, title]) => ({ field, title }));
  const opacity = { condition: { test: "datum.inside", value: 0.95 }, value: mark.filled ? 0.18 : 0.4 };
  return {
    data: { values },
    mark: { type: "point", ...mark },
    encoding: { ...placeOfMarks(), size: sizeOf([90, 620]), opacity, tooltip, ...encoding },
  };
}

function ruleLayer(values) {
  const mark = { type: "rule", strokeDash: [4, 3], color: styleOf("--accent") };
  return { data: { values }, mark, encoding: { x: { field: "limit", type: "quantitative" } } };
}

/** The names of the best forward-only methods of the other networks, below their marks. */
function leaderLayer(marks, best) {
  const named = leaders();
  const values = marks.filter(
    (mark) => named.has(mark.row) && !mark.published && mark.row !== best[0]?.row,
  );
  const mark = { type: "text", dy: 20, fontSize: 11, color: styleOf("--ink"), limit: 340 };
  const opacity = { condition: { test: "datum.inside", value: 1 }, value: 0.45 };
  return { data: { values }, mark, encoding: { ...placeOfMarks(), opacity, text: { field: "name" } } };
}

/** The name of the best row above its mark, on the side with more room. */
function nameLayer(marks, best) {
  const [low, high] = [Math.min, Math.max].map((end) => Math.log(end(...marks.map((mark) => mark.x))));
  const named = best
    .slice(0, 1)
    .map((point) => marks.find((mark) => mark.row === point.row && !mark.published));
  const right = named.some((mark) => Math.log(mark.x) > (low + high) / 2);
  const mark = { type: "text", align: right ? "right" : "left", dy: -18, fontSize: 12, fontWeight: 600 };
  return {
    data: { values: named },
    mark: { ...mark, color: styleOf("--accent"), limit: 260 },
    encoding: { ...placeOfMarks(), text: { field: "name" } },
  };
}
