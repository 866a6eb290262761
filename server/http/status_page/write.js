// The box in which a language model writes: its text comes through POST /v1/generate as it is made.

import { ask, byId, chosenModel, element, Refusal, showError, updateModels } from "./box.js";
import { formatSeconds } from "./metrics.js";

const [text, result] = [byId("write-text"), byId("write-result")];
const [start, cancel] = [byId("write-start"), byId("write-cancel")];
let running = null;  // the AbortController of the text that is being written

// Called with every answer of status.json.
export function updateWrite(status) {
  updateModels("write", status, (model) => model.task === "language_model");
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

// Writes a text and returns what there is to say of it.
async function write(request, begun) {
  const written = document.createTextNode("");
  text.replaceChildren(element("b", "", request.prompt), written);
  text.hidden = false;
  result.replaceChildren();
  const response = await ask("write", "v1/generate", request, running.signal);
  let first = null;
  for await (const event of events(response.body)) {
    if (event.error) throw new Refusal(event.error);
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
      return `${event.model} version ${event.version}, prompt of ${asked} tokens, ` +
        `${made} tokens in ${formatSeconds(seconds)}, ${(made / seconds).toFixed(0)} per second` +
        (first === null ? "" : ` · first after ${formatSeconds((first - begun) / 1000)}`) +
        ` · ended by ${event.finish_reason.replace("FINISH_REASON_", "").toLowerCase()}`;
    }
  }
  throw new Refusal("UNAVAILABLE: the server has ended the text in the middle");
}

byId("write").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running !== null) return;
  running = new AbortController();
  start.disabled = true;
  cancel.disabled = false;
  try {
    result.replaceChildren(element("p", "soft", await write({
      ...chosenModel("write"),
      prompt: byId("write-prompt").value,
      max_new_tokens: Number(byId("write-tokens").value),
      sampling: { temperature: Number(byId("write-temperature").value) },
    }, performance.now())));
  } catch (error) {
    if (error.name !== "AbortError") showError(result, error);
    else result.replaceChildren(element("p", "soft", "cancelled"));
  } finally {
    running = null;
    start.disabled = false;
    cancel.disabled = true;
  }
});

cancel.addEventListener("click", () => running?.abort());
