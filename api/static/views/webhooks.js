// Webhooks: who is told of what is wrong, and how it reached them. For admins.

import * as api from "../app/api.js";
import { ask, show, showSecret } from "../app/dialog.js";
import { h } from "../app/dom.js";
import { moment, words } from "../app/format.js";
import { toast } from "../app/notice.js";
import { state } from "../app/states.js";
import { deliveryTable } from "./deliveries.js";
import { button } from "./pieces.js";
import { Roster } from "./roster.js";
import { webhookFields, webhookOf } from "./webhook_form.js";

export class Webhooks extends Roster {
  constructor() {
    super({
      title: "Webhooks",
      add: "New webhook",
      columns: ["Name", "Told of", "Reached at", "State", ""],
      look: "webhooks",
      none: "Nobody is told yet. A webhook can go to Slack, Discord, PagerDuty, an Alertmanager or a program of yours.",
    });
  }

  async read() {
    return (await api.webhooks()).webhooks;
  }

  row(one) {
    const deed = (key, text, act, look = "") =>
      button(text, act, { key: `${key}-${one.id}`, look: `small ${look}`, title: `${text} ${one.name}` });
    return h(
      "tr",
      { "data-webhook": one.id },
      h("th", { scope: "row" }, one.name, h("span", { class: "about muted small" }, words(one.shape))),
      h("td", {}, coverage(one), h("span", { class: "about muted small" }, one.kinds.join(", "))),
      h("td", { class: "wrap mono small" }, one.url),
      h(
        "td",
        {},
        one.enabled ? state("ok", "Enabled") : state("not_observed", "Disabled"),
        h("span", { class: "about muted small" }, one.disabled_reason),
      ),
      h(
        "td",
        { class: "right" },
        h(
          "span",
          { class: "buttons" },
          deed("test", "Test", () => this.test(one)),
          deed("deliveries", "Deliveries", () => this.deliveries(one)),
          one.enabled
            ? deed("able", "Disable", () => this.enable(one, false))
            : deed("able", "Enable", () => this.enable(one, true)),
          deed("remove", "Remove", () => this.remove(one), "danger"),
        ),
      ),
    );
  }

  async create() {
    let issued = null;
    const done = await ask({
      title: "New webhook",
      what: "It is told of what fires already.",
      confirm: "Add it",
      fields: webhookFields(),
      apply: async (given) => {
        issued = await api.addWebhook(webhookOf(given));
      },
    });
    if (!done) return;
    await this.load();
    if (issued.secret === null) return;
    const said = "Its messages are signed with this secret, which is shown this once. Give it to the receiver:";
    await showSecret(`Secret of ${issued.webhook.name}`, said, issued.secret);
  }

  async test(one) {
    try {
      const { deliveries } = await api.testWebhook(one.id);
      await show({ title: `Test of ${one.name}`, content: deliveryTable(deliveries) });
    } catch (error) {
      toast(error.message);
    }
  }

  async deliveries(one) {
    try {
      const { deliveries } = await api.deliveries(one.id);
      const retry = (delivery) => this.retry(delivery);
      await show({ title: `Deliveries to ${one.name}`, content: deliveryTable(deliveries, retry) });
    } catch (error) {
      toast(error.message);
    }
  }

  async retry(delivery) {
    const done = await ask({
      title: "Send it again",
      what: `The message of ${moment(delivery.created_at)}, as it was then.`,
      confirm: "Send again",
      apply: ({ reason }) => api.retryDelivery(delivery.id, reason),
    });
    if (done) toast("It is on its way again");
  }

  async enable(one, enabled) {
    const done = await ask({
      title: enabled ? `Enable ${one.name}` : `Disable ${one.name}`,
      what: enabled ? "It is told of what fires now." : "It is told nothing more, and what is on its way is given up.",
      confirm: enabled ? "Enable" : "Disable",
      apply: ({ reason }) => api.changeWebhook(one.id, { enabled, reason }),
    });
    if (done) await this.load();
  }

  async remove(one) {
    const done = await ask({
      title: `Remove ${one.name}`,
      what: "With everything that was on its way, and what is known of what was delivered. To pause it, disable it.",
      confirm: "Remove",
      danger: true,
      apply: ({ reason }) => api.removeWebhook(one.id, reason),
    });
    if (done) await this.load();
  }
}

function coverage({ severity, jobs }) {
  const least =
    severity === "info" ? "everything" : severity === "critical" ? "what is critical" : "warnings and worse";
  return `${least}, of ${jobs.length === 1 && jobs[0] === "*" ? "all jobs" : jobs.join(", ")}`;
}
