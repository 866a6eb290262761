// The box in which a translator translates: the best translations, and a grid of what each token of
// the chosen one was made from.

import { describeCall, element, fillModels, makeBox } from "./box.js";

const MOST_HYPOTHESES = 3;
const MOST_WEIGHTS = 20000;  // of a grid: nobody could see more

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
// was looked at. Null where there is no alignment.
function alignmentGrid({ alignment, text, tokens }, { source_tokens: source, token_count: columns }) {
  if (alignment.length === 0 || alignment.length > MOST_WEIGHTS) return null;
  const table = element("table", "alignment");
  table.append(element("caption", "soft", "What each token was made from: " + text));
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
  for (let t = 0; t * columns < alignment.length; ++t) {
    const row = element("tr");
    const token = tokens[t] ?? "";
    const name = element("th", "", token);
    name.scope = "row";
    row.append(name);
    alignment.slice(t * columns, (t + 1) * columns).forEach((weight, s) => {
      const cell = element("td", "weight");
      cell.style.setProperty("--weight", weight.toFixed(3));
      cell.title = `${token} ← ${source[s] ?? ""}: ${(weight * 100).toFixed(1)} %`;
      row.append(cell);
    });
    body.append(row);
  }
  return table;
}

function showTranslations(result) {
  const grid = element("div", "grid-frame");
  const [translation] = result.translations;
  const draw = (hypothesis) => {
    grid.replaceChildren(alignmentGrid(hypothesis, translation) ?? "");
  };
  const list = element("ol", "translations");
  for (const hypothesis of translation.hypotheses) {
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
  if (translation.hypotheses.length > 0) draw(translation.hypotheses[0]);
  return [list, grid, describeCall(result, translation)];
}

makeBox({
  form: byId("translate"),
  models: byId("translate-model"),
  token: byId("translate-token"),
  tokenLabel: byId("translate-token-label"),
  answer: byId("translate-answer"),
}, "v1/translate", () => {
  const beam = Number(byId("translate-beam").value);
  return {
    sequences: [{ text: byId("translate-text").value }],
    beam_size: beam,
    num_hypotheses: Math.min(beam, MOST_HYPOTHESES),
    return_alignment: true,
  };
}, showTranslations);
