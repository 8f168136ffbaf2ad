// The prompt for the service's key, which is kept for this tab only.

import { keepKey } from "./api.js";
import { find } from "./dom.js";

const dialog = find("#key");
const field = find("#key-field");
const why = find("#key-why").textContent;

// Resolves to whether a key was given; `refused` is what the service said about the last one.
export function askKey(refused) {
  keepKey(null);
  field.value = "";
  find("#key-why").textContent = refused || why;
  find("#key-why").classList.toggle("refused", Boolean(refused));
  dialog.returnValue = "";
  if (!dialog.open) dialog.showModal();
  field.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const key = field.value.trim();
      const given = dialog.returnValue === "given" && key !== "";
      if (given) keepKey(key);
      field.value = "";
      resolve(given);
    }, { once: true });
  });
}

find("#key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  dialog.close("given");
});
find("#key-cancel").addEventListener("click", () => dialog.close(""));
