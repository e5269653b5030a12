// LaTeX and CSV of the shown rows, joined from the lines that `tta-bench table` prints.

/** New numbers, without gaps, of the footnotes that the shown lines use: old mark → new mark. */
function renumbered(of, lines) {
  const used = new Set(of.marks);
  for (const line of lines) {
    for (const mark of line.marks) used.add(mark);
    for (const entry of line.entries) for (const mark of entry.marks ?? []) used.add(mark);
  }
  return new Map([...used].sort((a, b) => a - b).map((mark, index) => [mark, index + 1]));
}

function latexOf(of, lines) {
  const { latex } = of;
  const marks = renumbered(of, lines);
  // A name never contains this command, as its backslashes are escaped.
  const remark = (text) =>
    text.replace(
      /\\textsuperscript\{([\d,]+)\}/g,
      (_, old) =>
        `\\textsuperscript{${old
          .split(",")
          .map((mark) => marks.get(Number(mark)))
          .join(",")}}`,
    );
  const body = [...byGroup(lines).values()].flatMap((group) => [
    "\\midrule",
    ...group.map(
      (line, place) =>
        (place ? "" : `\\multirow{${group.length}}{*}${latex.labels[line.index]} `) + latex.rows[line.index],
    ),
  ]);
  const notes = [...latex.footnotes.filter((_, index) => marks.has(index + 1)), ...latex.notes];
  const foot = notes.length ? [...latex.begin_notes, ...notes, ...latex.end_notes] : [];
  return [...latex.head, ...body, ...latex.end_tabular, ...foot, ...latex.end_table].map(remark).join("\n") + "\n";
}

function csvOf(of, lines) {
  const quoted = (field) => (/[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
  const [header, ...rows] = of.csv;
  return [header, ...lines.map((line) => rows[line.index])]
    .map((fields) => fields.map(quoted).join(",") + "\n")
    .join("");
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A browser may deny a local file the clipboard; then copy from a selected text field.
    const area = make("textarea", { readonly: true, class: "offstage" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
