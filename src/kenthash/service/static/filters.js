// Filters: a chip for each label, any number of which can be on; when, where and the camera (see `photo_filters`); and an
// expression for those who want more.

import { button, find, icon, make, number } from "./dom.js";
import { setFacets, showPhotoFilters } from "./photo_filters.js";
import { filterOf } from "./state.js";

const FEW = matchMedia("(max-width: 44rem)").matches ? 6 : 12; // chips before "all"

const chips = find("#chips");
const form = find("#expert");
const field = find("#filter");
let known = [];
let all = false;

// `change` takes the part of the state that a filter changes.
export function start(change) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    change({ filter: field.value.trim() });
  });
  find("#expert-button").addEventListener("click", () => expert(form.hidden, true));
  return {
    known(labels, facets) {
      known = labels;
      setFacets(facets);
    },
    show(state) {
      show(state, change);
    },
  };
}

function expert(open, focus = false) {
  form.hidden = !open;
  find("#expert-button").setAttribute("aria-expanded", String(open));
  if (open && focus) field.focus();
}

function show(state, change) {
  const counts = new Map(known.map(({ label, items }) => [label, items]));
  const on = state.labels;
  const rest = known.map(({ label }) => label).filter((label) => !on.includes(label));
  const shown = [...on, ...(all ? rest : rest.slice(0, Math.max(FEW - on.length, 4)))];
  const hidden = on.length + rest.length - shown.length;
  const focused = chips.contains(document.activeElement) ? document.activeElement.dataset.label : undefined;
  chips.replaceChildren(
    ...shown.map((label) => {
      const pressed = on.includes(label);
      const labels = pressed ? on.filter((other) => other !== label) : [...on, label];
      const count = counts.has(label) ? make("span", { class: "count" }, number(counts.get(label))) : null;
      const attributes = { class: "chip", "aria-pressed": String(pressed), "data-label": label };
      const parts = [pressed ? icon("check") : null, label, count];
      return button(parts.filter(Boolean), () => change({ labels }), attributes);
    }),
    ...(hidden > 0 || all
      ? [button(all ? "Fewer labels" : `${number(hidden)} more labels`, () => {
          all = !all;
          show(state, change);
        }, { class: "chip plain", "data-label": "", "aria-expanded": String(all) })]
      : []),
  );
  // The chips were made anew: whoever stood on one still does.
  if (focused !== undefined) [...chips.children].find((chip) => chip.dataset.label === focused)?.focus();
  find("#filters").hidden = state.view === "duplicates";
  if (document.activeElement !== field) field.value = state.filter;
  if (state.filter) expert(true);
  find("#unfilter").hidden = filterOf(state) === null;
  showPhotoFilters(state, change);
}
