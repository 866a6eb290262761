// The box in which a reader answers a question: the passage comes back with the answers marked.

import { describeCall, element, fillModels, makeBox, probabilityRows } from "./box.js";

const MOST_ANSWERS = 3;

const byId = (id) => document.getElementById(id);
const section = byId("read-section");

// Called with every answer of status.json.
export function updateRead(status) {
  const candidates = status.models.filter((model) =>
    model.task === "reader" && model.takes_text && model.state === "ready");
  section.hidden = !(status.try.allowed && candidates.length > 0);
  fillModels(byId("read-model"), candidates);
}

// The passage with a mark for each answer. Offsets are code points, which a string of JavaScript
// does not count.
function markedPassage(passage, answers) {
  const characters = Array.from(passage);
  const text = (begin, end) => document.createTextNode(characters.slice(begin, end).join(""));
  const marked = element("p", "passage");
  let end = 0;
  for (const { answer, rank } of answers.map((answer, rank) => ({ answer, rank }))
    .sort((a, b) => a.answer.start_char - b.answer.start_char)) {
    if (answer.start_char < end) continue;  // one mark to a place
    const mark = element("mark", rank === 0 ? "best" : "");
    mark.append(text(answer.start_char, answer.end_char));
    mark.title = `${rank + 1}: score ${answer.log_score.toFixed(3)}`;
    marked.append(text(end, answer.start_char), mark);
    end = answer.end_char;
  }
  marked.append(text(end));
  return marked;
}

function showAnswers(result, asked) {
  const [{ passages: [passage] }] = asked.queries;
  const [found] = result.results;
  return [probabilityRows(found.answers.map(({ text, probability }) => [text, probability])),
    markedPassage(passage, found.answers), describeCall(result, found)];
}

makeBox({
  form: byId("read"),
  models: byId("read-model"),
  token: byId("read-token"),
  tokenLabel: byId("read-token-label"),
  answer: byId("read-answer"),
}, "v1/answer", () => ({
  queries: [{ question: byId("read-question").value, passages: [byId("read-passage").value] }],
  top_n: MOST_ANSWERS,
  no_overlap: true,  // three spans that differ by a word would tell a reader little
}), showAnswers);
