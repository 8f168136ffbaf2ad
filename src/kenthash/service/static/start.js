// The page before a search: what this is, words to try, and pictures to start from.

import { search } from "./api.js";
import { bytes, button, find, make, number } from "./dom.js";
import { nameOf, seen } from "./grid.js";
import { thumbnail } from "./pictures.js";

const EXAMPLES = 6;
const TASTE = 12;

let invited = false; // the pictures to start from are asked for once

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
export async function start(about, labels, on) {
  find("#start-about").textContent = about.items
    ? `${number(about.items)} items, ${bytes(about.bytes_per_item)} each. Type words, or drop, paste or choose a file.`
    : "The index is empty. Add pictures to it with `kenthash index add FOLDER`, then load this page again.";
  const words = about.items ? examples(labels) : [];
  find("#examples").hidden = words.length === 0;
  find("#examples .chips").replaceChildren(
    ...words.map((text) => button(text, () => on.words(text), { class: "chip" })),
  );
  if (!words.length || invited) return;
  invited = true;
  // The middle of a ranking is as mixed as the index itself, and takes one small request.
  const offset = Math.max(0, Math.min(Math.floor(about.items / 2), 9000) - TASTE);
  try {
    const { hits } = await search({ text: words[0] }, { k: TASTE, offset });
    for (const hit of hits) seen.set(hit.id, hit.text);
    const cards = hits.filter((hit) => hit.has_image).map((hit) => {
      const frame = make("span", { class: "frame" }, thumbnail(hit, 160, "160px"));
      return make("li", {}, button(frame, () => on.similar(hit), { "aria-label": `Find similar to ${nameOf(hit)}` }));
    });
    find("#taste ul").replaceChildren(...cards);
    find("#taste").hidden = cards.length === 0;
  } catch {
    invited = false;
    // Only an invitation: a real search will say what is wrong.
  }
}
