// What a remedy would change, as it was read off the step that asked for it, before it is switched on.

import { h } from "../app/dom.js";
import { number, words } from "../app/format.js";
import { head } from "./pieces.js";

const MEANS = {
  clip_fraction_negative: "Punished tokens that the clip silences",
  clip_fraction_positive: "Rewarded tokens that the clip silences",
  lr_scale: "Factor on the learning rate",
  retained: "Tokens that keep their weight",
  truncated: "Tokens whose weight is cut off",
  weight_ess: "Effective sample size of the weights",
  centering_size: "Size of the centering term",
  head_tv: "Distance of sampler and trainer over the head",
};
const SHARES = new Set([
  "clip_fraction_negative",
  "clip_fraction_positive",
  "retained",
  "truncated",
  "weight_ess",
  "head_tv",
]);

// A table of the foreseen numbers; null where there are none.
export function foresight(foreseen) {
  const names = [...new Set(Object.keys(foreseen).map((name) => name.replace(/_(now|then)$/, "")))];
  if (!names.length) return null;
  const cell = (name, value) =>
    h(
      "td",
      { class: "right number" },
      value === undefined
        ? ""
        : SHARES.has(name) && typeof value === "number"
          ? `${number(value * 100)} %`
          : number(value),
    );
  return h(
    "div",
    { class: "foresight" },
    h(
      "table",
      { class: "table" },
      h(
        "caption",
        { class: "muted small" },
        "Shadow evaluation: worked out on the step that asked for it, nothing was switched on",
      ),
      head(["What", ">Now", ">Then"]),
      h(
        "tbody",
        {},
        names.map((name) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, MEANS[name] ?? words(name)),
            cell(name, foreseen[`${name}_now`]),
            cell(name, foreseen[`${name}_then`] ?? foreseen[name]),
          ),
        ),
      ),
    ),
  );
}
