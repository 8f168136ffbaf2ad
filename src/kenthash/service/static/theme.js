// Runs before the first paint (not a module), so that a chosen theme does not flash the other one.
(() => {
  "use strict";
  try {
    const chosen = localStorage.getItem("kenthash-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // No storage: the system's preference holds.
  }
})();
