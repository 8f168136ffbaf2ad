// Groups of pictures that are nearly the same, with their files: what could be deleted, which is left to people.

import { duplicates } from "./api.js";
import { bytes, button, find, make, number } from "./dom.js";
import { thumbnail } from "./pictures.js";

const PAGE = 30; // groups
const WAIT = 1500; // milliseconds until a search that is under way is asked for again

const list = find("#copies");
const status = find("#status");

// Shows the first groups, and more on request. `similar` takes an item.
export async function showDuplicates(signal, similar) {
  let answer = await duplicates(0, PAGE);
  while (!answer.complete && !signal.aborted) {
    status.textContent = "Comparing all pictures …";
    await new Promise((resolve) => setTimeout(resolve, WAIT));
    answer = await duplicates(0, PAGE);
  }
  if (signal.aborted) return;
  status.textContent = answer.all_groups
    ? `${groups(answer.all_groups)} of pictures that are nearly the same, ${number(answer.all_items)} pictures in all`
    : "No two pictures here are nearly the same.";
  list.replaceChildren(...answer.groups.map((group) => card(group, similar)));
  more(signal, similar, answer);
}

const groups = (count) => (count === 1 ? "1 group" : `${number(count)} groups`);

function more(signal, similar, answer) {
  const shown = list.children.length;
  if (shown >= answer.all_groups || !answer.groups.length) return;
  const next = async (event) => {
    event.target.disabled = true;
    const later = await duplicates(shown, PAGE).catch(() => null);
    if (signal.aborted) return;
    event.target.disabled = false;
    if (!later) return;
    event.target.closest("li").remove();
    list.append(...later.groups.map((group) => card(group, similar)));
    more(signal, similar, later);
  };
  list.append(make("li", { class: "rest" }, button(`Show more of ${groups(answer.all_groups)}`, next)));
}

function card(group, similar) {
  const copy = (item) => {
    const image = thumbnail(item, 160, "160px");
    const pixels = item.width && item.height ? `${number(item.width)} × ${number(item.height)}` : null;
    const about = [pixels, item.bytes ? bytes(item.bytes) : null].filter(Boolean).join(", ");
    const [name, ...folder] = item.id.split("/").reverse();
    return make(
      "li",
      {},
      button(make("span", { class: `frame${image ? "" : " missing"}` }, image), () => similar(item), {
        "aria-label": `Find similar to ${item.id}`,
      }),
      make("p", { class: "name" }, name),
      folder.length ? make("p", { class: "quiet" }, folder.reverse().join("/")) : null,
      about ? make("p", { class: "quiet" }, about) : null,
    );
  };
  return make("li", { class: "group" }, make("ul", {}, group.items.map(copy)));
}
