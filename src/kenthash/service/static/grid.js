// The results: a card for each hit. Arrows move between the cards, and only the current one is a tab stop.

import { button, draw, icon, make } from "./dom.js";
import { strip } from "./code.js";
import { thumbnail } from "./pictures.js";

export const CLOSE = 0.5; // below this relevance a hit is more often wrong than right

function meter(share) {
  const attributes = { class: "meter", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" };
  return draw("svg", attributes, draw("rect", { width: Math.max(100 * share, 1), height: 4 }));
}

export const differ = (hit, bits) => `${hit.distance} of ${bits} bits differ`;

// As people read it: by its words, or in per cent; null where the model was not calibrated.
export function match(hit) {
  if (hit.by_words) return "words match";
  if (typeof hit.relevance !== "number") return null;
  const percent = Math.round(100 * hit.relevance);
  return `${percent < 1 ? "under 1" : percent > 99 ? "over 99" : percent} % match`;
}

export const nameOf = (hit) => hit.text || hit.id.split("/").at(-1);

// Texts of the items that have been shown: an answer about an item does not tell its own.
export const seen = new Map();

export class Grid {
  // `on` has similar(hit), link(hit), closer(place), bits(place), moved(place), above() and below().
  constructor(list, on) {
    this.list = list;
    this.on = on;
    this.hits = [];
    this.place = 0;
    list.addEventListener("keydown", (event) => this.#key(event));
    list.addEventListener("focusin", (event) => {
      const card = event.target.closest(".card");
      if (card) this.choose([...list.children].indexOf(card));
    });
  }

  show(hits, query, find) {
    this.hits = [];
    this.place = 0;
    this.query = query;
    this.list.classList.toggle("texts", find === "texts");
    this.list.replaceChildren();
    this.add(hits, find);
  }

  add(hits, find) {
    const first = this.hits.length;
    this.hits.push(...hits);
    for (const hit of hits) seen.set(hit.id, hit.text);
    this.list.append(...hits.map((hit, i) => this.#card(hit, first + i, find)));
    if (first === 0 && hits.length) this.choose(0);
  }

  focus(place) {
    const card = this.list.children[Math.max(0, Math.min(place, this.hits.length - 1))];
    card?.querySelector("a").focus();
    card?.scrollIntoView({ block: "nearest" });
    return Boolean(card);
  }

  #card(hit, place, find) {
    const narrow = find === "texts";
    const sizes = narrow ? "96px" : "(max-width: 40rem) 46vw, 240px";
    const image = thumbnail(hit, narrow ? 96 : 240, sizes);
    const follow = (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab or window, as for any link
      event.preventDefault();
      this.on.similar(hit);
    };
    const link = make(
      "a",
      { class: "hit", href: this.on.link(hit), tabindex: -1, onclick: follow },
      make("span", { class: `frame${image ? "" : " missing"}` }, image),
      make("span", { class: "unseen" }, "Find similar to "),
      make("span", { class: hit.text ? "caption" : "caption name" }, nameOf(hit)),
    );
    const bits = differ(hit, this.query.bits);
    const likely = match(hit);
    const why = hit.by_words ? "Its name, texts or labels have all the words" : "How often a result like this one is right";
    const about = likely ? `${why}. ${bits}. ` : "";
    const distance = button(likely ?? bits, () => this.on.bits(place), {
      class: "distance", tabindex: -1, title: `${about}Compare the two codes, bit by bit (B)`,
    });
    const closer = button(icon("expand"), () => this.on.closer(place), {
      class: "closer", tabindex: -1, "aria-label": `Look closer: ${nameOf(hit)}`, title: "Look closer (O)",
    });
    const measure = make("div", { class: "measure" }, distance, closer);
    const share = hit.by_words ? 1 : hit.relevance;
    const drawn = likely ? meter(share) : strip(this.query.code, hit.code);
    return make("li", { class: `card${likely && share >= CLOSE ? " likely" : ""}` }, link, measure, drawn);
  }

  // Make a card the current one, without moving the focus.
  choose(place) {
    for (const [i, stop] of [[this.place, -1], [place, 0]]) {
      const card = this.list.children[i];
      card?.classList.toggle("current", stop === 0);
      for (const part of card?.querySelectorAll("a, button") ?? []) part.tabIndex = stop;
    }
    const moved = this.place !== place;
    this.place = place;
    if (moved) this.on.moved(place);
  }

  #columns() {
    const cards = [...this.list.children];
    const next = cards.findIndex((card) => card.offsetTop > cards[0].offsetTop);
    return next < 0 ? cards.length : next;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const columns = this.#columns();
    const last = this.hits.length - 1;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
    const ends = { Home: 0, End: last };
    let place = null;
    if (event.key in steps) place = this.place + steps[event.key];
    else if (event.key in ends) place = ends[event.key];
    else if (event.key === "o") this.on.closer(this.place);
    else if (event.key === "b") this.on.bits(this.place);
    else return;
    event.preventDefault();
    if (place === null) return;
    if (place < 0 && event.key === "ArrowUp") this.on.above();
    else if (place > last && event.key === "ArrowDown") this.on.below();
    else this.focus(place);
  }
}
