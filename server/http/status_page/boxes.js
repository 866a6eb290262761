// The boxes with one answer to a call: labels of a classifier, answers of a reader, translations.

import { byId, describeCall, element, makeBox, probabilityRows } from "./box.js";

const MOST_ANSWERS = 3;
const MOST_HYPOTHESES = 3;

const updateClassifier = makeBox("try", {
  takes: (model) => model.labels.length > 0 && model.takes_text,
  path: "v1/classify",
  request: () => ({ text: byId("try-text").value }),
  show: (result) => {
    const [sequence] = result.classifications;
    return [probabilityRows(sequence.labels.map(({ name, probability }) => [name, probability])),
      describeCall(result, sequence)];
  },
});

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

const updateReader = makeBox("read", {
  takes: (model) => model.task === "reader" && model.takes_text,
  path: "v1/answer",
  request: () => ({
    question: byId("read-question").value,
    passages: [byId("read-passage").value],
    top_n: MOST_ANSWERS,
    no_overlap: true,  // three spans that differ by a word would tell a reader little
  }),
  show: (result, { passages: [passage] }) => {
    const [found] = result.results;
    return [probabilityRows(found.answers.map(({ text, probability }) => [text, probability])),
      markedPassage(passage, found.answers), describeCall(result, found)];
  },
});

const updateTranslator = makeBox("translate", {
  takes: (model) => model.task === "translator" && model.takes_text,
  path: "v1/translate",
  request: () => {
    const beam = Number(byId("translate-beam").value);
    return {
      text: byId("translate-text").value,
      beam_size: beam,
      num_hypotheses: Math.min(beam, MOST_HYPOTHESES),
    };
  },
  show: (result) => {
    const [translation] = result.translations;
    const list = element("ol");
    list.append(...translation.hypotheses.map(({ text, score, unfinished }) => {
      const entry = element("li", "", text || "(empty)");
      entry.append(element("span", "soft", ` ${score.toFixed(3)}${unfinished ? ", cut off" : ""}`));
      return entry;
    }));
    return [list, describeCall(result, translation)];
  },
});

// Called with every answer of status.json.
export function updateBoxes(status) {
  byId("try-closed").hidden = updateClassifier(status);
  byId("try-closed").textContent = status.try.allowed
    ? "No model that takes text and has a classifier is ready." : status.try.reason;
  updateReader(status);
  updateTranslator(status);
}
