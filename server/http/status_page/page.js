// The status page: polls status.json every second and draws what changed between two answers.

import { Chart } from "./chart.js";
import * as m from "./metrics.js";
import { updateRead } from "./read.js";
import { updateTexts } from "./texts.js";
import { updateTranslate } from "./translate.js";
import { updateTry } from "./try.js";
import { updateWrite } from "./write.js";

const POLL_MS = 1000;
// Percentiles and means cover what was observed in this many seconds.
const WINDOW_SECONDS = 10;

const DURATION = "sru_request_duration_seconds";
const history = [];  // answers of the last WINDOW_SECONDS and one before
const byId = (id) => document.getElementById(id);
const scope = byId("scope");

function element(tag, className, content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
}

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
  const window = (name) => m.difference(
    m.histogram(now, name, wanted), before ? m.histogram(first, name, wanted) : null);
  const windowIfAny = (name) => (before ? window(name) : null);
  const increase = (name, extra = {}) => before && m.rate(
    m.total(now, name, { ...wanted, ...extra }), m.total(before, name, { ...wanted, ...extra }),
    seconds);
  const calls = increase("sru_requests_total");
  const ok = increase("sru_requests_total", { code: "OK" });
  const duration = windowIfAny(DURATION);
  const firstToken = windowIfAny("sru_time_to_first_token_seconds");
  const nextToken = windowIfAny("sru_inter_token_seconds");
  const ages = m.series(now, "sru_queue_oldest_age_seconds", wanted).map((one) => one.value);
  return {
    calls,
    ok,
    errors: calls === null ? null : Math.max(0, calls - ok),
    p50: m.quantile(duration, 0.5),
    p90: m.quantile(duration, 0.9),
    p99: m.quantile(duration, 0.99),
    fill: m.mean(windowIfAny("sru_batch_fill_ratio")),
    batchSequences: m.mean(windowIfAny("sru_batch_sequences")),
    tokenize: m.mean(windowIfAny("sru_tokenize_duration_seconds")),
    queue: m.mean(windowIfAny("sru_queue_duration_seconds")),
    compute: m.mean(windowIfAny("sru_compute_duration_seconds")),
    waitingTokens: m.total(now, "sru_queue_tokens", wanted),
    waitingSequences: m.total(now, "sru_queue_sequences", wanted),
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

const charts = [
  [new Chart(byId("charts"), {
    title: "Calls per second", names: ["OK", "other"], format: m.formatNumber, area: true }),
  (f) => [f.ok, f.errors]],
  [new Chart(byId("charts"), {
    title: "Latency", names: ["p50", "p90", "p99"], format: m.formatSeconds, least: 1e-4 }),
  (f) => [f.p50, f.p90, f.p99]],
  [new Chart(byId("charts"), {
    title: "Where the time goes, mean", names: ["tokenize", "queue", "compute"],
    format: m.formatSeconds, least: 1e-4 }),
  (f) => [f.tokenize, f.queue, f.compute]],
  [new Chart(byId("charts"), {
    title: "Tokens that wait", names: ["tokens"], format: m.formatNumber, least: 10, area: true }),
  (f) => [f.waitingTokens]],
  [new Chart(byId("charts"), {
    title: "Batch fill", names: ["of the token budget"], format: m.formatPercent, least: 0.05,
    area: true }),
  (f) => [f.fill]],
  [new Chart(byId("charts"), {
    title: "In flight", names: ["calls", "batches running"], format: m.formatNumber, least: 4,
    area: true }),
  (f) => [f.inFlight, f.running]],
  // These are shown when there is a language model.
  [new Chart(byId("text-charts"), {
    title: "Generated tokens per second", names: ["tokens"], format: m.formatNumber, least: 10,
    area: true }),
  (f) => [f.generated]],
  [new Chart(byId("text-charts"), {
    title: "Time to first token", names: ["p50", "p99"], format: m.formatSeconds, least: 1e-3 }),
  (f) => [f.firstTokenP50, f.firstTokenP99]],
  [new Chart(byId("text-charts"), {
    title: "Time between tokens", names: ["p50", "p99"], format: m.formatSeconds, least: 1e-4 }),
  (f) => [f.nextTokenP50, f.nextTokenP99]],
];

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

function drawFacts(status) {
  const value = (name) => {
    const [one] = m.series(status, name);
    return one ? one.value : null;
  };
  const before = history[history.length - 2];
  const cpu = before && m.rate(value("process_cpu_seconds_total"),
    m.total(before, "process_cpu_seconds_total"), status.time - before.time);
  const facts = [
    ["version", status.version],
    ["up", m.formatAge(status.time - value("process_start_time_seconds"))],
    ["memory", m.formatBytes(value("process_resident_memory_bytes"))],
    ["CPU", cpu === null || cpu === undefined ? "–" : cpu.toFixed(2) + " cores"],
  ];
  showFacts('facts', facts);
}

function showFacts(id, facts) {
  byId(id).replaceChildren(...facts.map(([name, text]) => {
    const fact = element("div");
    fact.append(element("dt", "", name), element("dd", "", text));
    return fact;
  }));
}

// Shows the counts of the native transport.
function drawConnections(status) {
  byId('connections-section').hidden = m.series(status, 'sru_door_connections').length === 0;
  const before = history[history.length - 2];
  const rate = (name) =>
      before && m.rate(m.total(status, name), m.total(before, name), status.time - before.time);
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
  const name = [element("strong", "", model.name), ` version ${model.version}`];
  if (model.latest) name.push(element("span", "tag", "latest"));
  if (model.task) name.push(element("span", "tag", model.task.replace("_", " ")));
  if (model.description) name.push(element("div", "soft", model.description));
  if (model.labels.length > 0) {
    const shown = model.labels.slice(0, 12).join(", ");
    const more = model.labels.length > 12 ? ` and ${model.labels.length - 12} more` : "";
    name.push(element("div", "soft", "Labels: " + shown + more));
  }
  return name;
}

function describeState(model) {
  return model.reason ? [badge(model.state), element("div", "soft", model.reason)]
    : [badge(model.state)];
}

function describeBackend(model) {
  const runs = element("span");
  if (model.backend) {
    const instances = model.instances === 1 ? "1 instance" : model.instances + " instances";
    runs.append(element("span", "whole", `${model.backend} · ${model.dtype} · ${instances}`),
      element("div", "soft",
        `${model.backend_description} · ${m.formatNumber(model.parameters)} parameters`));
  }
  return [runs];
}

// Most words unknown means a wrong vocabulary, or texts of another kind.
function describeUnknown(share) {
  return element("span", share > 0.5 ? "alarming" : "", m.formatPercent(share));
}

// The table of models: the head of a column, its class, and what its cell holds of a model of
// status.json and its figures.
const COLUMNS = [
  ["Model", "", (model) => describeModel(model)],
  ["State", "", (model) => describeState(model)],
  ["Runs on", "", (model) => describeBackend(model)],
  ["Calls/s", "number", (model, f) => [m.formatNumber(f.calls)]],
  ["p50", "number", (model, f) => [m.formatSeconds(f.p50)]],
  ["p99", "number", (model, f) => [m.formatSeconds(f.p99)]],
  ["Waiting", "number", (model, f) => [m.formatNumber(f.waitingTokens) + " tokens"]],
  ["Batch fill", "number", (model, f) => [m.formatPercent(f.fill)]],
  ["Refused", "number", (model, f) => [m.formatNumber(f.refused)]],
  ["Unknown words", "number", (model, f) => [describeUnknown(f.unknown)]],
];

byId("models").tHead.rows[0].append(...COLUMNS.map(([name, className]) => {
  const head = element("th", className, name);
  head.scope = "col";
  return head;
}));

function drawModels(status) {
  byId("models").tBodies[0].replaceChildren(...status.models.map((model) => {
    const f = figures(labelsOf(model));
    const row = element("tr");
    row.append(...COLUMNS.map(([name, className, show]) => {
      const cell = element("td", className);
      cell.dataset.name = name;
      cell.append(...show(model, f));
      return cell;
    }));
    return row;
  }));
}

// Shows who calls, by the tokens of the window.
function drawCallers(status) {
  const first = history[0];
  const seconds = status.time - first.time;
  const rows = m.series(status, "sru_caller_calls_total").map(({ labels }) => {
    // A caller that was not among the busiest before has had no series.
    const rate = (name) => m.rate(m.total(status, name, labels), m.total(first, name, labels), seconds);
    return {
      name: labels.caller,
      calls: rate("sru_caller_calls_total"),
      tokens: rate("sru_caller_tokens_total"),
      inFlight: m.total(status, "sru_caller_calls_in_flight", labels),
      refused: rate("sru_caller_refusals_total"),
    };
  });
  const all = rows.reduce((sum, row) => sum + row.tokens, 0);
  rows.sort((a, b) => b.tokens - a.tokens || b.calls - a.calls);
  byId("callers-section").hidden = rows.length === 0;
  byId("callers").tBodies[0].replaceChildren(...rows.map((caller) => {
    const row = element("tr");
    row.append(element("td", "", caller.name));
    for (const text of [m.formatNumber(caller.calls), m.formatNumber(caller.tokens),
      m.formatPercent(m.share(caller.tokens, all)), m.formatNumber(caller.inFlight),
      m.formatNumber(caller.refused)]) {
      row.append(element("td", "number", text));
    }
    return row;
  }));
}

// The choice of models; kept as it is while the models are the same.
function drawScope(status) {
  const wanted = ["", ...status.models.map((model) => JSON.stringify(labelsOf(model)))];
  if (wanted.join() === [...scope.options].map((option) => option.value).join()) return;
  const chosen = scope.value;
  scope.replaceChildren(...wanted.map((value) => {
    const labels = value ? JSON.parse(value) : null;
    const option = element("option", "", labels ? `${labels.model} · ${labels.version}` : "all");
    option.value = value;
    return option;
  }));
  if (wanted.includes(chosen)) scope.value = chosen;
}

function drawAllMetrics(status) {
  if (!byId("all").open) return;
  const rows = [];
  for (const name of Object.keys(status.metrics).sort()) {
    const family = status.metrics[name];
    if (family.type === "histogram") continue;
    for (const one of family.series) {
      const row = element("tr");
      const labels = Object.entries(one.labels).map(([key, value]) => `${key}="${value}"`).join(" ");
      const metric = element("td", "", name);
      metric.title = family.help;
      row.append(metric, element("td", "soft", labels), element("td", "number", String(one.value)));
      rows.push(row);
    }
  }
  byId("all-metrics").tBodies[0].replaceChildren(...rows);
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
  drawScope(status);
  drawFacts(status);
  drawConnections(status);
  const f = drawFigures();
  if (history.length > 1) {
    for (const [chart, values] of charts) chart.add(status.time, values(f));
  }
  drawModels(status);
  drawCallers(status);
  drawAllMetrics(status);
  updateTry(status);
  updateWrite(status);
  updateRead(status);
  updateTranslate(status);
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
byId("all").addEventListener("toggle", () => {
  if (history.length > 0) drawAllMetrics(history[history.length - 1]);
});
run();
