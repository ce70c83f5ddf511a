// Elements without innerHTML: text from runs is text, whatever is written in it.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const at = (id) => document.getElementById(id);

// Replaces the children only when what they are made from has changed, so that focus and hover survive a poll.
export function render(container, facts, build) {
  const key = JSON.stringify(facts);
  if (container.dataset.key === key) return;
  container.dataset.key = key;
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  container.replaceChildren(...[build(facts)].flat().filter(Boolean));
  if (focused) container.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(1).replace("-", "−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

export function shown(value) {
  if (value === true) return "on";
  if (value === false) return "off";
  return number(value);
}

const WORDS = { ok: "OK", warn: "Warn", critical: "Critical", inconclusive: "Inconclusive", not_observed: "Not observed" };
const SIGNS = { ok: "✓", warn: "!", critical: "✕", inconclusive: "?", not_observed: "○" };
// The sign says it too, for those who cannot tell the colours apart. Only OK is green.
export const chip = (state) => h("span", { class: `chip ${state}` }, h("span", { "aria-hidden": "true" }, SIGNS[state]), WORDS[state]);
export const words = (text) => text.replaceAll("_", " ");
