// Charts: drawn with Vega-Lite as SVG in one style, when they come into view.

const PALETTE = {
  light: ["#0072b2", "#d55e00", "#00845f", "#b5558c", "#a97a00", "#2f8fc4", "#6f6f6f", "#8c564b"],
  dark: ["#5aaeea", "#f2894a", "#35c79d", "#e29bc6", "#e3b341", "#8fd0f5", "#a8a8a8", "#c9907f"],
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
  const index = values("label")
    .filter((other) => !plain.has(other))
    .indexOf(label);
  const colours = PALETTE[isDark() ? "dark" : "light"];
  return {
    colour: colours[index % colours.length],
    dash: DASHES[Math.floor(index / colours.length) % DASHES.length],
    shape: SHAPES[(index + 1) % SHAPES.length],
  };
}

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
