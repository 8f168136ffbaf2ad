// The service, as functions. Every failure is an ApiError with a title and one line that says what to do.

const STORE = "kenthash-key";
let held = null;
try {
  held = sessionStorage.getItem(STORE);
} catch {
  // No storage: the key lives as long as the page.
}

export class ApiError extends Error {
  constructor(status, title, detail) {
    super(detail);
    this.status = status;
    this.title = title;
  }
}

export const hasKey = () => Boolean(held);

export function keepKey(key) {
  held = key;
  try {
    if (key) sessionStorage.setItem(STORE, key);
    else sessionStorage.removeItem(STORE);
  } catch {
    // As above.
  }
}

const headers = () => (held ? { Authorization: `Bearer ${held}` } : {});

async function errorOf(response) {
  let said = {};
  try {
    said = await response.json();
  } catch {
    // A proxy's own page, perhaps: the status has to do.
  }
  const wait = response.headers.get("Retry-After");
  const detail = said.detail ?? `The service answered with status ${response.status}. Try again, or look at its log.`;
  const later = response.status === 503 && wait ? ` Try again in ${wait} s.` : "";
  return new ApiError(response.status, said.title ?? "That did not work", `${detail}${later}`);
}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { ...headers(), ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const detail = "Check that `kenthash serve` is still running and that you are connected, then try again.";
    throw new ApiError(0, "The service cannot be reached", detail);
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

const json = async (path, options) => (await ask(path, options)).json();

export const health = () => json("healthz");
export const stats = () => json("stats");
export const labels = () => json("labels?limit=100");
export const facets = () => json("facets");
export const duplicates = (offset, limit) => json(`duplicates?offset=${offset}&limit=${limit}`);

// `query` is {text}, {id} or {picture: File}; null options are left to the service.
export function search(query, options, signal) {
  const given = Object.entries(options).filter(([, value]) => value !== null);
  if (!query.picture) {
    const body = JSON.stringify({ ...query, ...Object.fromEntries(given) });
    return json("search", { method: "POST", body, signal, headers: { "Content-Type": "application/json" } });
  }
  const form = new FormData();
  form.append("image", query.picture, query.picture.name || "picture");
  for (const [name, value] of given) for (const each of [value].flat()) form.append(name, each);
  return json("search", { method: "POST", body: form, signal });
}

const item = (id) => `items/${encodeURIComponent(id)}`;
export const imageOf = (id) => `${item(id)}/image`;
export const thumbnailOf = (id, size) => `${item(id)}/thumbnail?size=${size}`;

// For pictures behind a key, which an <img> cannot send.
export async function blobOf(path) {
  return URL.createObjectURL(await (await ask(path)).blob());
}
