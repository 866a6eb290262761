// What the boxes that try a model share: the choice of models, calls, and how answers are shown. The
// elements of a box `name` have the ids name (its form), name-model, name-FIELD, name-token,
// name-token-label and name-answer, and name-section if it stands in a section of its own.

import { formatSeconds } from "./metrics.js";

export const byId = (id) => document.getElementById(id);

export function element(tag, className, content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
}

// Fills a choice with pairs of a value and a text. It is kept as it is while the values are the same,
// and a chosen value stays chosen.
export function fillSelect(select, options) {
  const values = options.map(([value]) => value);
  if (values.join("\n") === [...select.options].map(({ value }) => value).join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  if (values.includes(chosen)) select.value = chosen;
}

// Called with every answer of status.json: shows a box while a model that it `takes` is ready, and
// fills its choice. Returns whether it is shown.
export function updateModels(name, status, takes) {
  const models = status.models.filter((model) => model.state === "ready" && takes(model));
  const shown = status.try.allowed && models.length > 0;
  (byId(name + "-section") ?? byId(name)).hidden = !shown;
  fillSelect(byId(name + "-model"), models.map(({ name: model, version }) =>
    [JSON.stringify({ model, version }), `${model} · ${version}`]));
  return shown;
}

export const chosenModel = (name) => JSON.parse(byId(name + "-model").value);

// What the server says instead of an answer.
export class Refusal extends Error {
  constructor(error, status) {
    super(error.code ? `${error.code}: ${error.message}` : error.message ?? error);
    this.status = status;
  }
}

// Calls the server for a box: with a body by POST. Throws a Refusal; the next try may have a token.
export async function ask(name, path, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const token = byId(name + "-token").value;
  if (token) headers.Authorization = "Bearer " + token;
  const response = await fetch(path, {
    method: body ? "POST" : "GET",
    headers,
    body: JSON.stringify(body),
    cache: "no-store",
    credentials: "same-origin",
    signal,
  });
  if (response.ok) return response;
  if ([401, 403].includes(response.status)) byId(name + "-token-label").hidden = false;
  throw new Refusal((await response.json()).error, response.status);
}

export function showError(answer, error) {
  const notice = element("p", "notice error", error instanceof Refusal
    ? error.message : "The server did not answer: " + error.message);
  notice.setAttribute("role", "alert");
  answer.replaceChildren(notice);
}

// When the form of a box is sent, shows the elements that `answer` makes, or why there are none.
export function onSubmit(name, answer) {
  const button = byId(name).querySelector("button");
  byId(name).addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      byId(name + "-answer").replaceChildren(...await answer());
    } catch (error) {
      showError(byId(name + "-answer"), error);
    } finally {
      button.disabled = false;
    }
  });
}

function labelled(text, box, className = "") {
  const label = element("label", className, text + " ");
  label.append(box);
  return label;
}

// Makes the form of a box: `fields` are an id, a label, and attributes of an input, or of a text
// area if these have `rows`.
function makeForm(name, title, button, fields) {
  const form = element("form");
  form.id = name;
  form.hidden = true;
  const made = (tag, id, attributes) =>
    Object.assign(element(tag), { id: `${name}-${id}`, ...attributes });
  const row = element("div", "try-row");
  const areas = [];
  row.append(labelled("Model", made("select", "model", {})));
  for (const [id, label, attributes] of fields) {
    const box = made(attributes.rows ? "textarea" : "input", id, {
      autocomplete: "off", spellcheck: false, required: true, maxLength: 20000, ...attributes });
    if (attributes.rows) areas.push(labelled(label, box, "below"));
    else row.append(labelled(label, box, attributes.type ? "" : "grow"));
  }
  row.append(Object.assign(element("button", "", button), { type: "submit" }));
  const token = labelled("Bearer token, kept in this page only",
    made("input", "token", { type: "password", autocomplete: "off" }), "below");
  token.id = name + "-token-label";
  token.hidden = true;
  const answer = made("div", "answer", {});
  answer.setAttribute("aria-live", "polite");
  form.append(element("h3", "", title), row, ...areas, token, answer);
  byId("boxes").append(form);
}

// Makes a box that asks `path` (docs/rest.md) about models that it `takes`: `request` says what,
// and `show` returns the elements for the answer. Returns the function to call with status.json.
export function makeBox(name, { title, button, fields, takes, path, request, show }) {
  makeForm(name, title, button, fields);
  onSubmit(name, async () => {
    const asked = { ...chosenModel(name), ...request() };
    return show(await (await ask(name, path, asked)).json(), asked);
  });
  return (status) => updateModels(name, status, takes);
}

// Rows of a name, a bar and a percentage, from pairs of a name and a probability.
export function probabilityRows(pairs) {
  const rows = element("div");
  for (const [name, probability] of pairs) {
    const row = element("div", "answer-row");
    const bar = element("div", "bar");
    const fill = element("i", "b0");
    fill.style.width = (probability * 100).toFixed(2) + "%";
    bar.append(fill);
    row.append(element("span", "label", name), bar,
      element("span", "number", (probability * 100).toFixed(1) + " %"));
    rows.append(row);
  }
  return rows;
}

// "trec version 1, 5 tokens, 3 of them unknown · 1.2 ms in the server: ...", for an answer and its
// one sequence.
export function describeCall(result, sequence) {
  const us = (value) => formatSeconds(value / 1e6);
  const { times } = result;
  return element("p", "soft",
    `${result.model} version ${result.version}, ${sequence.token_count} tokens` +
    (sequence.truncated ? " (cut)" : "") +
    (sequence.unknown_tokens > 0 ? `, ${sequence.unknown_tokens} of them unknown` : "") +
    ` · ${us(times.total_us)} in the server: tokenize ${us(times.tokenize_us)}, ` +
    `queue ${us(times.queue_us)}, compute ${us(times.compute_us)}`);
}
