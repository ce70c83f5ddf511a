// Elements without innerHTML: text from runs is text, whatever is written in it.

const SVG = "http://www.w3.org/2000/svg";

export const at = (id) => document.getElementById(id);

// An element. Attributes whose names begin with "on" are listeners; true, false and null are there, or are not.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...present(children));
  return element;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

// Replaces the children of `container` when what they are made from has changed, and only then, so that focus, hover and
// selection outlive an update. What has the focus is found again by its `data-focus`.
export function render(container, facts, build) {
  const key = JSON.stringify(facts) ?? "";
  if (drawn.get(container) === key) return;
  drawn.set(container, key);
  const focused = container.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  container.replaceChildren(...present([build(facts)]));
  if (focused !== undefined) container.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

const drawn = new WeakMap();

function present(children) {
  return children.flat(3).filter((child) => child !== null && child !== undefined && child !== false);
}
