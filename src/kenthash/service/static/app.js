// One search after another: the address says what is asked, `run` asks it and shows the answer.

import { health, hasKey, labels, search, stats } from "./api.js";
import { find, milliseconds, number } from "./dom.js";
import { start as startFilters } from "./filters.js";
import { Grid } from "./grid.js";
import * as hood from "./hood.js";
import { startInput } from "./input.js";
import { askKey } from "./key.js";
import { clearNotice, fail, notice } from "./notice.js";
import { pill } from "./pill.js";
import { start as showStart } from "./start.js";
import { EMPTY, PAGE, address, asked, filterOf, keepPicture, keptPicture, read } from "./state.js";
import { start as startViewer } from "./viewer.js";

const LAST = 9900; // the service's largest offset
const MOST = 100; // and its largest page

const REFUSED = "That key was not accepted. Check it, or ask whoever runs the service.";

let state = read();
let about = null;
let known = [];
let answer = null; // of the first page
let running = new AbortController();

const similar = (hit) => ask({ q: "", like: hit.id, picture: "" });
const unfiltered = { labels: [], filter: "" };

const grid = new Grid(find("#grid"), {
  similar,
  link: (hit) => address({ ...state, q: "", picture: "", like: hit.id, shown: PAGE }),
  closer: (place) => look(place),
  bits: (place) => {
    grid.choose(place);
    hood.show(answer, grid.hits[place]);
    hood.open(true);
  },
  moved: (place) => hood.show(answer, grid.hits[place]),
  above: () => find("#words").focus(),
  below: () => find("#more").focus(),
});
const look = startViewer(grid, {
  similar,
  label: (label) => ask({ labels: [...new Set([...state.labels, label])] }),
  bits: (place) => grid.on.bits(place),
  closed: (place) => grid.focus(place),
});
const filters = startFilters((change) => ask(change));

startInput({
  words: (text) => ask({ q: text, like: "", picture: "" }),
  picture: (file) => ask({ q: "", like: "", picture: keepPicture(file) }),
  refused: (title, detail) => notice(title, detail),
  find: (what) => ask({ find: what }),
  results: () => grid.focus(grid.place),
});

// A change of what is asked: a new entry of the history, so that Back undoes it.
function ask(change) {
  const next = { ...state, shown: PAGE, ...change };
  history.replaceState({ scroll: scrollY, place: grid.place }, "");
  if (address(next) !== address(state)) history.pushState({}, "", address(next));
  state = next;
  scrollTo(0, 0);
  if (about) run();
  else controls(); // the start is still under way, and ends in a run
}

function queryOf() {
  if (state.q) return { text: state.q };
  if (state.like) return { id: state.like };
  const picture = keptPicture(state.picture);
  return picture && { picture };
}

async function hitsFrom(offset, count, signal) {
  const hits = [];
  let first = null;
  let more = true;
  while (more && hits.length < count) {
    const where = { k: Math.min(MOST, count - hits.length), offset: offset + hits.length };
    const page = await search(queryOf(), { ...where, filter: filterOf(state), find: state.find }, signal);
    hits.push(...page.hits);
    first ??= page;
    more = page.more && page.hits.length > 0 && offset + hits.length <= LAST;
  }
  return { ...first, hits, more };
}

async function run(restore = {}) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  controls();
  clearNotice();
  if (!asked(state)) return begin();
  if (!queryOf()) {
    clear();
    const detail = "A picture from your computer is not part of a link. Drop, paste or choose it again.";
    return notice("That picture is not here any more", detail);
  }
  busy(true);
  try {
    const found = await hitsFrom(0, state.shown, signal);
    if (signal.aborted) return;
    const had = document.activeElement?.closest("#grid, #taste, #examples");
    answer = found;
    find("#start").hidden = true;
    grid.show(found.hits, found.query, state.find);
    paging(found);
    hood.show(found, found.hits[restore.place ?? 0] ?? found.hits[0]);
    if (!found.hits.length) nothing();
    else if (had || restore.place) grid.focus(restore.place ?? 0);
    if (restore.scroll !== undefined) scrollTo(0, restore.scroll);
  } catch (error) {
    if (error.name === "AbortError") return;
    clear();
    failed(error, run);
  } finally {
    if (running.signal === signal) busy(false);
  }
}

async function more() {
  const { signal } = running;
  const from = grid.hits.length;
  busy(true);
  try {
    const found = await hitsFrom(from, PAGE, signal);
    if (signal.aborted || grid.hits.length !== from) return; // asked something else since, or clicked twice
    clearNotice();
    grid.add(found.hits, state.find);
    state = { ...state, shown: grid.hits.length };
    history.replaceState(history.state, "", address(state));
    paging(found);
    if (document.activeElement === find("#more") || document.activeElement === document.body) grid.focus(from);
  } catch (error) {
    if (error.name !== "AbortError") failed(error, more);
  } finally {
    if (running.signal === signal) busy(false);
  }
}

function paging(found) {
  find("#more").hidden = !found.more;
  const shown = grid.hits.length;
  const all = found.more ? `The ${number(shown)} nearest` : `All ${number(shown)}`;
  const which = filterOf(state) ? "that pass the filters" : `of ${number(answer.items)}`;
  find("#status").textContent = shown ? `${all} ${which}, in ${milliseconds(answer.timing.total_ms)}` : "";
}

function nothing() {
  if (filterOf(state)) {
    const actions = [["Clear the filters", () => ask(unfiltered)]];
    notice("Nothing passes these filters", "Take a label away, or clear all filters.", actions);
  } else if (answer.items) notice("Nothing was found", "The index holds no other item that this could be compared with.");
  else notice("Nothing was found", "The index is empty: add pictures with `kenthash index add FOLDER`.");
}

function failed(error, again) {
  if (error.status === 401) return askKey(hasKey() ? REFUSED : "").then((given) => (given ? boot() : locked()));
  const actions = [];
  if (error.status >= 400 && error.status < 500) {
    if (filterOf(state)) actions.push(["Clear the filters", () => ask(unfiltered)]);
    if (state.find === "texts") actions.push(["Find pictures instead", () => ask({ find: "pictures" })]);
    if (state.picture) actions.push(["Choose another picture", () => find("#file").click()]);
  } else actions.push(["Try again", () => again()]);
  return fail(error, actions);
}

function locked() {
  notice("This service needs a key", "Whoever runs it can give you one.", [["Enter the key", () => boot()]]);
}

function clear() {
  answer = null;
  grid.show([], { bits: 0, code: "" }, state.find);
  find("#start").hidden = true;
  find("#more").hidden = true;
  find("#status").textContent = "";
  hood.show(null);
}

function begin() {
  clear();
  busy(false);
  find("#start").hidden = false;
  showStart(about, known, { words: (text) => ask({ q: text }), similar });
}

// What is asked, in the box, the chips and the title.
function controls() {
  find("#words").value = state.q;
  pill(state, ask);
  for (const radio of document.getElementsByName("find")) radio.checked = radio.value === state.find;
  if (about) filters.show(state);
  const what = state.q || (state.like && `similar to ${state.like}`) || (state.picture && "a picture");
  document.title = what ? `${what} – kenthash` : "kenthash";
}

function busy(yes) {
  find("#progress").hidden = !yes;
  find("#results").setAttribute("aria-busy", String(yes));
}

// The labels of a large index take a while to be counted for the first time: they are shown once they are there.
async function learn(wait = 500) {
  const [figures, counted] = await Promise.all([stats(), labels()]);
  const first = about === null;
  about = figures;
  known = counted.labels;
  find("#finds").hidden = !about.finds.includes("texts");
  filters.labels(known);
  if (!first) {
    filters.show(state);
    if (!asked(state)) begin();
  }
  if (!counted.complete && wait < 600_000) setTimeout(() => learn(2 * wait).catch(() => {}), wait);
}

async function boot() {
  clearNotice();
  try {
    const { key_required: needed } = await health();
    if (needed && !hasKey() && !(await askKey(""))) return locked();
    await learn();
  } catch (error) {
    return failed(error, boot);
  }
  return run(history.state ?? {});
}

history.scrollRestoration = "manual";
addEventListener("popstate", (event) => {
  state = read();
  if (about) run(event.state ?? {});
});
find("#more").addEventListener("click", more);
find("#unfilter").addEventListener("click", () => ask(unfiltered));
find("#home").addEventListener("click", (event) => {
  event.preventDefault();
  ask({ ...EMPTY });
});
boot();
