// The boxes with one answer to a call: one for each task.

import { byId, describeCall, element, makeBox, probabilityRows } from "./box.js";

const MOST_ANSWERS = 3;
const MOST_HYPOTHESES = 3;

const updateClassifier = makeBox("try", {
  title: "Classify a text",
  button: "Classify",
  fields: [["text", "Text", { placeholder: "Where is Lake Titicaca ?" }]],
  takes: (model) => model.task === "classifier" && model.takes_text,
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
  title: "Ask a reader",
  button: "Answer",
  fields: [["question", "Question", { placeholder: "Who wrote Hamlet?", maxLength: 2000 }],
    ["passage", "Passage", { placeholder: "The text that has the answer", rows: 6 }]],
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
  title: "Translate a sentence, with alternatives",
  button: "Translate",
  fields: [["text", "Text", { placeholder: "A ship sails past the old lighthouse." }],
    ["beam", "Beam", { type: "number", min: 1, max: 64, value: 5 }]],
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

const updateTagger = makeBox("tag", {
  title: "Tag the words of a text",
  button: "Tag",
  fields: [["text", "Text", { placeholder: "Anna Schmidt lives in Berlin ." }]],
  takes: (model) => model.task === "tagger" && model.takes_text,
  path: "v1/tag",
  request: () => ({ text: byId("tag-text").value }),
  show: (result) => {
    const [tagging] = result.taggings;
    const tagged = element("p", "passage");
    for (const { token, labels: [{ name, probability }] } of tagging.tokens) {
      const word = element("span", "tagged", token);
      word.title = `${(probability * 100).toFixed(1)} %`;
      word.append(element("small", "", name));
      tagged.append(word, " ");
    }
    return [tagged, describeCall(result, tagging)];
  },
});

// The mean of the vectors of an encoding, of which a pooled one has one.
function meanVector({ shape, values }) {
  const width = Number(shape.at(-1));
  return Array.from({ length: width }, (_, i) => {
    let sum = 0;
    for (let at = i; at < values.length; at += width) sum += values[at];
    return sum * width / values.length;
  });
}

const updateEncoder = makeBox("encode", {
  title: "Compare two texts by their vectors",
  button: "Compare",
  fields: [["text", "Text", { placeholder: "How far away is the moon ?" }],
    ["other", "Other text", { placeholder: "What is the distance to the moon ?" }]],
  takes: (model) => model.task === "encoder" && model.takes_text,
  path: "v1/encode",
  request: () => ({ texts: [byId("encode-text").value, byId("encode-other").value] }),
  show: (result) => {
    const [a, b] = result.encodings.map(meanVector);
    const product = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
    const cosine = product(a, b) / Math.sqrt(product(a, a) * product(b, b));
    const first = a.slice(0, 6).map((value) => value.toFixed(3)).join(", ");
    return [element("p", "", `Cosine similarity ${cosine.toFixed(3)}`),
      element("p", "soft", `The first vector has ${a.length} numbers: ${first} …`),
      describeCall(result, result.encodings[0])];
  },
});

const updates = [updateClassifier, updateReader, updateTranslator, updateTagger, updateEncoder];

// Called with every answer of status.json.
export function updateBoxes(status) {
  const shown = updates.map((update) => update(status)).includes(true);
  byId("try-closed").hidden = shown || (status.try.allowed &&
    status.models.some(({ task, state }) => task === "language_model" && state === "ready"));
  byId("try-closed").textContent = status.try.allowed
    ? "No model that takes text is ready." : status.try.reason;
}
