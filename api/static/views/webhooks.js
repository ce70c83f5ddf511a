// Webhooks: who is told of what is wrong, and how it reached them. For admins.

import * as api from "../app/api.js";
import { ask, show } from "../app/dialog.js";
import { h, render } from "../app/dom.js";
import { moment, words } from "../app/format.js";
import { toast } from "../app/notice.js";
import { state } from "../app/states.js";
import { failure, nothing } from "./blanks.js";
import { button, heading, table } from "./pieces.js";
import { deliveryTable } from "./deliveries.js";
import { webhookFields, webhookOf } from "./webhook_form.js";

export class Webhooks {
  constructor() {
    this.list = h("div", {});
    const add = button("New webhook", () => this.create(), { key: "new-webhook", look: "small" });
    this.element = h("section", { class: "card", "aria-label": "Webhooks" }, heading("Webhooks", add), this.list);
  }

  async load() {
    try {
      this.show((await api.webhooks()).webhooks);
    } catch (error) {
      this.list.replaceChildren(failure("The webhooks cannot be shown", error.message));
    }
  }

  show(webhooks) {
    const columns = ["Name", "Told of", "Reached at", "State", ""];
    const none =
      "Nobody is told yet. A webhook can go to Slack, Discord, PagerDuty, an Alertmanager or a program of yours.";
    render(this.list, webhooks, () =>
      webhooks.length
        ? table(
            columns,
            webhooks.map((one) => this.row(one)),
            "webhooks cards",
          )
        : nothing(none),
    );
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
    const secret = h("code", { class: "secret" }, issued.secret);
    const content = [
      h("p", {}, "Its messages are signed with this secret, which is shown this once. Give it to the receiver:"),
      secret,
    ];
    await show({ title: `Secret of ${issued.webhook.name}`, content, close: "I have it" });
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
