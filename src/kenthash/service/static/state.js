// What is asked, as the page's address: every search can be linked to, and Back goes back to it.
//
//   ?q=two+dogs   ?like=photos/a.jpg   ?picture=k3f9   with   find=texts  shown=72
//   plus=at+night  without=people  label=dog  (each repeated)
//   from=2023-06-01  to=2023-06-30  near=48.2,16.4,10 (km)  camera=...  filter=...
//   ?view=duplicates
//
// A picture from this computer is not in its address. It stays in the memory of this page under a short name.

const pictures = new Map();
const DATE = /^\d{4}-\d\d-\d\d$/;
const NEAR = /^-?\d+(\.\d+)?,-?\d+(\.\d+)?,\d+(\.\d+)?$/;

export const PAGE = 24;

export const EMPTY = Object.freeze({
  view: "", q: "", like: "", picture: "", plus: [], without: [], find: "pictures", labels: [], from: "", to: "", near: "",
  camera: "", filter: "", shown: PAGE,
});

export function keepPicture(file) {
  const name = Math.random().toString(36).slice(2, 8);
  pictures.set(name, file);
  return name;
}

export const keptPicture = (name) => pictures.get(name);

export const asked = (state) => Boolean(state.q || state.like || state.picture);

export const unfiltered = Object.freeze({ labels: [], from: "", to: "", near: "", camera: "", filter: "" });

export function read() {
  const query = new URLSearchParams(location.search);
  const matching = (key, pattern) => (pattern.test(query.get(key) ?? "") ? query.get(key) : "");
  const shown = Number.parseInt(query.get("shown") ?? "", 10);
  return {
    view: query.get("view") === "duplicates" ? "duplicates" : "",
    q: (query.get("q") ?? "").trim(),
    like: query.get("like") ?? "",
    picture: query.get("picture") ?? "",
    plus: query.getAll("plus").filter(Boolean),
    without: query.getAll("without").filter(Boolean),
    find: query.get("find") === "texts" ? "texts" : "pictures",
    labels: query.getAll("label"),
    from: matching("from", DATE),
    to: matching("to", DATE),
    near: matching("near", NEAR),
    camera: query.get("camera") ?? "",
    filter: query.get("filter") ?? "",
    shown: Number.isFinite(shown) ? Math.min(Math.max(shown, PAGE), 1000) : PAGE,
  };
}

export function address(state) {
  const query = new URLSearchParams();
  for (const key of ["view", "q", "like", "picture"]) if (state[key]) query.append(key, state[key]);
  for (const key of ["plus", "without"]) for (const words of state[key]) query.append(key, words);
  if (state.find === "texts") query.append("find", "texts");
  for (const label of state.labels) query.append("label", label);
  for (const key of ["from", "to", "near", "camera", "filter"]) if (state[key]) query.append(key, state[key]);
  if (state.shown > PAGE) query.append("shown", state.shown);
  const text = query.toString();
  return text ? `?${text}` : location.pathname;
}

const quoted = (text) => `'${text.replaceAll("'", "''")}'`;

export function nearFilter(near) {
  const [latitude, longitude, km] = near.split(",");
  return `near(${latitude}, ${longitude}, ${km} km)`;
}

function nextDay(date) {
  const day = new Date(`${date}T00:00:00Z`);
  if (Number.isNaN(day.getTime())) return date; // the 31st of June, from an address
  day.setUTCDate(day.getUTCDate() + 1);
  return day.toISOString().slice(0, 10);
}

// The filter that chips, dates, place, camera and the expert's expression make together, or null.
export function filterOf(state) {
  const terms = state.labels.map((label) => `labels has ${quoted(label)}`);
  if (state.from) terms.push(`taken >= '${state.from}'`);
  if (state.to) terms.push(`taken < '${nextDay(state.to)}'`);
  if (state.near) terms.push(nearFilter(state.near));
  if (state.camera) terms.push(`camera = ${quoted(state.camera)}`);
  if (state.filter.trim()) terms.unshift(terms.length ? `(${state.filter.trim()})` : state.filter.trim());
  return terms.length ? terms.join(" and ") : null;
}
