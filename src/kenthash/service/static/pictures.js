// Thumbnails that load when they come near the screen, with and without a key.

import { blobOf, hasKey, imageOf, thumbnailOf } from "./api.js";
import { make } from "./dom.js";

const SIZES = [128, 256, 512];

// Behind a key an <img> cannot load by itself: the picture is fetched when it comes into view.
const paths = new WeakMap();
const near = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      fetched(target, paths.get(target));
    }
  },
  { rootMargin: "400px" },
);

async function fetched(image, path) {
  try {
    image.src = await blobOf(path);
    // Once decoded, the blob's address is no longer needed.
    image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
  } catch {
    image.dispatchEvent(new Event("error"));
  }
}

function missing(event) {
  event.target.closest(".frame")?.classList.add("missing");
  event.target.remove();
}

// `width` is the width in CSS pixels that the picture is shown at, `sizes` the same for <img sizes>.
export function thumbnail(hit, width, sizes) {
  if (!hit.has_image) return null;
  // The frame sets the shape; the attributes keep the place before the style sheet is there.
  const common = { alt: "", width: 256, height: 256, draggable: "false", decoding: "async", onerror: missing };
  if (!hasKey()) {
    const srcset = SIZES.map((size) => `${thumbnailOf(hit.id, size)} ${size}w`).join(", ");
    return make("img", { ...common, loading: "lazy", sizes, srcset, src: thumbnailOf(hit.id, 256) });
  }
  const wanted = width * (window.devicePixelRatio || 1);
  const image = make("img", common);
  paths.set(image, thumbnailOf(hit.id, SIZES.find((size) => size >= wanted) ?? 512));
  near.observe(image);
  return image;
}

// The whole picture, its thumbnail first so that something is there at once.
export async function whole(hit, image) {
  const paths = [thumbnailOf(hit.id, 512), imageOf(hit.id)];
  for (const path of paths) {
    if (image.dataset.id !== hit.id) return; // another one has been asked for since
    const address = hasKey() ? await blobOf(path) : path;
    const ready = new Image();
    try {
      ready.src = address;
      await ready.decode();
      if (image.dataset.id !== hit.id) return;
      image.src = address;
      await image.decode().catch(() => {}); // which the next one may break off
    } finally {
      if (address !== path) URL.revokeObjectURL(address);
    }
  }
}
