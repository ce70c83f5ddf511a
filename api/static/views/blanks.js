// What is shown where there is nothing to show: while it loads, when it is empty, when it fails.

import { h } from "../app/dom.js";
import { link } from "../app/router.js";

export const loading = (what) => h("p", { class: "loading", role: "status" }, what);

export const failure = (title, message) =>
  h(
    "div",
    { class: "blank", role: "alert" },
    h("h2", {}, title),
    h("p", {}, message),
    h("p", {}, h("a", { href: link.jobs() }, "All jobs")),
  );

export const nothing = (text) => h("p", { class: "muted small" }, text);

export function blankJobs(filtered) {
  if (filtered)
    return h(
      "div",
      { class: "blank" },
      h("h2", {}, "No job matches"),
      h("p", {}, "Change the search or the filters above."),
    );
  return h(
    "div",
    { class: "blank" },
    h("h2", {}, "No job has reported yet"),
    h("p", {}, "A job appears here with its first step. In its training loop:"),
    h(
      "pre",
      { class: "code" },
      h(
        "code",
        {},
        [
          `emitter = trimtab.attach("${location.origin}", job="my-run")`,
          "emitter.observe(train_logprobs=..., rollout_logprobs=..., advantages=..., loss_mask=...)",
          'controls = emitter.end_step(step=step, scalars={"reward_mean": reward})',
        ].join("\n"),
      ),
    ),
    h("p", {}, "Nothing in there raises into training, waits for the network, or makes a device wait."),
  );
}
