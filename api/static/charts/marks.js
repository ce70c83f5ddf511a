// What happened, as it is marked on every chart: incidents as grounds, changes of the controls as numbered lines.

import { colour } from "../app/theme.js";
import { faded } from "./look.js";

// Spans of the incidents of an attempt: { from, to, severity, detector }. `to` is null while one lasts.
export function incidentSpans(events, attempt) {
  const open = new Map(),
    spans = [];
  for (const { kind, step, detail } of events.filter((one) => one.attempt === attempt)) {
    if (kind === "incident_firing" || kind === "incident_inhibited" || kind === "incident_flapping") {
      if (open.has(detail.fingerprint)) continue;
      const span = {
        from: Math.min(detail.since_step ?? step, step),
        to: null,
        severity: detail.severity,
        detector: detail.detector,
      };
      open.set(detail.fingerprint, span);
      spans.push(span);
    } else if (kind === "incident_resolved") {
      const span = open.get(detail.fingerprint);
      if (span) span.to = step;
      open.delete(detail.fingerprint);
    }
  }
  return spans;
}

// Changes of the overrides in an attempt, numbered from 1 over the whole trail, so that a number stays what it was.
export function actionMarks(events, attempt) {
  return events
    .filter((one) => one.kind === "controls_changed")
    .map((event, i) => ({
      number: i + 1,
      step: event.step,
      attempt: event.attempt,
      before: event.detail.before ?? {},
      after: event.detail.after ?? {},
      issuer: event.detail.issuer,
      message: event.message,
    }))
    .filter((one) => one.attempt === attempt);
}

// The marks as shapes and annotations of a chart whose last step is `last`.
export function drawnMarks({ spans, actions }, last) {
  const grounds = stretches(spans, last).map(({ from, to, worst }) => ({
    type: "rect",
    layer: "below",
    x0: from,
    x1: to,
    y0: 0,
    y1: 1,
    yref: "paper",
    line: { width: 0 },
    fillcolor: faded(worst, 0.09),
  }));
  const edges = spans.map(({ from, severity }) => ({
    type: "line",
    layer: "below",
    x0: from,
    x1: from,
    y0: 0,
    y1: 1,
    yref: "paper",
    line: { width: 1, color: faded(looked(severity), 0.55) },
  }));
  const lines = actions.map(({ step }) => ({
    type: "line",
    x0: step,
    x1: step,
    y0: 0,
    y1: 1.02,
    yref: "paper",
    line: { width: 1, dash: "3px,2px", color: colour("accent") },
  }));
  const flags = flagged(actions).map(({ step, text }) => ({
    x: step,
    y: 1,
    yref: "paper",
    yanchor: "bottom",
    text,
    showarrow: false,
    borderpad: 1,
    font: { size: 10, color: colour("accent-ink") },
    bgcolor: colour("accent"),
  }));
  return { shapes: [...grounds, ...edges, ...lines], annotations: flags };
}

const looked = (severity) => (severity === "critical" ? "critical" : "warn");

// The ground is tinted once, by the worst incident of each stretch.
function stretches(spans, last) {
  const end = (span) => span.to ?? last;
  const cuts = [...new Set(spans.flatMap((span) => [span.from, end(span)]))].sort((a, b) => a - b);
  return cuts.slice(1).flatMap((to, i) => {
    const here = spans.filter((span) => span.from <= cuts[i] && end(span) >= to);
    return here.length
      ? [{ from: cuts[i], to, worst: here.some((span) => span.severity === "critical") ? "critical" : "warn" }]
      : [];
  });
}

// Changes at one step share a flag.
function flagged(actions) {
  const byStep = Map.groupBy(actions, (one) => one.step);
  return [...byStep].map(([step, found]) => ({
    step,
    text: found.length > 1 ? `${found[0].number}–${found.at(-1).number}` : String(found[0].number),
  }));
}
