// The status page: polls status.json every second and draws what changed between two answers.

import { byId, element, fillSelect } from "./box.js";
import { updateBoxes } from "./boxes.js";
import { Chart } from "./chart.js";
import * as m from "./metrics.js";
import { updateTexts } from "./texts.js";
import { updateWrite } from "./write.js";

const POLL_MS = 1000;
// Percentiles and means cover what was observed in this many seconds.
const WINDOW_SECONDS = 10;

const history = [];  // answers of the last WINDOW_SECONDS and one before
const scope = byId("scope");

// ---- figures ----

function labelsOf(model) {
  return { model: model.name, version: String(model.version) };
}

function chosenLabels() {
  return scope.value ? JSON.parse(scope.value) : {};
}

// The figures of what has the labels `wanted`: since the last answer, and over the window.
function figures(wanted) {
  const now = history[history.length - 1];
  const before = history[history.length - 2] || null;
  const first = history[0];
  const seconds = before ? now.time - before.time : 0;
  const window = (name) => before && m.difference(
    m.histogram(now, name, wanted), m.histogram(first, name, wanted));
  const increase = (name, extra = {}) => before && m.rate(
    m.total(now, name, { ...wanted, ...extra }), m.total(before, name, { ...wanted, ...extra }),
    seconds);
  const calls = increase("sru_requests_total");
  const ok = increase("sru_requests_total", { code: "OK" });
  const duration = window("sru_request_duration_seconds");
  const firstToken = window("sru_time_to_first_token_seconds");
  const nextToken = window("sru_inter_token_seconds");
  const ages = m.series(now, "sru_queue_oldest_age_seconds", wanted).map((one) => one.value);
  return {
    calls,
    ok,
    errors: calls === null ? null : Math.max(0, calls - ok),
    p50: m.quantile(duration, 0.5),
    p90: m.quantile(duration, 0.9),
    p99: m.quantile(duration, 0.99),
    fill: m.mean(window("sru_batch_fill_ratio")),
    batchSequences: m.mean(window("sru_batch_sequences")),
    tokenize: m.mean(window("sru_tokenize_duration_seconds")),
    queue: m.mean(window("sru_queue_duration_seconds")),
    compute: m.mean(window("sru_compute_duration_seconds")),
    waitingTokens: m.total(now, "sru_queue_tokens", wanted),
    oldest: ages.length > 0 ? Math.max(...ages) : 0,
    running: m.total(now, "sru_running_batches", wanted),
    refused: m.total(now, "sru_rejections_total", wanted),
    // Since it was loaded: a share of few words would jump.
    unknown: m.share(m.total(now, "sru_unknown_tokens_total", wanted),
      m.total(now, "sru_text_tokens_total", wanted)),
    inFlight: m.total(now, "sru_requests_in_flight"),
    writes: m.series(now, "sru_generated_tokens_total", wanted).length > 0,
    generated: increase("sru_generated_tokens_total"),
    firstTokenP50: m.quantile(firstToken, 0.5),
    firstTokenP99: m.quantile(firstToken, 0.99),
    nextTokenP50: m.quantile(nextToken, 0.5),
    nextTokenP99: m.quantile(nextToken, 0.99),
  };
}

// ---- drawing ----

// Each: where it stands, its title, its lines, the format and the figures of these, further options.
const charts = [
  ["charts", "Calls per second", ["OK", "other"], m.formatNumber, (f) => [f.ok, f.errors],
    { area: true }],
  ["charts", "Latency", ["p50", "p90", "p99"], m.formatSeconds, (f) => [f.p50, f.p90, f.p99],
    { least: 1e-4 }],
  ["charts", "Where the time goes, mean", ["tokenize", "queue", "compute"], m.formatSeconds,
    (f) => [f.tokenize, f.queue, f.compute], { least: 1e-4 }],
  ["charts", "Tokens that wait", ["tokens"], m.formatNumber, (f) => [f.waitingTokens],
    { least: 10, area: true }],
  ["charts", "Batch fill", ["of the token budget"], m.formatPercent, (f) => [f.fill],
    { least: 0.05, area: true }],
  ["charts", "In flight", ["calls", "batches running"], m.formatNumber,
    (f) => [f.inFlight, f.running], { least: 4, area: true }],
  // These are shown when there is a language model.
  ["text-charts", "Generated tokens per second", ["tokens"], m.formatNumber, (f) => [f.generated],
    { least: 10, area: true }],
  ["text-charts", "Time to first token", ["p50", "p99"], m.formatSeconds,
    (f) => [f.firstTokenP50, f.firstTokenP99], { least: 1e-3 }],
  ["text-charts", "Time between tokens", ["p50", "p99"], m.formatSeconds,
    (f) => [f.nextTokenP50, f.nextTokenP99], { least: 1e-4 }],
].map(([parent, title, names, format, values, options]) =>
  [new Chart(byId(parent), { title, names, format, ...options }), values]);

const TILES = [
  ["calls", "Calls per second", (f) => [m.formatNumber(f.calls)]],
  ["errors", "Errors per second", (f) => [m.formatNumber(f.errors)], (f) => f.errors > 0],
  ["p50", "Latency p50", (f) => [m.formatSeconds(f.p50)]],
  ["p99", "Latency p99", (f) => [m.formatSeconds(f.p99)]],
  ["in-flight", "Calls in flight", (f) => [m.formatNumber(f.inFlight)]],
  ["waiting", "Tokens that wait", (f) => [m.formatNumber(f.waitingTokens),
    f.oldest > 0 ? "for " + m.formatSeconds(f.oldest) : ""]],
  ["fill", "Batch fill", (f) => [m.formatPercent(f.fill)]],
  ["sequences", "Batch sequences", (f) => [m.formatNumber(f.batchSequences)]],
];

const tiles = TILES.map(([id, name, show, alarm]) => {
  const tile = element("div", "tile");
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

function setState(state) {
  byId("state").className = badge(state).className;
  byId("state").textContent = state;
  document.title = (state === "ready" ? "" : state + " – ") + "SRU server";
}

// How much a counter of the server grows per second, by the last two answers; null after the first.
function rateOf(status, name) {
  const before = history[history.length - 2];
  if (!before) return null;
  return m.rate(m.total(status, name), m.total(before, name), status.time - before.time);
}

function showFacts(id, facts) {
  byId(id).replaceChildren(...facts.map(([name, text]) => {
    const fact = element("div");
    fact.append(element("dt", "", name), element("dd", "", text));
    return fact;
  }));
}

function drawFacts(status) {
  const cpu = rateOf(status, "process_cpu_seconds_total");
  showFacts("facts", [
    ["version", status.version],
    ["up", m.formatAge(status.time - m.total(status, "process_start_time_seconds"))],
    ["memory", m.formatBytes(m.total(status, "process_resident_memory_bytes"))],
    ["CPU", cpu === null ? "–" : cpu.toFixed(2) + " cores"],
  ]);
}

// Shows the counts of the native transport.
function drawConnections(status) {
  byId('connections-section').hidden = m.series(status, 'sru_door_connections').length === 0;
  const rate = (name) => rateOf(status, name);
  const lag = m.difference(
      m.histogram(status, 'sru_door_loop_lag_seconds'),
      m.histogram(history[0], 'sru_door_loop_lag_seconds'));
  const open = (labels) => m.total(status, 'sru_door_connections', labels);
  // The count of all, and how many have each value of the label.
  const byLabel = (name, label) => {
    const parts = m.series(status, name).filter((one) => one.value > 0)
        .map((one) => `${one.labels[label]} ${m.formatNumber(one.value)}`);
    return m.formatNumber(m.total(status, name)) + (parts.length > 0 ? ` (${parts.join(', ')})` : '');
  };
  showFacts('connections', [
    ['HTTP/2', m.formatNumber(open({protocol: 'http2'}))],
    ['HTTP/1.1', m.formatNumber(open({protocol: 'http1'}))],
    ['not begun', m.formatNumber(open({protocol: 'not_begun'}))],
    ['of all, with TLS', m.formatNumber(open({transport: 'tls'}))],
    ['streams/s', m.formatNumber(rate('sru_door_streams_total'))],
    ['resets/s', m.formatNumber(rate('sru_door_resets_total'))],
    ['in', m.formatBytes(rate('sru_door_read_bytes_total') || 0) + '/s'],
    ['out', m.formatBytes(rate('sru_door_written_bytes_total') || 0) + '/s'],
    ['loop lag p99', m.formatSeconds(m.quantile(lag, 0.99))],
    ['floods ended', byLabel('sru_door_floods_total', 'reason')],
    ['handshakes failed', byLabel('sru_tls_handshake_failures_total', 'reason')],
    ['streams reset', byLabel('sru_door_resets_total', 'reason')],
    ['sent elsewhere', m.formatNumber(m.total(status, 'sru_door_goaways_total'))],
  ]);
}

function describeModel(model) {
  const parts = new DocumentFragment();
  parts.append(element("strong", "", model.name), ` version ${model.version}`);
  if (model.latest) parts.append(element("span", "tag", "latest"));
  if (model.task) parts.append(element("span", "tag", model.task.replace("_", " ")));
  if (model.description) parts.append(element("div", "soft", model.description));
  if (model.labels.length > 0) {
    const more = model.labels.length > 12 ? ` and ${model.labels.length - 12} more` : "";
    parts.append(element("div", "soft", "Labels: " + model.labels.slice(0, 12).join(", ") + more));
  }
  return parts;
}

function describeState(model) {
  const parts = new DocumentFragment();
  parts.append(badge(model.state));
  if (model.reason) parts.append(element("div", "soft", model.reason));
  return parts;
}

function describeBackend(model) {
  const runs = element("span");
  if (!model.backend) return runs;
  const instances = model.instances === 1 ? "1 instance" : model.instances + " instances";
  runs.append(element("span", "whole", `${model.backend} · ${model.dtype} · ${instances}`),
    element("div", "soft",
      `${model.backend_description} · ${m.formatNumber(model.parameters)} parameters`));
  return runs;
}

// Most words unknown means a wrong vocabulary, or texts of another kind.
function describeUnknown(share) {
  return element("span", share > 0.5 ? "alarming" : "", m.formatPercent(share));
}

// Makes the heads of a table from its columns: a name, a class, and what its cell holds of an item.
// Returns the function that shows items.
function makeTable(id, columns) {
  byId(id).tHead.rows[0].append(...columns.map(([name, className]) => {
    const head = element("th", className, name);
    head.scope = "col";
    return head;
  }));
  return (items) => byId(id).tBodies[0].replaceChildren(...items.map((item) => {
    const row = element("tr");
    row.append(...columns.map(([name, className, show]) => {
      const cell = element("td", className);
      cell.dataset.name = name;
      cell.append(show(item));
      return cell;
    }));
    return row;
  }));
}

// The columns of models: of a model of status.json with its figures.
const drawModels = makeTable("models", [
  ["Model", "", describeModel],
  ["State", "", describeState],
  ["Runs on", "", describeBackend],
  ["Calls/s", "number", ({ f }) => m.formatNumber(f.calls)],
  ["p50", "number", ({ f }) => m.formatSeconds(f.p50)],
  ["p99", "number", ({ f }) => m.formatSeconds(f.p99)],
  ["Waiting", "number", ({ f }) => m.formatNumber(f.waitingTokens) + " tokens"],
  ["Batch fill", "number", ({ f }) => m.formatPercent(f.fill)],
  ["Refused", "number", ({ f }) => m.formatNumber(f.refused)],
  ["Unknown words", "number", ({ f }) => describeUnknown(f.unknown)],
]);

const drawCallers = makeTable("callers", [
  ["Caller", "", (caller) => caller.name],
  ["Calls/s", "number", (caller) => m.formatNumber(caller.calls)],
  ["Tokens/s", "number", (caller) => m.formatNumber(caller.tokens)],
  ["Share", "number", (caller) => m.formatPercent(caller.share)],
  ["In flight", "number", (caller) => m.formatNumber(caller.inFlight)],
  ["Refused/s", "number", (caller) => m.formatNumber(caller.refused)],
]);

// Who calls, by the tokens of the window.
function callersOf(status) {
  const first = history[0];
  const callers = m.series(status, "sru_caller_calls_total").map(({ labels }) => {
    // A caller that was not among the busiest before has had no series.
    const rate = (name) => m.rate(
      m.total(status, name, labels), m.total(first, name, labels), status.time - first.time);
    return {
      name: labels.caller,
      calls: rate("sru_caller_calls_total"),
      tokens: rate("sru_caller_tokens_total"),
      inFlight: m.total(status, "sru_caller_calls_in_flight", labels),
      refused: rate("sru_caller_refusals_total"),
    };
  });
  const all = callers.reduce((sum, { tokens }) => sum + tokens, 0);
  for (const caller of callers) caller.share = m.share(caller.tokens, all);
  return callers.sort((a, b) => b.tokens - a.tokens || b.calls - a.calls);
}

function drawFigures() {
  const f = figures(chosenLabels());
  for (const draw of tiles) draw(f);
  byId("text-charts").hidden = !f.writes;
  return f;
}

// ---- polling ----

function receive(status) {
  const last = history[history.length - 1];
  // A server that was started anew has its own counters, and one whose clock was set back its own time.
  if (last && (status.time < last.time || m.total(status, "process_start_time_seconds") !==
      m.total(last, "process_start_time_seconds"))) {
    history.length = 0;
    for (const [chart] of charts) chart.clear();
  }
  history.push(status);
  while (history.length > 2 && history[1].time <= status.time - WINDOW_SECONDS) history.shift();
  setState(status.state);
  fillSelect(scope, [["", "all"], ...status.models.map((model) =>
    [JSON.stringify(labelsOf(model)), `${model.name} · ${model.version}`])]);
  drawFacts(status);
  drawConnections(status);
  const f = drawFigures();
  if (history.length > 1) {
    for (const [chart, values] of charts) chart.add(status.time, values(f));
  }
  drawModels(status.models.map((model) => ({ ...model, f: figures(labelsOf(model)) })));
  const callers = callersOf(status);
  byId("callers-section").hidden = callers.length === 0;
  drawCallers(callers);
  updateBoxes(status);
  updateWrite(status);
  updateTexts(status);
}

let lastAnswer = Date.now();

async function poll() {
  try {
    const response = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!response.ok) throw new Error("HTTP status " + response.status);
    receive(await response.json());
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
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

scope.addEventListener("change", () => {
  for (const [chart] of charts) chart.clear();
  if (history.length > 0) drawFigures();
});
run();
