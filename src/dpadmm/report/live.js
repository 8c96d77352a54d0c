"use strict";
(() => {
  const lost = document.getElementById("lost");
  const pause = 1000 * Number(document.body.dataset.every);

  // Only what differs is touched: whoever reads, scrolls or has opened something is not disturbed.
  function follow(old, now) {
    if (old.nodeName !== now.nodeName || old.childNodes.length !== now.childNodes.length) {
      old.replaceWith(document.importNode(now, true));
      return;
    }
    if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== now.data) old.data = now.data;
      return;
    }
    for (const { name } of [...old.attributes]) {
      if (name !== "open" && !now.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const { name, value } of now.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    [...old.childNodes].forEach((child, place) => follow(child, now.childNodes[place]));
  }

  async function look() {
    try {
      const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(answer.status);
      const seen = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of ["header", "main"]) {
        follow(document.querySelector(part), seen.querySelector(part));
      }
      lost.hidden = true;
    } catch {
      lost.hidden = false;
    }
    setTimeout(look, pause);
  }

  setTimeout(look, pause);
})();
