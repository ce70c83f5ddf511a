// What is said in passing: notes that go away by themselves, and alarms for readers of screens.

import { at, h } from "./dom.js";

const SHOWN_MS = 6000;

export function toast(text) {
  const note = h("p", { class: "toast" }, text);
  at("toasts").append(note);
  setTimeout(() => note.remove(), SHOWN_MS);
}

export function announce(text) {
  at("alerts").textContent = text;
}
