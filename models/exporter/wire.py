"""The few messages of sru.v1.InferenceService that --verify and --check need, without generated code."""

import struct


def varint(value):
    data = bytearray()
    while value > 0x7f:
        data.append(value & 0x7f | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def field(number, value):
    """One field: an integer, bytes or text."""
    if isinstance(value, str):
        value = value.encode("utf-8")
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(int(value))


def sequence(value):
    """A Sequence: a text, a list of ids, or (features as bytes, their width)."""
    if isinstance(value, str):
        return field(1, value)
    if isinstance(value, tuple):
        return field(4, field(1, value[0]) + field(2, value[1]))
    return field(3, field(1, b"".join(map(varint, value))))


def parse(data):
    """{number: [values]} of a message: integers, or the bytes of fixed and length-delimited fields."""
    def read_varint():
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            value |= (byte & 0x7f) << shift
            position, shift = position + 1, shift + 7
            if byte < 0x80:
                return value

    fields, position = {}, 0
    while position < len(data):
        key = read_varint()
        kind = key & 7
        if kind == 0:
            value = read_varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or read_varint()
            value = data[position:position + size]
            position += size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def floats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def classify(model, value):
    return field(1, model) + field(3, sequence(value))


def read_logits(data):
    """The logits of the first classification, in the order of the labels."""
    labels = [parse(label) for label in parse(parse(data)[3][0]).get(1, [])]
    logits = [0.0] * len(labels)
    for label in labels:
        logits[label.get(2, [0])[0]] = floats(label[4][0])[0] if 4 in label else 0.0
    return logits


def encode(model, value, token_vectors):
    return field(1, model) + field(3, sequence(value)) + field(5, 1 if token_vectors else 0) + field(7, 2)


def read_vectors(data):
    return floats(parse(parse(data)[3][0])[3][0])


def score(model, value):
    return field(1, model) + field(3, sequence(value)) + field(6, 1)


def translate(model, value, beam_size, most):
    return field(1, model) + field(3, sequence(value)) + field(4, beam_size) + field(7, most)


def read_translation(data):
    """(ids of the best translation, whether it ended, its log-probability)."""
    best = parse(parse(parse(data)[3][0])[1][0])
    ids = []
    for packed in best.get(6, []):
        number = shift = 0
        for byte in packed if isinstance(packed, bytes) else varint(packed):
            number |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                ids.append(number)
                number = shift = 0
    return ids, not best.get(7, [0])[0], struct.unpack("<d", best[4][0])[0] if 4 in best else 0.0


def answer(model, question, passage):
    return field(1, model) + field(3, field(1, question) + field(2, passage))


def read_answer(data):
    """[log score, probability] of the best span."""
    best = parse(parse(parse(data)[3][0])[1][0])
    return [struct.unpack("<d", best[7][0])[0] if 7 in best else 0.0, floats(best[8][0])[0] if 8 in best else 0.0]


def read_log_probs(data):
    """The log-probability of each token but the first."""
    return [value for part in parse(parse(data)[3][0]).get(4, []) for value in floats(part)]
