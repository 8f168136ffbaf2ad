// The page before a search: what this is, words to try, and pictures to start from.

import { search } from "./api.js";
import { bytes, button, find, make, number } from "./dom.js";
import { nameOf, seen } from "./grid.js";
import { thumbnail } from "./pictures.js";

const EXAMPLES = 6;
const TASTE = 12;
// For an index without labels. Where one of these is not there, the answer says that nothing is close.
const COMMON = ["people at a table", "a dog outdoors", "food on a plate", "a street at night", "the sea", "a child playing"];

let invited = null; // what the pictures to start from were asked for with

function noun(label) {
  if (/s$/i.test(label)) return label; // skis, scissors: no article
  return `${/^[aeiou]/i.test(label) ? "an" : "a"} ${label}`;
}

// Labels by themselves and in pairs: what the index surely has, in words as people write them.
export function examples(labels) {
  const names = labels.map(({ label }) => label).filter((label) => label.length <= 24);
  const words = [];
  for (let i = 0; i < names.length && words.length < EXAMPLES; i += 3) {
    words.push(noun(names[i]));
    if (i + 2 < names.length) words.push(`${noun(names[i + 1])} and ${noun(names[i + 2])}`);
  }
  return words.slice(0, EXAMPLES);
}

// `on` has words(text) and similar(hit).
export async function start(about, labels, filter, on) {
  find("#start-title").textContent = `Find pictures by words, ${about.finds.includes("texts") ? "and words by a picture" : "or by a picture"}`;
  find("#start-about").textContent = about.items
    ? `${number(about.items)} items, ${bytes(about.bytes_per_item)} each. Type words, or drop, paste or choose a file.`
    : "The index is empty. Add pictures to it with `kenthash index add FOLDER`: they will be found from here at once.";
  const words = about.items ? (labels.length ? examples(labels) : COMMON) : [];
  find("#examples").hidden = words.length === 0;
  find("#examples .chips").replaceChildren(
    ...words.map((text) => button(text, () => on.words(text), { class: "chip" })),
  );
  const wanted = `${filter} ${about.items > 0}`;
  if (wanted === invited) return;
  invited = wanted;
  find("#taste h2").textContent = filter ? "Some that pass the filters" : "Or start from a picture";
  if (!about.items) {
    find("#taste").hidden = true;
    return;
  }
  // The middle of a ranking is as mixed as the index itself, and takes one small request.
  const offset = filter ? 0 : Math.max(0, Math.min(Math.floor(about.items / 2), 9000) - TASTE);
  try {
    const { hits } = await search({ text: words[0] }, { k: TASTE, offset, filter });
    if (wanted !== invited) return; // another filter since
    for (const hit of hits) seen.set(hit.id, hit.text);
    const cards = hits.filter((hit) => hit.has_image).map((hit) => {
      const frame = make("span", { class: "frame" }, thumbnail(hit, 160, "160px"));
      return make("li", {}, button(frame, () => on.similar(hit), { "aria-label": `Find similar to ${nameOf(hit)}` }));
    });
    find("#taste ul").replaceChildren(...cards);
    find("#taste").hidden = cards.length === 0;
  } catch {
    invited = null;
    // Only an invitation: a real search will say what is wrong.
  }
}
