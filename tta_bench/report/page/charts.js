// Charts: drawn with Vega-Lite as SVG in one style, when they come into view.

// One hue for each family of methods, by what a batch costs them: one pass, several forward passes, or backward
// passes. Shades, dashes and shapes tell methods of a family apart.
const FAMILIES = {
  "one pass": {
    name: "one forward pass",
    light: ["#0b5fa5", "#3c8fcf", "#1a7f86", "#6a9fd4", "#0a4270", "#4fa3a8"],
    dark: ["#5aaeea", "#93cbf4", "#45bdc4", "#3a8fd0", "#b9dcf7", "#7fd3d8"],
  },
  forwards: {
    name: "several forward passes",
    light: ["#c8400a", "#e08a1e", "#9a2e00", "#b86a00", "#e2602f", "#7a4300"],
    dark: ["#ff8a52", "#ffc04d", "#ff6d3a", "#e0a13a", "#ffab86", "#ffd98a"],
  },
  gradients: {
    name: "backward passes",
    light: ["#7d3fa0", "#b065cf", "#a3427f", "#55307a", "#c77fb4", "#8a6fb5"],
    dark: ["#c795e6", "#e2bdf5", "#e08cc0", "#a57fd6", "#f0b6da", "#b9a6e0"],
  },
};
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3]];
const GLYPHS = {
  circle: "●",
  square: "■",
  "triangle-up": "▲",
  diamond: "◆",
  "triangle-down": "▼",
  cross: "✚",
  "triangle-right": "▶",
  "triangle-left": "◀",
};
const SHAPES = Object.keys(GLYPHS);

const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";

/** A colour of the style sheet in the current theme. */
function styleOf(name) {
  const probe = make("span", { hidden: true, style: { color: `var(${name})` } });
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** Colour, dash and shape of a method, the same in all charts; no adaptation has the colour of text. */
function lookOf(label) {
  const plain = new Set(
    data.streams.flatMap((part) =>
      part.rows.filter((row, place) => row.source === place).map((row) => row.label),
    ),
  );
  if (plain.has(label)) return { colour: styleOf("--ink"), dash: [2, 2], shape: "circle" };
  const others = values("label").filter((other) => !plain.has(other));
  const family = familyOf(label);
  const place = others.filter((other) => familyOf(other) === family).indexOf(label);
  const colours = FAMILIES[family][isDark() ? "dark" : "light"];
  return {
    colour: colours[place % colours.length],
    dash: DASHES[(place + Math.floor(place / colours.length)) % DASHES.length],
    shape: SHAPES[(others.indexOf(label) + 1) % SHAPES.length],
  };
}

/** The family of a method; one that never ran counts as one with one pass. */
function familyOf(label) {
  const rows = data.streams.flatMap((part) => part.rows.filter((row) => row.label === label));
  const family = rows.map((row) => row.family).find((found) => found in FAMILIES);
  return family ?? "one pass";
}

/** The rows that the findings name: the best forward-only method of each network at the chosen round. */
const leaders = () => new Set((stream().findings[round()] ?? []).map((finding) => finding.row));

/** A scale from methods to their colours, dashes or shapes. */
function lookScale(labels, part) {
  return { domain: labels, range: labels.map((label) => lookOf(label)[part]) };
}

function chartConfig() {
  const [muted, line] = ["--muted", "--line"].map(styleOf);
  const font = getComputedStyle(document.body).fontFamily;
  return {
    background: "transparent",
    font,
    view: { stroke: null },
    axis: {
      labelColor: muted,
      titleColor: muted,
      titleFontWeight: "normal",
      gridColor: line,
      domainColor: line,
      tickColor: line,
      labelFontSize: 11,
      titleFontSize: 11,
    },
    axisY: { minExtent: 32 },
  };
}

const pending = new Map(); // container → its latest chart, not drawn yet
const inView = new Set();
const watcher = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) inView.add(target);
      else inView.delete(target);
      if (isIntersecting) drawPending(target);
    }
  },
  { rootMargin: "300px" },
);

/** Show a chart in a container, now or when it comes into view. */
function chart(container, spec) {
  pending.set(container, spec);
  watcher.observe(container);
  if (inView.has(container)) drawPending(container);
}

async function drawPending(container) {
  const spec = pending.get(container);
  if (spec === undefined) return;
  pending.delete(container);
  // `ast`: interpret expressions, as the page's policy forbids code generated at run time.
  const options = {
    mode: "vega-lite",
    renderer: "svg",
    actions: false,
    ast: true,
    config: chartConfig(),
    tooltip: { theme: isDark() ? "dark" : "light" },
  };
  const previous = container.view;
  const result = await vegaEmbed(container, spec, options);
  previous?.finalize();
  container.view = result;
}

/** A panel for each (name, spec); existing panels are reused, so that the page does not jump. */
function panels(container, charts) {
  while (container.children.length > charts.length) {
    const last = container.lastElementChild.querySelector(".chart");
    watcher.unobserve(last);
    pending.delete(last);
    last.view?.finalize();
    container.lastElementChild.remove();
  }
  while (container.children.length < charts.length) {
    container.append(make("figure", {}, make("figcaption"), make("div", { class: "chart" })));
  }
  charts.forEach(([name, spec], index) => {
    const [caption, place] = container.children[index].children;
    caption.textContent = name;
    chart(place, spec);
  });
}

addEventListener("beforeprint", () => [...pending.keys()].forEach(drawPending));
