#!/usr/bin/env python3
"""Has a language model of an SRU inference server go on from a text. Needs Python 3.7 and grpcio.

    python3 generate.py "It was a dark and stormy night"
    python3 generate.py --temperature=0.8 --top_p=0.95 --seed=7 "It was a dark and"
"""

import argparse
import random
import sys
import time

import grpc

import sru_channel
import sru_wire

FINISH_REASONS = ("", "length", "stop")  # by number


class Client(sru_channel.Channel):
    """Generates over one connection per server; safe to share between threads."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._generate = self.stream(
            "Generate", sru_wire.GENERATE_REQUEST, sru_wire.GENERATE_RESPONSE
        )

    def generate(
        self,
        prompt="",
        model="",
        version=0,
        state=b"",
        sampling=None,
        max_new_tokens=200,
        min_new_tokens=0,
        stop=(),
        stop_token_ids=(),
        token_log_probs=False,
        top_candidates=0,
        return_state=False,
        echo=False,
        timeout=300,
        attempts=4,
    ):
        """Yields the answer's messages as they come, as dicts (see sru_wire.GENERATE_RESPONSE).
        Raises grpc.RpcError. To end a text early, close() the generator.

        prompt: a text, or a list of token ids (int) or of tokens (str); empty with a state only.
        state: the "state" of the last message of an earlier call, or of a score, to go on from.
        sampling: a dict of sru_wire.SAMPLING: {"temperature": 0.8, "seed": 7}; "logit_bias" is a
        dict by token id. Without a temperature the most probable token comes each time.

        If the server has to stop in the middle, because it shuts down, the text goes on at another
        one, without a token lost or repeated, as long as not `attempts` calls in a row bring no
        token. The last message has the numbers of tokens of the whole.
        """
        sampling = dict(sampling or {})
        sampling["logit_bias"] = [
            {"key": key, "value": value} for key, value in sampling.get("logit_bias", {}).items()
        ]
        if sampling.get("temperature", 0) > 0:  # what goes on elsewhere is to be the same text
            sampling.setdefault("seed", random.getrandbits(53))
        request = {
            "model": model,
            "version": version,
            "sampling": sampling,
            "max_new_tokens": max_new_tokens,
            "min_new_tokens": min_new_tokens,
            "stop": stop,
            "stop_token_ids": stop_token_ids,
            "token_log_probs": token_log_probs,
            "top_candidates": top_candidates,
            "return_state": return_state,
            "echo": echo,
        }
        if state:
            request["state"] = state
        if len(prompt) or not state:
            request["prompt"] = sru_channel.make_sequence(prompt)
        return self._go_on(request, time.monotonic() + timeout, attempts)

    def _go_on(self, request, deadline, attempts):
        prompt_tokens, generated, in_vain = None, 0, 0
        while True:
            call = self._generate(request, max(0.001, deadline - time.monotonic()))
            state, progress, open_end = b"", False, False
            try:
                for message in call:
                    progress = progress or bool(message["token_ids"])
                    open_end = True
                    request["version"] = message["version"]
                    if message["finish_reason"]:
                        if prompt_tokens is not None:
                            message["prompt_tokens"] = prompt_tokens
                        message["generated_tokens"] += generated
                        yield message
                        return
                    if message["state"]:
                        state, open_end = message["state"], False
                        done = message["generated_tokens"]
                        if prompt_tokens is None:
                            prompt_tokens = message["prompt_tokens"]
                        generated += done
                        message.update(state=b"", prompt_tokens=0, generated_tokens=0)
                        if not message["text"] and not message["token_ids"]:
                            continue
                    yield message
                raise RuntimeError("the call has ended, but its text has no finish_reason")
            except grpc.RpcError as error:
                in_vain = 0 if progress else in_vain + 1
                if (
                    error.code() != grpc.StatusCode.UNAVAILABLE
                    or open_end
                    or in_vain >= attempts
                    or attempts == 1
                ):
                    raise
            finally:
                call.cancel()
            if state:
                request.pop("prompt", None)
                request.update(state=state, echo=False)
                request["min_new_tokens"] = max(0, request["min_new_tokens"] - done)
                if request["max_new_tokens"]:
                    request["max_new_tokens"] -= done


def main():
    parser = argparse.ArgumentParser(
        description="Has a language model of an SRU inference server go on from a text, and prints "
        "what it writes as it comes.",
        epilog='example: generate.py --temperature=0.8 "It was a dark and stormy night"',
    )
    parser.add_argument("prompt", nargs="?", help="without it: standard input, as it is")
    parser.add_argument("--max_new_tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0, help="0 = the most probable token")
    parser.add_argument("--top_p", type=float, default=0)
    parser.add_argument("--seed", type=int, help="fixes the text for good")
    parser.add_argument("--stop", action="append", default=[], help="end the text before this")
    sru_channel.add_flags(parser)
    parser.set_defaults(timeout=300)
    args = parser.parse_args()
    sampling = {"temperature": args.temperature, "top_p": args.top_p}
    if args.seed is not None:
        sampling["seed"] = args.seed
    client = sru_channel.connect(Client, parser, args)
    try:
        for message in client.generate(
            sys.stdin.read() if args.prompt is None else args.prompt,
            args.model,
            sampling=sampling,
            max_new_tokens=args.max_new_tokens,
            stop=args.stop,
            timeout=args.timeout,
        ):
            text = message["text"]
            sys.stdout.write(sru_channel.printable(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()
        if sys.stdout.isatty():
            print()
    except grpc.RpcError as error:
        sru_channel.explain(error, args)
        return 1
    except KeyboardInterrupt:
        print()
        return 130
    finally:
        client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
