// What the boxes that try a model share: the choice of models, calls, and how answers are shown.

import { formatSeconds } from "./metrics.js";

export function element(tag, className, content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (content !== undefined) made.textContent = content;
  return made;
}

// Fills a choice with models of status.json; kept as it is while the models are the same.
export function fillModels(select, models) {
  const options = models.map((model) => model.name + " " + model.version);
  if (options.join("\n") === [...select.options].map((option) => option.value).join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(...models.map((model) => {
    const option = element("option", "", `${model.name} · ${model.version}`);
    option.value = model.name + " " + model.version;
    option.dataset.name = model.name;
    option.dataset.version = model.version;
    return option;
  }));
  if (options.includes(chosen)) select.value = chosen;
}

// {model, version} of the chosen one.
export function chosenModel(select) {
  const { name, version } = select.selectedOptions[0].dataset;
  return { model: name, version: Number(version) };
}

export function requestHeaders(token) {
  const headers = { "Content-Type": "application/json" };
  if (token.value) headers.Authorization = "Bearer " + token.value;
  return headers;
}

export function showError(answer, message) {
  const notice = element("p", "notice error", message);
  notice.setAttribute("role", "alert");
  answer.replaceChildren(notice);
}

// Makes a box of a form: when it is sent, `request` says what is to be asked of `path` (docs/rest.md), and
// `show` returns the elements for the answer. `parts`: form, models, token, tokenLabel, answer.
export function makeBox(parts, path, request, show) {
  const button = parts.form.querySelector("button");
  parts.form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    const asked = { ...chosenModel(parts.models), ...request() };
    try {
      const response = await fetch(path, {
        method: "POST",
        headers: requestHeaders(parts.token),
        body: JSON.stringify(asked),
        cache: "no-store",
        credentials: "same-origin",
      });
      const result = await response.json();
      if (response.ok) {
        parts.answer.replaceChildren(...show(result, asked));
      } else {
        if (response.status === 401) parts.tokenLabel.hidden = false;
        showError(parts.answer, `${result.error.code}: ${result.error.message}`);
      }
    } catch (error) {
      showError(parts.answer, "The server did not answer: " + error.message);
    } finally {
      button.disabled = false;
    }
  });
}

// Rows of a name, a bar and a percentage, from pairs of a name and a probability.
export function probabilityRows(pairs) {
  const rows = element("div");
  for (const [name, probability] of pairs) {
    const row = element("div", "answer-row");
    row.append(element("span", "label", name));
    const bar = element("div", "bar");
    const fill = element("i");
    fill.style.width = (probability * 100).toFixed(2) + "%";
    bar.append(fill);
    row.append(bar, element("span", "number", (probability * 100).toFixed(1) + " %"));
    rows.append(row);
  }
  return rows;
}

// "trec version 1, 5 tokens · 1.2 ms in the server: ...", for an answer and its one sequence.
export function describeCall(result, sequence) {
  const us = (value) => formatSeconds(value / 1e6);
  const { times } = result;
  return element("p", "soft",
    `${result.model} version ${result.version}, ${sequence.token_count} tokens` +
    (sequence.truncated ? " (cut)" : "") +
    ` · ${us(times.total_us)} in the server: tokenize ${us(times.tokenize_us)}, ` +
    `queue ${us(times.queue_us)}, compute ${us(times.compute_us)}`);
}
