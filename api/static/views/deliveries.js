// Messages to a webhook, and what became of each.

import { h } from "../app/dom.js";
import { moment, plural } from "../app/format.js";
import { state } from "../app/states.js";
import { nothing } from "./blanks.js";
import { button, table } from "./pieces.js";

const STATES = {
  pending: ["pending", "On its way"],
  delivered: ["ok", "Delivered"],
  dead: ["critical", "Dead"],
  superseded: ["not_observed", "Superseded"],
};

// `retry(delivery)` sends one again that died; without it none can be.
export function deliveryTable(deliveries, retry = null) {
  if (!deliveries.length) return nothing("Nothing was sent to it yet.");
  const row = (one) =>
    h(
      "tr",
      { "data-delivery": one.id },
      h("td", {}, state(...STATES[one.status])),
      h("td", { class: "number" }, moment(one.created_at)),
      h("td", {}, one.job ?? "a test", h("span", { class: "about muted small" }, one.reason)),
      h(
        "td",
        { class: "wrap" },
        plural(one.attempts, "try", "tries"),
        h("span", { class: "about muted small" }, one.error || (one.answer && `answered ${one.answer}`)),
      ),
      retry &&
        h(
          "td",
          {},
          one.status === "dead"
            ? button("Send again", () => retry(one), { key: `retry-${one.id}`, look: "small" })
            : null,
        ),
    );
  return table(["State", "Made", "About", "Tries", ...(retry ? [""] : [])], deliveries.map(row), "deliveries cards");
}
