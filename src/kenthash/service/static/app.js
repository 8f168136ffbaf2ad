// One search after another: the address says what is asked, `run` asks it and shows the answer.

import { facets, health, hasKey, labels, search, stats } from "./api.js";
import { find, milliseconds, number } from "./dom.js";
import { showDuplicates } from "./duplicates.js";
import { start as startFilters } from "./filters.js";
import { Grid } from "./grid.js";
import * as hood from "./hood.js";
import { startInput } from "./input.js";
import { askKey } from "./key.js";
import { clearNotice, fail, notice } from "./notice.js";
import { pill } from "./pill.js";
import { parsed, showRefine, startRefine } from "./refine.js";
import { start as showStart } from "./start.js";
import { EMPTY, PAGE, address, asked, filterOf, keepPicture, keptPicture, read, unfiltered } from "./state.js";
import { start as startViewer } from "./viewer.js";

const LAST = 9900; // the service's largest offset
const MOST = 100; // and its largest page

const POLL = 4000; // milliseconds between looks at whether the index has grown

const REFUSED = "That key was not accepted. Check it, or ask whoever runs the service.";

let state = read();
let about = null;
let known = [];
let answer = null; // of the first page
let running = new AbortController();

const other = { view: "", q: "", like: "", picture: "", plus: [], without: [] }; // what another search begins with
const similar = (hit) => ask({ ...other, like: hit.id });

const grid = new Grid(find("#grid"), {
  similar,
  link: (hit) => address({ ...state, ...other, like: hit.id, shown: PAGE }),
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
  near: (near) => ask({ near }),
  bits: (place) => grid.on.bits(place),
  closed: (place) => grid.focus(place),
});
const filters = startFilters((change) => ask(change));

startInput({
  words(text) {
    if (!state.like && !state.picture) return ask({ ...other, ...parsed(text) });
    const { q, plus, without } = parsed(text); // what a picture should have more and less of
    const added = (words) => [...new Set(words)].slice(0, 8);
    return ask({ plus: added([...state.plus, q, ...plus]), without: added([...state.without, ...without]) });
  },
  picture: (file) => ask({ ...other, picture: keepPicture(file) }),
  refused: (title, detail) => notice(title, detail),
  find: (what) => ask({ find: what }),
  results: () => grid.focus(grid.place),
});

startRefine(() => state, (change) => ask(change));

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
    const words = { plus: state.plus, without: state.without };
    const page = await search(queryOf(), { ...where, ...words, filter: filterOf(state), find: state.find }, signal);
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
  find("#grown").hidden = true;
  if (state.view === "duplicates") return copies(signal);
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
    find("#copies").replaceChildren();
    grid.show(found.hits, found.query, state.find);
    paging(found);
    hood.show(found, found.hits[restore.place ?? 0] ?? found.hits[0]);
    if (!found.hits.length) nothing();
    else if (found.close === 0) far();
    if (found.hits.length && (had || restore.place)) grid.focus(restore.place ?? 0);
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
  const close = answer.close > 0 && answer.close < shown ? `, ${number(answer.close)} of them close` : "";
  find("#status").textContent = shown ? `${all} ${which}${close}, in ${milliseconds(answer.timing.total_ms)}` : "";
}

function nothing() {
  if (filterOf(state)) {
    const actions = [["Clear the filters", () => ask(unfiltered)]];
    notice("Nothing passes these filters", "Take a label away, or clear all filters.", actions);
  } else if (answer.items) notice("Nothing was found", "The index holds no other item that this could be compared with.");
  else notice("Nothing was found", "The index is empty: add pictures with `kenthash index add FOLDER`.");
}

// There is always a nearest item: it must not look like a find where it is none.
function far() {
  const actions = filterOf(state) ? [["Clear the filters", () => ask(unfiltered)]] : [];
  const others = state.q ? "Try other words, or fewer." : "";
  notice("Nothing here is close", `These are the nearest, and more likely wrong than right. ${others}`, actions);
}

async function copies(signal) {
  clear();
  busy(true);
  try {
    await showDuplicates(signal, similar);
  } catch (error) {
    if (error.name !== "AbortError") failed(error, run);
  } finally {
    if (running.signal === signal) busy(false);
  }
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
  find("#copies").replaceChildren();
  find("#start").hidden = true;
  find("#more").hidden = true;
  find("#status").textContent = "";
  hood.show(null);
}

function begin() {
  clear();
  busy(false);
  find("#start").hidden = false;
  showStart(about, known, filterOf(state), { words: (text) => ask({ q: text }), similar });
}

// What is asked, in the box, the chips and the title.
function controls() {
  find("#words").value = state.q;
  pill(state, ask);
  for (const radio of document.getElementsByName("find")) radio.checked = radio.value === state.find;
  if (about) filters.show(state);
  showRefine(state, ask);
  find("#duplicates-button").setAttribute("aria-pressed", String(state.view === "duplicates"));
  const what = (state.view && "duplicates") || state.q || (state.like && `similar to ${state.like}`) || (state.picture && "a picture");
  document.title = what ? `${what} – kenthash` : "kenthash";
}

function busy(yes) {
  find("#progress").hidden = !yes;
  find("#results").setAttribute("aria-busy", String(yes));
}

// The labels of a large index take a while to be counted for the first time: they are shown once they are there.
async function learn(wait = 500) {
  const [figures, counted, photos] = await Promise.all([stats(), labels(), facets()]);
  const first = about === null;
  about = figures;
  known = counted.labels;
  find("#finds").hidden = !about.finds.includes("texts");
  filters.known(known, photos);
  if (!first) {
    // Not what is being typed, nor a date that is being chosen.
    if (!find("#facet-panel").contains(document.activeElement)) filters.show(state);
    if (!asked(state) && !state.view) begin();
  }
  if (!(counted.complete && photos.complete) && wait < 600_000) setTimeout(() => learn(2 * wait).catch(() => {}), wait);
}

// An index that is being filled: the start page and the filters follow, results offer to be asked for again.
let behind = 0; // how often labels and facets are still asked for: the service counts them with pauses
async function follow() {
  if (!about || document.hidden || find("dialog[open]")) return;
  const before = about.items;
  const { items } = await stats();
  if (items !== before) behind = 4;
  else if (behind === 0) return;
  behind -= 1;
  await learn(Infinity);
  if (items === before || !answer) return;
  const more = items - answer.items;
  find("#grown").textContent = more > 0 ? `${number(more)} new: search again` : "The index has changed: search again";
  find("#grown").hidden = more === 0;
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
  const words = find("#words");
  const typed = document.activeElement === words && words.value; // while the page was starting
  const done = run(history.state ?? {});
  if (typed) words.value = typed;
  return done;
}

history.scrollRestoration = "manual";
addEventListener("popstate", (event) => {
  state = read();
  if (about) run(event.state ?? {});
});
find("#more").addEventListener("click", more);
find("#grown").addEventListener("click", () => run());
find("#duplicates-button").addEventListener("click", () => ask(state.view ? { ...EMPTY } : { ...EMPTY, view: "duplicates" }));
setInterval(() => follow().catch(() => {}), POLL); // a service that is away says so at the next search
find("#unfilter").addEventListener("click", () => ask(unfiltered));
find("#home").addEventListener("click", (event) => {
  event.preventDefault();
  ask({ ...EMPTY });
});
boot();
