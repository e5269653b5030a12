// Makes all elements of the page. Names are inserted as text, never as HTML.

const byId = (id) => document.getElementById(id);

/** An element with attributes, styles, event listeners (on*) and children. */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style")
      for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

/** All children in nested lists, without null and undefined. */
const present = (children) =>
  children.flat(Infinity).filter((child) => child !== null && child !== undefined);

/** Replace the children of an element. */
function fill(element, ...children) {
  element.replaceChildren(...present(children));
}

/** A group of buttons, one of which is pressed. */
function segments(container, options, chosen, choose) {
  fill(
    container,
    options.map(([value, text]) =>
      make(
        "button",
        {
          type: "button",
          "data-value": value,
          "aria-pressed": String(value === chosen),
          onclick: () => choose(value),
        },
        text,
      ),
    ),
  );
}

/** The heading of a group of rows, across all columns of a table. */
const groupHeading = (name, columns) =>
  make(
    "tr",
    { class: "group" },
    make("th", { scope: "rowgroup", colspan: columns }, make("span", {}, name)),
  );

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

const signed = (value) => {
  const text = Math.abs(value).toFixed(1);
  return text === "0.0" ? "0.0" : `${value < 0 ? "−" : "+"}${text}`;
};
