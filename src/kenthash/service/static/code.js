// Codes as bits: what differs, and two ways to draw it.

import { draw } from "./dom.js";

// Bit i of byte j is code bit 8j + i.
export function bitsOf(hex) {
  const bits = [];
  for (let place = 0; place < hex.length; place += 2) {
    const byte = Number.parseInt(hex.slice(place, place + 2), 16);
    for (let i = 0; i < 8; i += 1) bits.push((byte >> i) & 1);
  }
  return bits;
}

export function differing(one, other) {
  const others = bitsOf(other);
  return bitsOf(one).flatMap((bit, place) => (bit === others[place] ? [] : [place]));
}

// A tick for every bit, tall where the two codes differ. Two paths, however many bits.
export function strip(one, other) {
  const bits = one.length * 4;
  const tall = new Set(differing(one, other));
  let same = "";
  let different = "";
  for (let place = 0; place < bits; place += 1) {
    if (tall.has(place)) different += `M${place + 0.5} 0V10`;
    else same += `M${place + 0.5} 7.5V10`;
  }
  return draw(
    "svg",
    { class: "strip", viewBox: `0 0 ${bits} 10`, preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("path", { class: "same", d: same }),
    draw("path", { class: "different", d: different }),
  );
}

// A bit as a square, full for 1 and hollow for 0; where the codes differ, a little larger and with a cross through it.
export function square(x, y, bit, differs) {
  const [inset, side] = differs ? [1, 8] : [1.5, 7];
  const kind = `bit ${bit ? "one" : "zero"}${differs ? " differs" : ""}`;
  const box = draw("rect", { x: x + inset, y: y + inset, width: side, height: side, rx: 1.5 });
  const cross = draw("path", { d: `M${x + 2.8} ${y + 2.8}l4.4 4.4m0-4.4l-4.4 4.4` });
  return draw("g", { class: kind }, box, differs ? cross : null);
}

export function pattern(hex, marked, label) {
  const bits = bitsOf(hex);
  const columns = bits.length <= 64 ? 8 : bits.length <= 256 ? 16 : 32;
  const rows = Math.ceil(bits.length / columns);
  const cross = new Set(marked);
  const squares = bits.map((bit, place) =>
    square((place % columns) * 10, Math.floor(place / columns) * 10, bit, cross.has(place)),
  );
  const box = `0 0 ${columns * 10} ${rows * 10}`;
  return draw("svg", { class: "pattern", viewBox: box, role: "img", "aria-label": label }, squares);
}
