#!/usr/bin/env python3
"""Asks an SRU inference server how probable texts are. Needs Python 3.7 and grpcio.

    python3 score.py --model=war_and_peace "Prince Andrew smiled." "Prince Andrew smiled at."
    python3 score.py --carry < book.txt          (every line goes on from the one before)
"""

import argparse
import math
import sys

import grpc

import sru_channel
import sru_wire


class Client(sru_channel.Channel):
    """Scores over one connection per server; safe to share between threads."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._score = self.method("Score", sru_wire.SCORE_REQUEST, sru_wire.SCORE_RESPONSE)

    def score(
        self,
        sequences,
        model="",
        version=0,
        states=(),
        return_states=False,
        token_log_probs=False,
        top_candidates=0,
        timeout=10,
    ):
        """Returns the answer as a dict (see sru_wire.SCORE_RESPONSE). Raises grpc.RpcError.

        sequences: each a text, or a list of token ids (int) or of tokens (str).
        states: none, or one for each sequence: b"" where it begins, or the "state" of a score that
        it goes on from.
        """
        request = {
            "model": model,
            "version": version,
            "sequences": [sru_channel.make_sequence(sequence) for sequence in sequences],
            "states": states,
            "return_states": return_states,
            "token_log_probs": token_log_probs,
            "top_candidates": top_candidates,
        }
        return self._score(request, timeout)


def bits_per_token(score):
    """Bits that a scored token costs on average; None for a score without any."""
    if not score["scored_count"]:
        return None
    return -score["log_prob"] / math.log(2) / score["scored_count"]


def perplexity(score):
    """How many tokens the model was undecided between, on average; None likewise."""
    if not score["scored_count"]:
        return None
    return math.exp(-score["log_prob"] / score["scored_count"])


def print_score(score, text):
    if score["scored_count"]:
        figures = ["%12.3f" % score["log_prob"], "%10.4f" % bits_per_token(score)]
        figures.append("%10.3f" % perplexity(score))
    else:
        figures = ["%12s" % "-", "%10s" % "-", "%10s" % "-"]
    print("%6d %s  %s" % (score["token_count"], " ".join(figures), text.strip()))


def main():
    parser = argparse.ArgumentParser(
        description="Asks an SRU inference server how probable texts are: number of tokens, natural "
        "logarithm of the probability, bits per token, perplexity.",
        epilog='example: score.py --model=war_and_peace "Prince Andrew smiled."',
    )
    parser.add_argument("texts", nargs="*", help="without any: one per line of standard input")
    parser.add_argument(
        "--carry",
        action="store_true",
        help="score the texts as one; lines of standard input with their newlines",
    )
    sru_channel.add_flags(parser)
    args = parser.parse_args()
    texts = args.texts or [line for line in sys.stdin if args.carry or line.strip()]
    if not args.carry and not args.texts:
        texts = [line.rstrip("\r\n") for line in texts]

    total = {"token_count": 0, "scored_count": 0, "log_prob": 0.0}
    client = sru_channel.connect(Client, parser, args)
    try:
        state, version = b"", 0
        for text in texts:
            response = client.score(
                [text],
                args.model,
                version,
                states=[state] if state else [],
                return_states=args.carry,
                timeout=args.timeout,
            )
            score = response["scores"][0]
            if args.carry:  # a version that is loaded meanwhile could not go on from this state
                state, version = score["state"], response["version"]
            for name in total:
                total[name] += score[name]
            print_score(score, text)
    except grpc.RpcError as error:
        sru_channel.explain(error, args)
        return 1
    finally:
        client.close()
    print_score(total, "total")
    return 0


if __name__ == "__main__":
    sys.exit(main())
