// Elements: everything the page shows is made here, and text is only ever text, whatever a name contains.

const byId = (id) => document.getElementById(id);

/** An element with properties, data-*, aria-* and on* included, and children. */
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

/** Children without those that are left out, however deep in lists. */
const present = (children) =>
  children.flat(Infinity).filter((child) => child !== null && child !== undefined);

/** Put other children in the place of those an element has. */
function fill(element, ...children) {
  element.replaceChildren(...present(children));
}

/** Buttons of which one is pressed. */
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

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

const signed = (value) => {
  const text = Math.abs(value).toFixed(1);
  return text === "0.0" ? "0.0" : `${value < 0 ? "−" : "+"}${text}`;
};
