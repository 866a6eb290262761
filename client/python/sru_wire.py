"""The messages of sru/v1/inference.proto that programs in Python need, as dicts, on the wire.

Generated code (see README.md) is the usual way to talk to the server, but it comes from a tool
that has to match the installed version of protobuf, and grpcio does not bring protobuf along. The
wire format is simple and never changes, so this file reads and writes it from a table of fields.
"""

import struct

# message = {field name: (field number, type)}; a type in a list is a repeated field, a dict is a
# message.
TOKENS = {"values": (1, ["string"])}
TOKEN_IDS = {"values": (1, ["int"])}
SEQUENCE = {"text": (1, "string"), "tokens": (2, TOKENS), "token_ids": (3, TOKEN_IDS)}
CLASSIFY_REQUEST = {
    "model": (1, "string"),
    "version": (2, "int"),
    "sequences": (3, [SEQUENCE]),
    "top_k": (4, "int"),
    "truncate": (5, "int"),
    "priority": (6, "int"),
}
LABEL = {
    "name": (1, "string"),
    "index": (2, "int"),
    "probability": (3, "float"),
    "logit": (4, "float"),
}
CLASSIFICATION = {
    "labels": (1, [LABEL]),
    "token_count": (2, "int"),
    "truncated": (3, "int"),
}
STAGE_TIMES = {
    "tokenize_us": (1, "double"),
    "queue_us": (2, "double"),
    "compute_us": (3, "double"),
    "total_us": (4, "double"),
}
CLASSIFY_RESPONSE = {
    "model": (1, "string"),
    "version": (2, "int"),
    "classifications": (3, [CLASSIFICATION]),
    "times": (4, STAGE_TIMES),
}

SCORE_REQUEST = {
    "model": (1, "string"),
    "version": (2, "int"),
    "sequences": (3, [SEQUENCE]),
    "states": (4, ["bytes"]),
    "return_states": (5, "int"),
    "token_log_probs": (6, "int"),
    "top_candidates": (7, "int"),
    "priority": (8, "int"),
}
CANDIDATE = {"token_id": (1, "int"), "text": (2, "string"), "log_prob": (3, "float")}
CANDIDATES = {"candidates": (1, [CANDIDATE])}
SCORE = {
    "token_count": (1, "int"),
    "scored_count": (2, "int"),
    "log_prob": (3, "double"),
    "token_log_probs": (4, ["float"]),
    "candidates": (5, [CANDIDATES]),
    "state": (6, "bytes"),
}
SCORE_RESPONSE = {
    "model": (1, "string"),
    "version": (2, "int"),
    "scores": (3, [SCORE]),
    "times": (4, STAGE_TIMES),
}

# A map is a repeated message of keys and values.
LOGIT_BIAS = {"key": (1, "int"), "value": (2, "float")}
SAMPLING = {
    "temperature": (1, "float"),
    "top_k": (2, "int"),
    "top_p": (3, "float"),
    "min_p": (4, "float"),
    "seed": (5, "int"),
    "repetition_penalty": (6, "float"),
    "presence_penalty": (7, "float"),
    "frequency_penalty": (8, "float"),
    "logit_bias": (9, [LOGIT_BIAS]),
}
GENERATE_REQUEST = {
    "model": (1, "string"),
    "version": (2, "int"),
    "prompt": (3, SEQUENCE),
    "state": (4, "bytes"),
    "sampling": (5, SAMPLING),
    "max_new_tokens": (6, "int"),
    "min_new_tokens": (7, "int"),
    "stop": (8, ["string"]),
    "stop_token_ids": (9, ["int"]),
    "num_samples": (10, "int"),
    "token_log_probs": (11, "int"),
    "top_candidates": (12, "int"),
    "return_state": (13, "int"),
    "priority": (14, "int"),
    "echo": (15, "int"),
}
GENERATE_RESPONSE = {
    "model": (1, "string"),
    "version": (2, "int"),
    "sample": (3, "int"),
    "text": (4, "string"),
    "token_ids": (5, ["int"]),
    "log_probs": (6, ["float"]),
    "candidates": (7, [CANDIDATES]),
    "finish_reason": (8, "int"),
    "state": (9, "bytes"),
    "prompt_tokens": (10, "int"),
    "generated_tokens": (11, "int"),
    "times": (12, STAGE_TIMES),
}

PASSAGE_TAGS = {"pos_ids": (1, ["int"]), "ner_ids": (2, ["int"]), "lemmas": (3, ["string"])}
QUERY = {
    "question": (1, "string"),
    "passages": (2, ["string"]),
    "passage_tags": (3, [PASSAGE_TAGS]),
    "question_lemmas": (4, ["string"]),
}
ANSWER_REQUEST = {
    "model": (1, "string"),
    "version": (2, "int"),
    "queries": (3, [QUERY]),
    "top_n": (4, "int"),
    "max_answer_tokens": (5, "int"),
    "priority": (6, "int"),
    "one_per_passage": (7, "int"),
    "no_overlap": (8, "int"),
}
SPAN_ANSWER = {
    "text": (1, "string"),
    "passage": (2, "int"),
    "start_byte": (3, "int"),
    "end_byte": (4, "int"),
    "start_char": (5, "int"),
    "end_char": (6, "int"),
    "log_score": (7, "double"),
    "probability": (8, "float"),
}
QUERY_ANSWERS = {"answers": (1, [SPAN_ANSWER]), "token_count": (2, "int")}
ANSWER_RESPONSE = {
    "model": (1, "string"),
    "version": (2, "int"),
    "results": (3, [QUERY_ANSWERS]),
    "times": (4, STAGE_TIMES),
}

LENGTH_PENALTY = {"form": (1, "int"), "alpha": (2, "float")}
TRANSLATE_REQUEST = {
    "model": (1, "string"),
    "version": (2, "int"),
    "sequences": (3, [SEQUENCE]),
    "beam_size": (4, "int"),
    "length_penalty": (5, LENGTH_PENALTY),
    "num_hypotheses": (6, "int"),
    "max_new_tokens": (7, "int"),
    "return_alignment": (8, "int"),
    "target_prefixes": (9, ["string"]),
    "priority": (10, "int"),
    "truncate": (11, "int"),
}
HYPOTHESIS = {
    "text": (1, "string"),
    "tokens": (2, ["string"]),
    "score": (3, "double"),
    "log_prob": (4, "double"),
    "alignment": (5, ["float"]),
    "token_ids": (6, ["int"]),
    "unfinished": (7, "int"),
}
TRANSLATION = {
    "hypotheses": (1, [HYPOTHESIS]),
    "token_count": (2, "int"),
    "truncated": (3, "int"),
    "source_tokens": (4, ["string"]),
}
TRANSLATE_RESPONSE = {
    "model": (1, "string"),
    "version": (2, "int"),
    "translations": (3, [TRANSLATION]),
    "times": (4, STAGE_TIMES),
}

_DEFAULTS = {"string": "", "bytes": b"", "int": 0, "float": 0.0, "double": 0.0}
_FORMATS = {"float": "<f", "double": "<d"}


def encode(message, values):
    """The bytes of `values`, a dict by field name. A field that is not in `message` is an error."""
    out = bytearray()
    for name, value in values.items():
        if name not in message:
            raise ValueError("no field %r; there are %s" % (name, ", ".join(message)))
        number, kind = message[name]
        if kind == ["int"]:  # repeated numbers are one field
            packed = bytearray()
            for item in value:
                _write_varint(packed, int(item) & 0xFFFFFFFFFFFFFFFF)
            if packed:
                _encode_field(out, number, "bytes", packed)
        elif isinstance(kind, list):
            for item in value:
                _encode_field(out, number, kind[0], item)
        else:
            _encode_field(out, number, kind, value)
    return bytes(out)


def decode(message, data):
    """The dict for `data`. Fields that are missing get their defaults, unknown ones are skipped."""
    values = {}
    for name, (_, kind) in message.items():
        if isinstance(kind, list):
            values[name] = []
        else:
            values[name] = decode(kind, b"") if isinstance(kind, dict) else _DEFAULTS[kind]
    names = {number: (name, kind) for name, (number, kind) in message.items()}
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        wire_type = key & 7
        if wire_type == 0:
            value, position = _read_varint(data, position)
        else:
            if wire_type == 2:
                size, position = _read_varint(data, position)
            elif wire_type in (1, 5):
                size = 8 if wire_type == 1 else 4
            else:
                raise ValueError("wire type %d at byte %d" % (wire_type, position))
            value = data[position : position + size]
            position += size
            if position > len(data):
                raise ValueError("the message ends inside a field")
        if key >> 3 not in names:
            continue
        name, kind = names[key >> 3]
        if isinstance(kind, list) and wire_type == 2 and kind[0] in ("int", "float", "double"):
            values[name].extend(_unpack(kind[0], value))
        elif isinstance(kind, list):
            values[name].append(_decode_value(kind[0], value))
        else:
            values[name] = _decode_value(kind, value)
    return values


def _encode_field(out, number, kind, value):
    if kind == "int":
        _write_varint(out, number << 3)
        _write_varint(out, int(value) & 0xFFFFFFFFFFFFFFFF)
        return
    if isinstance(kind, str) and kind in _FORMATS:
        size = struct.calcsize(_FORMATS[kind])
        _write_varint(out, number << 3 | (5 if size == 4 else 1))
        out += struct.pack(_FORMATS[kind], value)
        return
    if isinstance(kind, dict):
        data = encode(kind, value)
    else:
        data = value.encode("utf-8") if kind == "string" else value
    _write_varint(out, number << 3 | 2)
    _write_varint(out, len(data))
    out += data


def _decode_value(kind, value):
    if isinstance(kind, dict):
        return decode(kind, value)
    if kind == "string":
        return value.decode("utf-8")
    if kind == "bytes":
        return bytes(value)
    if kind in _FORMATS:
        return struct.unpack(_FORMATS[kind], value)[0]
    return value - (1 << 64) if value >= 1 << 63 else value


def _unpack(kind, data):
    """Repeated numbers that are one field."""
    if kind in _FORMATS:
        size = struct.calcsize(_FORMATS[kind])
        if len(data) % size:
            raise ValueError("%d bytes are no whole %ss" % (len(data), kind))
        return [value for (value,) in struct.iter_unpack(_FORMATS[kind], data)]
    values, position = [], 0
    while position < len(data):
        value, position = _read_varint(data, position)
        values.append(_decode_value(kind, value))
    return values


def _write_varint(out, value):
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _read_varint(data, position):
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number without an end at byte %d" % position)
