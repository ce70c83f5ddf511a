// Asks before something is changed, always for a reason. What the service refuses is said where it was asked.

import { at, h } from "./dom.js";

let last = 0;

// `apply({ reason, ...values })` does it, and may throw; the dialog stays until it has worked or is cancelled.
// Of `fields` each is { name, label, hint, input }, input being an element. Resolves to whether it was done.
export function ask({ title, what = null, fields = [], confirm = "Apply", danger = false, reason = true, apply }) {
  const id = `ask-${++last}`;
  const error = h("p", { class: "error", role: "alert", id: `${id}-error` });
  const why = h("textarea", {
    name: "reason",
    required: true,
    maxlength: 1000,
    rows: 2,
    "aria-label": "Reason, for the audit trail",
  });
  const yes = h("button", { type: "submit", class: danger ? "primary danger" : "primary" }, confirm);
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: `${id}-title` }, title),
    what && h("div", { class: "muted", id: `${id}-what` }, what),
    fields.map((field) =>
      h(
        "label",
        { class: "field" },
        h("span", {}, field.label),
        field.input,
        field.hint && h("span", { class: "hint" }, field.hint),
      ),
    ),
    reason && h("label", { class: "field" }, h("span", {}, "Reason, for the audit trail"), why),
    error,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), yes),
  );
  const dialog = h(
    "dialog",
    { "aria-labelledby": `${id}-title`, "aria-describedby": what ? `${id}-what` : null },
    form,
  );
  let done = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    error.textContent = "";
    yes.disabled = true;
    try {
      await apply({ ...(reason ? { reason: why.value.trim() } : {}), ...valuesOf(fields) });
      done = true;
      dialog.close();
    } catch (refusal) {
      error.textContent = refusal.message;
    } finally {
      yes.disabled = false;
    }
  });
  return opened(dialog, () => done);
}

// Shows something until it is closed.
export function show({ title, content, close = "Close" }) {
  const id = `ask-${++last}`;
  const dialog = h(
    "dialog",
    { "aria-labelledby": id },
    h(
      "div",
      { class: "stack" },
      h("h2", { id }, title),
      content,
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", class: "primary", onclick: () => dialog.close() }, close),
      ),
    ),
  );
  return opened(dialog, () => true);
}

// A secret that is not shown again.
export const showSecret = (title, said, secret) =>
  show({ title, content: [h("p", {}, said), h("code", { class: "secret" }, secret)], close: "I have it" });

// Opens it, and gives the focus back to where it came from, which may have been drawn anew meanwhile.
function opened(dialog, outcome) {
  const opener = document.activeElement;
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("input, select, textarea")?.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      const again = opener?.isConnected ? opener : refound(opener);
      (again ?? at("main")).focus();
      resolve(outcome());
    });
  });
}

function refound(element) {
  const key = element?.dataset?.focus;
  return key === undefined ? null : document.querySelector(`[data-focus="${CSS.escape(key)}"]`);
}

function valuesOf(fields) {
  return Object.fromEntries(
    fields.map(({ name, input }) => {
      if (input.type === "number") return [name, input.value === "" ? null : Number(input.value)];
      if (input.type === "checkbox") return [name, input.checked];
      return [name, input.value];
    }),
  );
}
