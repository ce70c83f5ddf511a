// The changes of a job's controls in an attempt, by the numbers that the charts mark them with.

import { h, render } from "../app/dom.js";
import { differences } from "../app/format.js";
import { nothing } from "./blanks.js";
import { heading } from "./pieces.js";

export class Changes {
  constructor() {
    this.list = h("ol", { class: "changes small" });
    this.element = h("section", { class: "card" }, heading("Changes of the controls"), this.list);
  }

  show(actions) {
    const line = (one) =>
      h(
        "li",
        {},
        h("span", { class: "flag number" }, String(one.number)),
        h(
          "div",
          { class: "wrap" },
          h("b", {}, differences(one.before, one.after) || "nothing"),
          h("p", { class: "muted" }, `step ${one.step}, ${one.issuer}: ${one.message}`),
        ),
      );
    render(this.list, actions, () =>
      actions.length ? actions.toReversed().map(line) : h("li", {}, nothing("None in this attempt.")),
    );
  }
}
