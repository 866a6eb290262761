#!/usr/bin/env python3
"""Has an SRU inference server translate texts. Needs Python 3.7 and grpcio.

    python3 translate.py "A ship sails past the old lighthouse."
    python3 translate.py --beam_size=1 < captions.en > captions.de
"""

import argparse
import itertools
import sys
from concurrent import futures

import grpc

import sru_channel
import sru_wire

LENGTH_PENALTIES = ("", "gnmt", "power", "none")  # by number; "" is the model's own


class Client(sru_channel.Channel):
    """Translates over one connection per server; safe to share between threads."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._translate = self.method(
            "Translate", sru_wire.TRANSLATE_REQUEST, sru_wire.TRANSLATE_RESPONSE
        )

    def translate(
        self,
        sequences,
        model="",
        version=0,
        beam_size=0,
        num_hypotheses=1,
        length_penalty="",
        alpha=None,
        max_new_tokens=0,
        target_prefixes=(),
        return_alignment=False,
        truncate=False,
        timeout=60,
    ):
        """Returns the answer as a dict (see sru_wire.TRANSLATE_RESPONSE). Raises grpc.RpcError.

        sequences: each a text, or a list of token ids (int) or of tokens (str).
        length_penalty: one of LENGTH_PENALTIES. alpha: None = the model's own.
        target_prefixes: none, or for each sequence what its translation begins with.
        Zeros stand for the model's own values.
        """
        if length_penalty not in LENGTH_PENALTIES:
            raise ValueError(
                "length_penalty: expected one of %s, found %r"
                % (", ".join(LENGTH_PENALTIES[1:]), length_penalty)
            )
        penalty = {"form": LENGTH_PENALTIES.index(length_penalty)}
        if alpha is not None:
            penalty["alpha"] = alpha
        request = {
            "model": model,
            "version": version,
            "sequences": [sru_channel.make_sequence(sequence) for sequence in sequences],
            "beam_size": beam_size,
            "length_penalty": penalty,
            "num_hypotheses": num_hypotheses,
            "max_new_tokens": max_new_tokens,
            "target_prefixes": target_prefixes,
            "return_alignment": return_alignment,
            "truncate": truncate,
        }
        return self._translate(request, timeout)

    def translate_all(self, texts, batch=16, in_flight=4, **arguments):
        """Yields the best translation of each of `texts`, which may be any iterable, in order;
        `in_flight` calls of `batch` texts run at the same time. Raises grpc.RpcError."""
        texts = iter(texts)
        with futures.ThreadPoolExecutor(max_workers=in_flight) as pool:
            calls = []
            while True:
                part = list(itertools.islice(texts, batch))
                if part:
                    calls.append(pool.submit(self.translate, part, **arguments))
                if not calls:
                    return
                if not part or len(calls) > in_flight:
                    for translation in calls.pop(0).result()["translations"]:
                        yield translation["hypotheses"][0]["text"]


def alignment(hypothesis, translation):
    """The rows of a hypothesis's alignment: for each of its tokens, how much it looked at each token
    of the source."""
    width = translation["token_count"]
    values = hypothesis["alignment"]
    return [values[row : row + width] for row in range(0, len(values), width)] if width else []


def main():
    parser = argparse.ArgumentParser(
        description="Has an SRU inference server translate texts, and prints a line for each.",
        epilog='example: translate.py --beam_size=8 "A ship sails past the old lighthouse."',
    )
    parser.add_argument("texts", nargs="*", help="without any: one per line of standard input")
    parser.add_argument("--beam_size", type=int, default=0, help="1 = greedy; 0 = the model's own")
    parser.add_argument("--length_penalty", default="", choices=LENGTH_PENALTIES)
    parser.add_argument("--alpha", type=float, help="strength of the length penalty")
    parser.add_argument("--max_new_tokens", type=int, default=0, help="0 = the model's own")
    parser.add_argument("--in_flight", type=int, default=4, help="calls at a time")
    sru_channel.add_flags(parser)
    parser.set_defaults(timeout=60)
    args = parser.parse_args()
    texts = args.texts or (line.rstrip("\r\n") for line in sys.stdin)
    shown = sru_channel.printable if sys.stdout.isatty() else str
    client = sru_channel.connect(Client, parser, args)
    try:
        for text in client.translate_all(
            texts,
            in_flight=args.in_flight,
            model=args.model,
            beam_size=args.beam_size,
            length_penalty=args.length_penalty,
            alpha=args.alpha,
            max_new_tokens=args.max_new_tokens,
            timeout=args.timeout,
        ):
            print(shown(text), flush=True)
    except grpc.RpcError as error:
        sru_channel.explain(error, args)
        return 1
    finally:
        client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
