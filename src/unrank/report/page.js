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

// The tables of a bench: sorted by a column's name, filtered by the bar, and cells that are opened.
(() => {
  const bar = document.querySelector(".filters");
  if (!bar) return;
  const selects = [...bar.querySelectorAll("select")];
  const told = document.getElementById("shown-cells");
  const opened = JSON.parse(document.getElementById("cells-data").textContent);
  const make = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const tables = [...document.querySelectorAll("main .scroll > table")];
  const isCell = (row) => row.hasAttribute("data-cell");
  const rowsOf = (table) => [...table.tBodies[0].rows].filter((row) => !row.matches(".apart, .opened"));

  const close = (row) => {
    const next = row.nextElementSibling;
    if (next && next.matches(".opened")) next.remove();
    row.querySelector(".open")?.setAttribute("aria-expanded", "false");
  };

  const key = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.key === undefined ? cell.textContent.trim() : Number(cell.dataset.key);
  };
  const sort = (table, head, column) => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = rowsOf(table);
    rows.forEach(close);
    const apart = table.querySelector(".apart");
    const after = new Set();
    for (let next = apart; next; next = next.nextElementSibling) after.add(next);
    const order = (a, b) => {
      const [x, y] = [key(a, column), key(b, column)];
      if (x === "" || y === "") return x === y ? 0 : x === "" ? 1 : -1;
      const less = typeof x === "number" && typeof y === "number" ? x - y : String(x) < String(y) ? -1 : x === y ? 0 : 1;
      return up ? less : -less;
    };
    const parts = [rows.filter((row) => !after.has(row)), rows.filter((row) => after.has(row))];
    parts.forEach((part) => part.sort(order));
    table.tBodies[0].append(...parts[0], ...(apart ? [apart] : []), ...parts[1]);
  };
  for (const table of tables) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, head, column));
    });
  }

  const side = (of) => of === null ? "" : `${of[0].toFixed(3)} (${of[1].toFixed(3)} to ${of[2].toFixed(3)})`;
  const unfold = (row, button) => {
    const open = button.getAttribute("aria-expanded") === "true";
    close(row);
    if (open) return;
    button.setAttribute("aria-expanded", "true");
    const { facts, sets } = opened[row.dataset.cell];
    const list = make("dl", { class: "facts" });
    for (const [name, value] of facts) list.append(make("dt", {}, name), make("dd", {}, value));
    const head = ["set", "queries", "MRR before (95 %)", "MRR after (95 %)"].map((name) => make("th", { scope: "col" }, name));
    const body = sets.filter(([, , after]) => after !== null).map(([name, before, after]) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, String(after[3])), make("td", {}, side(before)), make("td", {}, side(after))));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
    row.after(make("tr", { class: "opened" }, make("td", { colspan: String(row.cells.length) }, make("div", { class: "pair" }, list, table))));
  };
  for (const row of document.querySelectorAll("tr[data-cell]")) {
    const head = row.cells[0];
    const button = make("button", { type: "button", class: "open", "aria-expanded": "false" }, ...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => unfold(row, button));
  }

  const filter = () => {
    const wanted = selects.filter((select) => select.value).map((select) => [`data-${select.dataset.filter}`, select.value]);
    let cells = 0, all = 0;
    for (const table of tables) {
      for (const row of rowsOf(table)) {
        row.hidden = wanted.some(([name, value]) => row.hasAttribute(name) && row.getAttribute(name) !== value);
        if (row.hidden) close(row);
        if (isCell(row)) { all += 1; cells += row.hidden ? 0 : 1; }
      }
    }
    told.textContent = `${cells.toLocaleString("en")} of ${all.toLocaleString("en")} cells shown`;
    bar.classList.toggle("on", wanted.length > 0);
  };
  selects.forEach((select) => select.addEventListener("change", filter));
  document.getElementById("clear-filters").addEventListener("click", () => {
    selects.forEach((select) => { select.value = ""; });
    filter();
  });
  filter();
})();
