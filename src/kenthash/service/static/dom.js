// Elements from data. Text only ever becomes a text node: nothing from outside is parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

export const find = (selector, root = document) => root.querySelector(selector);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

export const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

export const icon = (name) =>
  draw("svg", { class: "icon", "aria-hidden": "true", focusable: "false" }, draw("use", { href: `#icon-${name}` }));

export function button(label, onclick, attributes = {}) {
  return make("button", { type: "button", onclick, ...attributes }, label);
}

export const number = (value) => Number(value).toLocaleString("en");

// 0.42 ms, 3.1 ms, 128 ms: two digits are all that a reader needs.
export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  const digits = value >= 100 ? 0 : value >= 1 ? 1 : 2;
  return `${value.toFixed(digits)} ms`;
}

export function bytes(value) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size && value >= 1e4) return `${(value / size).toFixed(value / size >= 100 ? 0 : 1)} ${unit}`;
  }
  return `${number(value)} ${value === 1 ? "byte" : "bytes"}`;
}
