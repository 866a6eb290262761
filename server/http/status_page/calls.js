// What went wrong or was slow: errors by code, the last errors and the last slow calls.

import { byId, element } from "./box.js";
import * as m from "./metrics.js";
import { makeTable, showFacts, withTitle } from "./table.js";

const STAGES = ["tokenize", "queue", "compute", "rest"];
const us = (value) => m.formatSeconds(value / 1e6);

function when({ time }) {
  const date = new Date(time * 1000);
  return withTitle(date.toLocaleTimeString(), date.toISOString());
}

const nameOf = ({ model, version }) => model + (version ? ` · ${version}` : "");

// A bar with a part for each stage, and the longest stage in words.
function stages(call) {
  const parts = STAGES.map((name) => [name, call[name + "_us"]]);
  const sum = Math.max(1, parts.reduce((all, [, time]) => all + time, 0));
  const cell = withTitle("", parts.map(([name, time]) => `${name} ${us(time)}`).join(", "));
  cell.className = "stages";
  const bar = element("span", "bar");
  parts.forEach(([, time], i) => {
    const part = element("i", "b" + i);
    part.style.width = (100 * time / sum).toFixed(1) + "%";
    bar.append(part);
  });
  const [longest, time] = parts.reduce((best, part) => (part[1] > best[1] ? part : best));
  cell.append(bar, `${longest} ${us(time)}`);
  return cell;
}

const ids = [
  ["Request id", "id", (call) => call.request_id],
  ["Trace id", "id", (call) => call.trace_id],
];

const drawSlow = makeTable("slow", [
  ["Time", "whole", when],
  ["Method", "", ({ method }) => method],
  ["Model", "whole", nameOf],
  ["Took", "number", ({ total_us }) => us(total_us)],
  ["Stages", "", stages],
  ["Sent", "number", ({ sequences, tokens }) => `${sequences} / ${m.formatNumber(tokens)}`],
  ["Batch", "number", (call) => `${call.batch_sequences} / ${m.formatNumber(call.batch_tokens)}`],
  ["Steps", "number", ({ steps, first_step_us: first }) =>
    (steps ? withTitle(steps, `the first result after ${us(first)}`) : "–")],
  ["Code", "", ({ code }) => code],
  ...ids,
]);

const drawErrors = makeTable("errors", [
  ["Time", "whole", when],
  ["Code", "", ({ code }) => code],
  ["Method", "", ({ method }) => method],
  ["Model", "whole", nameOf],
  ["Error", "wrap", ({ error }) => error],
  ...ids,
]);

// Called with every answer of status.json and the one before.
export function updateCalls(status, before) {
  const codes = m.series(status, "sru_requests_total").map(({ labels }) => labels.code);
  const errors = [...new Set(codes)].filter((code) => code !== "OK").sort();
  byId("errors-section").hidden = errors.length + status.errors.length === 0;
  byId("errors-box").hidden = status.errors.length === 0;
  showFacts("codes", errors.map((code) => [code,
    `${m.formatNumber(m.rate(status, before, "sru_requests_total", { code }))}/s, ` +
    `${m.formatNumber(m.total(status, "sru_requests_total", { code }))} since the start`]));
  drawErrors(status.errors);
  const { log_slow_ms: least, calls } = status.slow_calls;
  byId("slow-note").textContent = !least
    ? "Start the server with --log_slow_ms=100 to see calls that took 100 ms or longer, and why."
    : (calls.length ? `The last ${calls.length} calls` : "No call yet") +
      ` that took ${us(least * 1e3)} or longer.`;
  byId("slow-box").hidden = calls.length === 0;
  drawSlow(calls);
}
