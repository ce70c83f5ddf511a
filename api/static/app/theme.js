// Light or dark: as the system has it, until a person chooses.

import { at, h, icon } from "./dom.js";

const KEY = "trimtab-theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const root = document.documentElement;
let choice = stored();

export function startTheme() {
  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  at("theme").addEventListener("click", () => {
    choice = NEXT[choice];
    keep(choice);
    apply();
    tell();
  });
}

// Calls back whenever the colours change.
export const onTheme = (listener, signal) => addEventListener("trimtab:theme", listener, { signal });

// A custom property of the page as a colour that anything can read.
export function colour(name) {
  probe.style.color = `var(--${name})`;
  if (!probe.isConnected) root.append(probe);
  return getComputedStyle(probe).color;
}

const probe = document.createElement("span");
probe.hidden = true;

function apply() {
  if (choice === "auto") root.removeAttribute("data-theme");
  else root.dataset.theme = choice;
  at("theme").replaceChildren(icon(`theme-${choice}`), h("span", {}, `Theme: ${choice}`));
  at("theme").setAttribute("aria-label", `Theme: ${choice}. Change to ${NEXT[choice]}`);
}

const tell = () => dispatchEvent(new Event("trimtab:theme"));

function stored() {
  try {
    return localStorage.getItem(KEY) in NEXT ? localStorage.getItem(KEY) : "auto";
  } catch {
    return "auto"; // no storage in this browser's settings
  }
}

function keep(value) {
  try {
    localStorage.setItem(KEY, value);
  } catch {
    // it holds until the page is closed
  }
}
