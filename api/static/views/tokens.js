// Tokens: who may ask for what. For admins.

import * as api from "../app/api.js";
import { ask, showSecret } from "../app/dialog.js";
import { h } from "../app/dom.js";
import { moment } from "../app/format.js";
import { state } from "../app/states.js";
import { button } from "./pieces.js";
import { Roster } from "./roster.js";

const LASTS = { "30 days": 30 * 86400, "90 days": 90 * 86400, "A year": 365 * 86400, "Until it is revoked": null };
const SCOPES = {
  read: "Look at everything",
  control: "Change what the agent and the trainers do",
  ingest: "Report one job, and nothing beside it",
  admin: "Everything",
};

export class Tokens extends Roster {
  constructor() {
    super({
      title: "Tokens",
      add: "New token",
      columns: ["Name", "Scopes", "State", "Expires", "Last used", ""],
      look: "tokens",
      none: "There is no token: whoever is on this machine may do everything, and nobody else is let in.",
    });
  }

  async read() {
    return (await api.tokens()).tokens;
  }

  row(one) {
    const deed = (key, text, look, act) =>
      button(text, act, { key: `${key}-${one.id}`, look: `small ${look}`, title: `${text} ${one.name}` });
    const deeds = () => [
      deed("rotate", "Rotate", "", () => this.rotate(one)),
      deed("revoke", "Revoke", "danger", () => this.revoke(one)),
    ];
    const spent = () => state("not_observed", one.standing === "revoked" ? "Revoked" : "Expired");
    const valid = one.standing === "valid";
    return h(
      "tr",
      { "data-token": one.id },
      h("th", { scope: "row" }, one.name, h("span", { class: "about muted small mono" }, ` ${one.id}`)),
      h("td", {}, one.scopes.join(", "), one.job && h("span", { class: "muted" }, ` for ${one.job}`)),
      h("td", {}, valid ? state("ok", "Valid") : spent()),
      h("td", { class: "number" }, one.expires_at === null ? "never" : moment(one.expires_at)),
      h("td", { class: "number" }, one.last_used_at === null ? "never" : moment(one.last_used_at)),
      h("td", { class: "right" }, valid && h("span", { class: "buttons" }, deeds())),
    );
  }

  async create() {
    const name = h("input", { required: true, maxlength: 100, autocomplete: "off" });
    const scope = h(
      "select",
      {},
      Object.entries(SCOPES).map(([value, means]) => h("option", { value }, `${value}: ${means}`)),
    );
    const job = h("input", { autocomplete: "off", disabled: true });
    const lasts = h(
      "select",
      {},
      Object.keys(LASTS).map((label) => h("option", {}, label)),
    );
    scope.addEventListener("change", () => {
      job.disabled = scope.value !== "ingest";
      job.required = !job.disabled;
    });
    let issued = null;
    const done = await ask({
      title: "New token",
      confirm: "Make it",
      reason: false,
      what: "With the first token, the service asks everybody for one.",
      fields: [
        { name: "name", label: "Who will hold it", input: name },
        { name: "scope", label: "What it may do", input: scope },
        { name: "job", label: "The job it reports", hint: "For the scope ingest.", input: job },
        { name: "lasts", label: "How long it lasts", input: lasts },
      ],
      apply: async (given) => {
        issued = await api.createToken({
          name: given.name,
          scopes: [given.scope],
          job: given.scope === "ingest" ? given.job : null,
          expires_in: LASTS[given.lasts],
        });
      },
    });
    if (done) await this.tell(issued);
  }

  async rotate(one) {
    let issued = null;
    const done = await ask({
      title: `A new secret for ${one.name}`,
      confirm: "Rotate",
      what: "The old secret is taken for a day more, so that its holder can change over.",
      apply: async ({ reason }) => {
        issued = await api.rotateToken(one.id, reason);
      },
    });
    if (done) await this.tell(issued);
  }

  async revoke(one) {
    const done = await ask({
      title: `Revoke ${one.name}`,
      danger: true,
      confirm: "Revoke",
      what: "Nobody is let in with it any more, within seconds.",
      apply: ({ reason }) => api.revokeToken(one.id, reason),
    });
    if (done) await this.load();
  }

  async tell(issued) {
    await this.load();
    await showSecret(`Token of ${issued.about.name}`, "It is shown this once. Give it to its holder:", issued.token);
  }
}
