// Figures of status.json, and how they are written. Pure functions.

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

// null when there is nothing of which it could be a share.
export function share(part, whole) {
  return whole > 0 ? part / whole : null;
}

// Increase per second of a counter between two answers; a server that was started anew counts from
// 0. null without an earlier answer.
export function rate(now, before, name, wanted = {}) {
  if (!before || now.time <= before.time) return null;
  const [high, low] = [total(now, name, wanted), total(before, name, wanted)];
  return (high >= low ? high - low : high) / (now.time - before.time);
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
