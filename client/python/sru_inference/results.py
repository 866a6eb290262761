"""What calls return. Arrays are numpy arrays of the caller's own; lists of results are tuples in the order of the
request."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
from typing import (
    Any, Callable, Dict, Generic, Optional, Sequence, Tuple, Type, TypeVar, Union, overload,
)  # fmt: skip

import numpy as np
import numpy.typing as npt

from . import details_pb2
from .v1 import inference_pb2 as pb

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
_T = TypeVar("_T")


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

    def __init__(
        self, rows: Sequence[Any], read: Callable[[Any], _T], message: Any, request_id: str
    ) -> None:
        """rows: of the message, of each of which `read` makes a result."""
        self._rows, self._read = rows, read
        self.model: str = message.model
        self.version: int = message.version
        self.times = _times(message.times) if hasattr(message, "times") else StageTimes(0, 0, 0, 0)
        self.request_id = request_id

    @functools.cached_property
    def results(self) -> Tuple[_T, ...]:
        """Made when one is looked at first."""
        read = self._read
        return tuple([read(row) for row in self._rows])

    def __getstate__(self) -> Dict[str, Any]:
        return {**vars(self), "results": self.results, "_rows": self.results, "_read": None}

    @overload
    def __getitem__(self, index: int) -> _T: ...

    @overload
    def __getitem__(self, index: slice) -> Tuple[_T, ...]: ...

    def __getitem__(self, index: Union[int, slice]) -> Union[_T, Tuple[_T, ...]]:
        return self.results[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self.model!r}, version={self.version}, results={self.results!r})"


def joined(responses: Sequence[Response[_T]]) -> Response[_T]:
    """The responses of calls with parts of a request, as if there were one."""
    whole = copy.copy(responses[0])
    whole.results = whole._rows = tuple(itertools.chain.from_iterable(responses))
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

    max_sequence_tokens: int


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


_FINISH_REASONS = ("", "length", "stop")  # by number
# The code for fields that are not as those of the message `{0}`, and for types that are not.
_SPECIAL = {
    "GeneratedText.finish_reason": "_finish_reason({0}.finish_reason)",
    "Hypothesis.alignment": "None",
    "ModelStatus.state": "pb.ModelStatus.State.Name({0}.state)",
    "Floats": "np.array({0}, np.float32)",
    "Ids": "np.array({0}, np.int32)",
    "Tuple[Tuple[Candidate, ...], ...]": "tuple([_candidates(each) for each in {0}])",
}


def _code(of: str, kind: str) -> str:
    """The code that makes a `kind`, a type by its name, of `of`, a message or a field of one."""
    if kind in _SPECIAL:
        return _SPECIAL[kind].format(of)
    if kind.startswith("Tuple["):
        item = _code("each", kind[len("Tuple[") : -len(", ...]")])
        # [:] since an iterator of protobuf ends with an exception, which takes longer than a short list.
        return f"tuple({of})" if item == "each" else f"tuple([{item} for each in {of}[:]])"
    if kind.startswith("Optional["):
        message, _, field = of.rpartition(".")
        made = _code(of, kind[len("Optional[") : -1])
        return f"{made} if {message}.HasField({field!r}) else None"
    if not dataclasses.is_dataclass(globals().get(kind)):
        return of
    names = [(field.name, str(field.type)) for field in dataclasses.fields(globals()[kind])]
    special = {name: _SPECIAL.get(f"{kind}.{name}", "").format(of) for name, _ in names}
    values = [special[name] or _code(f"{of}.{name}", type_of) for name, type_of in names]
    return f"{kind}({', '.join(values)})"


def _reader(kind: Type[_T]) -> Callable[[Any], _T]:
    """What makes a `kind` of a message, whose fields have the same names: a call of its constructor,
    and of those of its parts, written out, since a call may have thousands of rows."""
    read: Callable[[Any], _T] = eval(f"lambda one: {_code('one', kind.__name__)}", globals())
    return read


def _response(kind: Type[_T], field: str) -> Callable[[Any, str], Response[_T]]:
    """What makes a response with a `kind` for each row in the field of a message."""
    read = _reader(kind)
    return lambda message, request_id: Response(getattr(message, field), read, message, request_id)


def _finish_reason(number: int) -> str:
    return _FINISH_REASONS[number] if number < len(_FINISH_REASONS) else str(number)


def _candidates(message: pb.Candidates) -> Tuple[Candidate, ...]:
    return tuple([Candidate(each.token_id, each.text, each.log_prob) for each in message.candidates])


_times = _reader(StageTimes)
_tokenization = _reader(Tokenization)
_translation = _reader(Translation)
_status = _reader(ModelStatus)
_model = _reader(ModelInfo)
classifications = _response(Classification, "classifications")
taggings = _response(Tagging, "taggings")
scores = _response(Score, "scores")
answers = _response(QueryAnswers, "results")
generated_text = _reader(GeneratedText)


def tokenizations(message: pb.TokenizeResponse, request_id: str) -> Tokenizations:
    made = Tokenizations(message.tokenizations, _tokenization, message, request_id)
    made.max_sequence_tokens = message.max_sequence_tokens
    return made


def texts(message: pb.DetokenizeResponse, request_id: str) -> Response[str]:
    return Response(message.texts, str, message, request_id)


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

    made = Encodings(message.encodings, encoding, message, request_id)
    made.results  # a ValueError is one of the call
    return made


def encoded_chunk(message: pb.EncodeStreamResponse, precision: str) -> EncodedChunk:
    encoding = message.encoding
    values = encoding_values(encoding, precision) if message.HasField("encoding") else None
    times = _times(message.times)
    return EncodedChunk(values, encoding.token_count, encoding.unknown_tokens, message.state, times)


def translations(message: pb.TranslateResponse, request_id: str, alignment: bool) -> Response[Translation]:
    def translation(one: pb.Translation) -> Translation:
        made = _translation(one)
        for hypothesis, each in zip(made.hypotheses, one.hypotheses if alignment else ()):
            shape = (-1, one.token_count) if one.token_count else (0, 0)
            values = np.array(each.alignment, np.float32).reshape(shape)
            object.__setattr__(hypothesis, "alignment", values)
        return made

    return Response(message.translations, translation, message, request_id)


def model(message: pb.GetModelResponse, _: str = "") -> ModelInfo:
    return _model(message.model)


def statuses(message: Any, _: str = "") -> Tuple[ModelStatus, ...]:
    return tuple(map(_status, message.statuses))


def models(message: pb.ListModelsResponse, _: str = "") -> Models:
    return Models(tuple(map(_model, message.models)), statuses(message))


def serving_status(message: details_pb2.HealthCheckResponse, _: str = "") -> str:
    return details_pb2.HealthCheckResponse.ServingStatus.Name(message.status)
