// What people do: type, choose, drop and paste; and the keys that work everywhere on the page.

import { find } from "./dom.js";
import * as hood from "./hood.js";

// `on` has words(text), picture(file), refused(title, detail), find(what) and results().
export function startInput(on) {
  find("#ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = find("#words").value.trim();
    if (text) on.words(text);
  });
  for (const radio of document.getElementsByName("find")) radio.addEventListener("change", () => on.find(radio.value));
  pictures(on);
  panels();
  keys(on);
}

function pictures(on) {
  const file = find("#file");
  find("#choose").addEventListener("click", () => file.click());
  file.addEventListener("change", () => {
    if (file.files.length) take(file.files);
    file.value = ""; // the same file can be chosen again
  });
  addEventListener("paste", (event) => {
    if (!event.clipboardData?.files.length) return; // words go where the cursor is
    event.preventDefault();
    take(event.clipboardData.files);
  });

  function take(files) {
    const picture = [...files].find(({ type }) => type === "" || type.startsWith("image/"));
    if (picture) on.picture(picture);
    else on.refused(`${files[0].name} is not a picture`, "Search with a JPEG, PNG, WebP or similar file, or words.");
  }

  const veil = find("#drop");
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  let depth = 0; // enter and leave come for every element on the way
  const over = (change) => {
    depth = Math.max(0, depth + change);
    veil.hidden = depth === 0;
  };
  addEventListener("dragenter", (event) => carries(event) && over(1));
  addEventListener("dragleave", (event) => carries(event) && over(-1));
  addEventListener("dragover", (event) => carries(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    over(-depth);
    if (!carries(event)) return;
    event.preventDefault();
    if (event.dataTransfer.files.length) take(event.dataTransfer.files);
  });
}

function panels() {
  const keys = find("#keys");
  find("#keys-button").addEventListener("click", () => keys.showModal());
  find("#keys-close").addEventListener("click", () => keys.close());
  keys.addEventListener("click", (event) => event.target === keys && keys.close());
  find("#hood-button").addEventListener("click", () => hood.open(!hood.isOpen()));
  find("#hood-close").addEventListener("click", closeHood);
  find("#theme-button").addEventListener("click", () => {
    const root = document.documentElement;
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    root.dataset.theme = (root.dataset.theme ?? system) === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("kenthash-theme", root.dataset.theme);
    } catch {
      // No storage: for this visit only.
    }
  });
}

function closeHood() {
  const within = find("#hood").contains(document.activeElement);
  hood.open(false);
  if (within) find("#hood-button").focus();
}

function keys(on) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || find("dialog[open]")) return;
    const field = event.target.closest?.("input:not([type=radio]), textarea");
    if (event.key === "Escape") {
      if (hood.isOpen()) closeHood();
      else field?.blur();
    } else if (field) {
      if (event.key !== "ArrowDown" || field.id !== "words" || !on.results()) return;
    } else if (event.key === "/") toBox();
    else if (event.key === "?") find("#keys").showModal();
    else if (event.key === "u") hood.isOpen() ? closeHood() : hood.open(true);
    else return;
    event.preventDefault();
  });
}

function toBox() {
  find("#words").focus();
  find("#words").select();
}
