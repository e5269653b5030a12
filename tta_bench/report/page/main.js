// The page: its head and foot, its theme, and what is drawn anew when a choice changes.

const THEMES = ["auto", "light", "dark"];

function draw() {
  const focused = focusPath();
  drawFilters();
  drawLeaderboard();
  drawBudgetFields();
  drawBudget();
  drawRounds();
  drawHeatmap();
  drawOnline();
  refocus(focused);
}

/** Change the state, then show it. */
function change(apply) {
  apply();
  remember();
  draw();
}

/** Where the keyboard is, as far as it can be found again after elements are made anew. */
function focusPath() {
  const element = document.activeElement;
  const names = ["id", "data-value", "data-key"].filter((name) => element?.hasAttribute(name));
  const facet = element?.closest("[data-facet]")?.dataset.facet;
  const inside = facet ? `[data-facet="${facet}"] ` : "";
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
    `Made by tta-bench ${data.version} from recorded results. This page is one file and asks no network.`;
}

function drawGlossary() {
  const { points: lost, share } = data.thresholds;
  const published = data.streams.some((part) => part.cited)
    ? `In italics and as hollow diamonds: ${data.reference}.`
    : null;
  const entries = {
    Accuracy:
      "Top-1, each domain counting the same. Every image is predicted once, online, in the batch in which it arrives.",
    "Several seeds":
      "Mean ± 95 % interval; each table's note says over what. docs/statistics.md has the formulas and their coverage.",
    Memory:
      "Peak live tensors of one adaptation step, counted; for quantised models scaled ideally by the bits of each layer. Packed: codes, scales, zero points, what stays in FP32 and the method's own state.",
    Passes:
      "Images sent through the network, forward and back, per image of the stream; counted, not declared.",
    forgets: `The last round is more than ${plural(lost, "point")} below the first.`,
    collapses: `Somewhere the accuracy is below ${share * 100} % of that of the same model without adaptation (where no such row was run: of the method's own in round 1).`,
    unsupported: "The combination cannot run, for the reason in the footnote; that is a result, not a gap.",
    failed: "A cell stopped with an error; the command “tta-bench status” shows it in full.",
    pending: "Some records are not there yet; a mean is shown only if all of its records are.",
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

/** Themes take turns; the choice is kept where the browser allows it. */
function nextTheme() {
  const theme = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
  setTheme(theme);
  try {
    localStorage.setItem("tta-bench-theme", theme);
  } catch {
    // A browser that keeps nothing for files shows its own theme next time.
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
