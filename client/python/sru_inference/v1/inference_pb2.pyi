from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
FINISH_REASON_LENGTH: FinishReason
FINISH_REASON_STOP: FinishReason
FINISH_REASON_UNSPECIFIED: FinishReason
OUTPUT_FORMAT_FLOATS: OutputFormat
OUTPUT_FORMAT_RAW_BFLOAT16: OutputFormat
OUTPUT_FORMAT_RAW_FLOAT16: OutputFormat
OUTPUT_FORMAT_RAW_FLOAT32: OutputFormat
OUTPUT_FORMAT_UNSPECIFIED: OutputFormat
POOLING_DEFAULT: Pooling
POOLING_FIRST: Pooling
POOLING_LAST: Pooling
POOLING_MAX: Pooling
POOLING_MEAN: Pooling
POOLING_NONE: Pooling
PRIORITY_HIGH: Priority
PRIORITY_LOW: Priority
PRIORITY_NORMAL: Priority
PRIORITY_UNSPECIFIED: Priority
UNKNOWN_DEFAULT: Unknown
UNKNOWN_REFUSE: Unknown
UNKNOWN_REPLACE: Unknown
UNKNOWN_SKIP: Unknown

class AnswerRequest(_message.Message):
    __slots__ = ["max_answer_tokens", "model", "no_overlap", "one_per_passage", "priority", "queries", "top_n", "unknown", "version"]
    MAX_ANSWER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NO_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    ONE_PER_PASSAGE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    TOP_N_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    max_answer_tokens: int
    model: str
    no_overlap: bool
    one_per_passage: bool
    priority: Priority
    queries: _containers.RepeatedCompositeFieldContainer[Query]
    top_n: int
    unknown: Unknown
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., queries: _Optional[_Iterable[_Union[Query, _Mapping]]] = ..., top_n: _Optional[int] = ..., max_answer_tokens: _Optional[int] = ..., priority: _Optional[_Union[Priority, str]] = ..., one_per_passage: bool = ..., no_overlap: bool = ..., unknown: _Optional[_Union[Unknown, str]] = ...) -> None: ...

class AnswerResponse(_message.Message):
    __slots__ = ["model", "results", "times", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    results: _containers.RepeatedCompositeFieldContainer[QueryAnswers]
    times: StageTimes
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., results: _Optional[_Iterable[_Union[QueryAnswers, _Mapping]]] = ..., times: _Optional[_Union[StageTimes, _Mapping]] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ["log_prob", "text", "token_id"]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    log_prob: float
    text: str
    token_id: int
    def __init__(self, token_id: _Optional[int] = ..., text: _Optional[str] = ..., log_prob: _Optional[float] = ...) -> None: ...

class Candidates(_message.Message):
    __slots__ = ["candidates"]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    def __init__(self, candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ...) -> None: ...

class Classification(_message.Message):
    __slots__ = ["labels", "token_count", "truncated", "unknown_tokens"]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    token_count: int
    truncated: bool
    unknown_tokens: int
    def __init__(self, labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ..., token_count: _Optional[int] = ..., truncated: bool = ..., unknown_tokens: _Optional[int] = ...) -> None: ...

class ClassifyRequest(_message.Message):
    __slots__ = ["model", "priority", "sequences", "skip_empty", "top_k", "truncate", "unknown", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SKIP_EMPTY_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    priority: Priority
    sequences: _containers.RepeatedCompositeFieldContainer[Sequence]
    skip_empty: bool
    top_k: int
    truncate: bool
    unknown: Unknown
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., sequences: _Optional[_Iterable[_Union[Sequence, _Mapping]]] = ..., top_k: _Optional[int] = ..., truncate: bool = ..., priority: _Optional[_Union[Priority, str]] = ..., skip_empty: bool = ..., unknown: _Optional[_Union[Unknown, str]] = ...) -> None: ...

class ClassifyResponse(_message.Message):
    __slots__ = ["classifications", "model", "times", "version"]
    CLASSIFICATIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    classifications: _containers.RepeatedCompositeFieldContainer[Classification]
    model: str
    times: StageTimes
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., classifications: _Optional[_Iterable[_Union[Classification, _Mapping]]] = ..., times: _Optional[_Union[StageTimes, _Mapping]] = ...) -> None: ...

class DetokenizeRequest(_message.Message):
    __slots__ = ["model", "sequences", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    sequences: _containers.RepeatedCompositeFieldContainer[TokenIds]
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., sequences: _Optional[_Iterable[_Union[TokenIds, _Mapping]]] = ...) -> None: ...

class DetokenizeResponse(_message.Message):
    __slots__ = ["model", "texts", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., texts: _Optional[_Iterable[str]] = ...) -> None: ...

class EncodeRequest(_message.Message):
    __slots__ = ["model", "normalize", "output_format", "pooling", "priority", "sequences", "skip_empty", "truncate", "unknown", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SKIP_EMPTY_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    normalize: bool
    output_format: OutputFormat
    pooling: Pooling
    priority: Priority
    sequences: _containers.RepeatedCompositeFieldContainer[Sequence]
    skip_empty: bool
    truncate: bool
    unknown: Unknown
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., sequences: _Optional[_Iterable[_Union[Sequence, _Mapping]]] = ..., truncate: bool = ..., pooling: _Optional[_Union[Pooling, str]] = ..., normalize: bool = ..., output_format: _Optional[_Union[OutputFormat, str]] = ..., priority: _Optional[_Union[Priority, str]] = ..., skip_empty: bool = ..., unknown: _Optional[_Union[Unknown, str]] = ...) -> None: ...

class EncodeResponse(_message.Message):
    __slots__ = ["encodings", "model", "times", "version"]
    ENCODINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    encodings: _containers.RepeatedCompositeFieldContainer[Encoding]
    model: str
    times: StageTimes
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., encodings: _Optional[_Iterable[_Union[Encoding, _Mapping]]] = ..., times: _Optional[_Union[StageTimes, _Mapping]] = ...) -> None: ...

class EncodeStreamRequest(_message.Message):
    __slots__ = ["chunk", "return_state", "start"]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    RETURN_STATE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    chunk: Sequence
    return_state: bool
    start: EncodeStreamStart
    def __init__(self, start: _Optional[_Union[EncodeStreamStart, _Mapping]] = ..., chunk: _Optional[_Union[Sequence, _Mapping]] = ..., return_state: bool = ...) -> None: ...

class EncodeStreamResponse(_message.Message):
    __slots__ = ["encoding", "state", "times"]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    encoding: Encoding
    state: bytes
    times: StageTimes
    def __init__(self, encoding: _Optional[_Union[Encoding, _Mapping]] = ..., state: _Optional[bytes] = ..., times: _Optional[_Union[StageTimes, _Mapping]] = ...) -> None: ...

class EncodeStreamStart(_message.Message):
    __slots__ = ["model", "normalize", "output_format", "priority", "state", "unknown", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    normalize: bool
    output_format: OutputFormat
    priority: Priority
    state: bytes
    unknown: Unknown
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., output_format: _Optional[_Union[OutputFormat, str]] = ..., normalize: bool = ..., state: _Optional[bytes] = ..., priority: _Optional[_Union[Priority, str]] = ..., unknown: _Optional[_Union[Unknown, str]] = ...) -> None: ...

class Encoding(_message.Message):
    __slots__ = ["data", "shape", "token_count", "truncated", "unknown_tokens", "values"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    shape: _containers.RepeatedScalarFieldContainer[int]
    token_count: int
    truncated: bool
    unknown_tokens: int
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., values: _Optional[_Iterable[float]] = ..., data: _Optional[bytes] = ..., token_count: _Optional[int] = ..., truncated: bool = ..., unknown_tokens: _Optional[int] = ...) -> None: ...

class Features(_message.Message):
    __slots__ = ["data", "feature_size"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    FEATURE_SIZE_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    feature_size: int
    def __init__(self, data: _Optional[bytes] = ..., feature_size: _Optional[int] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ["echo", "max_new_tokens", "min_new_tokens", "model", "num_samples", "priority", "prompt", "return_state", "sampling", "state", "stop", "stop_token_ids", "token_log_probs", "token_texts", "top_candidates", "unknown", "version"]
    ECHO_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MIN_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    RETURN_STATE_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TEXTS_FIELD_NUMBER: _ClassVar[int]
    TOP_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    echo: bool
    max_new_tokens: int
    min_new_tokens: int
    model: str
    num_samples: int
    priority: Priority
    prompt: Sequence
    return_state: bool
    sampling: Sampling
    state: bytes
    stop: _containers.RepeatedScalarFieldContainer[str]
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    token_log_probs: bool
    token_texts: bool
    top_candidates: int
    unknown: Unknown
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., prompt: _Optional[_Union[Sequence, _Mapping]] = ..., state: _Optional[bytes] = ..., sampling: _Optional[_Union[Sampling, _Mapping]] = ..., max_new_tokens: _Optional[int] = ..., min_new_tokens: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., num_samples: _Optional[int] = ..., token_log_probs: bool = ..., top_candidates: _Optional[int] = ..., return_state: bool = ..., priority: _Optional[_Union[Priority, str]] = ..., echo: bool = ..., token_texts: bool = ..., unknown: _Optional[_Union[Unknown, str]] = ...) -> None: ...

class GenerateResponse(_message.Message):
    __slots__ = ["candidates", "finish_reason", "generated_tokens", "log_probs", "model", "prompt_tokens", "sample", "state", "text", "times", "token_ids", "token_texts", "unknown_tokens", "version"]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TEXTS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    candidates: _containers.RepeatedCompositeFieldContainer[Candidates]
    finish_reason: FinishReason
    generated_tokens: int
    log_probs: _containers.RepeatedScalarFieldContainer[float]
    model: str
    prompt_tokens: int
    sample: int
    state: bytes
    text: str
    times: StageTimes
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    token_texts: _containers.RepeatedScalarFieldContainer[str]
    unknown_tokens: int
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., sample: _Optional[int] = ..., text: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., log_probs: _Optional[_Iterable[float]] = ..., candidates: _Optional[_Iterable[_Union[Candidates, _Mapping]]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ..., state: _Optional[bytes] = ..., prompt_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., times: _Optional[_Union[StageTimes, _Mapping]] = ..., token_texts: _Optional[_Iterable[str]] = ..., unknown_tokens: _Optional[int] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ["model", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class GetModelResponse(_message.Message):
    __slots__ = ["model"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: ModelInfo
    def __init__(self, model: _Optional[_Union[ModelInfo, _Mapping]] = ...) -> None: ...

class Hypothesis(_message.Message):
    __slots__ = ["alignment", "hard_alignment", "log_prob", "score", "text", "token_ids", "token_log_probs", "tokens", "unfinished"]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    HARD_ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    alignment: _containers.RepeatedScalarFieldContainer[float]
    hard_alignment: _containers.RepeatedScalarFieldContainer[int]
    log_prob: float
    score: float
    text: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    token_log_probs: _containers.RepeatedScalarFieldContainer[float]
    tokens: _containers.RepeatedScalarFieldContainer[str]
    unfinished: bool
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[_Iterable[str]] = ..., score: _Optional[float] = ..., log_prob: _Optional[float] = ..., alignment: _Optional[_Iterable[float]] = ..., token_ids: _Optional[_Iterable[int]] = ..., unfinished: bool = ..., hard_alignment: _Optional[_Iterable[int]] = ..., token_log_probs: _Optional[_Iterable[float]] = ...) -> None: ...

class Label(_message.Message):
    __slots__ = ["index", "logit", "name", "probability"]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LOGIT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    index: int
    logit: float
    name: str
    probability: float
    def __init__(self, name: _Optional[str] = ..., index: _Optional[int] = ..., probability: _Optional[float] = ..., logit: _Optional[float] = ...) -> None: ...

class LengthPenalty(_message.Message):
    __slots__ = ["alpha", "form"]
    class Form(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    FORM_GNMT: LengthPenalty.Form
    FORM_NONE: LengthPenalty.Form
    FORM_POWER: LengthPenalty.Form
    FORM_UNSPECIFIED: LengthPenalty.Form
    alpha: float
    form: LengthPenalty.Form
    def __init__(self, form: _Optional[_Union[LengthPenalty.Form, str]] = ..., alpha: _Optional[float] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ["models", "statuses"]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelInfo]
    statuses: _containers.RepeatedCompositeFieldContainer[ModelStatus]
    def __init__(self, models: _Optional[_Iterable[_Union[ModelInfo, _Mapping]]] = ..., statuses: _Optional[_Iterable[_Union[ModelStatus, _Mapping]]] = ...) -> None: ...

class ModelInfo(_message.Message):
    __slots__ = ["backend", "backend_description", "bidirectional", "description", "dtype", "hidden_size", "input_size", "instances", "labels", "max_sequence_tokens", "name", "num_layers", "output_size", "parameter_count", "pooling", "preprocessing", "reader", "task", "translator", "version", "vocabulary_size"]
    BACKEND_DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    BIDIRECTIONAL_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    INPUT_SIZE_FIELD_NUMBER: _ClassVar[int]
    INSTANCES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MAX_SEQUENCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_SIZE_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_COUNT_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    PREPROCESSING_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    TRANSLATOR_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    backend: str
    backend_description: str
    bidirectional: bool
    description: str
    dtype: str
    hidden_size: int
    input_size: int
    instances: int
    labels: _containers.RepeatedScalarFieldContainer[str]
    max_sequence_tokens: int
    name: str
    num_layers: int
    output_size: int
    parameter_count: int
    pooling: Pooling
    preprocessing: str
    reader: ReaderInfo
    task: str
    translator: TranslatorInfo
    version: int
    vocabulary_size: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., description: _Optional[str] = ..., input_size: _Optional[int] = ..., output_size: _Optional[int] = ..., hidden_size: _Optional[int] = ..., num_layers: _Optional[int] = ..., bidirectional: bool = ..., pooling: _Optional[_Union[Pooling, str]] = ..., labels: _Optional[_Iterable[str]] = ..., vocabulary_size: _Optional[int] = ..., preprocessing: _Optional[str] = ..., max_sequence_tokens: _Optional[int] = ..., backend: _Optional[str] = ..., backend_description: _Optional[str] = ..., dtype: _Optional[str] = ..., instances: _Optional[int] = ..., parameter_count: _Optional[int] = ..., task: _Optional[str] = ..., reader: _Optional[_Union[ReaderInfo, _Mapping]] = ..., translator: _Optional[_Union[TranslatorInfo, _Mapping]] = ...) -> None: ...

class ModelStatus(_message.Message):
    __slots__ = ["message", "model", "state", "version"]
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = []
    FAILED: ModelStatus.State
    LOADING: ModelStatus.State
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    READY: ModelStatus.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_UNSPECIFIED: ModelStatus.State
    UNLOADING: ModelStatus.State
    VERSION_FIELD_NUMBER: _ClassVar[int]
    message: str
    model: str
    state: ModelStatus.State
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., state: _Optional[_Union[ModelStatus.State, str]] = ..., message: _Optional[str] = ...) -> None: ...

class PassageTags(_message.Message):
    __slots__ = ["lemmas", "ner_ids", "pos_ids"]
    LEMMAS_FIELD_NUMBER: _ClassVar[int]
    NER_IDS_FIELD_NUMBER: _ClassVar[int]
    POS_IDS_FIELD_NUMBER: _ClassVar[int]
    lemmas: _containers.RepeatedScalarFieldContainer[str]
    ner_ids: _containers.RepeatedScalarFieldContainer[int]
    pos_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, pos_ids: _Optional[_Iterable[int]] = ..., ner_ids: _Optional[_Iterable[int]] = ..., lemmas: _Optional[_Iterable[str]] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ["passage_tags", "passages", "question", "question_lemmas"]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    PASSAGE_TAGS_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    QUESTION_LEMMAS_FIELD_NUMBER: _ClassVar[int]
    passage_tags: _containers.RepeatedCompositeFieldContainer[PassageTags]
    passages: _containers.RepeatedScalarFieldContainer[str]
    question: str
    question_lemmas: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, question: _Optional[str] = ..., passages: _Optional[_Iterable[str]] = ..., passage_tags: _Optional[_Iterable[_Union[PassageTags, _Mapping]]] = ..., question_lemmas: _Optional[_Iterable[str]] = ...) -> None: ...

class QueryAnswers(_message.Message):
    __slots__ = ["answers", "token_count", "unknown_tokens"]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    answers: _containers.RepeatedCompositeFieldContainer[SpanAnswer]
    token_count: int
    unknown_tokens: int
    def __init__(self, answers: _Optional[_Iterable[_Union[SpanAnswer, _Mapping]]] = ..., token_count: _Optional[int] = ..., unknown_tokens: _Optional[int] = ...) -> None: ...

class ReaderInfo(_message.Message):
    __slots__ = ["features", "max_answer_tokens", "ner_size", "pos_size"]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    MAX_ANSWER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NER_SIZE_FIELD_NUMBER: _ClassVar[int]
    POS_SIZE_FIELD_NUMBER: _ClassVar[int]
    features: _containers.RepeatedScalarFieldContainer[str]
    max_answer_tokens: int
    ner_size: int
    pos_size: int
    def __init__(self, features: _Optional[_Iterable[str]] = ..., pos_size: _Optional[int] = ..., ner_size: _Optional[int] = ..., max_answer_tokens: _Optional[int] = ...) -> None: ...

class Sampling(_message.Message):
    __slots__ = ["frequency_penalty", "logit_bias", "min_p", "presence_penalty", "repetition_penalty", "seed", "temperature", "top_k", "top_p"]
    class LogitBiasEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: float
        def __init__(self, key: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    LOGIT_BIAS_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    frequency_penalty: float
    logit_bias: _containers.ScalarMap[int, float]
    min_p: float
    presence_penalty: float
    repetition_penalty: float
    seed: int
    temperature: float
    top_k: int
    top_p: float
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., seed: _Optional[int] = ..., repetition_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., logit_bias: _Optional[_Mapping[int, float]] = ...) -> None: ...

class Score(_message.Message):
    __slots__ = ["candidates", "log_prob", "scored_count", "state", "token_count", "token_log_probs", "token_texts", "unknown_tokens"]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    LOG_PROB_FIELD_NUMBER: _ClassVar[int]
    SCORED_COUNT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TEXTS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    candidates: _containers.RepeatedCompositeFieldContainer[Candidates]
    log_prob: float
    scored_count: int
    state: bytes
    token_count: int
    token_log_probs: _containers.RepeatedScalarFieldContainer[float]
    token_texts: _containers.RepeatedScalarFieldContainer[str]
    unknown_tokens: int
    def __init__(self, token_count: _Optional[int] = ..., scored_count: _Optional[int] = ..., log_prob: _Optional[float] = ..., token_log_probs: _Optional[_Iterable[float]] = ..., candidates: _Optional[_Iterable[_Union[Candidates, _Mapping]]] = ..., state: _Optional[bytes] = ..., unknown_tokens: _Optional[int] = ..., token_texts: _Optional[_Iterable[str]] = ...) -> None: ...

class ScoreRequest(_message.Message):
    __slots__ = ["model", "priority", "return_states", "sequences", "skip_empty", "states", "token_log_probs", "token_texts", "top_candidates", "unknown", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RETURN_STATES_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SKIP_EMPTY_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TEXTS_FIELD_NUMBER: _ClassVar[int]
    TOP_CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    priority: Priority
    return_states: bool
    sequences: _containers.RepeatedCompositeFieldContainer[Sequence]
    skip_empty: bool
    states: _containers.RepeatedScalarFieldContainer[bytes]
    token_log_probs: bool
    token_texts: bool
    top_candidates: int
    unknown: Unknown
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., sequences: _Optional[_Iterable[_Union[Sequence, _Mapping]]] = ..., states: _Optional[_Iterable[bytes]] = ..., return_states: bool = ..., token_log_probs: bool = ..., top_candidates: _Optional[int] = ..., priority: _Optional[_Union[Priority, str]] = ..., skip_empty: bool = ..., token_texts: bool = ..., unknown: _Optional[_Union[Unknown, str]] = ...) -> None: ...

class ScoreResponse(_message.Message):
    __slots__ = ["model", "scores", "times", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    scores: _containers.RepeatedCompositeFieldContainer[Score]
    times: StageTimes
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., scores: _Optional[_Iterable[_Union[Score, _Mapping]]] = ..., times: _Optional[_Union[StageTimes, _Mapping]] = ...) -> None: ...

class Sequence(_message.Message):
    __slots__ = ["features", "text", "token_ids", "tokens"]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    features: Features
    text: str
    token_ids: TokenIds
    tokens: Tokens
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[_Union[Tokens, _Mapping]] = ..., token_ids: _Optional[_Union[TokenIds, _Mapping]] = ..., features: _Optional[_Union[Features, _Mapping]] = ...) -> None: ...

class SpanAnswer(_message.Message):
    __slots__ = ["end_byte", "end_char", "log_score", "passage", "probability", "start_byte", "start_char", "text"]
    END_BYTE_FIELD_NUMBER: _ClassVar[int]
    END_CHAR_FIELD_NUMBER: _ClassVar[int]
    LOG_SCORE_FIELD_NUMBER: _ClassVar[int]
    PASSAGE_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    START_BYTE_FIELD_NUMBER: _ClassVar[int]
    START_CHAR_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    end_byte: int
    end_char: int
    log_score: float
    passage: int
    probability: float
    start_byte: int
    start_char: int
    text: str
    def __init__(self, text: _Optional[str] = ..., passage: _Optional[int] = ..., start_byte: _Optional[int] = ..., end_byte: _Optional[int] = ..., start_char: _Optional[int] = ..., end_char: _Optional[int] = ..., log_score: _Optional[float] = ..., probability: _Optional[float] = ...) -> None: ...

class StageTimes(_message.Message):
    __slots__ = ["compute_us", "queue_us", "tokenize_us", "total_us"]
    COMPUTE_US_FIELD_NUMBER: _ClassVar[int]
    QUEUE_US_FIELD_NUMBER: _ClassVar[int]
    TOKENIZE_US_FIELD_NUMBER: _ClassVar[int]
    TOTAL_US_FIELD_NUMBER: _ClassVar[int]
    compute_us: float
    queue_us: float
    tokenize_us: float
    total_us: float
    def __init__(self, tokenize_us: _Optional[float] = ..., queue_us: _Optional[float] = ..., compute_us: _Optional[float] = ..., total_us: _Optional[float] = ...) -> None: ...

class TagLabel(_message.Message):
    __slots__ = ["index", "name", "probability"]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    index: int
    name: str
    probability: float
    def __init__(self, name: _Optional[str] = ..., index: _Optional[int] = ..., probability: _Optional[float] = ...) -> None: ...

class TagRequest(_message.Message):
    __slots__ = ["model", "priority", "sequences", "skip_empty", "top_k", "truncate", "unknown", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SKIP_EMPTY_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    priority: Priority
    sequences: _containers.RepeatedCompositeFieldContainer[Sequence]
    skip_empty: bool
    top_k: int
    truncate: bool
    unknown: Unknown
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., sequences: _Optional[_Iterable[_Union[Sequence, _Mapping]]] = ..., top_k: _Optional[int] = ..., truncate: bool = ..., priority: _Optional[_Union[Priority, str]] = ..., skip_empty: bool = ..., unknown: _Optional[_Union[Unknown, str]] = ...) -> None: ...

class TagResponse(_message.Message):
    __slots__ = ["model", "taggings", "times", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TAGGINGS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    taggings: _containers.RepeatedCompositeFieldContainer[Tagging]
    times: StageTimes
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., taggings: _Optional[_Iterable[_Union[Tagging, _Mapping]]] = ..., times: _Optional[_Union[StageTimes, _Mapping]] = ...) -> None: ...

class Tagging(_message.Message):
    __slots__ = ["token_count", "tokens", "truncated", "unknown_tokens"]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    token_count: int
    tokens: _containers.RepeatedCompositeFieldContainer[TokenTags]
    truncated: bool
    unknown_tokens: int
    def __init__(self, tokens: _Optional[_Iterable[_Union[TokenTags, _Mapping]]] = ..., token_count: _Optional[int] = ..., truncated: bool = ..., unknown_tokens: _Optional[int] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ["end_byte", "end_char", "id", "start_byte", "start_char", "text"]
    END_BYTE_FIELD_NUMBER: _ClassVar[int]
    END_CHAR_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    START_BYTE_FIELD_NUMBER: _ClassVar[int]
    START_CHAR_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    end_byte: int
    end_char: int
    id: int
    start_byte: int
    start_char: int
    text: str
    def __init__(self, id: _Optional[int] = ..., text: _Optional[str] = ..., start_byte: _Optional[int] = ..., end_byte: _Optional[int] = ..., start_char: _Optional[int] = ..., end_char: _Optional[int] = ...) -> None: ...

class TokenIds(_message.Message):
    __slots__ = ["values"]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, values: _Optional[_Iterable[int]] = ...) -> None: ...

class TokenTags(_message.Message):
    __slots__ = ["end_byte", "end_char", "labels", "start_byte", "start_char", "token"]
    END_BYTE_FIELD_NUMBER: _ClassVar[int]
    END_CHAR_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    START_BYTE_FIELD_NUMBER: _ClassVar[int]
    START_CHAR_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    end_byte: int
    end_char: int
    labels: _containers.RepeatedCompositeFieldContainer[TagLabel]
    start_byte: int
    start_char: int
    token: str
    def __init__(self, token: _Optional[str] = ..., labels: _Optional[_Iterable[_Union[TagLabel, _Mapping]]] = ..., start_byte: _Optional[int] = ..., end_byte: _Optional[int] = ..., start_char: _Optional[int] = ..., end_char: _Optional[int] = ...) -> None: ...

class Tokenization(_message.Message):
    __slots__ = ["tokens", "unknown_tokens"]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[Token]
    unknown_tokens: int
    def __init__(self, tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., unknown_tokens: _Optional[int] = ...) -> None: ...

class TokenizeRequest(_message.Message):
    __slots__ = ["model", "sequences", "unknown", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    sequences: _containers.RepeatedCompositeFieldContainer[Sequence]
    unknown: Unknown
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., sequences: _Optional[_Iterable[_Union[Sequence, _Mapping]]] = ..., unknown: _Optional[_Union[Unknown, str]] = ...) -> None: ...

class TokenizeResponse(_message.Message):
    __slots__ = ["max_sequence_tokens", "model", "tokenizations", "version"]
    MAX_SEQUENCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKENIZATIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    max_sequence_tokens: int
    model: str
    tokenizations: _containers.RepeatedCompositeFieldContainer[Tokenization]
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., tokenizations: _Optional[_Iterable[_Union[Tokenization, _Mapping]]] = ..., max_sequence_tokens: _Optional[int] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ["values"]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class TranslateRequest(_message.Message):
    __slots__ = ["beam_size", "length_penalty", "max_length_factor", "max_new_tokens", "model", "num_hypotheses", "priority", "return_alignment", "return_hard_alignment", "return_token_log_probs", "sequences", "target_prefixes", "truncate", "unknown", "version", "word_penalty"]
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FACTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NUM_HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RETURN_ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    RETURN_HARD_ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    RETURN_TOKEN_LOG_PROBS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    TARGET_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    WORD_PENALTY_FIELD_NUMBER: _ClassVar[int]
    beam_size: int
    length_penalty: LengthPenalty
    max_length_factor: float
    max_new_tokens: int
    model: str
    num_hypotheses: int
    priority: Priority
    return_alignment: bool
    return_hard_alignment: bool
    return_token_log_probs: bool
    sequences: _containers.RepeatedCompositeFieldContainer[Sequence]
    target_prefixes: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    unknown: Unknown
    version: int
    word_penalty: float
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., sequences: _Optional[_Iterable[_Union[Sequence, _Mapping]]] = ..., beam_size: _Optional[int] = ..., length_penalty: _Optional[_Union[LengthPenalty, _Mapping]] = ..., num_hypotheses: _Optional[int] = ..., max_new_tokens: _Optional[int] = ..., return_alignment: bool = ..., target_prefixes: _Optional[_Iterable[str]] = ..., priority: _Optional[_Union[Priority, str]] = ..., truncate: bool = ..., word_penalty: _Optional[float] = ..., max_length_factor: _Optional[float] = ..., return_hard_alignment: bool = ..., return_token_log_probs: bool = ..., unknown: _Optional[_Union[Unknown, str]] = ...) -> None: ...

class TranslateResponse(_message.Message):
    __slots__ = ["model", "times", "translations", "version"]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    TRANSLATIONS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    model: str
    times: StageTimes
    translations: _containers.RepeatedCompositeFieldContainer[Translation]
    version: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[int] = ..., translations: _Optional[_Iterable[_Union[Translation, _Mapping]]] = ..., times: _Optional[_Union[StageTimes, _Mapping]] = ...) -> None: ...

class Translation(_message.Message):
    __slots__ = ["hypotheses", "source_tokens", "token_count", "truncated", "unknown_tokens"]
    HYPOTHESES_FIELD_NUMBER: _ClassVar[int]
    SOURCE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_TOKENS_FIELD_NUMBER: _ClassVar[int]
    hypotheses: _containers.RepeatedCompositeFieldContainer[Hypothesis]
    source_tokens: _containers.RepeatedScalarFieldContainer[str]
    token_count: int
    truncated: bool
    unknown_tokens: int
    def __init__(self, hypotheses: _Optional[_Iterable[_Union[Hypothesis, _Mapping]]] = ..., token_count: _Optional[int] = ..., truncated: bool = ..., source_tokens: _Optional[_Iterable[str]] = ..., unknown_tokens: _Optional[int] = ...) -> None: ...

class TranslatorInfo(_message.Message):
    __slots__ = ["beam_size", "length_penalty", "max_length_factor", "max_new_tokens", "max_positions", "source_language", "target_language", "target_vocabulary_size", "word_penalty"]
    BEAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FACTOR_FIELD_NUMBER: _ClassVar[int]
    MAX_NEW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    WORD_PENALTY_FIELD_NUMBER: _ClassVar[int]
    beam_size: int
    length_penalty: LengthPenalty
    max_length_factor: float
    max_new_tokens: int
    max_positions: int
    source_language: str
    target_language: str
    target_vocabulary_size: int
    word_penalty: float
    def __init__(self, beam_size: _Optional[int] = ..., length_penalty: _Optional[_Union[LengthPenalty, _Mapping]] = ..., max_new_tokens: _Optional[int] = ..., target_vocabulary_size: _Optional[int] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., max_positions: _Optional[int] = ..., word_penalty: _Optional[float] = ..., max_length_factor: _Optional[float] = ...) -> None: ...

class Priority(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Unknown(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Pooling(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class OutputFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
