// The controls of the budget: a number and a slider for each limit.

const TICKS = 1000; // of the logarithmic memory slider

// Drawn separately, as redrawing a slider while it is moved would interrupt the move.
function drawBudgetFields() {
  const of = table("cost");
  const memories = Object.keys(MEMORIES).filter((key) => column(of, key) >= 0);
  if (!memories.includes(state.budget.column)) state.budget.column = "memory_mib";
  const found = points();
  fill(
    byId("budget-fields"),
    chooser(
      "memory-column",
      "Which memory",
      memories.map((key) => [key, MEMORIES[key]]),
      state.budget.column,
      (value) => {
        state.budget.column = value;
        state.budget.memory = null;
      },
    ),
    found.length ? memoryField(found.map((point) => point.memory.value)) : null,
    found.length
      ? forwardsField([...new Set(found.map((point) => point.forwards.value))].sort((a, b) => a - b))
      : null,
    make(
      "label",
      { class: "chip" },
      make("input", {
        type: "checkbox",
        id: "forward-only",
        checked: state.budget.forwardOnly,
        onchange: (event) => budget({ forwardOnly: event.target.checked }),
      }),
      make("span", {}, "Forward passes only"),
    ),
  );
}

/** A number and a slider for the same limit; the right end of the slider means no limit. */
function limitField(name, title, unit, steps, position, valueAt) {
  const id = `limit-${name}`;
  const show = () => {
    slider.value = state.budget[name] === null ? steps : position(state.budget[name]);
    slider.setAttribute(
      "aria-valuetext",
      state.budget[name] === null ? "no limit" : `${state.budget[name]} ${unit}`,
    );
  };
  const number = make("input", {
    type: "number",
    id,
    min: 0,
    step: "any",
    placeholder: "any",
    value: state.budget[name] ?? "",
  });
  const slider = make("input", {
    type: "range",
    id: `${id}-slider`,
    min: 0,
    max: steps,
    step: 1,
    "aria-label": title,
  });
  number.addEventListener("input", () => {
    budget({ [name]: number.value === "" ? null : Number(number.value) });
    show();
  });
  slider.addEventListener("input", () => {
    const limit = Number(slider.value) === steps ? null : valueAt(Number(slider.value));
    number.value = limit ?? "";
    budget({ [name]: limit });
    show();
  });
  show();
  return make(
    "div",
    { class: "field" },
    make("label", { class: "field-name", for: id }, title),
    make("span", { class: "limit" }, "≤ ", number, ` ${unit}`),
    slider,
  );
}

function memoryField(found) {
  const [low, high] = [Math.min(...found), Math.max(...found)].map(Math.log);
  const span = high - low || 1;
  const position = (value) =>
    Math.max(0, Math.min(TICKS - 1, Math.round(((Math.log(Math.max(value, 1e-9)) - low) / span) * TICKS)));
  // Rounded up, so that the lowest position still includes the row with the least memory.
  const valueAt = (step) =>
    Number((Math.ceil(Math.exp(low + (span * step) / TICKS) * 100) / 100).toPrecision(6));
  return limitField("memory", MEMORIES[state.budget.column], "MiB", TICKS, position, valueAt);
}

function forwardsField(found) {
  const position = (value) => Math.max(0, found.filter((step) => step <= value).length - 1);
  return limitField("forwards", "Forward passes", "per image", found.length, position, (step) => found[step]);
}

function budget(choice) {
  Object.assign(state.budget, choice);
  remember();
  drawBudget();
}
