"use strict";
// Sort a table by the column whose head is clicked or activated by the keyboard: numbers from the largest, words from A.
const value = (row, column) => row.cells[column].textContent.trim();
const number = (text) => parseFloat(text.replace("−", "-").replaceAll(",", ""));
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  for (const [column, head] of [...table.tHead.rows[0].cells].entries()) {
    head.tabIndex = 0;
    const sort = () => {
      const numeric = head.classList.contains("n");
      const again = head.getAttribute("aria-sort");
      const down = again ? again === "ascending" : numeric;
      const order = (a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        if (!numeric) return x.localeCompare(y);
        const [m, n] = [number(x), number(y)];
        return Number.isNaN(m) ? (down ? -1 : 1) : Number.isNaN(n) ? (down ? 1 : -1) : m - n;
      };
      const rows = [...body.rows].sort(order);
      body.append(...(down ? rows.reverse() : rows));
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        sort();
      }
    });
  }
}
