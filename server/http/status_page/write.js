// The box in which a language model writes: its text comes through POST /v1/generate as it is made.

import { chosenModel, element, fillModels, requestHeaders } from "./box.js";
import { formatSeconds } from "./metrics.js";

const byId = (id) => document.getElementById(id);
const section = byId("write-section");
const form = byId("write");
const models = byId("write-model");
const token = byId("write-token");
const text = byId("write-text");
const result = byId("write-result");
const start = byId("write-start");
const cancel = byId("write-cancel");

let running = null;  // the AbortController of the text that is being written

// Called with every answer of status.json.
export function updateWrite(status) {
  const candidates = status.models.filter((model) =>
    model.task === "language_model" && model.state === "ready");
  section.hidden = !(status.try.allowed && candidates.length > 0);
  fillModels(models, candidates);
}

function show(className, message) {
  const line = element("p", className, message);
  if (className.includes("error")) line.setAttribute("role", "alert");
  result.replaceChildren(line);
}

// The JSON objects of a stream of server-sent events that are data of one line each, or comments.
async function* events(body) {
  const decoder = new TextDecoder();
  let rest = "";
  for (const reader = body.getReader();;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: ")) yield JSON.parse(part.slice("data: ".length));
    }
  }
}

async function write(headers, request, begun) {
  const written = document.createTextNode("");
  const beginning = document.createElement("b");
  beginning.textContent = request.prompt.text;
  text.replaceChildren(beginning, written);
  text.hidden = false;
  result.replaceChildren();
  const response = await fetch("v1/generate", {
    method: "POST",
    headers,
    body: JSON.stringify(request),
    cache: "no-store",
    credentials: "same-origin",
    signal: running.signal,
  });
  if (!response.ok) return (await response.json()).error;
  let first = null;
  for await (const event of events(response.body)) {
    if (event.error) return event.error;
    if (event.text) {
      first = first ?? performance.now();
      const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
      written.appendData(event.text);
      if (atEnd) text.scrollTop = text.scrollHeight;
    }
    if (event.finish_reason) {
      const seconds = (performance.now() - begun) / 1000;
      // Events leave out what is 0.
      const { prompt_tokens: asked = 0, generated_tokens: made = 0 } = event;
      show("soft", `${event.model} version ${event.version}, prompt of ${asked} tokens, ` +
        `${made} tokens in ${formatSeconds(seconds)}, ${(made / seconds).toFixed(0)} per second` +
        (first === null ? "" : ` · first after ${formatSeconds((first - begun) / 1000)}`) +
        ` · ended by ${event.finish_reason.replace("FINISH_REASON_", "").toLowerCase()}`);
      return null;
    }
  }
  return { code: "UNAVAILABLE", message: "the server has ended the text in the middle" };
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running !== null) return;
  running = new AbortController();
  start.disabled = true;
  cancel.disabled = false;
  try {
    const error = await write(requestHeaders(token), {
      ...chosenModel(models),
      prompt: { text: byId("write-prompt").value },
      max_new_tokens: Number(byId("write-tokens").value),
      sampling: { temperature: Number(byId("write-temperature").value) },
    }, performance.now());
    if (error !== null) {
      if (error.code === "UNAUTHENTICATED") byId("write-token-label").hidden = false;
      show("notice error", `${error.code}: ${error.message}`);
    }
  } catch (error) {
    if (error.name === "AbortError") {
      show("soft", "cancelled");
    } else {
      show("notice error", "The server did not answer: " + error.message);
    }
  } finally {
    running = null;
    start.disabled = false;
    cancel.disabled = true;
  }
});

cancel.addEventListener("click", () => {
  if (running !== null) running.abort();
});
