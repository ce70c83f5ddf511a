// Numbers, times and names as people read them.

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6))
    return value.toExponential(1).replace("-", "−").replace("e−", "e-").replace("e+", "e");
  if (size >= 1e4) return Math.round(value).toLocaleString("en").replace("-", "−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

// The value of a control.
export function shown(value) {
  if (value === true) return "on";
  if (value === false) return "off";
  if (value === "") return "none";
  if (value === "Infinity") return "∞";
  return number(value);
}

// What a control is overridden with; null where nobody does.
export const override = (value) => (value === null ? "the run’s own" : shown(value));

export const words = (text) => String(text).replaceAll("_", " ");
export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
export const changes = (overrides) =>
  Object.entries(overrides)
    .map(([name, value]) => `${words(name)} = ${shown(value)}`)
    .join(", ");

// What is overridden before and after a change.
export function differences(before, after) {
  const said = (overrides, name) => override(overrides[name] ?? null);
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names
    .filter((name) => before[name] !== after[name])
    .map((name) => `${words(name)}: ${said(before, name)} → ${said(after, name)}`)
    .join(", ");
}

// Seconds as one rounded unit: 4 s, 12 min, 3 h, 2 d.
export function duration(seconds) {
  if (seconds < 90) return `${Math.max(Math.round(seconds), 0)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function moment(unix) {
  return unix === null || unix === undefined
    ? "–"
    : new Date(unix * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}
