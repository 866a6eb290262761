"""What calls return. Arrays are numpy arrays of the caller's own; lists of results are tuples in the order of the
request."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from typing import Any, Generic, Iterable, Optional, Sequence, Tuple, Type, TypeVar, Union, overload

import numpy as np
import numpy.typing as npt

from .v1 import inference_pb2 as pb

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
_T = TypeVar("_T")
_FINISH_REASONS = ("", "length", "stop")  # by number


@dataclasses.dataclass(frozen=True)
class StageTimes:
    """How a call spent its time inside the server, in microseconds: preparing the request, waiting for a batch, in
    the forward pass, and in all. Of a text that was generated, queue_us is the time until its first token,
    compute_us that of all steps."""

    tokenize_us: float
    queue_us: float
    compute_us: float
    total_us: float


class Response(Sequence[_T], Generic[_T]):
    """The results of a call, one per sequence in the order of the request: response[0], len(response), iteration.

    model, version: the model that answered.
    times: where the call spent its time; zeros where nothing is computed.
    request_id: its id in the server's log; "" if the call was given none.
    """

    def __init__(self, results: Iterable[_T], message: Any, request_id: str) -> None:
        self.results: Tuple[_T, ...] = tuple(results)
        self.model: str = message.model
        self.version: int = message.version
        self.times = _copy(StageTimes, message.times) if hasattr(message, "times") else StageTimes(0, 0, 0, 0)
        self.request_id = request_id

    @overload
    def __getitem__(self, index: int) -> _T: ...

    @overload
    def __getitem__(self, index: slice) -> Tuple[_T, ...]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[_T, Tuple[_T, ...]]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self.model!r}, version={self.version}, results={self.results!r})"


def joined(responses: Sequence[Response[_T]]) -> Response[_T]:
    """The responses of calls with parts of a request, as if there were one."""
    whole = copy.copy(responses[0])
    whole.results = tuple(itertools.chain.from_iterable(responses))
    times = zip(*(dataclasses.astuple(response.times) for response in responses))
    whole.times = StageTimes(*map(sum, times))
    return whole


@dataclasses.dataclass(frozen=True)
class TagLabel:
    """index: its position among the model's labels."""

    name: str
    index: int
    probability: float


@dataclasses.dataclass(frozen=True)
class Label(TagLabel):
    """logit: the score before the softmax."""

    logit: float


@dataclasses.dataclass(frozen=True)
class Classification:
    """labels: the most probable first.
    unknown_tokens: words that the vocabulary does not have, of those that were computed."""

    labels: Tuple[Label, ...]
    token_count: int
    truncated: bool
    unknown_tokens: int

    @property
    def label(self) -> str:
        """Name of the most probable label; "" without labels (an empty text that was skipped)."""
        return self.labels[0].name if self.labels else ""

    @property
    def probability(self) -> float:
        """Probability of the most probable label, in [0, 1]; 0 without labels."""
        return self.labels[0].probability if self.labels else 0.0

    @property
    def probabilities(self) -> Floats:
        """[labels], in the order of `labels`."""
        return np.array([label.probability for label in self.labels], np.float32)

    @property
    def logits(self) -> Floats:
        """[labels], in the order of `labels`."""
        return np.array([label.logit for label in self.labels], np.float32)


@dataclasses.dataclass(frozen=True)
class TokenTags:
    """token: what a user reads for it; "" for features.
    labels: the most probable first.
    start_byte, end_byte, start_char, end_char: where it stands, text[start_char:end_char] in characters of a Python
    string, or in bytes of its UTF-8; all 0 for a sequence that is no text, or a token that the text does not have."""

    token: str
    labels: Tuple[TagLabel, ...]
    start_byte: int = 0
    end_byte: int = 0
    start_char: int = 0
    end_char: int = 0


@dataclasses.dataclass(frozen=True)
class Tagging:
    """tokens: those that were computed, in order.
    unknown_tokens: words that the vocabulary does not have, of those that were computed."""

    tokens: Tuple[TokenTags, ...]
    token_count: int
    truncated: bool
    unknown_tokens: int

    @property
    def labels(self) -> Tuple[str, ...]:
        """Name of the most probable label of each token."""
        return tuple(token.labels[0].name for token in self.tokens)


@dataclasses.dataclass(frozen=True, eq=False)
class Encoding:
    """values: float32 [width] for a pooled vector, [tokens, width] for token vectors. np.asarray(encoding) is the
    same array."""

    values: Floats
    token_count: int
    truncated: bool
    unknown_tokens: int

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> npt.NDArray[Any]:
        if dtype is None or np.dtype(dtype) == self.values.dtype:
            return self.values.copy() if copy else self.values
        if copy is False:
            raise ValueError(f"expected float32, or a copy, found {np.dtype(dtype)}")
        return self.values.astype(dtype)


class Encodings(Response[Encoding]):
    """Encoding by encoding, or all in one array."""

    def array(self) -> Floats:
        """[sequences, width] of pooled vectors, or [sequences, tokens, width] where all have the same number of
        tokens."""
        shapes = sorted({encoding.values.shape for encoding in self})
        if len(shapes) > 1:
            raise ValueError(
                f"expected encodings of one shape, found {' and '.join(str(list(shape)) for shape in shapes[:2])}"
            )
        return np.stack([encoding.values for encoding in self])


@dataclasses.dataclass(frozen=True)
class Token:
    """What the server makes of a piece of text. text: what a user reads for it. The rest as in TokenTags."""

    id: int
    text: str
    start_byte: int
    end_byte: int
    start_char: int
    end_char: int


@dataclasses.dataclass(frozen=True)
class Tokenization:
    """tokens: all of the text, nothing cut off. unknown_tokens: how many the vocabulary does not have."""

    tokens: Tuple[Token, ...]
    unknown_tokens: int


class Tokenizations(Response[Tokenization]):
    """max_sequence_tokens: of the longest sequence that the model computes."""

    def __init__(self, results: Iterable[Tokenization], message: Any, request_id: str) -> None:
        super().__init__(results, message, request_id)
        self.max_sequence_tokens: int = message.max_sequence_tokens


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A token that might have come. text: what a user reads for it. log_prob: natural logarithm."""

    token_id: int
    text: str
    log_prob: float


@dataclasses.dataclass(frozen=True, eq=False)
class Score:
    """log_prob: sum of the natural logarithms of the probabilities of the scored tokens, which are all with a state,
        else all but the first.
    token_log_probs: float32 [scored_count], and candidates: one tuple for each of them, if they were asked for.
    state: where a later call can go on, if it was asked for.
    token_texts: what a user reads for each token, if asked for."""

    token_count: int
    scored_count: int
    log_prob: float
    token_log_probs: Floats
    candidates: Tuple[Tuple[Candidate, ...], ...]
    state: bytes
    unknown_tokens: int
    token_texts: Tuple[str, ...] = ()

    @property
    def bits_per_token(self) -> Optional[float]:
        """Bits that a scored token costs on average; None if none was scored."""
        return -self.log_prob / math.log(2) / self.scored_count if self.scored_count else None

    @property
    def perplexity(self) -> Optional[float]:
        """How many tokens the model was undecided between, on average; None if none was scored."""
        return math.exp(-self.log_prob / self.scored_count) if self.scored_count else None


@dataclasses.dataclass(frozen=True, eq=False)
class GeneratedText:
    """Some more of one text.

    sample: which of num_samples.
    text: what is added, whole characters.
    token_ids: int32 [n], the tokens that are added; the text of a token may come later.
    log_probs: float32 [n], candidates and token_texts, one for each token, if asked for.
    finish_reason: "" while the text goes on; in the last item of each sample "length" or "stop", with the state (if
        asked for) and the numbers of tokens.
    unknown_tokens: with finish_reason, how many of the prompt the vocabulary does not have.
    """

    model: str
    version: int
    sample: int
    text: str
    token_ids: Ids
    log_probs: Floats
    candidates: Tuple[Tuple[Candidate, ...], ...]
    finish_reason: str
    state: bytes
    prompt_tokens: int
    generated_tokens: int
    times: StageTimes
    token_texts: Tuple[str, ...]
    unknown_tokens: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class EncodedChunk:
    """values: float32 [tokens, width] of the chunk; None in the answer to a request for the state alone.
    state: if asked for."""

    values: Optional[Floats]
    token_count: int
    unknown_tokens: int
    state: bytes
    times: StageTimes


@dataclasses.dataclass(frozen=True)
class SpanAnswer:
    """A part of a passage: passages[passage][start_char:end_char] == text, in characters of a Python string;
    start_byte and end_byte are offsets into its UTF-8. log_score can be compared between all passages of a question,
    probability within one."""

    text: str
    passage: int
    start_byte: int
    end_byte: int
    start_char: int
    end_char: int
    log_score: float
    probability: float


@dataclasses.dataclass(frozen=True)
class QueryAnswers:
    """answers: the best first. token_count: tokens of the question and all passages."""

    answers: Tuple[SpanAnswer, ...]
    token_count: int
    unknown_tokens: int


@dataclasses.dataclass(frozen=True, eq=False)
class Hypothesis:
    """score: log_prob by the word penalty and the length penalty.
    tokens, token_ids: pieces of the text, without beginning and end.
    alignment: if asked for, float32 [tokens, source tokens], each row of which adds up to 1; else None.
    hard_alignment: if asked for, the source token, from 0, at which each token looked most.
    token_log_probs: if asked for, the log-probability of each token and, unless unfinished, of the end.
    unfinished: it was cut at the longest length."""

    text: str
    tokens: Tuple[str, ...]
    token_ids: Ids
    score: float
    log_prob: float
    alignment: Optional[Floats]
    hard_alignment: Ids
    token_log_probs: Floats
    unfinished: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Translation:
    """hypotheses: the best first.
    token_count: source tokens that were computed.
    source_tokens: the source's pieces, if an alignment was asked for."""

    hypotheses: Tuple[Hypothesis, ...]
    token_count: int
    truncated: bool
    source_tokens: Tuple[str, ...]
    unknown_tokens: int

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text if self.hypotheses else ""


@dataclasses.dataclass(frozen=True)
class ReaderInfo:
    """features: of "exact", "lower", "lemma" and "tf".
    pos_size, ner_size: numbers of the tags that a caller must give."""

    features: Tuple[str, ...]
    pos_size: int
    ner_size: int
    max_answer_tokens: int


@dataclasses.dataclass(frozen=True)
class TranslatorInfo:
    """The defaults of a search, and what the model reads and writes."""

    beam_size: int
    max_new_tokens: int
    target_vocabulary_size: int
    source_language: str
    target_language: str
    max_positions: int
    word_penalty: float
    max_length_factor: float


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """A loaded model.
    task: "classifier", "encoder", "language_model", "reader", "translator" or "tagger".
    input_size: features per token.
    output_size: width of an encoding. inference.proto describes all fields."""

    name: str
    version: int
    description: str
    task: str
    input_size: int
    output_size: int
    hidden_size: int
    num_layers: int
    bidirectional: bool
    labels: Tuple[str, ...]
    vocabulary_size: int
    preprocessing: str
    max_sequence_tokens: int
    backend: str
    backend_description: str
    dtype: str
    instances: int
    parameter_count: int
    reader: Optional[ReaderInfo]
    translator: Optional[TranslatorInfo]


@dataclasses.dataclass(frozen=True)
class ModelStatus:
    """state: "LOADING", "READY", "UNLOADING" or "FAILED".
    version: 0 if the state is that of the model's directory.
    message: why it failed; of a model that is ready, why files that changed since could not be loaded."""

    model: str
    version: int
    state: str
    message: str


@dataclasses.dataclass(frozen=True)
class Models:
    """models: those that are served, by name and version.
    statuses: every version in memory or that could not be loaded."""

    models: Tuple[ModelInfo, ...]
    statuses: Tuple[ModelStatus, ...]


def _copy(kind: Type[_T], message: Any, **others: Any) -> _T:
    """A dataclass of the fields of a message that have the same names; `others` are those that do not. For what comes
    once in a call: a row of a call costs less by its own constructor."""
    fields: Any = dataclasses.fields(kind)  # type: ignore[arg-type]
    values = {field.name: getattr(message, field.name) for field in fields if field.name not in others}
    return kind(**{name: tuple(value) if hasattr(value, "extend") else value for name, value in values.items()}, **others)


def _floats(values: Any) -> Floats:
    return np.array(values, np.float32)


def _ids(values: Any) -> Ids:
    return np.array(values, np.int32)


def _candidates(message: Any) -> Tuple[Tuple[Candidate, ...], ...]:
    return tuple(
        [tuple([Candidate(one.token_id, one.text, one.log_prob) for one in entry.candidates]) for entry in message]
    )


def _classification(one: pb.Classification) -> Classification:
    labels = [Label(label.name, label.index, label.probability, label.logit) for label in one.labels]
    return Classification(tuple(labels), one.token_count, one.truncated, one.unknown_tokens)


def classifications(message: pb.ClassifyResponse, request_id: str) -> Response[Classification]:
    return Response(map(_classification, message.classifications), message, request_id)


def _token_tags(one: pb.TokenTags) -> TokenTags:
    labels = [TagLabel(label.name, label.index, label.probability) for label in one.labels]
    return TokenTags(one.token, tuple(labels), one.start_byte, one.end_byte, one.start_char, one.end_char)


def _tagging(one: pb.Tagging) -> Tagging:
    return Tagging(tuple(map(_token_tags, one.tokens)), one.token_count, one.truncated, one.unknown_tokens)


def taggings(message: pb.TagResponse, request_id: str) -> Response[Tagging]:
    return Response(map(_tagging, message.taggings), message, request_id)


def encoding_values(encoding: pb.Encoding, precision: str) -> Floats:
    """The values of an encoding in a raw format. ValueError if they do not fit the shape."""
    values: npt.NDArray[Any]
    size = 4 if precision == "float32" else 2
    if len(encoding.data) != size * math.prod(encoding.shape):
        raise ValueError(
            f"the answer has {len(encoding.data)} bytes of {precision} for the shape {list(encoding.shape)}"
        )
    if precision == "bfloat16":  # the upper half of a float32
        values = (np.frombuffer(encoding.data, "<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(encoding.data, "<f4" if precision == "float32" else "<f2").astype(np.float32)
    return values.reshape(tuple(encoding.shape))


def encodings(message: pb.EncodeResponse, request_id: str, precision: str) -> Encodings:
    def encoding(one: pb.Encoding) -> Encoding:
        return Encoding(encoding_values(one, precision), one.token_count, one.truncated, one.unknown_tokens)

    return Encodings(map(encoding, message.encodings), message, request_id)


def _score(one: pb.Score) -> Score:
    log_probs, candidates = _floats(one.token_log_probs), _candidates(one.candidates)
    figures = (one.token_count, one.scored_count, one.log_prob)
    return Score(*figures, log_probs, candidates, one.state, one.unknown_tokens, tuple(one.token_texts))


def scores(message: pb.ScoreResponse, request_id: str) -> Response[Score]:
    return Response(map(_score, message.scores), message, request_id)


def _tokenization(one: pb.Tokenization) -> Tokenization:
    tokens = [
        Token(token.id, token.text, token.start_byte, token.end_byte, token.start_char, token.end_char)
        for token in one.tokens
    ]
    return Tokenization(tuple(tokens), one.unknown_tokens)


def tokenizations(message: pb.TokenizeResponse, request_id: str) -> Tokenizations:
    return Tokenizations(map(_tokenization, message.tokenizations), message, request_id)


def texts(message: pb.DetokenizeResponse, request_id: str) -> Response[str]:
    return Response(message.texts, message, request_id)


def generated_text(message: pb.GenerateResponse) -> GeneratedText:
    reason = message.finish_reason
    name = _FINISH_REASONS[reason] if reason < 3 else str(reason)
    arrays = {"token_ids": _ids(message.token_ids), "log_probs": _floats(message.log_probs)}
    others = {"candidates": _candidates(message.candidates), "times": _copy(StageTimes, message.times)}
    return _copy(GeneratedText, message, finish_reason=name, **arrays, **others)


def encoded_chunk(message: pb.EncodeStreamResponse, precision: str) -> EncodedChunk:
    encoding = message.encoding
    values = encoding_values(encoding, precision) if message.HasField("encoding") else None
    times = _copy(StageTimes, message.times)
    return EncodedChunk(values, encoding.token_count, encoding.unknown_tokens, message.state, times)


def answers(message: pb.AnswerResponse, request_id: str) -> Response[QueryAnswers]:
    def answer(one: pb.QueryAnswers) -> QueryAnswers:
        return _copy(QueryAnswers, one, answers=tuple([_copy(SpanAnswer, span) for span in one.answers]))

    return Response(map(answer, message.results), message, request_id)


def translations(message: pb.TranslateResponse, request_id: str, alignment: bool) -> Response[Translation]:
    def hypothesis(one: pb.Hypothesis, width: int) -> Hypothesis:
        rows = _floats(one.alignment).reshape(-1, width) if width else np.zeros((0, 0), np.float32)
        return Hypothesis(
            one.text, tuple(one.tokens), _ids(one.token_ids), one.score, one.log_prob, rows if alignment else None,
            _ids(one.hard_alignment), _floats(one.token_log_probs), one.unfinished,
        )  # fmt: skip

    def translation(one: pb.Translation) -> Translation:
        hypotheses = tuple([hypothesis(each, one.token_count) for each in one.hypotheses])
        return Translation(hypotheses, one.token_count, one.truncated, tuple(one.source_tokens), one.unknown_tokens)

    return Response(map(translation, message.translations), message, request_id)


def model_info(message: pb.ModelInfo) -> ModelInfo:
    reader = _copy(ReaderInfo, message.reader) if message.HasField("reader") else None
    translator = _copy(TranslatorInfo, message.translator) if message.HasField("translator") else None
    return _copy(ModelInfo, message, reader=reader, translator=translator)


def statuses(messages: Iterable[pb.ModelStatus]) -> Tuple[ModelStatus, ...]:
    return tuple(_copy(ModelStatus, one, state=pb.ModelStatus.State.Name(one.state)) for one in messages)


def models(message: pb.ListModelsResponse) -> Models:
    return Models(tuple(model_info(one) for one in message.models), statuses(message.statuses))
