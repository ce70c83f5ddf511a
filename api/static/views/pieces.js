// Pieces that several views are made of.

import { h } from "../app/dom.js";

// A button. `key` finds it again after the part that it is in was drawn anew.
export const button = (label, act, { key, look = "", title = null, off = false } = {}) =>
  h(
    "button",
    { type: "button", class: look, disabled: off, "data-focus": key, "aria-label": title, onclick: act },
    label,
  );

// What a card begins with: its title, and what stands at the other end of the line.
export const heading = (title, ...aside) => h("header", {}, h("h2", {}, title), aside);

// A table with these columns; of `rows` each is a <tr>. A column that begins with ">" is set to the right.
export const table = (columns, rows, look = "") =>
  h("div", { class: "scroll" }, h("table", { class: `table ${look}` }, head(columns), h("tbody", {}, rows)));

export function head(columns) {
  const cells = columns.map((label) => {
    if (!label) return h("th", { scope: "col" }, h("span", { class: "unseen" }, "Actions"));
    return label.startsWith(">")
      ? h("th", { scope: "col", class: "right" }, label.slice(1))
      : h("th", { scope: "col" }, label);
  });
  return h("thead", {}, h("tr", {}, cells));
}

// Names and what they are; of `entries` each is [name, text], and those without text are left out.
export const facts = (entries, look = "") =>
  h(
    "dl",
    { class: `facts ${look}` },
    entries.filter(([, text]) => text).map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]),
  );

// Parts of a line with dots between them; those that are missing are left out.
export const dotted = (...parts) => parts.filter(Boolean).join(" · ");
