// Follow a job: move its bar, and load the page again at its end. The browser connects again by itself.
"use strict";
const watch = document.getElementById("watch");
if (watch) {
  const bar = document.getElementById("share");
  const what = document.getElementById("what");
  const lines = document.getElementById("lines");
  const events = new EventSource(watch.dataset.events);
  events.onopen = () => { watch.textContent = "This page follows the work by itself."; };
  events.onerror = () => { watch.textContent = "The server does not answer. The work goes on; this page tries again."; };
  events.onmessage = (event) => {
    const now = JSON.parse(event.data);
    if (now.share === null) bar.removeAttribute("value"); else bar.value = now.share;
    if (what.textContent !== now.what) what.textContent = now.what;
    lines.replaceChildren(...now.lines.map((line) => {
      const item = document.createElement("li");
      item.textContent = line;
      return item;
    }));
  };
  events.addEventListener("end", () => { events.close(); location.reload(); });
}
// A form is sent once: a second click while it is on its way does nothing.
for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", (event) => {
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
    for (const button of form.querySelectorAll("button")) button.setAttribute("aria-disabled", "true");
  });
}
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form")) {
    delete form.dataset.sent;
    for (const button of form.querySelectorAll("button")) button.removeAttribute("aria-disabled");
  }
});
