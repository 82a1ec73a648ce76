// The table of queries: only the rows that are looked at are made, and every text is put in as text.
"use strict";
(() => {
  const source = document.getElementById("queries-data");
  if (!source) return;
  const { sets, documents, queries } = JSON.parse(source.textContent);
  const SHOWN = 50, RELEVANT = 1, FORGOTTEN = 2;
  const body = document.querySelector("#queries-table tbody");
  const heads = [...document.querySelectorAll("#queries-table thead th")];
  const search = document.getElementById("search");
  const only = document.getElementById("only");
  const told = document.getElementById("found");
  const more = document.getElementById("more");
  const labels = heads.map((head) => head.textContent.trim());
  const rows = queries.map(([id, text, member, places, before, after]) => {
    const named = member.map((set) => sets[set]);
    return { id, text, named, places, before, after, keys: [text || id, named.join(", "), ...places], words: null };
  });
  let sorted = { column: null, up: true }, found = rows, shown = 0;

  const make = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const title = (row) => row.text || (row.id ? `query ${row.id}` : "removed query");

  const ranking = (flat, heading) => {
    const list = make("ol");
    for (let at = 0; at < flat.length; at += 3) {
      const [number, score, mark] = flat.slice(at, at + 3);
      const item = make("li");
      if (mark & FORGOTTEN) item.className = "forgotten";
      else if (mark & RELEVANT) item.className = "relevant";
      if (item.className) item.append(make("span", { class: "tag" }, mark & FORGOTTEN ? "forgotten" : "relevant, kept"));
      const [id, text] = number < 0 ? ["", "removed document"] : documents[number];
      if (id) item.append(make("span", { class: "id" }, id));
      item.append(text, " ", make("span", { class: "id" }, `score ${score}`));
      list.append(item);
    }
    return make("div", {}, make("h4", {}, heading), list);
  };

  const unfold = (row, line, button) => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) { line.nextSibling.remove(); return; }
    const lists = row.before
      ? make("div", { class: "pair" }, ranking(row.before, "Before"), ranking(row.after, "After"))
      : make("p", { class: "note" }, "This query was removed; its lists are left out.");
    line.after(make("tr", { class: "lists" }, make("td", { colspan: String(labels.length) }, lists)));
  };

  const line = (row) => {
    const button = make("button", { type: "button", class: "open", "aria-expanded": "false" }, title(row));
    const cells = row.keys.slice(1).map((value, place) =>
      make("td", { "data-label": labels[place + 1], ...(place ? { class: "number" } : {}) }, value === 0 ? "" : String(value)));
    const made = make("tr", {}, make("th", { scope: "row" }, button), ...cells);
    button.addEventListener("click", () => unfold(row, made, button));
    return made;
  };

  const show = (count) => {
    body.append(...found.slice(shown, shown + count).map(line));
    shown = Math.min(found.length, shown + count);
    told.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} queries`;
    more.hidden = shown >= found.length;
  };

  const wordsOf = (row) => {
    if (row.words === null) {
      const numbers = new Set([...(row.before || []), ...(row.after || [])].filter((_, at) => at % 3 === 0));
      const texts = [...numbers].filter((number) => number >= 0).map((number) => documents[number].join(" "));
      row.words = [row.id, row.text, ...texts].join(" ").toLowerCase();
    }
    return row.words;
  };

  const compare = (a, b) => {
    const [x, y] = [a.keys[sorted.column], b.keys[sorted.column]];
    if (typeof x === "string") return x < y ? -1 : x > y ? 1 : 0;
    return (x || Infinity) === (y || Infinity) ? 0 : (x || Infinity) - (y || Infinity);
  };

  const refresh = () => {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = rows.filter((row) => (!only.value || row.named.includes(only.value)) && wanted.every((word) => wordsOf(row).includes(word)));
    if (sorted.column !== null) found = [...found].sort((a, b) => (sorted.up ? compare(a, b) : compare(b, a)));
    body.replaceChildren();
    shown = 0;
    show(SHOWN);
  };

  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    sorted = { column, up: sorted.column === column ? !sorted.up : true };
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sorted.up ? "ascending" : "descending");
    refresh();
  }));
  let waiting;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refresh, 120); });
  only.addEventListener("change", refresh);
  more.addEventListener("click", () => show(SHOWN));
  refresh();
})();
