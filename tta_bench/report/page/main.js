// The page: header, footer and theme, and redrawing when a choice changes.

const THEMES = ["auto", "light", "dark"];

function draw() {
  const focused = focusPath();
  drawFindings();
  drawFilters();
  drawLeaderboard();
  drawBudgetFields();
  drawBudget();
  drawRounds();
  drawHeatmap();
  drawScenarios();
  drawEngines();
  drawOnline();
  refocus(focused);
}

/** Change the state and redraw the page. */
function change(apply) {
  apply();
  remember();
  draw();
}

/** A selector of the focused element, to focus it again after redrawing; null if it has none. */
function focusPath() {
  const element = document.activeElement;
  const names = ["id", "data-value", "data-key"].filter((name) => element?.hasAttribute(name));
  const facet = element?.closest("[data-facet]")?.dataset.facet;
  const buttons = element?.closest(".segments[id]")?.id;
  const inside = facet ? `[data-facet="${facet}"] ` : buttons ? `#${buttons} ` : "";
  return names.length
    ? inside + names.map((name) => `[${name}="${CSS.escape(element.getAttribute(name))}"]`).join("")
    : null;
}

function refocus(path) {
  if (path && document.activeElement === document.body)
    document.querySelector(path)?.focus({ preventScroll: true });
}

function drawHead() {
  const cells = data.streams.flatMap((part) => part.rows.flatMap((row) => row.cells));
  const seeds = new Set(cells.map((cell) => cell.seed));
  const done = cells.filter((cell) => cell.status === "done").length;
  const counts = [
    plural(values("model").length, "model"),
    plural(values("quantization").length, "quantizer"),
    plural(values("label").length, "method"),
    plural(seeds.size, "seed"),
  ];
  const rest = ["unsupported", "failed", "missing"]
    .map((status) => [cells.filter((cell) => cell.status === status).length, status])
    .filter(([count]) => count);
  byId("summary").textContent =
    `${counts.join(", ")}; ${plural(cells.length, "cell")}: ${done} done${rest.map(([count, status]) => `, ${count} ${status === "missing" ? "not complete" : status}`).join("")}.`;
  byId("colophon").textContent =
    `Made by tta-bench ${data.version} from recorded results. This page is one file and needs no network.`;
}

/** The answer first: the best forward-only method, on a quantised network if there is one, then on the others. */
function drawFindings() {
  const found = stream().findings[round()] ?? [];
  const first = found.find((finding) => finding.quantised) ?? found[0];
  byId("finding").hidden = !first;
  byId("finding").textContent = first?.sentence ?? "";
  fill(
    byId("findings"),
    found.filter((finding) => finding !== first).map((finding) => make("li", {}, finding.sentence)),
  );
}

function drawGlossary() {
  const { points: lost, share } = data.thresholds;
  const published = data.streams.some((part) => part.cited)
    ? `In italics and as hollow diamonds: ${data.reference}.`
    : null;
  const entries = {
    Accuracy:
      "Top-1, averaged over domains with equal weights. Every image is predicted once, online, in the batch in which it arrives.",
    "Several seeds":
      "Mean ± half the 95 % interval; the notes of each table say what it covers. docs/statistics.md has the formulas.",
    Memory:
      "Peak live tensors of one adaptation step, counted; for quantised models scaled by the bits of each layer (ideal). Packed: codes, scales, zero points, FP32 parameters and the state of the method.",
    Passes:
      "Forward and backward passes of images through the network, per image of the stream; counted during the run.",
    Colours:
      `One hue for each family of methods, by what a batch costs: ${Object.values(FAMILIES).map((family) => family.name).join(", ")}.`,
    forgets: `The last round is more than ${plural(lost, "point")} below the first.`,
    collapses: `In some domain the accuracy is below ${share * 100} % of that of the same model without adaptation (or of the method's own in round 1, if there is no such row).`,
    unsupported: "The combination cannot run, for the reason in the footnote.",
    failed: "A cell stopped with an error; the command “tta-bench status” shows it in full.",
    pending: "Some records are missing; a mean is shown only if all of its records exist.",
    Published: published,
    Provenance:
      "A method's name in the leaderboard is a button: weights hash, fingerprints of the stream, versions, variant, host.",
  };
  const pairs = Object.entries(entries).filter(([, text]) => text !== null);
  fill(
    byId("glossary"),
    pairs.flatMap(([name, text]) => [
      make("dt", {}, /^[a-z]/.test(name) ? make("span", { class: `tag ${name}` }, name) : name),
      make("dd", {}, text),
    ]),
  );
}

// Light and dark ---------------------------------------------------------------------------------

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const auto = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.style.colorScheme = theme === "auto" ? auto : theme;
  byId("theme").textContent = `Theme: ${theme}`;
}

/** Switch to the next theme and store the choice, if the browser allows it. */
function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  setTheme(theme);
  try {
    localStorage.setItem("tta-bench-theme", theme);
  } catch {
    // Without storage for local files, the next visit starts with the theme of the system.
  }
  draw();
}

function keptTheme() {
  try {
    const kept = localStorage.getItem("tta-bench-theme");
    return THEMES.includes(kept) ? kept : "auto";
  } catch {
    return "auto";
  }
}

// Start ------------------------------------------------------------------------------------------

setTheme(keptTheme());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  setTheme(document.documentElement.dataset.theme);
  draw();
});
byId("theme").addEventListener("click", nextTheme);
byId("filters").open = matchMedia("(min-width: 60rem)").matches;
byId("provenance").addEventListener(
  "click",
  (event) => event.target === event.currentTarget && event.currentTarget.close(),
);
addEventListener("hashchange", () => {
  if (!location.hash.includes("=")) return;
  recall();
  draw();
});
wireExports();
if (location.hash.includes("=")) recall();
drawHead();
drawGlossary();
draw();
