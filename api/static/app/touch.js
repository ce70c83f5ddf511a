// Whether what is shown can be believed: the line at the top, and the end of all green where it cannot.

import { at } from "./dom.js";
import { announce } from "./notice.js";

const SAYS = {
  idle: "Connected",
  live: "Live",
  polling: "Polling",
  lost: "The service does not answer; trying again",
  waiting: "Connecting",
};
let reached = null;
let how = "idle";

export function watchTouch() {
  addEventListener("trimtab:reached", ({ detail }) => {
    if (reached === false && detail) announce("The service answers again");
    reached = detail;
    say();
  });
  addEventListener("trimtab:live", ({ detail }) => {
    how = detail;
    say();
  });
  say();
}

function say() {
  const now = reached === null ? "waiting" : reached ? how : "lost";
  const line = at("link");
  document.body.classList.toggle("lost-touch", now === "lost");
  if (line.dataset.now === now) return;
  line.dataset.now = now;
  line.className = `link ${now}`;
  line.textContent = SAYS[now];
}
