// One hit, large: the whole picture, its texts, labels and metadata. Arrows go on to its neighbours.

import { imageOf, hasKey } from "./api.js";
import { button, find, make } from "./dom.js";
import { differ, match, nameOf } from "./grid.js";
import { placeName } from "./photo_filters.js";
import { whole } from "./pictures.js";

// Ours and of no interest to a reader, or shown elsewhere in the dialog.
const HIDDEN = new Set([
  "path", "size", "mtime", "digest", "labels", "text", "texts", "width", "height", "orientation", "latitude", "longitude",
]);
const NEAR_KM = 2; // of "taken near here"

const dialog = find("#viewer");
const image = find("#viewer-image");

// `on` has similar(hit), label(name), near(place on the map), bits(place) and closed(place).
export function start(grid, on) {
  let place = 0;
  const go = (step) => {
    const next = place + step;
    if (next >= 0 && next < grid.hits.length) show(next);
  };
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") go(1);
    else if (event.key === "ArrowLeft") go(-1);
  });
  dialog.addEventListener("close", () => on.closed(place));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  find("#viewer-close").addEventListener("click", () => dialog.close());
  find("#viewer-back").addEventListener("click", () => go(-1));
  find("#viewer-next").addEventListener("click", () => go(1));

  function show(wanted) {
    place = wanted;
    const hit = grid.hits[place];
    find("#viewer-title").textContent = nameOf(hit);
    find("#viewer-back").disabled = place === 0;
    find("#viewer-next").disabled = place === grid.hits.length - 1;
    image.dataset.id = hit.id;
    image.alt = hit.text ?? "";
    image.removeAttribute("src");
    image.hidden = !hit.has_image;
    find("#viewer-missing").hidden = hit.has_image;
    if (hit.has_image) whole(hit, image).catch(() => {
      // An original that this browser cannot show leaves its thumbnail; one of before is of no interest.
      if (image.dataset.id !== hit.id || image.hasAttribute("src")) return;
      image.hidden = true;
      find("#viewer-missing").hidden = false;
    });
    find("#viewer-about").replaceChildren(...about(hit, grid.query.bits));
    if (!dialog.open) dialog.showModal();
  }

  function leave(then) {
    dialog.close();
    then();
  }

  function about(hit, bits) {
    const { text: first, texts } = hit.metadata;
    const others = [...new Set([first ?? [], texts ?? []].flat())].filter((text) => text !== hit.text);
    const known = Object.entries(hit.metadata).filter(([key, value]) => !HIDDEN.has(key) && value !== null);
    const { width, height, latitude, longitude } = hit.metadata;
    const near = Number.isFinite(latitude) && Number.isFinite(longitude) ? `${latitude},${longitude},${NEAR_KM}` : "";
    const rows = [
      ...(match(hit) ? [[hit.by_words ? "found by" : "relevance", hit.by_words ? "its words" : match(hit)]] : []),
      ["distance", differ(hit, bits)],
      ...known,
      ...(near ? [["place", placeName(near)]] : []),
      ...(width && height ? [["pixels", `${width} × ${height}`]] : []),
      ["item", hit.id],
    ];
    const chip = (label) =>
      button(label, () => leave(() => on.label(label)), { class: "chip", title: `Only items labelled ${label}` });
    const row = ([key, value]) =>
      make("div", {}, make("dt", {}, key), make("dd", {}, Array.isArray(value) ? value.join(", ") : String(value)));
    const original = { href: imageOf(hit.id), target: "_blank", rel: "noopener" };
    return [
      others.length ? make("ul", { class: "texts" }, others.map((text) => make("li", {}, text))) : null,
      hit.labels.length ? make("p", { class: "chips" }, hit.labels.map(chip)) : null,
      make("dl", { class: "rows" }, rows.map(row)),
      make(
        "p",
        { class: "actions" },
        button("Find similar", () => leave(() => on.similar(hit)), { class: "main" }),
        near ? button("Taken near here", () => leave(() => on.near(near))) : null,
        button("Compare the codes", () => leave(() => on.bits(place))),
        hit.has_image && !hasKey() ? make("a", original, "Original file") : null,
      ),
    ].filter(Boolean);
  }

  return show;
}
