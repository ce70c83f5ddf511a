// Addresses with what is asked in them.

// `path` with a query of `entries`; a list is given once for each of its values, and what is missing is left out.
export function withQuery(path, entries) {
  const pairs = Object.entries(entries).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  const kept = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return kept.length ? `${path}?${new URLSearchParams(kept)}` : path;
}
