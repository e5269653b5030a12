// The provenance of a row: everything that is recorded about its cells.

function showProvenance(place) {
  const row = stream().rows[place];
  const dialog = byId("provenance");
  const close = make("button", { type: "button", class: "quiet", onclick: () => dialog.close() }, "Close");
  fill(
    dialog,
    make(
      "div",
      { class: "toolbar" },
      make("h2", { id: "provenance-title" }, `${row.group} · ${row.label}`),
      close,
    ),
    row.flags.length
      ? make(
          "ul",
          { class: "flag-list" },
          row.flags.map((flag) => make("li", {}, flagTag(flag), ` ${flag.text}`)),
        )
      : null,
    row.cells.map((cell, index) => cellFacts(cell, index === 0)),
  );
  dialog.showModal();
}

function cellFacts(cell, open) {
  const { plugins, protocol } = cell;
  const [done, expected] = cell.records;
  const facts = {
    Cell: code(cell.key),
    Status: `${cell.status}, ${done} of ${plural(expected, "record")}${cell.repeated ? `, ${cell.repeated} of them repeat an earlier round` : ""}`,
    Model: plugin(plugins.model),
    Weights: code(cell.weights),
    Quantizer: plugin(plugins.quantizer),
    Method: plugin(plugins.method),
    Variant: cell.variant || "–",
    Data: plugin(plugins.data),
    "Data fingerprint": code(plugins.data.fingerprint || "not recorded"),
    "Data note": cell.data_note || null,
    Protocol: `order ${protocol.order}, batches of ${protocol.batch_size}, ${protocol.limit ?? "all"} images per domain, reset ${protocol.reset}, ${plural(protocol.threads, "thread")}`,
    Stream: fingerprints(data.fingerprints[cell.fingerprints]),
    Versions:
      Object.entries(cell.versions)
        .map(([name, version]) => `${name} ${version}`)
        .join(", ") || "not recorded",
    Device: cell.device,
    Host: cell.host,
    Time: `${cell.seconds} s`,
  };
  const pairs = Object.entries(facts).filter(([, value]) => value !== null);
  return make(
    "details",
    { open, "data-cell": cell.key },
    make("summary", {}, `Seed ${cell.seed}`),
    make(
      "dl",
      { class: "facts" },
      pairs.flatMap(([name, value]) => [make("dt", {}, name), make("dd", { "data-fact": name }, value)]),
    ),
  );
}

const code = (text) => make("code", {}, text);

function plugin({ use, version, params }) {
  const settings = Object.entries(params).map(
    ([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
  return `${use}, version ${version}${settings.length ? `: ${settings.join(", ")}` : ""}`;
}

/** The fingerprints of a stream as a table. */
function fingerprints(found) {
  if (!found.length) return "nothing run";
  const lines = found.map(([number, corruption, fingerprint]) =>
    make(
      "tr",
      {},
      make("td", {}, String(number)),
      make("td", {}, corruption),
      make("td", {}, code(fingerprint)),
    ),
  );
  const head = make(
    "tr",
    {},
    ["Round", "Domain", "Fingerprint"].map((name) => make("th", { scope: "col" }, name)),
  );
  return make(
    "details",
    {},
    make("summary", {}, plural(found.length, "fingerprint")),
    make("table", { class: "prints" }, make("thead", {}, head), make("tbody", {}, lines)),
  );
}
