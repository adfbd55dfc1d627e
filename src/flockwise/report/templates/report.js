"use strict";
// Tables that sort and search, and explanations in a box of their own. Without it the page reads the same.

const value = (row, column) => {
  const text = row.cells[column].textContent.trim();
  const number = Number(text.replace(/[,%\s]/g, "").replace("−", "-"));
  return text === "–" ? null : Number.isNaN(number) ? text : number;
};

const compare = (one, other) => {
  if (one === null || other === null) return (one === null) - (other === null);
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), undefined, { numeric: true });
};

for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
    const direction = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    headings.forEach((each) => each.setAttribute("aria-sort", "none"));
    heading.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const keyed = [...table.tBodies[0].rows].map((row) => [value(row, column), row]);
    // Agents about which nothing is known stay last either way.
    keyed.sort(([one], [other]) => (one === null || other === null ? 1 : sign) * compare(one, other));
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  }));
}

const search = document.getElementById("agent-search");
if (search) {
  const rows = [...document.getElementById("agents").tBodies[0].rows];
  const count = document.getElementById("agent-count");
  const all = count.textContent;
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    const found = rows.filter((row) => !row.hidden).length;
    count.textContent = wanted ? `${found.toLocaleString("en")} of ${all}` : all;
  });
}

const box = document.createElement("div");
box.className = "tip-box";
box.setAttribute("role", "tooltip");
box.hidden = true;
document.body.append(box);
const show = (event) => {
  const place = event.currentTarget.getBoundingClientRect();
  box.textContent = event.currentTarget.dataset.tip;
  box.hidden = false;
  const left = Math.min(place.left, document.documentElement.clientWidth - box.offsetWidth - 8);
  const below = place.bottom + box.offsetHeight + 8 < window.innerHeight;
  box.style.left = `${Math.max(8, left)}px`;
  box.style.top = `${below ? place.bottom + 6 : Math.max(8, place.top - box.offsetHeight - 6)}px`;
};
const hide = () => { box.hidden = true; };
for (const explained of document.querySelectorAll("[title]:not(svg *)")) {
  explained.dataset.tip = explained.title;
  explained.setAttribute("aria-description", explained.title);
  explained.removeAttribute("title");
  explained.addEventListener("mouseenter", show);
  explained.addEventListener("focus", show);
  explained.addEventListener("mouseleave", hide);
  explained.addEventListener("blur", hide);
}
document.addEventListener("scroll", hide, { capture: true, passive: true });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
