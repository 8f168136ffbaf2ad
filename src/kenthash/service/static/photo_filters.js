// Filters by when, where and with which camera photos were taken: a button each, where the index knows, and a panel.

import { search } from "./api.js";
import { button, find, icon, make, number } from "./dom.js";
import { thumbnail } from "./pictures.js";
import { nearFilter } from "./state.js";

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const NOTHING = { months: [], cameras: [], places: [] };
const PLACES = 12; // that are shown
const KINDS = [["when", "When"], ["where", "Where"], ["camera", "Camera"]];

const row = find("#facets");
const panel = find("#facet-panel");
const pictures = new Map(); // of places: a photo taken there
let facets = NOTHING;
let open = "";

export function setFacets(found) {
  facets = found;
}

// What the three filters are set to, in words; "" where one is not set.
export function described(state) {
  return { when: period(state.from, state.to), where: state.near && placeName(state.near), camera: state.camera };
}

// `change` takes the part of the state that a filter changes.
export function showPhotoFilters(state, change) {
  const set = described(state);
  const there = { when: facets.months.length, where: facets.places.length, camera: facets.cameras.length };
  const focused = row.contains(document.activeElement) ? document.activeElement.dataset.kind : undefined;
  const shown = KINDS.filter(([kind]) => there[kind] || set[kind]);
  if (!shown.some(([kind]) => kind === open)) open = "";
  row.hidden = shown.length === 0;
  row.replaceChildren(
    ...shown.map(([kind, title]) => {
      const attributes = {
        class: `chip menu${set[kind] ? " set" : ""}`, "data-kind": kind, "aria-controls": "facet-panel", "aria-expanded": String(kind === open),
      };
      const toggle = () => {
        open = open === kind ? "" : kind;
        showPhotoFilters(state, change);
      };
      return button([set[kind] ? `${title}: ${set[kind]}` : title, icon("down")], toggle, attributes);
    }),
  );
  if (focused !== undefined) [...row.children].find((chip) => chip.dataset.kind === focused)?.focus();
  panel.hidden = open === "";
  const parts = { when, where, camera };
  const within = panel.contains(document.activeElement) ? document.activeElement.dataset.choice : undefined;
  panel.replaceChildren(...(open ? parts[open](state, change) : []));
  if (within !== undefined) [...panel.querySelectorAll("[data-choice]")].find((chip) => chip.dataset.choice === within)?.focus();
}

// A chip that sets a filter, or takes it back.
function choice(parts, items, pressed, set) {
  const count = make("span", { class: "count" }, number(items));
  const label = [pressed ? icon("check") : null, ...parts, count].filter(Boolean);
  return button(label, set, { class: "chip", "aria-pressed": String(pressed), "data-choice": parts.at(-1) });
}

const chips = (label, children) => make("div", { class: "chips", role: "group", "aria-label": label }, children);

function when(state, change) {
  const years = new Map();
  for (const { month, items } of facets.months) years.set(month.slice(0, 4), (years.get(month.slice(0, 4)) ?? 0) + items);
  const year = state.from.slice(0, 4) === state.to.slice(0, 4) ? state.from.slice(0, 4) : "";
  const within = (first, last, name, items, otherwise) => {
    const pressed = state.from === first && state.to === last;
    return choice([name], items, pressed, () => change(pressed ? otherwise : { from: first, to: last }));
  };
  const months = facets.months.filter(({ month }) => month.slice(0, 4) === year);
  const whole = { from: `${year}-01-01`, to: `${year}-12-31` };
  const field = (name, label) => {
    const dates = { min: firstDay(facets.months[0]?.month), max: lastDay(facets.months.at(-1)?.month) };
    const id = `taken-${name}`;
    const changed = (event) => change({ [name]: event.target.value });
    return make("span", {}, make("label", { for: id }, label), make("input", { id, type: "date", ...dates, value: state[name], onchange: changed }));
  };
  return [
    chips("Years", [...years].map(([name, items]) => within(`${name}-01-01`, `${name}-12-31`, name, items, { from: "", to: "" }))),
    ...(months.length > 1
      ? [chips("Months", months.map(({ month, items }) => within(firstDay(month), lastDay(month), MONTHS[Number(month.slice(5)) - 1], items, whole)))]
      : []),
    make("p", { class: "dates" }, field("from", "From"), field("to", "to")),
  ];
}

function where(state, change) {
  const places = facets.places.slice(0, PLACES);
  return [
    chips(
      "Places",
      places.map((place) => {
        const near = `${place.latitude},${place.longitude},${place.km}`;
        const frame = make("span", { class: "frame" });
        picture(near, frame);
        const pressed = state.near === near;
        return choice([frame, placeName(near)], place.items, pressed, () => change({ near: pressed ? "" : near }));
      }),
    ),
    ...(state.near && !places.some((place) => state.near === `${place.latitude},${place.longitude},${place.km}`)
      ? [make("p", { class: "actions" }, button(`Not only near ${placeName(state.near)}`, () => change({ near: "" })))]
      : []),
    make("p", { class: "quiet" }, "Look closer at a photo to find others that were taken near it."),
  ];
}

function camera(state, change) {
  return [
    chips(
      "Cameras",
      facets.cameras.slice(0, 24).map(({ camera: name, items }) => {
        const pressed = state.camera === name;
        return choice([name], items, pressed, () => change({ camera: pressed ? "" : name }));
      }),
    ),
  ];
}

// Numbers do not tell a place to most people: a photo that was taken there does.
async function picture(near, frame) {
  try {
    if (!pictures.has(near)) pictures.set(near, search({ text: "a view of the place" }, { k: 1, filter: nearFilter(near) }));
    const [hit] = (await pictures.get(near)).hits;
    if (hit?.has_image) frame.append(thumbnail(hit, 32, "32px"));
  } catch {
    pictures.delete(near); // the chip says where it is without it
  }
}

// "48.2° N, 16.4° E": a tenth of a degree is about 10 km.
export function placeName(near) {
  const [latitude, longitude, km] = near.split(",").map(Number);
  const digits = km < 10 ? 2 : 1;
  const angle = (value, names) => `${Math.abs(value).toFixed(digits)}° ${names[value < 0 ? 1 : 0]}`;
  return `${angle(latitude, "NS")}, ${angle(longitude, "EW")}`;
}

const firstDay = (month) => month && `${month}-01`;

function lastDay(month) {
  if (!month) return undefined;
  const [year, number] = month.split("-").map(Number);
  return `${month}-${new Date(Date.UTC(year, number, 0)).getUTCDate()}`;
}

function period(from, to) {
  if (!from && !to) return "";
  const month = from.slice(0, 7);
  if (from === `${from.slice(0, 4)}-01-01` && to === `${from.slice(0, 4)}-12-31`) return from.slice(0, 4);
  if (from && from === firstDay(month) && to === lastDay(month)) return `${MONTHS[Number(month.slice(5)) - 1]} ${month.slice(0, 4)}`;
  if (!to) return `since ${from}`;
  return from ? `${from} to ${to}` : `until ${to}`;
}
