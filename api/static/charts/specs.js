// Which signals a job's charts show. A line's `look` is its colour, and `as` makes it an edge of a band or dots. A band
// is the ground between two lines, by their names.

const QUANTILES = { q05: "edge", q95: "edge", q50: "", q01: "dots", q99: "dots" };

const fan = (sign) =>
  Object.entries(QUANTILES).map(([q, as]) => ({
    name: `update_${q}_${sign}`,
    label: `${Number(q.slice(1))} %`,
    look: sign,
    as,
  }));
const band = (sign) => ({ low: `update_q05_${sign}`, high: `update_q95_${sign}`, look: sign });

export const SPECS = [
  { id: "reward", title: "Reward", unit: "mean", lines: [{ name: "reward_mean", label: "reward", look: "all" }] },
  {
    id: "entropy",
    title: "Entropy",
    unit: "nats",
    floor: 0,
    lines: [
      { name: "entropy_negative", label: "A < 0", look: "negative" },
      { name: "entropy_positive", label: "A > 0", look: "positive" },
      { name: "entropy", label: "all", look: "all" },
    ],
  },
  {
    id: "ratio-negative",
    title: "Log-ratio of punished tokens, A < 0",
    unit: "quantiles, nats",
    lines: fan("negative"),
    band: band("negative"),
  },
  {
    id: "ratio-positive",
    title: "Log-ratio of rewarded tokens, A > 0",
    unit: "quantiles, nats",
    lines: fan("positive"),
    band: band("positive"),
  },
  {
    id: "asymmetry",
    title: "Asymmetry of the signs",
    unit: "difference of 5 % quantiles, nats",
    lines: [
      { name: "asymmetry", label: "A < 0 less A > 0", look: "all" },
      { name: "asymmetry_gap", label: "less the BF16 twin’s", look: "second" },
    ],
  },
  {
    id: "clip",
    title: "Clip fractions",
    unit: "share of tokens",
    floor: 0,
    lines: [
      { name: "clip_fraction_negative", label: "A < 0", look: "negative" },
      { name: "clip_fraction_positive", label: "A > 0", look: "positive" },
    ],
  },
  {
    id: "mismatch",
    title: "Mismatch, trainer − sampler",
    unit: "nats",
    floor: 0,
    lines: [
      { name: "mismatch_std", label: "std", look: "all" },
      { name: "mismatch_kl", label: "KL", look: "third" },
    ],
  },
  {
    id: "ess",
    title: "Effective sample size",
    unit: "share",
    floor: 0,
    ceiling: 1,
    lines: [
      { name: "ess", label: "tokens", look: "all" },
      { name: "ess_sequence", label: "responses", look: "second" },
    ],
  },
  {
    id: "gradient",
    title: "Gradient norm",
    unit: "before clipping",
    floor: 0,
    lines: [
      { name: "grad_norm", label: "gradient", look: "all" },
      { name: "update_norm", label: "update", look: "second" },
    ],
  },
  {
    id: "garbage",
    title: "Garbage and cut-off",
    unit: "share of responses",
    floor: 0,
    lines: [
      { name: "garbage_fraction", label: "garbage", look: "all" },
      { name: "truncated_fraction", label: "cut off", look: "second" },
    ],
  },
  {
    id: "length",
    title: "Response length",
    unit: "tokens",
    floor: 0,
    lines: [
      { name: "length_mean", label: "mean", look: "all" },
      { name: "length_p95", label: "95 %", look: "second" },
    ],
  },
];

// A chart of one more signal, that a person asks for.
export const single = (name) => ({
  id: `more-${name}`,
  title: name.replaceAll("_", " "),
  unit: "",
  lines: [{ name, label: "value", look: "all" }],
});
