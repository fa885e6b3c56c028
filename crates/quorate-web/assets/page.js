// Updates the page by server-sent events. Without it, the page works and shows the state of its load.
"use strict";
(() => {
  const { events, here } = document.body.dataset;
  if (!events || !document.getElementById("live")) return;

  // The viewer's time zone, unless the viewer has chosen one.
  if (!/(^|; )quorate-zone=/.test(document.cookie)) {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const path = events.replace(/\/events$/, "") || "/";
    if (zone) document.cookie = `quorate-zone=${zone}; path=${path}; max-age=31536000; samesite=strict`;
  }

  // A row and an action are known by their keys, everything else by its place.
  const keyOf = (node) => (node.nodeType === 1 ? node.getAttribute("data-key") : null);

  // Makes `from` equal to `to`, and changes no more than that: the focus, open details and half-filled forms stay.
  function update(from, to) {
    if (from.nodeName !== to.nodeName || keyOf(from) !== keyOf(to)) {
      from.replaceWith(document.importNode(to, true));
      return;
    }
    if (from.nodeType !== 1) {
      if (from.data !== to.data) from.data = to.data;
      return;
    }
    if (from.matches("details[open]")) return;
    if (from.matches("form") && from.contains(document.activeElement)) return;
    for (const { name } of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
    for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
    updateChildren(from, to);
  }

  // What has a key is neither replaced nor moved for what comes or goes beside it: a move would take the focus away.
  function updateChildren(from, to) {
    const wanted = new Set([...to.children].map(keyOf));
    const keyed = new Map();
    for (const child of [...from.children]) {
      const key = keyOf(child);
      if (key === null) continue;
      if (wanted.has(key)) keyed.set(key, child);
      else child.remove();
    }
    let place = from.firstChild;
    for (const next of [...to.childNodes]) {
      const key = keyOf(next);
      const unkeyed = place && keyOf(place) === null ? place : null;
      const old = key === null ? unkeyed : keyed.get(key);
      if (!old) {
        from.insertBefore(document.importNode(next, true), place);
        continue;
      }
      if (old !== place) from.insertBefore(old, place);
      place = old.nextSibling;
      update(old, next);
    }
    while (place) {
      const after = place.nextSibling;
      place.remove();
      place = after;
    }
  }

  let heard = Date.now();
  const readAt = () => document.querySelector("#live time").textContent;
  let shown = readAt();

  function alive(text) {
    heard = Date.now();
    shown = text;
    const gone = document.getElementById("gone");
    if (gone.textContent) gone.textContent = "";
    document.body.classList.remove("stale");
    const word = document.querySelector("#live .word");
    if (word.textContent !== "live,") word.textContent = "live,";
  }

  const source = new EventSource(`${events}?here=${encodeURIComponent(here)}`);
  source.addEventListener("page", (event) => {
    const next = new DOMParser().parseFromString(event.data, "text/html");
    if (document.title !== next.title) document.title = next.title;
    for (const part of ["header.top", "main", "footer"]) {
      const [from, to] = [document.querySelector(part), next.querySelector(part)];
      if (from && to) update(from, to);
    }
    alive(readAt());
  });
  source.addEventListener("tick", (event) => {
    const [time, left] = event.data.split(" ");
    document.querySelector("#live time").textContent = time;
    if (left) for (const bar of document.querySelectorAll(".lease .left")) bar.setAttribute("width", left);
    alive(time);
  });

  // The browser opens a stream that has ended again. It stops after an answer that is an error, such as 403.
  setInterval(() => {
    if (Date.now() - heard < 5000) return;
    const text = `Not live since ${shown}: there is no connection to the server. What you see may be out of date.`;
    const gone = document.getElementById("gone");
    if (gone.textContent !== text) gone.textContent = text;
    document.querySelector("#live .word").textContent = "not live since";
    document.body.classList.add("stale");
  }, 1000);
})();
