"use strict";
// Sort a table by the column of the button that is pressed: numbers where the column has some, else texts.
const key = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
};
const text = (row, column) => row.cells[column].textContent.trim();
const sort = (table, column, ascending) => {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const numbers = rows.some((row) => key(row, column) !== null);
  const sign = ascending ? 1 : -1;
  rows.sort((a, b) => {
    if (!numbers) return sign * text(a, column).localeCompare(text(b, column), undefined, { numeric: true });
    const [x, y] = [key(a, column), key(b, column)];
    if (x === null || y === null) return (x === null) - (y === null); // what has no number stays below
    return sign * (x - y);
  });
  body.append(...rows);
};
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      sort(table, column, ascending);
    });
  });
}
// On paper nothing can be unfolded.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
