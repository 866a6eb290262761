// The box that translates texts from one language into another, sentence by sentence (docs/translation.md).

import { element, requestHeaders, showError } from "./box.js";

const byId = (id) => document.getElementById(id);
const section = byId("texts-section");
const [source, target] = [byId("texts-source"), byId("texts-target")];
const [token, answer] = [byId("texts-token"), byId("texts-answer")];
let languages = [];
let failed = false;  // to get them
let known = "";  // the translators whose languages these are

async function call(path, options) {
  const response = await fetch(path, {
    headers: requestHeaders(token),
    cache: "no-store",
    credentials: "same-origin",
    ...options,
  });
  const result = await response.json();
  if (response.status === 403) byId("texts-token-label").hidden = false;
  if (!response.ok) {
    throw Object.assign(new Error(result.error.message ?? result.error), { status: response.status });
  }
  return result;
}

function fill(select, codes, first) {
  const chosen = select.value;
  const names = new Map(languages.map(({ code, name }) => [code, name]));
  select.replaceChildren(...first, ...codes.map((code) => new Option(names.get(code) ?? code, code)));
  if ([...select.options].some(({ value }) => value === chosen)) select.value = chosen;
}

function fillTargets() {
  const from = languages.filter(({ code }) => source.value === "auto" || code === source.value);
  fill(target, [...new Set(from.flatMap(({ targets }) => targets))].sort(), []);
}

async function fillLanguages() {
  try {
    languages = await call("languages");
    failed = false;
    answer.replaceChildren();
  } catch (error) {
    failed = error.status !== 404;  // a server without texts
    showError(answer, error.message);
    if (failed && error.status !== 403) known = "";  // asked again with the next answer of status.json
  }
  fill(source, languages.map(({ code }) => code), [new Option("detect", "auto")]);
  fillTargets();
}

// Called with every answer of status.json.
export function updateTexts(status) {
  const translators = status.models.filter((model) =>
    model.task === "translator" && model.takes_text && model.state === "ready");
  const allowed = status.try.allowed && translators.length > 0;
  section.hidden = !(allowed && (failed || languages.length > 0));
  const now = translators.map(({ name, version }) => `${name} ${version}`).join("\n");
  if (!allowed || now === known) return;
  known = now;
  fillLanguages();
}

source.addEventListener("change", fillTargets);
token.addEventListener("change", fillLanguages);

byId("texts").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.target.querySelector("button");
  button.disabled = true;
  try {
    const result = await call("translate", {
      method: "POST",
      body: JSON.stringify({
        q: byId("texts-text").value,
        source: source.value,
        target: target.value,
        format: byId("texts-format").value,
      }),
    });
    const shown = element("p", "passage", result.translatedText);
    const detected = result.detectedLanguage;
    answer.replaceChildren(shown, ...(detected
      ? [element("p", "soft", `from ${detected.language}, ${detected.confidence} % of the text`)] : []));
  } catch (error) {
    showError(answer, error.message);
  } finally {
    button.disabled = false;
  }
});
