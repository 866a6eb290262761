// The box that translates texts from one language into another, sentence by sentence (docs/translation.md).

import { ask, byId, element, fillSelect, onSubmit, showError } from "./box.js";

const [source, target] = [byId("texts-source"), byId("texts-target")];
let languages = [];
let failed = false;  // to get them
let known = "";  // the translators whose languages these are

function fill(select, codes, first = []) {
  const names = new Map(languages.map(({ code, name }) => [code, name]));
  fillSelect(select, [...first, ...codes.map((code) => [code, names.get(code) ?? code])]);
}

function fillTargets() {
  const from = languages.filter(({ code }) => source.value === "auto" || code === source.value);
  fill(target, [...new Set(from.flatMap(({ targets }) => targets))].sort());
}

async function fillLanguages() {
  try {
    languages = await (await ask("texts", "languages")).json();
    failed = false;
    byId("texts-answer").replaceChildren();
  } catch (error) {
    failed = error.status !== 404;  // a server without texts
    showError(byId("texts-answer"), error);
    if (failed && error.status !== 403) known = "";  // asked again with the next answer of status.json
  }
  fill(source, languages.map(({ code }) => code), [["auto", "detect"]]);
  fillTargets();
}

// Called with every answer of status.json.
export function updateTexts(status) {
  const translators = status.models.filter((model) =>
    model.task === "translator" && model.takes_text && model.state === "ready");
  const allowed = status.try.allowed && translators.length > 0;
  byId("texts-section").hidden = !(allowed && (failed || languages.length > 0));
  const now = translators.map(({ name, version }) => `${name} ${version}`).join("\n");
  if (!allowed || now === known) return;
  known = now;
  fillLanguages();
}

source.addEventListener("change", fillTargets);
byId("texts-token").addEventListener("change", fillLanguages);

onSubmit("texts", async () => {
  const response = await ask("texts", "translate", {
    q: byId("texts-text").value,
    source: source.value,
    target: target.value,
    format: byId("texts-format").value,
  });
  const { translatedText, detectedLanguage: detected } = await response.json();
  return [element("p", "passage", translatedText), ...(detected
    ? [element("p", "soft", `from ${detected.language}, ${detected.confidence} % of the text`)] : [])];
});
