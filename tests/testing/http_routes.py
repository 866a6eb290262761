"""Every route over HTTP, for the tests that go over all of them. routes_test.py compares the table with /openapi.json, so that none is
forgotten: who adds a route adds its row, with what the tests need of it.
"""

import typing

CALL = "/sru.v1.InferenceService/"


class Route(typing.NamedTuple):
    method: str
    path: str  # MODEL stands for the name of a model, VERSION for a version
    # What is asked, in which the name of the model is "MODEL"; None: no body. Of a route that a program with the bundled models cannot
    # ask, any body.
    body: object = None
    # Bodies in which any value may stand for %s.
    hostile: tuple = ()
    # The words with which a refusal of a model's name begins; "": the request names none.
    names: str = ""
    versions: str = ""  # the same of the version in the path


SEQUENCES = {"model": "MODEL", "sequences": [{"text": "a"}]}
INFER = {"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}
SEQUENCE_BODIES = ('{"sequences":%s}', '{"sequences":[{"text":%s}]}')
INFER_BODIES = ('{"inputs":[{"name":"text","shape":[9],"datatype":"BYTES","data":%s}]}',)
TRANSLATE_BODIES = ('{"source":"en","target":"de","q":%s}', '{"source":"en","target":"de","q":"a","x":%s}')


def calls():
    for name in ("classify", "encode", "score", "tag", "translate", "tokenize"):
        yield Route("POST", "/v1/" + name, SEQUENCES, SEQUENCE_BODIES if name == "classify" else (), "model")
    yield Route("POST", "/v1/detokenize", {"model": "MODEL", "sequences": [{"values": [5]}]}, (), "model")
    yield Route("POST", "/v1/answer", {"model": "MODEL", "queries": [{"question": "a", "passages": ["b"]}]}, (), "model")
    yield Route("POST", "/v1/generate", {"model": "MODEL", "prompt": {"text": "a"}}, (), "model")
    yield Route("GET", "/v1/models")
    yield Route("GET", "/v1/models/MODEL", names="model")


def other_apis():
    yield Route("POST", "/v1/completions", {"model": "MODEL", "prompt": "a"}, ('{"prompt":%s}', '{"prompt":"a","logit_bias":%s}'), "model")
    yield Route("POST", "/v1/embeddings", {"model": "MODEL", "input": "a"}, ('{"input":%s}',), "model")
    yield Route("POST", "/embed", {"model": "MODEL", "inputs": "a"}, ('{"inputs":%s}',), "model")
    yield Route("GET", "/info")
    yield Route("GET", "/health")
    pipelines = ('{"inputs":%s}', '{"inputs":"a","parameters":%s}')
    yield Route("POST", "/pipelines/MODEL", {"inputs": "a"}, pipelines, "model (/pipelines/MODEL)")
    yield Route("POST", "/", {"inputs": "a"}, ('{"inputs":%s}',))
    yield Route("POST", "/tokenize", {"model": "MODEL", "prompt": "a"}, ('{"prompt":%s}',), "model")
    yield Route("POST", "/detokenize", {"model": "MODEL", "tokens": [5]}, ('{"tokens":%s}',), "model")
    yield Route("GET", "/tokenizer_info")


def translations():
    yield Route("POST", "/v2/translate", {"text": ["a"], "target_lang": "de"}, ('{"target_lang":"de","text":%s}',))
    yield Route("GET", "/v2/languages")
    yield Route("POST", "/v2/languages", {})
    for path in ("usage", "glossaries", "glossary-language-pairs"):
        yield Route("GET", "/v2/" + path)
    yield Route("POST", "/translate", {"q": "a", "source": "en", "target": "de"}, TRANSLATE_BODIES)
    yield Route("POST", "/detect", {"q": "a"})
    yield Route("GET", "/languages")
    yield Route("GET", "/frontend/settings")


def open_inference():
    for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/stats"):
        yield Route("GET", path)
    for model, versions in (("/v2/models/MODEL", ""), ("/v2/models/MODEL/versions/VERSION", "version")):
        for path in ("", "/ready", "/config", "/stats"):
            yield Route("GET", model + path, names="name", versions=versions)
        versions = versions and "model_version"
        yield Route("POST", model + "/infer", INFER, () if versions else INFER_BODIES, "model_name", versions)
    for path in ("index", "models/MODEL/load", "models/MODEL/unload"):
        yield Route("POST", "/v2/repository/" + path)


ROUTES = (*calls(), *other_apis(), *translations(), *open_inference())
