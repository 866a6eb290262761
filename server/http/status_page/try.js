// The box that tries a classifier: text out through POST /v1/classify, labels with bars back.

import { describeCall, fillModels, makeBox, probabilityRows } from "./box.js";

const byId = (id) => document.getElementById(id);
const form = byId("try");
const closed = byId("try-closed");

// Called with every answer of status.json.
export function updateTry(status) {
  const candidates = status.models.filter((model) =>
    model.labels.length > 0 && model.takes_text && model.state === "ready");
  const allowed = status.try.allowed && candidates.length > 0;
  form.hidden = !allowed;
  closed.hidden = allowed;
  closed.textContent = status.try.allowed
    ? "No model that takes text and has a classifier is ready." : status.try.reason;
  fillModels(byId("try-model"), candidates);
}

function showLabels(result) {
  const [sequence] = result.classifications;
  return [probabilityRows(sequence.labels.map(({ name, probability }) => [name, probability])),
    describeCall(result, sequence)];
}

makeBox({
  form,
  models: byId("try-model"),
  token: byId("try-token"),
  tokenLabel: byId("try-token-label"),
  answer: byId("try-answer"),
}, "v1/classify", () => ({ sequences: [{ text: byId("try-text").value }] }), showLabels);
