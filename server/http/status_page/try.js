// The box that tries a model: text out through POST /try, labels with bars back.

import { formatSeconds } from "./metrics.js";

const form = document.getElementById("try");
const models = document.getElementById("try-model");
const text = document.getElementById("try-text");
const token = document.getElementById("try-token");
const tokenLabel = document.getElementById("try-token-label");
const answer = document.getElementById("try-answer");
const button = form.querySelector("button");
const closed = document.getElementById("try-closed");

function element(tag, className, content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
}

// Called with every answer of status.json.
export function updateTry(status) {
  const candidates = status.models.filter((model) =>
    model.labels.length > 0 && model.takes_text && model.state === "ready");
  const allowed = status.try.allowed && candidates.length > 0;
  form.hidden = !allowed;
  closed.hidden = allowed;
  closed.textContent = status.try.allowed
    ? "No model that takes text and has a classifier is ready." : status.try.reason;
  const options = candidates.map((model) => model.name + " " + model.version);
  if (options.join("\n") === [...models.options].map((option) => option.value).join("\n")) return;
  const chosen = models.value;
  models.replaceChildren(...candidates.map((model) => {
    const option = element("option", "", `${model.name} · ${model.version}`);
    option.value = model.name + " " + model.version;
    option.dataset.name = model.name;
    option.dataset.version = model.version;
    return option;
  }));
  if (options.includes(chosen)) models.value = chosen;
}

function showError(message) {
  const notice = element("p", "notice error", message);
  notice.setAttribute("role", "alert");
  answer.replaceChildren(notice);
}

function showAnswer(result) {
  const rows = element("div");
  for (const { name, probability } of result.labels) {
    const row = element("div", "answer-row");
    row.append(element("span", "label", name));
    const bar = element("div", "bar");
    const fill = element("i");
    fill.style.width = (probability * 100).toFixed(2) + "%";
    bar.append(fill);
    row.append(bar, element("span", "number", (probability * 100).toFixed(1) + " %"));
    rows.append(row);
  }
  const us = (value) => formatSeconds(value / 1e6);
  const { times } = result;
  answer.replaceChildren(rows, element("p", "soft",
    `${result.model} version ${result.version}, ${result.token_count} tokens` +
    (result.truncated ? " (cut)" : "") +
    ` · ${us(times.total_us)} in the server: tokenize ${us(times.tokenize_us)}, ` +
    `queue ${us(times.queue_us)}, compute ${us(times.compute_us)}`));
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { name, version } = models.selectedOptions[0].dataset;
  const headers = { "Content-Type": "application/json", "X-Sru-Try": "1" };
  if (token.value) headers.Authorization = "Bearer " + token.value;
  button.disabled = true;
  try {
    const response = await fetch("try", {
      method: "POST",
      headers,
      body: JSON.stringify({ model: name, version: Number(version), text: text.value }),
      cache: "no-store",
      credentials: "same-origin",
    });
    const result = await response.json();
    if (response.ok) {
      showAnswer(result);
    } else {
      if (response.status === 401) tokenLabel.hidden = false;
      showError(`${result.error.code}: ${result.error.message}`);
    }
  } catch (error) {
    showError("The server did not answer: " + error.message);
  } finally {
    button.disabled = false;
  }
});
