// The lines, grounds and guides of a chart, as plotly takes them.

import { faded, lineOf } from "./look.js";
import { outline, parted } from "./parts.js";

const AS = { edge: { width: 0.6 }, dots: { width: 1, dash: "1px,2px" } };

// Of `lines` each is { look, as }, and has the columns at its place in `series`; `all` are the steps that there are.
export function lineTraces(lines, series, domain, all) {
  return lines.map(({ look, as }, i) => {
    const { steps, values } = parted(series[i], domain, all);
    const line = { ...lineOf(look), ...AS[as] };
    const mode = values.length < 3 ? "lines+markers" : "lines";
    return {
      x: steps,
      y: values,
      mode,
      line,
      marker: { size: 5, color: line.color },
      hoverinfo: "skip",
      connectgaps: false,
    };
  });
}

// The ground between two series.
export function bandTrace(low, high, look, domain, all) {
  return {
    ...outline(low, high, domain, all),
    mode: "none",
    fill: "toself",
    fillcolor: faded(look, 0.16),
    hoverinfo: "skip",
  };
}

// Values that are not finite, as crosses along the foot of the chart.
export function brokenTrace(series) {
  const x = series.flatMap(({ steps, kinds }) => steps.filter((_, i) => kinds[i] !== "finite"));
  const marker = { symbol: "x-thin", size: 8, line: { width: 1.5, color: faded("critical", 1) } };
  return { x, y: x.map(() => 0.04), mode: "markers", yaxis: "y2", hoverinfo: "skip", marker };
}

// Baselines as grounds, each with its centre. Of `baselines` each is { look, low, high, centre }.
export function baselineShapes(baselines, first, last) {
  return baselines.flatMap(({ look, low, high, centre }) => {
    const name = look === "all" ? "band" : look,
      line = { width: 1, dash: "1px,3px", color: faded(name, 0.8) };
    return [
      {
        type: "rect",
        layer: "below",
        x0: first,
        x1: last,
        y0: low,
        y1: high,
        line: { width: 0 },
        fillcolor: faded(name, 0.12),
      },
      { type: "line", layer: "below", x0: first, x1: last, y0: centre, y1: centre, line },
    ];
  });
}

export function limitShapes(limits, first, last) {
  const line = { width: 1.2, dash: "6px,3px", color: faded("critical", 0.75) };
  return limits.map(({ value }) => ({ type: "line", x0: first, x1: last, y0: value, y1: value, line }));
}

// The range of values that a chart shows: all of `series`, and of `guides` those that are near enough.
export function extent(series, guides, { floor, ceiling }) {
  const finite = series.flatMap((one) => one.values).filter((value) => value !== null);
  if (!finite.length) return [floor ?? 0, ceiling ?? 1];
  let low = finite.reduce((a, b) => Math.min(a, b), floor ?? Infinity);
  let high = finite.reduce((a, b) => Math.max(a, b), ceiling ?? -Infinity);
  const near = (high - low) / 2; // guides further off would flatten the line
  for (const value of guides) {
    if (value < (floor ?? -Infinity) || value > (ceiling ?? Infinity)) continue;
    if (value < low && low - value <= near) low = value;
    if (value > high && value - high <= near) high = value;
  }
  const pad = high > low ? (high - low) * 0.06 : Math.abs(high) * 0.1 || 0.1;
  return [low === floor ? low : low - pad, high + (high === ceiling ? pad / 2 : pad)];
}
