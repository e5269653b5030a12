// Filters: the shown stream, round, models, quantizers and methods. The methods also serve as legend of the charts.

const FACET_NAMES = { model: "Model", quantization: "Quantizer", label: "Method" };

function drawFilters() {
  fill(
    byId("filter-fields"),
    chooser(
      "stream",
      "Stream",
      data.streams.map((part, index) => [index, part.name]),
      state.stream,
      (value) => (state.stream = Number(value)),
    ),
    chooser(
      "round",
      "Round",
      stream().rounds.map((number) => [number, String(number)]),
      round(),
      (value) => (state.round = Number(value)),
    ),
    FACETS.map(facetField),
    data.streams.some((part) => part.cited) ? publishedField() : null,
    make(
      "button",
      { type: "button", class: "quiet", id: "show-all", onclick: () => change(showAll) },
      "Show all",
    ),
  );
  byId("shown").textContent = `${shownRows().length} of ${plural(stream().rows.length, "row")}`;
}

/** A select element, or plain text if there is only one option. */
function chooser(name, title, options, chosen, choose) {
  if (options.length === 1)
    return make(
      "p",
      { class: "field" },
      make("span", { class: "field-name" }, title),
      make("span", {}, options[0][1]),
    );
  return make(
    "label",
    { class: "field" },
    make("span", { class: "field-name" }, title),
    make(
      "select",
      { id: `choose-${name}`, onchange: (event) => change(() => choose(event.target.value)) },
      options.map(([value, text]) =>
        make("option", { value, selected: String(value) === String(chosen) }, text),
      ),
    ),
  );
}

/** A checkbox for each value of a facet. */
function facetField(facet) {
  const here = new Set(stream().rows.map((row) => row[facet]));
  return make(
    "fieldset",
    { "data-facet": facet },
    make("legend", { class: "field-name" }, FACET_NAMES[facet]),
    values(facet)
      .filter((value) => here.has(value))
      .map((value) => chip(facet, value)),
  );
}

function chip(facet, value) {
  const toggle = () =>
    change(() =>
      state.hidden[facet].has(value) ? state.hidden[facet].delete(value) : state.hidden[facet].add(value),
    );
  const box = make("input", {
    type: "checkbox",
    checked: !state.hidden[facet].has(value),
    "data-value": value,
    onchange: toggle,
  });
  return make(
    "label",
    { class: "chip" },
    box,
    facet === "label" ? swatch(value) : null,
    make("span", {}, value),
  );
}

/** A sample of the line and mark of a method in the charts. */
function swatch(label) {
  const { colour, dash, shape } = lookOf(label);
  const style = { color: colour, "--dash": dash.length ? "dashed" : "solid" };
  return make("span", { class: "swatch", "aria-hidden": "true", style }, GLYPHS[shape]);
}

/** The legend of a chart, for readers who do not see the filters; a title states what a method costs. */
function drawLegend(container, labels) {
  const shown = values("label").filter((label) => labels.includes(label));
  fill(
    container,
    shown.map((label) => make("li", { title: FAMILIES[familyOf(label)].name }, swatch(label), label)),
  );
}

function publishedField() {
  const toggle = (event) => change(() => (state.published = event.target.checked));
  const box = make("input", {
    type: "checkbox",
    id: "show-published",
    checked: state.published,
    onchange: toggle,
  });
  return make("label", { class: "chip" }, box, make("span", {}, "Published numbers"));
}

function showAll() {
  for (const facet of FACETS) state.hidden[facet].clear();
  state.published = true;
}
