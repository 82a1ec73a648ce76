"use strict";
// Shows each state of a run that the server sends.
const shown = document.getElementById("watch");
const events = new EventSource("events");
events.onmessage = (message) => {
  const open = [...shown.querySelectorAll("details")].map((each) => each.open);
  shown.innerHTML = JSON.parse(message.data).html;
  shown.querySelectorAll("details").forEach((each, place) => { each.open = open[place] ?? each.open; });
  if (JSON.parse(message.data).over) events.close();
};
events.onerror = () => { document.getElementById("lost").hidden = events.readyState === EventSource.OPEN; };
events.onopen = () => { document.getElementById("lost").hidden = true; };
