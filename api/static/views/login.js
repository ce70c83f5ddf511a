// Asks for a token where the service wants one.

import { h } from "../app/dom.js";
import { session } from "../app/session.js";

export class Login {
  constructor(root, entered) {
    document.title = "Sign in · trimtab";
    const token = h("input", {
      type: "password",
      name: "token",
      required: true,
      autocomplete: "current-password",
      spellcheck: "false",
      placeholder: "ttb_…",
    });
    const error = h("p", { class: "error", role: "alert" });
    const button = h("button", { type: "submit", class: "primary" }, "Sign in");
    const form = h(
      "form",
      {
        class: "card login",
        onsubmit: async (event) => {
          event.preventDefault();
          error.textContent = "";
          button.disabled = true;
          try {
            await session.signIn(token.value.trim());
            entered();
          } catch (refusal) {
            error.textContent = refusal.message;
            token.select();
          } finally {
            button.disabled = false;
          }
        },
      },
      h("h1", { tabindex: "-1" }, "Sign in"),
      h(
        "p",
        { class: "muted small" },
        "This service wants a token. It is kept nowhere on this page: the browser holds a session that no script can read.",
      ),
      h("label", { class: "field" }, h("span", {}, "Token"), token),
      error,
      h("div", { class: "buttons" }, button),
    );
    root.replaceChildren(form);
    token.focus();
  }

  goTo() {
    return true; // wherever the address leads, signing in comes first
  }

  stop() {}
}
