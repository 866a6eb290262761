"""Arguments of Python to messages of the contract. Errors are ValueError or TypeError and name the argument."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, Union

import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message as AnyMessage

from .v1 import inference_pb2 as pb

# One input sequence: a text; words that are split already; vocabulary ids; or features, a float array
# [frames, feature_size].
SequenceInput = Union[str, Sequence[str], Sequence[int], "npt.NDArray[Any]"]

Message = TypeVar("Message", bound=AnyMessage)

POOLINGS = tuple(name[len("POOLING_") :].lower() for name in pb.Pooling.keys())  # by number
PRIORITIES = ("", "low", "normal", "high")
PRECISIONS = ("float32", "float16", "bfloat16")
UNKNOWNS = ("", "refuse", "skip", "replace")  # by number
LENGTH_PENALTIES = ("", "gnmt", "power", "none")


@dataclasses.dataclass(frozen=True)
class PassageTags:
    """What the caller knows of each token of one passage, for a reader that asks for it (ModelInfo.reader)."""

    pos_ids: Sequence[int] = ()
    ner_ids: Sequence[int] = ()
    lemmas: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Query:
    """A question and the passages that its answer is looked for in. Tags: none, or one entry per passage."""

    question: str
    passages: Sequence[str]
    passage_tags: Sequence[PassageTags] = ()
    question_lemmas: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How the next token is picked. Zeros are off; without a temperature the most probable token comes each time.

    temperature: 0 = greedy.
    top_k: of the most probable k only.
    top_p: of the fewest that have this probability together.
    min_p: of those at least this fraction as probable as the first.
    seed: fixes the text for good; None = a random one.
    logit_bias: added to the logits of token ids.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 0.0
    min_p: float = 0.0
    seed: Optional[int] = None
    repetition_penalty: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Chunk:
    """A piece of an encode_stream: `sequence`, and whether its answer is to have the state after it."""

    sequence: Optional[SequenceInput] = None
    return_state: bool = False


def make(kind: Type[Message], where: str = "", **fields: Any) -> Message:
    """A message with these fields. The errors of protobuf do not name the field, so they are looked
    for one by one; where: what is before its name."""
    try:
        return kind(**fields)
    except (TypeError, ValueError):
        for name, value in fields.items():
            try:
                kind(**{name: value})
            except (TypeError, ValueError) as error:
                named = TypeError if isinstance(error, TypeError) else ValueError
                raise named(f"{where}{name}: {error}") from None
        raise


def of_arguments(kind: Type[Message], arguments: Mapping[str, Any]) -> Message:
    """The message whose fields have the arguments of the same names; None leaves a field out."""
    given = dict(arguments)
    if "precision" in given:
        form = choose(PRECISIONS, given["precision"], "precision")
        given["output_format"] = pb.OUTPUT_FORMAT_RAW_FLOAT32 + form
    if "length_penalty" in given:
        number: Any = choose(LENGTH_PENALTIES, given["length_penalty"], "length_penalty")
        given["length_penalty"] = make(pb.LengthPenalty, form=number, alpha=given["alpha"])
    names = [name for name in kind.DESCRIPTOR.fields_by_name if name in given]
    for name in CHECKS.keys() & names:
        given[name] = CHECKS[name](given[name], name)
    message = make(kind, **{name: given[name] for name in names if name not in FILLS})
    for name in FILLS.keys() & names:
        fill = fill_ids if kind is pb.DetokenizeRequest else FILLS[name]
        fill(getattr(message, name), given[name])
    return message


def choose(names: Sequence[str], value: str, argument: str) -> int:
    if value not in names:
        expected = ", ".join(name for name in names if name)
        raise ValueError(f"{argument}: expected one of {expected}, found {value!r}")
    return names.index(value)


def fill_sequence(message: pb.Sequence, sequence: SequenceInput, argument: str) -> None:
    if isinstance(sequence, str):
        message.text = text(sequence, argument)
        return
    if isinstance(sequence, (bytes, bytearray)):
        raise TypeError(f"{argument}: expected a text, found bytes; decode them first")
    if isinstance(sequence, np.ndarray):
        _fill_array(message, sequence, argument)
        return
    try:
        values: List[Any] = list(sequence)
    except TypeError:
        found = type(sequence).__name__
        raise TypeError(
            f"{argument}: expected a text, a list of words or of token ids, or an array, found {found}"
        ) from None
    if values and isinstance(values[0], str):
        message.tokens.values.extend(texts(values, argument))
    elif all(isinstance(value, (int, np.integer)) for value in values):
        _fill_ids(message, [int(value) for value in values], argument)
    else:
        _fill_array(message, np.asarray(values), argument)


def _fill_ids(message: pb.Sequence, ids: List[int], argument: str) -> None:
    message.token_ids.SetInParent()
    try:
        message.token_ids.values.extend(ids)
    except ValueError as error:
        raise ValueError(f"{argument}: expected token ids of 32 bits: {error}") from None


def _fill_array(message: pb.Sequence, array: npt.NDArray[Any], argument: str) -> None:
    if array.ndim == 1 and np.issubdtype(array.dtype, np.integer):
        _fill_ids(message, array.tolist(), argument)
    elif array.ndim == 2 and np.issubdtype(array.dtype, np.floating):
        message.features.feature_size = array.shape[1]
        message.features.data = np.ascontiguousarray(array, dtype="<f4").tobytes()
    else:
        raise ValueError(
            f"{argument}: expected token ids [length] or features, floats [frames, feature_size], found an array "
            f"{list(array.shape)} of {array.dtype}"
        )


def fill_sequences(message: Any, sequences: Iterable[SequenceInput]) -> None:
    _not_one(sequences, "sequences")
    add = message.add
    for index, sequence in enumerate(sequences):
        if type(sequence) is str:
            try:
                add(text=sequence)
                continue
            except ValueError:  # fill_sequence() says what is wrong
                pass
        fill_sequence(add(), sequence, f"sequences[{index}]")


def fill_ids(message: Any, sequences: Iterable[Sequence[int]]) -> None:
    for index, sequence in enumerate(sequences):
        filled = pb.Sequence()
        fill_sequence(filled, sequence, f"sequences[{index}]")
        if filled.WhichOneof("input") != "token_ids":
            raise TypeError(f"sequences[{index}]: expected a list of token ids, found {sequence!r}")
        message.add().CopyFrom(filled.token_ids)


def _not_one(values: Any, argument: str) -> None:
    """A text is a sequence of texts to Python, but hardly ever meant as one."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{argument}: expected a list, found a single text; write [text]")


def check_calls(values: Any, batch: int, in_flight: int) -> None:
    """The arguments of translate_all()."""
    _not_one(values, "texts")
    for argument, value in (("batch", batch), ("in_flight", in_flight)):
        if value < 1:
            raise ValueError(f"{argument}: expected at least 1, found {value!r}")


def texts(values: Iterable[str], argument: str) -> List[str]:
    _not_one(values, argument)
    return [text(value, f"{argument}[{index}]") for index, value in enumerate(values)]


def text(value: str, argument: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{argument}: expected a text, found {type(value).__name__}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{argument}: expected Unicode, found {value[error.start:error.end]!r} at {error.start}"
        ) from None
    return value


def fill_sampling(message: pb.Sampling, sampling: Union[Sampling, Mapping[str, Any]]) -> None:
    if not isinstance(sampling, Sampling):
        try:
            sampling = Sampling(**sampling)
        except TypeError as error:
            known = ", ".join(field.name for field in dataclasses.fields(Sampling))
            raise TypeError(f"sampling: expected a Sampling, or a dict of some of {known}: {error}") from None
    message.CopyFrom(make(pb.Sampling, "sampling.", **vars(sampling)))


def stream_chunk(chunk: Union[Chunk, SequenceInput], index: int) -> pb.EncodeStreamRequest:
    if not isinstance(chunk, Chunk):
        chunk = Chunk(chunk)
    request = pb.EncodeStreamRequest(return_state=chunk.return_state)
    if chunk.sequence is not None:
        fill_sequence(request.chunk, chunk.sequence, f"chunks[{index}]")
    elif not chunk.return_state:
        raise ValueError(f"chunks[{index}]: expected a sequence or return_state, found neither")
    return request


def fill_queries(message: Any, queries: Iterable[Union[Query, Tuple[str, Sequence[str]]]]) -> None:
    _not_one(queries, "queries")
    for index, query in enumerate(queries):
        where = f"queries[{index}]"
        if not isinstance(query, Query):
            if isinstance(query, str) or len(query) != 2:
                raise TypeError(f"{where}: expected a Query, or a question and a list of passages")
            query = Query(*query)
        filled = message.add(question=text(query.question, where + ".question"))
        filled.passages.extend(texts(query.passages, where + ".passages"))
        filled.question_lemmas.extend(texts(query.question_lemmas, where + ".question_lemmas"))
        for tags in query.passage_tags:
            filled.passage_tags.add(pos_ids=tags.pos_ids, ner_ids=tags.ner_ids, lemmas=tags.lemmas)


# By the name of an argument: the check whose result becomes the field of that name, and the function that writes the
# argument into a repeated field of messages.
CHECKS: Dict[str, Callable[[Any, str], Any]] = {
    "model": text,
    "priority": functools.partial(choose, PRIORITIES),
    "unknown": functools.partial(choose, UNKNOWNS),
    "pooling": functools.partial(choose, POOLINGS),
    "stop": texts,
    "target_prefixes": texts,
    "states": lambda values, _: list(values),
    "stop_token_ids": lambda values, _: list(values),
}
FILLS: Dict[str, Callable[[Any, Any], None]] = {
    "sequences": fill_sequences,
    "queries": fill_queries,
}
