// Words that are added to a search, or taken away from it: "+ at night", "− people".

import { button, find, icon, make } from "./dom.js";

const MOST = 8; // of each: the service takes no more

const row = find("#refine");
const field = find("#refine-words");
const chosen = find("#refine-chosen");

// The words of the box: those after a blank and a plus or minus are added and taken away. Several words stand in quotes.
//   beach -people +"at night"  →  { q: "beach", plus: ["at night"], without: ["people"] }
export function parsed(text) {
  const signed = { "+": [], "-": [] };
  const q = text.replaceAll(/(^|\s)([+-])(?:"([^"]+)"|([^\s"+-]\S*))(?=\s|$)/g, (_, blank, sign, quoted, word) => {
    signed[sign].push((quoted ?? word).trim());
    return blank;
  });
  const words = q.replaceAll(/\s+/g, " ").trim();
  if (!words) return { q: text.trim(), plus: [], without: [] }; // there has to be something to add it to
  return { q: words, plus: distinct(signed["+"]), without: distinct(signed["-"]) };
}

const distinct = (words) => [...new Set(words.filter(Boolean))].slice(0, MOST);

// `ask` takes the part of the state that changes; `current` gives the state.
export function startRefine(current, ask) {
  const take = (key) => {
    const words = field.value.trim();
    if (!words) return field.focus();
    field.value = "";
    return ask({ [key]: distinct([...current()[key], words]) });
  };
  row.addEventListener("submit", (event) => {
    event.preventDefault();
    take("plus");
  });
  find("#refine-without").addEventListener("click", () => take("without"));
}

export function showRefine(state, ask) {
  row.hidden = !(state.q || state.like || state.picture);
  const chip = (key, sign, meaning) => (words) => {
    const remove = () => {
      ask({ [key]: state[key].filter((other) => other !== words) });
      field.focus();
    };
    const label = `Search ${meaning} “${words}” no longer`;
    return button([make("span", { class: "sign" }, sign), words, icon("close")], remove, { class: "chip set", title: label, "aria-label": label });
  };
  chosen.replaceChildren(...state.plus.map(chip("plus", "+", "with")), ...state.without.map(chip("without", "−", "without")));
}
