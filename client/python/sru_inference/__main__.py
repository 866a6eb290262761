"""The command line: python -m sru_inference COMMAND, or sru-inference COMMAND; --help lists the commands."""

from __future__ import annotations

import argparse
import itertools
import os
import pathlib
import sys
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional

import numpy as np

from . import __version__, export
from ._requests import LENGTH_PENALTIES, UNKNOWNS
from .client import Client
from .errors import InferenceError, UnavailableError
from .results import Score, SpanAnswer, TagLabel

TEXTS_PER_CALL = 32


def printable(text: str) -> str:
    """Text without the control characters that a terminal would obey."""
    return "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02X}" for c in text)


def shown(text: str) -> str:
    """Text as it is for a file, printable for a terminal."""
    return printable(text) if sys.stdout.isatty() else text


def add_connection_flags(parser: argparse.ArgumentParser, timeout: float) -> None:
    add = parser.add_argument_group("connection").add_argument
    what = "HOST:PORT, or several as IP:PORT,IP:PORT; default: SRU_ADDRESS, or localhost:50051"
    add("--address", default=os.environ.get("SRU_ADDRESS", "localhost:50051"), help=what)
    add("--timeout", type=float, default=timeout, help=f"seconds (default {timeout:g})")
    add("--tls", action="store_true", help="use TLS, as --tls_ca does too")
    add("--tls_ca", help="PEM file with the authorities to trust")
    add("--tls_cert", help="PEM file with this client's certificate")
    add("--tls_key", help="PEM file with its key")
    add("--tls_server_name", default="", help="if it is not that in --address")
    add("--token_file", help="file with the token to send")
    what = "send the token over the network even without TLS: something else encrypts"
    add("--token_without_tls", action="store_true", help=what)
    what = "file with gRPC's JSON on retries and balancing, in place of the package's own"
    add("--service_config", help=what)


def given(args: argparse.Namespace, names: str) -> Dict[str, Any]:
    """The flags with these names, as arguments of a method that has the same."""
    return {name: getattr(args, name) for name in names.split()}


def connect(args: argparse.Namespace) -> Client:
    address: Any = args.address
    if "," in address and not address.startswith(("ipv4:", "ipv6:")):
        address = address.split(",")
    options = []
    if args.service_config:
        options.append(("grpc.service_config", pathlib.Path(args.service_config).read_text(encoding="utf-8")))
    names = "timeout tls tls_ca tls_cert tls_key tls_server_name token_file token_without_tls"
    return Client(address, stream_timeout=args.timeout, channel_options=options, **given(args, names))


def lines_of_input() -> Iterator[str]:
    return (line.rstrip("\r\n") for line in sys.stdin)


def slices_of_texts(args: argparse.Namespace) -> Iterator[List[str]]:
    """The texts of the command line, or the lines of standard input that are not blank, in lists for one call each:
    a server refuses calls with too many texts."""
    texts = iter(args.texts or (line.strip() for line in sys.stdin if line.strip()))
    return iter(lambda: list(itertools.islice(texts, TEXTS_PER_CALL)), [])


def with_probabilities(labels: Iterable[TagLabel]) -> str:
    return ", ".join(f"{label.name} {label.probability:.4f}" for label in labels)


def classify(client: Client, args: argparse.Namespace) -> None:
    for texts in slices_of_texts(args):
        for text, result in zip(texts, client.classify(texts, **given(args, "model unknown top_k"))):
            print("%s  %s" % (with_probabilities(result.labels), text), flush=True)


def tag(client: Client, args: argparse.Namespace) -> None:
    for texts in slices_of_texts(args):
        for result in client.tag(texts, **given(args, "model unknown top_k")):
            for token in result.tokens:
                print("%s  %s" % (with_probabilities(token.labels), shown(token.token)))
            print(flush=True)


def tokenize(client: Client, args: argparse.Namespace) -> None:
    for texts in slices_of_texts(args):
        for result in client.tokenize(texts, **given(args, "model unknown")):
            for token in result.tokens:
                print(f"{token.id}  {token.start_char}-{token.end_char}  {shown(token.text)}")
            print(flush=True)


def detokenize(client: Client, args: argparse.Namespace) -> None:
    print(shown(client.detokenize([args.ids], model=args.model)[0]))


def score(client: Client, args: argparse.Namespace) -> None:
    def line(count: int, scored: int, log_prob: float, text: str) -> str:
        total = Score(count, scored, log_prob, np.zeros(0, np.float32), (), b"", 0)
        figures = [log_prob if scored else None, total.bits_per_token, total.perplexity]
        columns = [f"{'-':>{width}}" if figure is None else f"{figure:{width}.{digits}f}"
                   for figure, width, digits in zip(figures, (12, 10, 10), (3, 4, 3))]  # fmt: skip
        return "%6d %s  %s" % (count, " ".join(columns), text.strip())

    texts: Iterable[str] = args.texts
    if not args.texts:
        texts = sys.stdin if args.carry else (text for text in lines_of_input() if text.strip())
    state, version, totals = b"", 0, (0, 0, 0.0)
    for text in texts:
        states = [state] if state else []
        options = {"version": version, "states": states, "return_states": args.carry}
        response = client.score([text], **options, **given(args, "model unknown"))
        result = response[0]
        if args.carry:  # a version that is loaded meanwhile could not go on from this state
            state, version = result.state, response.version
        totals = (totals[0] + result.token_count, totals[1] + result.scored_count, totals[2] + result.log_prob)
        print(line(result.token_count, result.scored_count, result.log_prob, text))
    print(line(*totals, "total"))


def generate(client: Client, args: argparse.Namespace) -> None:
    prompt = sys.stdin.read() if args.prompt is None else args.prompt
    sampling = given(args, "temperature top_p seed")
    with client.generate(prompt, sampling=sampling, **given(args, "model unknown max_new_tokens stop")) as pieces:
        for piece in pieces:
            sys.stdout.write(shown(piece.text))
            sys.stdout.flush()
    if sys.stdout.isatty():
        print()


def marked(answer: SpanAnswer, passage: str, context: int = 60) -> str:
    """The answer in brackets with what is around it in its passage, in one line."""
    start, end = answer.start_char, answer.end_char
    line = f"{passage[max(0, start - context):start]}[{passage[start:end]}]{passage[end:end + context]}"
    return printable(" ".join(line.split()))


def answer(client: Client, args: argparse.Namespace) -> None:
    passages = []
    for name in args.files or ["-"]:
        if name == "-":
            passages.append(sys.stdin.read())
        else:
            with open(name, encoding="utf-8", newline="") as file:
                passages.append(file.read())
    options = given(args, "model unknown top_n one_per_passage no_overlap")
    response = client.answer([(args.question, passages)], **options)
    for span in response[0].answers:
        name = args.files[span.passage] if args.files else "-"
        print(f"{span.log_score:8.3f}  {span.probability:.4f}  {name}  {marked(span, passages[span.passage])}")


def translate(client: Client, args: argparse.Namespace) -> None:
    names = "in_flight model unknown beam_size length_penalty alpha word_penalty max_new_tokens max_length_factor"
    options = given(args, names)
    for text in client.translate_all(args.texts or lines_of_input(), **options):
        print(shown(text), flush=True)


def models(client: Client, args: argparse.Namespace) -> None:
    found = client.models()
    tasks = {(model.name, model.version): model.task for model in found.models}
    for status in found.statuses:
        task = tasks.get((status.model, status.version), "") if status.state == "READY" else ""
        print(f"{status.model}  {status.version or '-'}  {status.state}  {task}  {printable(status.message)}".rstrip())


def health(client: Client, args: argparse.Namespace) -> int:
    status = client.health(args.service)
    print(status)
    return 0 if status == "SERVING" else 1


def _add(commands: Any, run: Callable[[Client, argparse.Namespace], Optional[int]], help_text: str,
         example: str, timeout: float = 10, model: bool = True, texts: bool = False
         ) -> argparse.ArgumentParser:  # fmt: skip
    epilog = f"example: {example}" if example else None
    parser: argparse.ArgumentParser = commands.add_parser(
        run.__name__, help=help_text, description=help_text, epilog=epilog
    )
    parser.set_defaults(run=run)
    if model:
        parser.add_argument("--model", default="", help="may be left out when the server has one")
        parser.add_argument(
            "--unknown", default="", choices=UNKNOWNS[1:], help="words or bytes that the vocabulary does not have"
        )
    add_connection_flags(parser, timeout)
    if texts:
        parser.add_argument("texts", nargs="*", help="without any: one per line of standard input")
    return parser


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sru-inference",
        description="Calls an SRU inference server.",
        epilog="`sru-inference export` exports a PyTorch checkpoint to a server's model repository.",
    )
    parser.add_argument("--version", action="version", version=f"sru-inference {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    example = 'classify --top_k=3 "How many moons does Jupiter have ?"'
    one = _add(commands, classify, "The labels of texts.", example, texts=True)
    one.add_argument("--top_k", type=int, default=1, help="labels per text; 0 = all")

    what = "The labels of each token of texts: a line for each token, and a blank one after each text."
    one = _add(commands, tag, what, 'tag --top_k=3 "New York is large"', texts=True)
    one.add_argument("--top_k", type=int, default=1, help="labels per token")

    what = "The tokens of texts: the id of each and where it stands; and a blank line after each text."
    _add(commands, tokenize, what, 'tokenize --model=trec "Who wrote Hamlet ?"', texts=True)

    one = _add(commands, detokenize, "The text of token ids.", "detokenize --model=trec 17 4 250")
    one.add_argument("ids", nargs="+", type=int)

    what = "How probable texts are: number of tokens, natural logarithm of the probability, bits per token, perplexity."
    one = _add(commands, score, what, 'score --model=war_and_peace "Prince Andrew smiled."', texts=True)
    what = "score the texts as one; lines of standard input with their newlines"
    one.add_argument("--carry", action="store_true", help=what)

    what = "Has a language model go on from a text, and prints what it writes as it comes."
    example = 'generate --temperature=0.8 "It was a dark and stormy night"'
    one = _add(commands, generate, what, example, timeout=300)
    one.add_argument("prompt", nargs="?", help="without it: standard input, as it is")
    one.add_argument("--max_new_tokens", type=int, default=200)
    one.add_argument("--temperature", type=float, default=0, help="0 = the most probable token")
    one.add_argument("--top_p", type=float, default=0)
    one.add_argument("--seed", type=int, help="fixes the text for good")
    one.add_argument("--stop", action="append", default=[], help="end the text before this")

    what = "The answer to a question in texts: score, probability within its text, file, and the answer in brackets."
    one = _add(commands, answer, what, 'answer --question="Who wrote Hamlet?" drama.txt', timeout=30)
    one.add_argument("files", nargs="*", help="without any, and for -: standard input")
    one.add_argument("--question", required=True)
    one.add_argument("--top_n", type=int, default=1, help="answers, the best first")
    one.add_argument("--one_per_passage", action="store_true", help="one for each file")
    one.add_argument("--no_overlap", action="store_true", help="no answers that share words")

    what = "Translates texts, and prints a line for each."
    example = 'translate --beam_size=8 "A ship sails past the old lighthouse."'
    one = _add(commands, translate, what, example, timeout=60, texts=True)
    one.add_argument("--beam_size", type=int, default=0, help="1 = greedy; 0 = the model's own")
    one.add_argument("--length_penalty", default="", choices=LENGTH_PENALTIES)
    one.add_argument("--alpha", type=float, help="strength of the length penalty")
    one.add_argument("--word_penalty", type=float, help="what each token takes from the score")
    one.add_argument("--max_new_tokens", type=int, default=0, help="0 = the model's own")
    one.add_argument("--max_length_factor", type=float, default=0, help="tokens for each one of the text")
    one.add_argument("--in_flight", type=int, default=4, help="calls at a time")

    _add(commands, models, "The models of a server, and their states.", "", model=False)
    one = _add(commands, health, "Whether a server serves; exit code 1 if it does not.", "", model=False)
    one.add_argument("service", nargs="?", default="", help="without it: the server as a whole")
    return parser


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs a command and returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["export"]:  # has flags of its own
        return export.main(arguments[1:])
    parser = make_parser()
    args = parser.parse_args(arguments)
    try:
        client = connect(args)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    try:
        return args.run(client, args) or 0
    except InferenceError as error:
        print(error, file=sys.stderr)
        if isinstance(error, UnavailableError):
            print(f"  is the server running at {args.address}? Start it with: make serve", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
        return 130
    finally:
        client.close()


if __name__ == "__main__":
    sys.exit(main())
