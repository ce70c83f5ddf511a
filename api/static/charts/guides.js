// What signals are held against: their baselines in this run, the limits of the detectors, the clip bounds in effect.

import { words } from "../app/format.js";

const SPREADS = 3; // that a baseline's ground reaches to either side

// { baselines: Map of signal to { low, high, centre }, limits: Map of signal to [{ value, label, means }] }.
// There are none for an older attempt, since what was learnt is about the one that is judged.
export function guides({ controls, baselines }, isNewest) {
  if (!isNewest) return { baselines: new Map(), limits: new Map() };
  const learnt = baselines.signals.map(({ name, baselines: found }) => [name, found.find((one) => one.level !== null)]);
  const limits = baselines.signals.map(({ name, thresholds }) => [name, thresholds.filter(isOfFirstPass).map(limit)]);
  return {
    baselines: new Map(learnt.filter(([, found]) => found).map(([name, found]) => [name, ground(found)])),
    limits: new Map([...limits, ...clipBounds(controls)]),
  };
}

const ground = ({ level, spread }) => ({
  low: level - SPREADS * spread,
  high: level + SPREADS * spread,
  centre: level,
});

// A signal that differs from pass to pass over a buffer is drawn with the limits of the first.
const isOfFirstPass = (threshold) => !threshold.pass_index;

const limit = ({ detector, statistic, side, value, rule, needs }) => ({
  value,
  label: `alarm: ${words([detector, rule, side].filter(Boolean).join(" "))}`,
  means: `${detector} alarms where the ${statistic} is ${side} this${needs && `; it needs ${needs}`}`,
});

function clipBounds({ controls }) {
  const applied = (name) => controls.find((one) => one.name === name)?.applied;
  if (applied("clip_mode") !== "nominal") return []; // they move from step to step
  const bound = (value, sign) => ({
    value,
    label: "clip bound",
    means: `tokens of ${sign} advantage beyond this carry no gradient`,
  });
  return [
    ["update_q50_negative", bound(Math.log(1 - applied("clip_low")), "negative")],
    ["update_q50_positive", bound(Math.log(1 + applied("clip_high")), "positive")],
  ].map(([name, found]) => [name, Number.isFinite(found.value) ? [found] : []]);
}
