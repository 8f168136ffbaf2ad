// What is asked, as the page's address: every search can be linked to, and Back goes back to it.
//
//   ?q=two+dogs   ?like=photos/a.jpg   ?picture=k3f9   with   find=texts  label=dog (repeated)  filter=...  shown=72
//
// A picture from this computer is not in its address. It stays in the memory of this page under a short name.

const pictures = new Map();

export const PAGE = 24;

export const EMPTY = Object.freeze({
  q: "", like: "", picture: "", find: "pictures", labels: [], filter: "", shown: PAGE,
});

export function keepPicture(file) {
  const name = Math.random().toString(36).slice(2, 8);
  pictures.set(name, file);
  return name;
}

export const keptPicture = (name) => pictures.get(name);

export const asked = (state) => Boolean(state.q || state.like || state.picture);

export function read() {
  const query = new URLSearchParams(location.search);
  const shown = Number.parseInt(query.get("shown") ?? "", 10);
  return {
    q: (query.get("q") ?? "").trim(),
    like: query.get("like") ?? "",
    picture: query.get("picture") ?? "",
    find: query.get("find") === "texts" ? "texts" : "pictures",
    labels: query.getAll("label"),
    filter: query.get("filter") ?? "",
    shown: Number.isFinite(shown) ? Math.min(Math.max(shown, PAGE), 1000) : PAGE,
  };
}

export function address(state) {
  const query = new URLSearchParams();
  for (const key of ["q", "like", "picture"]) if (state[key]) query.append(key, state[key]);
  if (state.find === "texts") query.append("find", "texts");
  for (const label of state.labels) query.append("label", label);
  if (state.filter) query.append("filter", state.filter);
  if (state.shown > PAGE) query.append("shown", state.shown);
  const text = query.toString();
  return text ? `?${text}` : location.pathname;
}

const quoted = (text) => `'${text.replaceAll("'", "''")}'`;

// The filter that chips and the expert's expression make together, or null.
export function filterOf(state) {
  const terms = state.labels.map((label) => `labels has ${quoted(label)}`);
  if (state.filter.trim()) terms.unshift(terms.length ? `(${state.filter.trim()})` : state.filter.trim());
  return terms.length ? terms.join(" and ") : null;
}
