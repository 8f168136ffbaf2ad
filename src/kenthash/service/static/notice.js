// What went wrong, or is not there, in two lines and with what can be done about it.

import { button, find, make } from "./dom.js";

const place = find("#notice");

// `actions` are pairs of a label and a function.
export function notice(title, detail, actions = [], kind = "") {
  place.className = kind;
  place.replaceChildren(
    make("h2", {}, title),
    make("p", {}, ...code(detail)),
    ...(actions.length ? [make("p", { class: "actions" }, actions.map(([label, act]) => button(label, act)))] : []),
  );
}

export const fail = (error, actions) => {
  if (!("status" in error)) throw error; // a fault of this page: leave it to the console
  notice(error.title, error.message, actions, "error");
};

export const clearNotice = () => place.replaceChildren();

// `commands` in back quotes are set as code.
const code = (text) => text.split("`").map((part, i) => (i % 2 ? make("code", {}, part) : part));
