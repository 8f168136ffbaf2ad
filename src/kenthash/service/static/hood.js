// The drawer "Compared bits": what a search compared, and what it cost.

import { bytes, draw, find, make, milliseconds, number } from "./dom.js";
import { differing, pattern, square } from "./code.js";
import { differ, nameOf } from "./grid.js";
import { thumbnail } from "./pictures.js";

const FLOATS = 2048; // bytes of an ordinary vector: 512 numbers of 4 bytes

const panel = find("#hood");
const body = find("#hood-body");
let answer = null;
let hit = null;

export const isOpen = () => !panel.hidden;

export function open(yes) {
  panel.hidden = !yes;
  document.body.classList.toggle("with-hood", yes);
  find("#hood-button").setAttribute("aria-expanded", String(yes));
  if (yes) redraw();
}

export function show(newAnswer, newHit) {
  answer = newAnswer;
  hit = newHit ?? null;
  if (isOpen()) redraw();
}

function redraw() {
  if (answer) body.replaceChildren(...(hit ? [comparison()] : []), memory(), time());
  else body.replaceChildren(quiet("Search for something: this shows how it was found."));
}

const quiet = (text) => make("p", { class: "quiet" }, text);
const section = (title, ...parts) => make("section", {}, make("h3", {}, title), ...parts);

function comparison() {
  const { code, bits, kind } = answer.query;
  const places = differing(code, hit.code);
  const asked = { text: "Your words", image: "Your picture", id: "The picture you chose" }[kind] ?? "The query";
  const figure = (title, hex) =>
    make(
      "figure",
      {},
      make("figcaption", {}, title),
      pattern(hex, places, `${title}: code ${hex}`),
      make("code", { class: "hex" }, hex),
    );
  const which = places.length ? `Bits ${places.join(", ")} (counted from 0)` : "No bit differs";
  return section(
    "The two codes",
    make(
      "div",
      { class: "subject" },
      make("span", { class: "frame" }, thumbnail(hit, 64, "64px")),
      make("p", {}, make("strong", {}, differ(hit, bits)), make("span", { class: "caption" }, nameOf(hit))),
    ),
    make("div", { class: "patterns" }, figure(asked, code), figure("This result", hit.code)),
    make("ul", { class: "legend" }, key(1, false, "is 1"), key(0, false, "is 0"), key(1, true, "differs")),
    make("details", {}, make("summary", {}, "Which bits differ"), make("p", {}, which)),
    quiet("One XOR and one bit count give the number. The fewer bits differ, the nearer the two."),
  );
}

function key(bit, differs, meaning) {
  const attributes = { class: "pattern", viewBox: "0 0 10 10", "aria-hidden": "true" };
  return make("li", {}, draw("svg", attributes, square(0, 0, bit, differs)), meaning);
}

// A bar is a pair of numbers made visible; the numbers stand beside it as text.
function bars(rows) {
  const most = Math.max(...rows.map((row) => row.value), Number.MIN_VALUE);
  return make(
    "dl",
    { class: "bars" },
    rows.flatMap(({ name, value, text, kind }) => {
      const length = draw("rect", { class: kind, width: Math.max((100 * value) / most, 0.8), height: 4, rx: 0.4 });
      const bar = draw("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, length);
      return make("div", {}, make("dt", {}, name), make("dd", {}, text), bar);
    }),
  );
}

function memory() {
  const { bytes_per_item: ours, items } = answer;
  return section(
    "Bytes per item",
    bars([
      { name: "A code", value: ours, text: bytes(ours), kind: "ours" },
      { name: "512 floats", value: FLOATS, text: bytes(FLOATS), kind: "theirs" },
    ]),
    quiet(`All ${number(items)} items: ${bytes(ours * items)} instead of ${bytes(FLOATS * items)}.`),
  );
}

function time() {
  const { timing, looked_at: looked, items } = answer;
  const seen =
    looked === null
      ? "The engine does not say how many codes it looked at."
      : `${number(looked)} of ${number(items)} codes were looked at.`;
  return section(
    "Time",
    bars([
      { name: "Encode the query", value: timing.encode_ms ?? 0, text: milliseconds(timing.encode_ms), kind: "ours" },
      { name: "Search", value: timing.search_ms ?? 0, text: milliseconds(timing.search_ms), kind: "ours" },
      { name: "In all", value: timing.total_ms, text: milliseconds(timing.total_ms), kind: "theirs" },
    ]),
    quiet(seen),
  );
}
