#!/usr/bin/env python3
"""Asks an SRU inference server for the answer to a question in texts. Needs Python 3.7 and grpcio.

    python3 answer.py --question="Who wrote Hamlet?" drama.txt
    python3 answer.py --question="When did it end?" --top_n=3 < article.txt
"""

import argparse
import sys

import grpc

import sru_channel
import sru_wire


class Client(sru_channel.Channel):
    """Answers over one connection per server; safe to share between threads."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._answer = self.method("Answer", sru_wire.ANSWER_REQUEST, sru_wire.ANSWER_RESPONSE)

    def answer(
        self,
        queries,
        model="",
        version=0,
        top_n=1,
        max_answer_tokens=0,
        one_per_passage=False,
        no_overlap=False,
        timeout=30,
    ):
        """Returns the answer as a dict (see sru_wire.ANSWER_RESPONSE). Raises grpc.RpcError.

        queries: each a pair of a question and a list of passages, or a dict of sru_wire.QUERY, in
        which a model that asks for tags gets them. A passage may be as long as the server takes.
        Offsets in the answer are those in its passage: "start_char" and "end_char" are those of a
        Python string.
        """
        request = {
            "model": model,
            "version": version,
            "queries": [make_query(query) for query in queries],
            "top_n": top_n,
            "max_answer_tokens": max_answer_tokens,
            "one_per_passage": one_per_passage,
            "no_overlap": no_overlap,
        }
        return self._answer(request, timeout)


def make_query(query):
    if isinstance(query, dict):
        return query
    question, passages = query
    if isinstance(passages, str):
        raise TypeError("passages: expected a list of texts, found a text")
    return {"question": question, "passages": list(passages)}


def marked(answer, passage, context=60):
    """The answer in brackets with what is around it in its passage, in one line."""
    start, end = answer["start_char"], answer["end_char"]
    before = passage[max(0, start - context) : start]
    line = "%s[%s]%s" % (before, passage[start:end], passage[end : end + context])
    return sru_channel.printable(" ".join(line.split()))


def read_passages(files, parser):
    passages = []
    for name in files or ["-"]:
        try:
            if name == "-":
                passages.append(sys.stdin.read())
            else:
                with open(name, encoding="utf-8", newline="") as file:
                    passages.append(file.read())
        except (OSError, UnicodeDecodeError) as error:
            parser.error("%s: %s" % (name, error))
    return passages


def main():
    parser = argparse.ArgumentParser(
        description="Asks an SRU inference server for the answer to a question in texts: score, "
        "probability within its text, file, and the answer in brackets.",
        epilog='example: answer.py --question="Who wrote Hamlet?" drama.txt',
    )
    parser.add_argument("files", nargs="*", help="without any, and for -: standard input")
    parser.add_argument("--question", required=True)
    parser.add_argument("--top_n", type=int, default=1, help="answers, the best first")
    parser.add_argument("--one_per_passage", action="store_true", help="one for each file")
    parser.add_argument("--no_overlap", action="store_true", help="no answers that share words")
    sru_channel.add_flags(parser)
    parser.set_defaults(timeout=30)
    args = parser.parse_args()
    passages = read_passages(args.files, parser)

    client = sru_channel.connect(Client, parser, args)
    try:
        response = client.answer(
            [(args.question, passages)],
            args.model,
            top_n=args.top_n,
            one_per_passage=args.one_per_passage,
            no_overlap=args.no_overlap,
            timeout=args.timeout,
        )
    except grpc.RpcError as error:
        sru_channel.explain(error, args)
        return 1
    finally:
        client.close()
    for answer in response["results"][0]["answers"]:
        place = answer["passage"]
        print(
            "%8.3f  %.4f  %s  %s"
            % (
                answer["log_score"],
                answer["probability"],
                args.files[place] if args.files else "-",
                marked(answer, passages[place]),
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
