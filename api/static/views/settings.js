// Settings of the service: webhooks, tokens, the audit log. For admins; others are told who they are.

import { h } from "../app/dom.js";
import { session } from "../app/session.js";
import { facts } from "./pieces.js";
import { Tokens } from "./tokens.js";
import { Webhooks } from "./webhooks.js";

export class Settings {
  constructor(root) {
    document.title = "Settings · trimtab";
    const parts = session.may("admin") ? [new Webhooks(), new Tokens()] : [];
    root.replaceChildren(
      h(
        "div",
        { class: "settings" },
        h("h1", { tabindex: "-1" }, "Settings"),
        whoami(),
        parts.map((part) => part.element),
        session.may("admin") ? auditLog() : null,
      ),
    );
    for (const part of parts) part.load();
  }

  goTo() {
    return false;
  }

  stop() {}
}

const whoami = () =>
  h(
    "section",
    { class: "card", "aria-labelledby": "who-title" },
    h("header", {}, h("h2", { id: "who-title" }, "You")),
    facts([
      ["Name", session.name],
      ["May", session.scopes.join(", ")],
    ]),
    session.may("admin")
      ? null
      : h("p", { class: "muted small" }, "Webhooks and tokens are for those who may do everything."),
  );

const auditLog = () =>
  h(
    "section",
    { class: "card", "aria-labelledby": "audit-title" },
    h(
      "header",
      {},
      h("h2", { id: "audit-title" }, "Audit log"),
      h("a", { href: "/v1/audit.jsonl", download: "audit.jsonl" }, "Download"),
    ),
    h(
      "p",
      { class: "muted small" },
      "Everything that was done, and by whom, in a chain of hashes: ",
      h("code", {}, "trimtab audit verify --file audit.jsonl"),
      " says whether it is whole.",
    ),
  );
