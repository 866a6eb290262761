"""A document reader in PyTorch, slow and obvious, in float64: the equations of models/reader.h and models/reader_input.h."""

from .reference import layer, under
from .words import lower, unicode_words


class ReaderReference:

    name = "a plain implementation in float64"

    def __init__(self, torch, config, tensors, words):
        self._torch, self._config, self._encoder = torch, config["reader"], config["encoder"]
        self._tensors = {name: tensor.double() for name, tensor in tensors.items()}
        self._index = {word: number for number, word in enumerate(words)}
        self._oov, self._lowercase = config["embedding"]["oov_id"], config["preprocessing"]["lowercase"]

    def tokens(self, text):
        return [word for word in unicode_words(text) if word]

    def ids(self, tokens):
        return [self._index.get(lower(word) if self._lowercase else word, self._oov) for word in tokens]

    def _linear(self, name, x):
        return x @ self._tensors[name + ".linear.weight"].t() + self._tensors[name + ".linear.bias"]

    def _run(self, stack, x, layers):
        outputs = []
        for i in range(layers):
            x = layer(self._torch, x, under(self._tensors, f"{stack}.rnns.{i}."), self._encoder)
            outputs.append(x)
        return self._torch.cat(outputs, 1) if self._config["concat_rnn_layers"] else x

    def _features(self, question, passage):
        lowered, asked = [lower(word) for word in passage], {lower(word) for word in question}
        columns = {"exact": [float(word in question) for word in passage],
                   "lower": [float(word in asked) for word in lowered],
                   "tf": [lowered.count(word) / len(lowered) for word in lowered]}
        rows = [columns[name] for name in self._config["features"]]
        return self._torch.tensor(rows, dtype=self._torch.float64).reshape(len(rows), len(passage)).t()

    def answer(self, question, passage):
        """(log score, probability) of the best span."""
        torch, table = self._torch, self._tensors["embedding.weight"]
        asked, read = self.tokens(question), self.tokens(passage)
        e_q, e_p = table[self.ids(asked)], table[self.ids(read)]
        parts = [e_p, self._features(asked, read)]
        if self._config["use_qemb"]:
            scores = self._linear("qemb_match", e_p).relu() @ self._linear("qemb_match", e_q).relu().t()
            parts.append(scores.softmax(-1) @ e_q)
        d = self._run("doc_rnn", torch.cat(parts, 1), self._encoder["num_layers"])
        h = self._run("question_rnn", e_q, self._config["question_layers"])
        merged = (self._linear("self_attn", h).softmax(0) * h).sum(0) if self._config["question_merge"] == "self_attn" else h.mean(0)
        start, end = d @ self._linear("start_attn", merged), d @ self._linear("end_attn", merged)
        spans = [(float(start[i] + end[j]), i, j) for i in range(len(read))
                 for j in range(i, min(len(read), i + self._config["max_len"]))]
        score, i, j = max(spans, key=lambda span: span[0])
        return score, float(start.softmax(0)[i] * end.softmax(0)[j])


def made_up_queries(torch, words, lengths):
    """Questions and passages of words that text can give, as (question, passage)."""
    generator = torch.Generator().manual_seed(21)
    usable = [word for word in words if word.isalnum() and word == lower(word)] or ["a"]

    def text(length):
        return " ".join(usable[int(torch.randint(len(usable), (1,), generator=generator))] for _ in range(length))

    return [(text(1 + length % 9), text(length)) for length in lengths]
