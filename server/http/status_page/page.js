// The status page: polls status.json and draws it.

import { byId, element, fillSelect } from "./box.js";
import { updateBoxes } from "./boxes.js";
import { updateCalls } from "./calls.js";
import { Chart } from "./chart.js";
import * as m from "./metrics.js";
import { explained, makeTable, showFacts, withTitle } from "./table.js";
import { updateTexts } from "./texts.js";
import { updateWrite } from "./write.js";

const scope = byId("scope");
let last = null;  // the last answer
let intervalMs = 3000;

// Each: where it stands, its title, its lines, their format and figures, further options.
const number = m.formatNumber;
const duration = m.formatSeconds;
const charts = [
  ["charts", "Calls per second", ["OK", "errors"], number, ["ok", "errors"], { area: true }],
  ["charts", "Latency", ["p50", "p90", "p99"], duration, ["p50", "p90", "p99"], { least: 1e-4 }],
  ["charts", "Where the time goes, mean", ["tokenize", "queue", "compute"], duration,
    ["tokenize", "queue", "compute"], { least: 1e-4 }],
  ["charts", "Tokens that wait", ["tokens"], number, ["waiting"], { least: 10, area: true }],
  ["charts", "Batch fill", ["of the token budget"], m.formatPercent, ["fill"],
    { least: 0.05, area: true }],
  ["charts", "In flight", ["calls", "batches running"], number, ["in_flight", "running"],
    { least: 4, area: true }],
  // These are shown when there is a language model or a translator.
  ["text-charts", "Generated tokens per second", ["tokens"], number, ["generated"],
    { least: 10, area: true }],
  ["text-charts", "Time to first token", ["p50", "p99"], duration, ["first_p50", "first_p99"],
    { least: 1e-3 }],
  ["text-charts", "Time between tokens", ["p50", "p99"], duration, ["next_p50", "next_p99"],
    { least: 1e-4 }],
].map(([parent, title, names, format, figures, options]) =>
  [new Chart(byId(parent), { title, names, format, ...options }), figures]);

const TILES = [
  ["calls", "Calls/s", (f) => [m.formatNumber(f.calls)]],
  ["errors", "Errors/s", (f) => [m.formatNumber(f.errors)], (f) => f.errors > 0],
  ["refused", "Refused/s", (f) => [m.formatNumber(f.refused)], (f) => f.refused > 0],
  ["p50", "Latency p50", (f) => [m.formatSeconds(f.p50)]],
  ["p99", "Latency p99", (f) => [m.formatSeconds(f.p99)]],
  ["in-flight", "Calls in flight", (f) => [m.formatNumber(f.in_flight)]],
  ["waiting", "Tokens that wait", (f) => [m.formatNumber(f.waiting),
    f.oldest > 0 ? m.formatSeconds(f.oldest) : ""]],
  ["fill", "Batch fill", (f) => [m.formatPercent(f.fill)]],
];

const tiles = TILES.map(([id, name, show, alarm]) => {
  const tile = explained(element("div", "tile"), name);
  tile.id = "tile-" + id;
  const value = element("div", "value");
  tile.append(element("div", "name", name), value);
  byId("tiles").append(tile);
  return (f) => {
    const [main, more] = show(f);
    value.replaceChildren(main);
    if (more) value.append(" ", element("small", "", more));
    tile.classList.toggle("alarm", Boolean(alarm && alarm(f)));
  };
});

function badge(state) {
  const good = state === "ready";
  const bad = state === "failed" || state === "no answer";
  return element("span", "badge " + (good ? "good" : bad ? "bad" : "warn"), state);
}

function setState(state, failed = "") {
  byId("state").className = badge(state).className;
  byId("state").textContent = state;
  byId("failed").textContent = failed;
  byId("failed").hidden = !failed;
  const parts = [state === "ready" ? "" : state, failed, "SRU server"];
  document.title = parts.filter(Boolean).join(" – ");
}

// "2 of 30 models failed"; empty if none did.
function failures(models) {
  const names = (of) => new Set(of.map(({ name }) => name)).size;
  const failed = names(models.filter(({ state }) => state === "failed"));
  return failed ? `${failed} of ${names(models)} models failed` : "";
}

function drawFacts(status) {
  const hardware = new Set(status.models.filter(({ backend }) => backend)
    .map((model) => `${model.backend} · ${model.backend_description}`));
  const { build } = status;
  const cpu = m.rate(status, last, "process_cpu_seconds_total");
  showFacts("facts", [
    ["version", status.version + (build?.commit ? ` (${build.commit})` : "")],
    ["up", m.formatAge(status.time - m.total(status, "process_start_time_seconds"))],
    ["memory", m.formatBytes(m.total(status, "process_resident_memory_bytes"))],
    ["CPU", cpu === null ? "–" : cpu.toFixed(2) + " cores"],
  ]);
  byId("hardware").textContent = [...hardware].join(" · ");
}

// Shows the counts of the native transport.
function drawConnections(status) {
  byId("connections-section").hidden = m.series(status, "sru_door_connections").length === 0;
  const rate = (name) => m.rate(status, last, name);
  const open = (labels) => m.formatNumber(m.total(status, "sru_door_connections", labels));
  // The count of all since the start, and how many have each value of the label.
  const byLabel = (name, label) => {
    const parts = m.series(status, name).filter((one) => one.value > 0)
      .map((one) => `${one.labels[label]} ${m.formatNumber(one.value)}`);
    const all = m.formatNumber(m.total(status, name));
    return parts.length > 0 ? `${all} (${parts.join(", ")})` : all;
  };
  showFacts("connections", [
    ["HTTP/2", open({ protocol: "http2" })],
    ["HTTP/1.1", open({ protocol: "http1" })],
    ["silent", open({ protocol: "not_begun" })],
    ["with TLS", open({ transport: "tls" })],
    ["calls/s over HTTP/2", m.formatNumber(rate("sru_door_streams_total"))],
    ["cut off/s", m.formatNumber(rate("sru_door_resets_total"))],
    ["in", m.formatBytes(rate("sru_door_read_bytes_total") ?? 0) + "/s"],
    ["out", m.formatBytes(rate("sru_door_written_bytes_total") ?? 0) + "/s"],
    ["answers held up, p99", m.formatSeconds(status.history.figures.loop_lag?.at(-1))],
  ]);
  showFacts("connections-total", [
    ["cut off", byLabel("sru_door_resets_total", "reason")],
    ["floods ended", byLabel("sru_door_floods_total", "reason")],
    ["handshakes failed", byLabel("sru_tls_handshake_failures_total", "reason")],
    ["told to reconnect", m.formatNumber(m.total(status, "sru_door_goaways_total"))],
  ]);
}

function describeModel(model) {
  const more = model.labels.length > 12 ? ` and ${model.labels.length - 12} more` : "";
  const name = withTitle("", [model.name, model.description, model.labels.length > 0
    ? "Labels: " + model.labels.slice(0, 12).join(", ") + more : "", model.backend
    ? m.formatNumber(model.parameters) + " parameters" : ""].filter(Boolean).join("\n"), "model");
  name.append(element("strong", "", model.name), model.version ? ` · ${model.version}` : "");
  if (model.latest && model.has_others) name.append(element("span", "tag", "latest"));
  if (model.state === "ready" && model.reason) {
    name.append(withTitle("not replaced", model.reason, "tag alarming"));
  }
  return name;
}

// Most words unknown means a wrong vocabulary, or texts of another kind.
function describeUnknown({ name, version }) {
  const labels = { model: name, version: String(version) };
  const unknown = m.share(m.total(last, "sru_unknown_tokens_total", labels),
    m.total(last, "sru_text_tokens_total", labels));
  return element("span", unknown > 0.5 ? "alarming" : "", m.formatPercent(unknown));
}

const alarming = (value) => element("span", value > 0 ? "alarming" : "", m.formatNumber(value));
// Of a model that only writes, there is the time to its first token.
const latency = (f, q) => (f[q] === null && f["first_" + q] !== null
  ? withTitle(m.formatSeconds(f["first_" + q]) + "*", "to the first token")
  : m.formatSeconds(f[q]));

const drawModels = makeTable("models", [
  ["State", "", ({ state }) => badge(state)],
  ["Model", "", describeModel],
  ["Task", "", ({ task }) => task.replace("_", " ")],
  ["Weights", "whole", ({ backend, dtype }) => (backend ? dtype : "")],
  ["Workers", "number", ({ instances }) => String(instances || "–")],
  ["Calls/s", "number", ({ figures: f }) => m.formatNumber(f.calls)],
  ["Errors/s", "number", ({ figures: f }) => alarming(f.errors)],
  ["Refused/s", "number", ({ figures: f }) => alarming(f.refused)],
  ["p50", "number", ({ figures: f }) => latency(f, "p50")],
  ["p99", "number", ({ figures: f }) => latency(f, "p99")],
  ["Waiting", "number", ({ figures: f }) => m.formatNumber(f.waiting)],
  ["Batch fill", "number", ({ figures: f }) => m.formatPercent(f.fill)],
  ["Unknown", "number", describeUnknown],
], ({ state, reason }) => (state === "ready" ? null : reason || " "));

// The failed ones first.
function sorted(models) {
  const order = ["failed", "loading", "unloading", "ready"];
  const others = (model) => models.some((one) => one.name === model.name && one !== model);
  return models.map((model) => ({ ...model, has_others: others(model) }))
    .sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state) ||
      a.name.localeCompare(b.name, "en", { numeric: true }) || a.version - b.version);
}

const drawCallers = makeTable("callers", [
  ["Caller", "", (caller) => caller.name],
  ["Calls/s", "number", (caller) => m.formatNumber(caller.calls)],
  ["Refused/s", "number", (caller) => alarming(caller.refused)],
  ["Tokens/s", "number", (caller) => m.formatNumber(caller.tokens)],
  ["Share", "number", (caller) => m.formatPercent(caller.share)],
  ["In flight", "number", (caller) => m.formatNumber(caller.inFlight)],
]);

// Who calls, by tokens.
function callersOf(status) {
  const callers = m.series(status, "sru_caller_calls_total").map(({ labels }) => ({
    name: labels.caller,
    calls: m.rate(status, last, "sru_caller_calls_total", labels),
    tokens: m.rate(status, last, "sru_caller_tokens_total", labels),
    inFlight: m.total(status, "sru_caller_calls_in_flight", labels),
    refused: m.rate(status, last, "sru_caller_refusals_total", labels),
  }));
  const all = callers.reduce((sum, { tokens }) => sum + tokens, 0);
  for (const caller of callers) caller.share = m.share(caller.tokens, all);
  return callers.sort((a, b) => b.tokens - a.tokens || b.calls - a.calls);
}

const drawFlags = makeTable("flags", [
  ["Flag", "whole", ({ name }) => "--" + name],
  ["Value", "wrap", ({ value }) => String(value)],
  ["From", "", ({ source }) => source],
]);

function drawBuild({ build, flags = [] }) {
  byId("build-section").hidden = !build && flags.length === 0;
  showFacts("build", Object.entries(build ?? {}).map(([name, value]) =>
    [name.replace("_", " "), String(value)]));
  byId("flags").hidden = flags.length === 0;
  drawFlags(flags);
}

function drawFigures(status) {
  const { times, figures } = status.history;
  figures.ok = figures.calls.map((calls, i) =>
    (calls === null ? null : Math.max(0, calls - figures.errors[i])));
  if (scope.value) figures.in_flight = times.map(() => null);  // nobody knows of one model
  const at = (name, i) => figures[name][i] ?? null;
  const labels = Object.fromEntries(new URLSearchParams(scope.value));
  const ages = m.series(status, "sru_queue_oldest_age_seconds", labels);
  const f = { oldest: Math.max(0, ...ages.map(({ value }) => value)) };
  for (const name of Object.keys(figures)) f[name] = at(name, times.length - 1);
  for (const draw of tiles) draw(f);
  byId("text-charts").hidden = !status.models.some(({ task }) =>
    ["language_model", "translator"].includes(task));
  for (const [chart, names] of charts) {
    chart.show(times.map((time, i) => ({ time, values: names.map((name) => at(name, i)) })));
  }
}

function receive(status) {
  setState(status.state, failures(status.models));
  const models = sorted(status.models);
  const versions = models.filter(({ version }) => version);
  fillSelect(scope, [["", "all"], ...versions.map(({ name, version }) =>
    [new URLSearchParams({ model: name, version }).toString(), `${name} · ${version}`])]);
  intervalMs = status.history.interval_s * 1000;
  drawFacts(status);
  drawConnections(status);
  drawFigures(status);
  drawBuild(status);
  updateCalls(status, last);
  const callers = callersOf(status);
  byId("callers-section").hidden = callers.length === 0;
  drawCallers(callers);
  last = status;
  drawModels(models);
  updateBoxes(status);
  updateWrite(status);
  updateTexts(status);
}

let lastAnswer = Date.now();

async function poll() {
  try {
    const asked = scope.value;
    const response = await fetch("status.json?" + asked,
      { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!response.ok) throw new Error("HTTP status " + response.status);
    const status = await response.json();
    if (asked === scope.value) receive(status);
    lastAnswer = Date.now();
    byId("lost").hidden = true;
  } catch (error) {
    setState("no answer");
    byId("lost").textContent = "The server has not answered for " +
      m.formatAge((Date.now() - lastAnswer) / 1000) + " (" + error.message +
      "). The figures below are the last ones.";
    byId("lost").hidden = false;
  }
}

async function run() {
  for (;;) {
    // A page that nobody looks at does not poll.
    if (!document.hidden) await poll();
    await new Promise((resolve) => setTimeout(resolve, intervalMs));
  }
}

scope.addEventListener("change", poll);
run();
