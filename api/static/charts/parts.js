// Series as they are drawn: with gaps where a signal was not observed.

const BRIDGED = 4; // strides that a line bridges

// The columns, with a gap wherever the signal was not observed for long; `all` are the steps that there are.
export function parted({ steps, values }, domain, all) {
  const longest = BRIDGED * strideOf(domain, all),
    parts = { steps: [], values: [] };
  steps.forEach((step, i) => {
    if (i && step - steps[i - 1] > longest) {
      parts.steps.push(step - 1);
      parts.values.push(null);
    }
    parts.steps.push(step);
    parts.values.push(values[i]);
  });
  return parts;
}

// The outline of the ground between two series, a closed piece for each stretch in which both were observed.
export function outline(low, high, domain, all) {
  const longest = BRIDGED * strideOf(domain, all),
    highAt = new Map(high.steps.map((step, i) => [step, high.values[i]]));
  const pieces = [];
  let before = -Infinity;
  low.steps.forEach((step, i) => {
    const from = low.values[i],
      to = highAt.get(step) ?? null;
    if (from === null || to === null) return;
    if (step - before > longest) pieces.push([]);
    pieces.at(-1).push({ step, from, to });
    before = step;
  });
  const drawn = { x: [], y: [] };
  for (const piece of pieces) {
    const back = piece.toReversed();
    drawn.x.push(...piece.map((one) => one.step), ...back.map((one) => one.step), null);
    drawn.y.push(...piece.map((one) => one.from), ...back.map((one) => one.to), null);
  }
  return drawn;
}

const strideOf = ([first, last], all) => Math.max(all.length > 1 ? (last - first) / (all.length - 1) : 1, 1);
