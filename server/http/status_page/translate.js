// The box in which a translator translates: the best translations, and a grid of what each token of
// the chosen one was made from.

import { describeCall, element, fillModels, makeBox } from "./box.js";

const MOST_HYPOTHESES = 3;

const byId = (id) => document.getElementById(id);
const section = byId("translate-section");

// Called with every answer of status.json.
export function updateTranslate(status) {
  const candidates = status.models.filter((model) =>
    model.task === "translator" && model.takes_text && model.state === "ready");
  section.hidden = !(status.try.allowed && candidates.length > 0);
  fillModels(byId("translate-model"), candidates);
}

// A row for each token of the translation, a column for each of the source; the darker, the more it
// was looked at.
function alignmentGrid(hypothesis, source) {
  const table = element("table", "alignment");
  table.append(element("caption", "soft", "What each token was made from: " + hypothesis.text));
  const head = element("tr");
  head.append(element("td"));
  for (const token of source) {
    const name = element("th");
    name.scope = "col";
    name.append(element("span", "", token));
    head.append(name);
  }
  table.createTHead().append(head);
  const body = table.createTBody();
  hypothesis.alignment.forEach((weights, t) => {
    const row = element("tr");
    const name = element("th", "", hypothesis.tokens[t] ?? "");
    name.scope = "row";
    row.append(name);
    weights.forEach((weight, s) => {
      const cell = element("td", "weight");
      cell.style.setProperty("--weight", (weight / 1000).toFixed(3));
      cell.title = `${hypothesis.tokens[t] ?? ""} ← ${source[s] ?? ""}: ${(weight / 10).toFixed(1)} %`;
      row.append(cell);
    });
    body.append(row);
  });
  return table;
}

function showTranslations(result) {
  const grid = element("div", "grid-frame");
  const draw = (hypothesis) => {
    grid.replaceChildren(...(hypothesis.alignment.length > 0
      ? [alignmentGrid(hypothesis, result.source_tokens)] : []));
  };
  const list = element("ol", "translations");
  for (const hypothesis of result.hypotheses) {
    const entry = element("li");
    const choose = element("button", "translation", hypothesis.text || "(empty)");
    choose.type = "button";
    choose.addEventListener("click", () => {
      for (const other of list.querySelectorAll("button")) other.removeAttribute("aria-current");
      choose.setAttribute("aria-current", "true");
      draw(hypothesis);
    });
    entry.append(choose, element("span", "soft",
      ` ${hypothesis.score.toFixed(3)}` + (hypothesis.unfinished ? ", cut off" : "")));
    list.append(entry);
  }
  list.querySelector("button")?.setAttribute("aria-current", "true");
  if (result.hypotheses.length > 0) draw(result.hypotheses[0]);
  return [list, grid, describeCall(result)];
}

makeBox({
  form: byId("translate"),
  models: byId("translate-model"),
  token: byId("translate-token"),
  tokenLabel: byId("translate-token-label"),
  answer: byId("translate-answer"),
}, "try/translate", () => {
  const beam = Number(byId("translate-beam").value);
  return {
    text: byId("translate-text").value,
    beam_size: beam,
    num_hypotheses: Math.min(beam, MOST_HYPOTHESES),
  };
}, showTranslations);
