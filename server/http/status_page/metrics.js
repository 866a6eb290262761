// Figures from two answers of status.json. Pure functions.

// The series of `name` whose labels have all of `wanted`.
export function series(status, name, wanted = {}) {
  const family = status.metrics[name];
  if (!family) return [];
  return family.series.filter((one) =>
    Object.entries(wanted).every(([label, value]) => one.labels[label] === value));
}

// Sum of the values; 0 when there are none.
export function total(status, name, wanted = {}) {
  return series(status, name, wanted).reduce((sum, one) => sum + one.value, 0);
}

// All histograms of `name` added up: {bounds, counts (cumulative), count, sum}; null when there is
// none. Those of one name have the same bounds.
export function histogram(status, name, wanted = {}) {
  let sum = null;
  for (const one of series(status, name, wanted)) {
    if (sum === null) {
      sum = { bounds: one.bounds, counts: one.counts.slice(), count: one.count, sum: one.sum };
    } else {
      one.counts.forEach((count, i) => { sum.counts[i] += count; });
      sum.count += one.count;
      sum.sum += one.sum;
    }
  }
  return sum;
}

// What was observed between two histograms. A model that was loaded in between starts at nothing,
// and so does a server that was started anew.
export function difference(now, before) {
  if (now === null) return null;
  if (before === null || before.count > now.count) return now;
  return {
    bounds: now.bounds,
    counts: now.counts.map((count, i) => count - before.counts[i]),
    count: now.count - before.count,
    sum: now.sum - before.sum,
  };
}

// As histogram_quantile of Prometheus: linear within a bucket, the last bound for what lies above
// it. null when nothing was observed.
export function quantile(h, q) {
  if (h === null || h.count === 0) return null;
  const rank = q * h.count;
  const at = h.counts.findIndex((count) => count >= rank);
  if (at < 0 || at >= h.bounds.length) return h.bounds[h.bounds.length - 1];
  const low = at === 0 ? 0 : h.bounds[at - 1];
  const below = at === 0 ? 0 : h.counts[at - 1];
  const inside = h.counts[at] - below;
  return inside === 0 ? h.bounds[at] : low + (h.bounds[at] - low) * (rank - below) / inside;
}

export function mean(h) {
  return h === null || h.count === 0 ? null : h.sum / h.count;
}

// null when there is nothing of which it could be a share.
export function share(part, whole) {
  return whole > 0 ? part / whole : null;
}

// Increase per second of a counter; a server that was started anew counts from 0.
export function rate(now, before, seconds) {
  if (seconds <= 0) return null;
  return (now >= before ? now - before : now) / seconds;
}

export function formatNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toFixed(size >= 1e7 ? 0 : 1) + "M";
  if (size >= 1e4) return (value / 1e3).toFixed(size >= 1e5 ? 0 : 1) + "k";
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size >= 10 ? 1 : 2);
}

export function formatSeconds(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  if (value < 1e-3) return (value * 1e6).toFixed(0) + " µs";
  if (value < 1) return (value * 1e3).toFixed(value < 0.01 ? 2 : value < 0.1 ? 1 : 0) + " ms";
  return value.toFixed(value < 10 ? 2 : 1) + " s";
}

export function formatPercent(value) {
  if (value === null || value === undefined) return "–";
  const percent = value * 100;
  return percent.toFixed(percent > 0 && percent < 10 ? 1 : 0) + " %";
}

export function formatBytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; ++unit; }
  return value.toFixed(value < 10 && unit > 0 ? 1 : 0) + " " + units[unit];
}

export function formatAge(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + s % 60 + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
}
