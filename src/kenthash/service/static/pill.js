// In the box, a picture that is searched with: one from this computer, or an item.

import { button, find, icon, make } from "./dom.js";
import { nameOf, seen } from "./grid.js";
import { thumbnail } from "./pictures.js";
import { keptPicture } from "./state.js";

const place = find("#pill");
let shown = "";
let preview = "";

export function pill(state, ask) {
  const key = state.like || state.picture;
  const words = find("#words");
  words.placeholder = key ? "Words to add" : "Describe a picture";
  place.hidden = !key;
  const file = keptPicture(state.picture);
  const name = state.like ? nameOf({ id: state.like, text: seen.get(state.like) }) : (file?.name ?? "a picture");
  if (`${key} ${name}` === shown) return;
  shown = `${key} ${name}`;
  if (preview) URL.revokeObjectURL(preview);
  preview = "";
  if (!key) return place.replaceChildren();
  let image;
  if (state.like) image = thumbnail({ id: state.like, has_image: true }, 32, "32px");
  else if (file) {
    preview = URL.createObjectURL(file);
    image = make("img", { src: preview, alt: "", width: 32, height: 32, onerror: (event) => event.target.remove() });
  }
  const remove = () => {
    ask({ like: "", picture: "" });
    words.focus();
  };
  return place.replaceChildren(
    make("span", { class: "frame" }, image),
    make("span", { class: "name" }, name),
    button(icon("close"), remove, { "aria-label": "Search without this picture", title: "Remove" }),
  );
}
