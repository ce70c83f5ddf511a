// What was wanted of each control over the steps of an attempt, and from when on it was in effect.

import { shown } from "../app/format.js";

const SETS = new Set(["controls_changed", "controls_taken_over"]);

// [{ control, value, issuer, from, to, applied }]: `applied` is the step from which it was in effect, null where it
// never was; `to` is the step at which it ended, or `last`.
export function controlSegments(events, attempt, first, last) {
  const open = new Map(),
    found = [];
  const close = (control, step) => {
    open.get(control).to = step;
    open.delete(control);
  };
  for (const event of events) {
    if (event.attempt > attempt) break;
    const mine = event.attempt === attempt,
      step = mine ? event.step : first;
    if (SETS.has(event.kind)) {
      const after = event.detail.after ?? {};
      for (const [control, segment] of [...open])
        if (shown(after[control] ?? null) !== segment.value) close(control, step);
      for (const [control, value] of Object.entries(after)) {
        if (open.has(control)) continue;
        const segment = {
          control,
          value: shown(value),
          issuer: event.detail.issuer ?? "the trainer",
          from: step,
          to: null,
          applied: event.kind === "controls_taken_over" || !mine ? step : null,
        };
        open.set(control, segment);
        found.push(segment);
      }
    } else if (event.kind === "controls_applied") {
      const left = new Set((event.detail.left_out ?? []).map((line) => line.split(":")[0]));
      for (const [control, segment] of open) if (segment.applied === null && !left.has(control)) segment.applied = step;
    }
  }
  return found.map((one) => ({ ...one, to: one.to ?? last })).filter((one) => one.to > one.from || one.to === last);
}
