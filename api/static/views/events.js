// The trail of a job: everything that was judged, proposed, decided and done, the newest first.

import { h, icon, render } from "../app/dom.js";
import { changes, differences, words } from "../app/format.js";
import { STATES } from "../app/states.js";
import { nothing } from "./blanks.js";
import { button } from "./pieces.js";

const SHOWN = 200;
const GROUPS = {
  "": ["Everything but verdicts", (kind) => kind !== "verdict_changed"],
  incidents: ["Incidents", (kind) => kind.startsWith("incident_") || kind === "resume_transient"],
  controls: [
    "Controls and mode",
    (kind) =>
      kind.startsWith("controls_") ||
      ["mode_changed", "killed", "run_changed_controls", "rolled_back", "locked_out"].includes(kind),
  ],
  decisions: [
    "Proposals and decisions",
    (kind) =>
      [
        "proposed",
        "approved",
        "rejected",
        "refused",
        "withdrawn",
        "silenced",
        "unsilenced",
        "acknowledged",
        "change_harmful",
        "change_unharmful",
        "change_inconclusive",
      ].includes(kind),
  ],
  all: ["Everything", () => true],
};

export class Events {
  constructor(root, job) {
    Object.assign(this, { job, shown: SHOWN });
    this.group = h(
      "select",
      { onchange: () => this.draw() },
      Object.entries(GROUPS).map(([key, [label]]) => h("option", { value: key }, label)),
    );
    this.list = h("div", {});
    root.append(
      h(
        "section",
        { class: "card", "aria-label": "Events" },
        h("header", {}, h("label", { class: "check" }, "Show", this.group)),
        this.list,
      ),
    );
  }

  async show() {
    this.draw();
  }

  draw() {
    const [, wanted] = GROUPS[this.group.value];
    const found = this.job.events.filter((one) => wanted(one.kind));
    render(this.list, [this.group.value, found.length, this.shown], () =>
      found.length
        ? [
            h(
              "ol",
              { class: "trail" },
              found
                .slice(-this.shown)
                .reverse()
                .map((one) => eventLine(one)),
            ),
            found.length > this.shown &&
              h(
                "div",
                { class: "below" },
                button("Show older", () => this.showOlder(), { key: "more-events" }),
              ),
          ]
        : nothing("Nothing yet."),
    );
  }

  showOlder() {
    this.shown += SHOWN;
    this.draw();
  }
}

// What an event changed, from what to what.
function changed(kind, { before, after, overrides, adopted }) {
  if (kind === "proposed") return changes(overrides ?? {});
  if (kind === "controls_changed") return differences(before, after) || "nothing";
  if (kind === "killed") return differences(before, {});
  if (kind === "controls_taken_over") return changes(adopted);
  if (kind === "mode_changed") return `${before} → ${after}`;
  if (kind === "verdict_changed") return `${before === null ? "Not judged yet" : STATES[before]} → ${STATES[after]}`;
  return "";
}

export function eventLine({ kind, attempt, step, message, detail }) {
  const who = detail.issuer ?? null,
    change = changed(kind, detail);
  return h(
    "li",
    {},
    h("span", { class: "when muted number", title: `attempt ${attempt}` }, `step ${step}`),
    h(
      "div",
      {},
      h(
        "p",
        {},
        h("b", {}, words(kind)),
        detail.detector && ` · ${words(detail.detector)}`,
        detail.remedy && ` · ${words(detail.remedy)}`,
        who && h("span", { class: "who" }, " ", icon(who === "agent" ? "agent" : "person"), who),
      ),
      change && h("p", { class: "small wrap" }, change),
      h("p", { class: "muted small wrap" }, message),
    ),
  );
}
